"""Logs written for the tests: the same kinds as the labelled ones, in other words, versions and surroundings.

Each entry: name, what must come out (`kind`, and fields that must be exact), the log.
"""
# ruff: noqa: E501  # logs stand as they are printed

from __future__ import annotations

STEP = "2026-03-01 10:00:{s:02d},000 INFO trainer step {n} | loss 2.3{n} | lr 1e-4 | tok/s 41000\n"


def steps(first: int, count: int = 4, prefix: str = "") -> str:
    return "".join(prefix + STEP.format(s=n % 60, n=n) for n in range(first, first + count))


def elastic(rank: int, code: int, pid: int = 4711) -> str:
    return (
        "W0301 10:01:00.000000 100 torch/distributed/elastic/multiprocessing/api.py:908] Sending process 4712 closing signal SIGTERM\n"
        f"E0301 10:01:00.500000 100 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: {code}) local_rank: {rank} (pid: {pid}) of binary: /usr/bin/python\n"
        'Traceback (most recent call last):\n  File "/usr/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "============================================================\ntrain.py FAILED\n------------------------------------------------------------\n"
        "Failures:\n  <NO_OTHER_FAILURES>\n------------------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n"
        "  time      : 2026-03-01_10:01:00\n  host      : box\n"
        f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {pid})\n  error_file: <N/A>\n"
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
        "============================================================\n"
    )


TRACE = 'Traceback (most recent call last):\n  File "train.py", line 10, in main\n    loss.backward()\n'
NEW = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 1 has a total capacity of 79.10 GiB of which 1.25 GiB is free. "
    "Process 991 has 10.00 GiB memory in use. Including non-PyTorch memory, this process has 67.84 GiB memory in use. "
    "Of the allocated memory 66.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated."
)
NEW_FIELDS = {"kind": "gpu_oom", "gpu": 1, "tried_mib": 2560.0, "free_mib": 1280.0, "total_mib": 80998.4}

VARIANTS: tuple[tuple[str, dict[str, object], str], ...] = (
    ("torch_new", {**NEW_FIELDS, "rank": None}, steps(1) + TRACE + "torch.OutOfMemoryError: " + NEW + "\n"),
    (
        "torch_json_log",
        NEW_FIELDS,
        '{"ts": "2026-03-01", "level": "ERROR", "message": "step failed", "exc_info": "Traceback (most recent call last):\\n  File \\"t.py\\"\\ntorch.OutOfMemoryError: '
        + NEW
        + '"}\n',
    ),
    (
        "torch_ansi",
        NEW_FIELDS,
        "\x1b[31mtorch.OutOf\x1b[0mMemoryError: \x1b[1mCUDA out of\x1b[0m memory"
        + NEW[len("CUDA out of memory") :]
        + "\n",
    ),
    (
        "torch_wrapped_80",
        NEW_FIELDS,
        "".join(("torch.OutOfMemoryError: " + NEW)[i : i + 80] + "\n" for i in range(0, 420, 80)),
    ),
    (
        "torch_wrapped_words",
        NEW_FIELDS,
        "torch.OutOfMemoryError: "
        + NEW.replace(" has a total", "\nhas a total")
        .replace("is free. ", "is free.\n")
        .replace("this process", "this\n process")
        + "\n",
    ),
    (
        "torch_after_bar",
        NEW_FIELDS,
        "\r 10%|#   | 10/100 [00:10<01:30, 1.0it/s]\r 11%|#   | 11/100 [00:11<01:29, 1.0it/s]"
        + TRACE
        + "torch.cuda.OutOfMemoryError: "
        + NEW,
    ),
    (
        "torch_1_11",
        {"kind": "gpu_oom", "gpu": 2, "tried_mib": 20.0, "free_mib": 3.25, "total_mib": 24268.8},
        TRACE
        + "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 2; 23.70 GiB total capacity; 21.55 GiB already allocated; 3.25 MiB free; 20.00 GiB allowed; 22.01 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.\n",
    ),
    (
        "torch_thc",
        {"kind": "gpu_oom"},
        "THCudaCheck FAIL file=/pytorch/aten/src/THC/generic/THCStorage.cu line=58 error=2 : out of memory\n"
        + TRACE
        + "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58\n",
    ),
    (
        "torch_garbage_sizes",
        {"kind": "gpu_oom", "free_mib": None, "tried_mib": 2048.0},
        TRACE
        + "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.98 GiB of which 17179869180.50 GiB is free. Of the allocated memory 13.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n",
    ),
    ("torch_driver", {"kind": "gpu_oom"}, TRACE + "RuntimeError: CUDA driver error: out of memory\n"),
    (
        "torch_two_ranks",
        {"kind": "gpu_oom", "rank": 5, "gpu": 5},
        steps(1)
        + "".join(
            f'[rank{r}]: Traceback (most recent call last):\n[rank{r}]:   File "t.py", line 1, in f\n[rank{r}]: torch.OutOfMemoryError: '
            + NEW.replace("GPU 1", f"GPU {r}")
            + "\n"
            for r in (5, 7)
        )
        + elastic(5, 1),
    ),
    (
        "third_trains_on",
        {"kind": "gpu_oom", "rank": 5, "gpu": 5},
        steps(1)
        + "".join(
            f'[rank{r}]: Traceback (most recent call last):\n[rank{r}]:   File "t.py", line 1, in f\n[rank{r}]: torch.OutOfMemoryError: '
            + NEW.replace("GPU 1", f"GPU {r}")
            + "\n"
            for r in (5, 7)
        )
        + steps(5, 6, "[rank6]: "),
    ),
    (
        "third_trains_on_unprefixed",
        {"kind": "gpu_oom", "gpu": 5},
        steps(1)
        + "".join(TRACE + "torch.OutOfMemoryError: " + NEW.replace("GPU 1", f"GPU {r}") + "\n" for r in (5, 7))
        + steps(5, 6),
    ),
    (
        "third_replica_trains_on",
        {"kind": "gpu_oom", "gpu": 5},
        steps(1)
        + "".join(
            f'drafter-{r} | Traceback (most recent call last):\ndrafter-{r} |   File "t.py", line 1, in f\ndrafter-{r} | torch.OutOfMemoryError: '
            + NEW.replace("GPU 1", f"GPU {r}")
            + "\n"
            for r in (5, 7)
        )
        + steps(5, 6, "drafter-6 | "),
    ),
    (
        "vllm_wrapper",
        NEW_FIELDS,
        "(EngineCore_DP0 pid=1) ERROR 03-01 10:00:00 [core.py:718] RuntimeError: Worker failed with error '"
        + NEW
        + "', please check the stack trace above for the root cause\nRuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n",
    ),
    (
        "vllm_seq",
        {"kind": "gpu_oom"},
        TRACE
        + "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache (20384). Try increasing `gpu_memory_utilization`.\n",
    ),
    (
        "paddle",
        {"kind": "gpu_oom", "gpu": 0, "tried_mib": 1536.0, "free_mib": 912.5},
        "ResourceExhaustedError: \n\nOut of memory error on GPU 0. Cannot allocate 1.500000GB memory on GPU 0, 78.100000GB memory has been allocated and available memory is only 912.500000MB.\n",
    ),
    (
        "cupy",
        {"kind": "gpu_oom", "tried_mib": 3072.0, "free_mib": None},
        TRACE
        + "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 3,221,225,472 bytes (allocated so far: 91,268,055,040 bytes).\n",
    ),
    ("accelerate_zero", {"kind": "gpu_oom"}, TRACE + "RuntimeError: No executable batch size found, reached zero.\n"),
    (
        "cublas",
        {"kind": "gpu_oom"},
        TRACE + "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n",
    ),
    (
        "jax_new",
        {"kind": "gpu_oom", "tried_mib": 2048.0},
        TRACE
        + "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2147483648 bytes.\n",
    ),
    (
        "hsa",
        {"kind": "gpu_oom", "free_mib": 12.0},
        ":0:rocdevice.cpp:2984: 8123 us: Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources. This error may also occur when the core runtime library needs to spawn threads. Available Free mem : 12 MB\nAborted (core dumped)\n",
    ),
    (
        "slurm_oom",
        {"kind": "host_oom"},
        steps(1)
        + "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed.\nsrun: error: gx-03: task 2: Out Of Memory\nslurmstepd: error: *** STEP 4711.0 ON gx-03 CANCELLED AT 2026-03-01T10:01:00 ***\n",
    ),
    (
        "old_kernel_oom",
        {"kind": "host_oom"},
        "[1234.5] Memory cgroup out of memory: Kill process 4711 (python) score 1974 or sacrifice child\nKilled\n",
    ),
    (
        "dataloader_killed",
        {"kind": "host_oom"},
        steps(1) + TRACE + "RuntimeError: DataLoader worker (pid 3302) is killed by signal: Killed. \n",
    ),
    (
        "k8s_oom",
        {"kind": "host_oom"},
        "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n",
    ),
    (
        "plain_memory_error",
        {"kind": "host_oom"},
        'Traceback (most recent call last):\n  File "prep.py", line 3, in <module>\n    x = [0] * n\nMemoryError\n',
    ),
    (
        "shm_torch_file",
        {"kind": "shm_full"},
        TRACE + "RuntimeError: unable to write to file </torch_4711_12_0>: No space left on device (28)\n",
    ),
    ("disk_plain", {"kind": "disk_full"}, steps(1) + TRACE + "OSError: [Errno 28] No space left on device\n"),
    (
        "disk_quota",
        {"kind": "disk_full"},
        TRACE + "OSError: [Errno 122] Disk quota exceeded: '/home/u/ckpt/step_100/model.pt'\n",
    ),
    (
        "disk_writer",
        {"kind": "disk_full"},
        TRACE
        + "RuntimeError: [enforce fail at inline_container.cc:603] . PytorchStreamWriter failed writing file data/12: file write failed\n",
    ),
    (
        "disk_tf",
        {"kind": "disk_full"},
        TRACE
        + "tensorflow.python.framework.errors_impl.ResourceExhaustedError: /ckpt/model.data-00000-of-00001; No space left on device [Op:SaveV2]\n",
    ),
    (
        "xid_79",
        {"kind": "gpu_fault"},
        steps(1)
        + "[Sun Mar  1 10:00:05 2026] NVRM: Xid (PCI:0000:c1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n[rank3]: Traceback (most recent call last):\n[rank3]:   File \"t.py\", line 1, in f\n[rank3]: RuntimeError: CUDA error: unspecified launch failure\n",
    ),
    (
        "xid_after_app",
        {"kind": "gpu_fault"},
        '[rank3]: Traceback (most recent call last):\n[rank3]:   File "t.py", line 1, in f\n[rank3]: RuntimeError: CUDA error: unspecified launch failure\n--- dmesg ---\n[Sun Mar  1 10:00:05 2026] NVRM: Xid (PCI:0000:c1:00): 94, pid=4711, name=python3, Contained: SM (0x1). RST: No, D-RST: No\n',
    ),
    (
        "illegal",
        {"kind": "cuda_error", "rank": 2},
        '[rank2]: Traceback (most recent call last):\n[rank2]:   File "t.py", line 1, in f\n[rank2]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n'
        + elastic(2, 1),
    ),
    (
        "cublas_failed",
        {"kind": "cuda_error"},
        TRACE
        + "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb)`\n",
    ),
    (
        "cublas_not_initialized_alone",
        {"kind": "cuda_error"},
        TRACE + "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`\n",
    ),
    (
        "xid_31",
        {"kind": "cuda_error"},
        "[Sun Mar  1 10:00:05 2026] NVRM: Xid (PCI:0000:c1:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS\n",
    ),
    (
        "watchdog_26",
        {"kind": "collective_timeout", "rank": 1},
        steps(1)
        + "[rank1]:[E301 10:10:00.1 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n[rank1]:[E301 10:10:00.2 ProcessGroupNCCL.cpp:1670] [PG ID 0 PG GUID 0(default_pg) Rank 1] Exception (either an error or timeout) detected by watchdog at work: 7, last enqueued NCCL work: 8, last completed NCCL work: 6.\n"
        + elastic(1, -6),
    ),
    (
        "store_clients",
        {"kind": "collective_timeout"},
        TRACE
        + "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 15/16 clients joined.\n",
    ),
    (
        "gloo_recv",
        {"kind": "collective_timeout"},
        TRACE
        + "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:84] Timed out waiting 1800000ms for recv operation to complete\n",
    ),
    (
        "nccl_remote",
        {"kind": "collective_error", "rank": 4},
        '[rank4]: Traceback (most recent call last):\n[rank4]:   File "t.py", line 1, in f\n[rank4]: torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, remote process exited or there was a network error, NCCL version 2.21.5\n[rank4]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n[rank4]: Last error:\n[rank4]: socketProgress: Connection closed by remote peer box-2<41234>\n',
    ),
    (
        "ib_error",
        {"kind": "collective_error"},
        "gx:1:2 [3] transport/net_ib.cc:1295 NCCL WARN NET/IB: Got completion from peer 10.0.4.19<4791> with error 12, opcode 32601, len 0, vendor err 129\n",
    ),
    (
        "peer_after_code_error",
        {"kind": "code_error", "rank": 0},
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "t.py", line 1, in f\n[rank1]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.4.9]:57000\n[rank0]: Traceback (most recent call last):\n[rank0]:   File "t.py", line 9, in f\n[rank0]: TypeError: forward() got an unexpected keyword argument \'mask\'\n',
    ),
    (
        "zip_truncated",
        {"kind": "checkpoint_error"},
        TRACE + "RuntimeError: PytorchStreamReader failed reading file data/0: file read failed\n",
    ),
    (
        "state_dict",
        {"kind": "checkpoint_error"},
        TRACE
        + "RuntimeError: Error(s) in loading state_dict for Drafter:\n\tsize mismatch for lm_head.weight: copying a param with shape torch.Size([1, 2]) from checkpoint, the shape in current model is torch.Size([3, 2]).\n",
    ),
    ("pickle_lfs", {"kind": "checkpoint_error"}, TRACE + "_pickle.UnpicklingError: invalid load key, 'v'.\n"),
    (
        "checkpoint_gone",
        {"kind": "checkpoint_error"},
        TRACE + "FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/step_690/model.safetensors'\n",
    ),
    (
        "json_data",
        {"kind": "data_error"},
        TRACE + "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n",
    ),
    (
        "loader_keyerror",
        {"kind": "data_error"},
        TRACE
        + "KeyError: Caught KeyError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File \"d.py\", line 2, in f\nKeyError: 'caption_xyz'\n",
    ),
    (
        "parquet",
        {"kind": "data_error"},
        TRACE
        + "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file.\n",
    ),
    (
        "nfs_stale",
        {"kind": "network_error"},
        TRACE + "OSError: [Errno 116] Stale file handle: '/mnt/nfs/shards/00417.tar'\n",
    ),
    (
        "dns",
        {"kind": "network_error"},
        TRACE
        + "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /api/models/x (Caused by NameResolutionError(\"Failed to resolve 'huggingface.co' ([Errno -3] Temporary failure in name resolution)\"))\n",
    ),
    (
        "http_503",
        {"kind": "network_error"},
        TRACE
        + "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://huggingface.co/x\n",
    ),
    (
        "deepspeed_scale",
        {"kind": "numeric"},
        '[2026-03-01 10:00:00,000] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 2, reducing to 1\nTraceback (most recent call last):\n  File "t.py", line 1, in f\nException: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.\n',
    ),
    (
        "fairseq_scale",
        {"kind": "numeric"},
        TRACE
        + "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding. Try lowering the learning rate, using gradient clipping or increasing the batch size.\n",
    ),
    ("nan_for_ever", {"kind": "numeric"}, steps(1) + "".join(f"step {n} | loss nan | lr 1e-4\n" for n in range(5, 12))),
    (
        "typeerror",
        {"kind": "code_error", "rank": None},
        steps(1)
        + "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\nTypeError: forward() missing 1 required positional argument: 'mask'\n",
    ),
    (
        "shapes",
        {"kind": "code_error"},
        TRACE + "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x4096 and 5120x32000)\n",
    ),
    (
        "argparse",
        {"kind": "code_error"},
        "usage: train.py [-h] --data DATA\ntrain.py: error: the following arguments are required: --data\n",
    ),
    (
        "own_module",
        {"kind": "code_error"},
        "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n    import drafter_utils\nModuleNotFoundError: No module named 'drafter_utils'\n",
    ),
    (
        "cannot_import",
        {"kind": "code_error"},
        "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\nImportError: cannot import name 'Foo' from 'drafter' (/w/drafter/__init__.py)\n",
    ),
    (
        "package",
        {"kind": "env_error"},
        "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\nModuleNotFoundError: No module named 'flash_attn'\n",
    ),
    (
        "shared_object",
        {"kind": "env_error"},
        'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    import torch\nImportError: libcudnn.so.9: cannot open shared object file: No such file or directory\n',
    ),
    (
        "old_driver",
        {"kind": "env_error"},
        TRACE
        + "RuntimeError: The NVIDIA driver on your system is too old (found version 12020). Please update your GPU driver.\n",
    ),
    (
        "nvml_mismatch",
        {"kind": "env_error"},
        "Failed to initialize NVML: Driver/library version mismatch\n"
        + TRACE
        + "RuntimeError: No CUDA GPUs are available\n",
    ),
    (
        "port",
        {"kind": "port_in_use"},
        TRACE
        + "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use\n",
    ),
    (
        "slurm_time",
        {"kind": "preempted"},
        steps(1) + "slurmstepd: error: *** JOB 4711 ON gx-03 CANCELLED AT 2026-03-01T06:00:00 DUE TO TIME LIMIT ***\n",
    ),
    (
        "slurm_preempt",
        {"kind": "preempted"},
        steps(1)
        + "slurmstepd: error: *** STEP 4711.0 ON gx-03 CANCELLED AT 2026-03-01T06:00:00 DUE TO PREEMPTION ***\nsrun: error: gx-03: task 0: Terminated\n",
    ),
    ("lightning_sigterm", {"kind": "preempted"}, steps(1) + "[rank: 0] Received SIGTERM: 15\n"),
    (
        "bash_killed",
        {"kind": "killed"},
        steps(1) + "run.sh: line 12: 41234 Killed                  python train.py --config a.yaml\n",
    ),
    (
        "deepspeed_killed",
        {"kind": "killed"},
        steps(1)
        + "[2026-03-01 10:00:05,000] [INFO] [launch.py:335:sigkill_handler] Killing subprocess 4711\n[2026-03-01 10:00:06,000] [ERROR] [launch.py:341:sigkill_handler] ['/usr/bin/python', '-u', 'train.py'] exits with return code = -9\n",
    ),
    ("elastic_killed", {"kind": "killed", "rank": 3}, steps(1) + elastic(3, -9)),
    ("elastic_segv", {"kind": "segfault", "rank": 3}, steps(1) + elastic(3, -11)),
    ("elastic_exit", {"kind": "exit", "rank": 3}, steps(1) + elastic(3, 17)),
    (
        "python_segv",
        {"kind": "segfault"},
        'Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n  File "t.py", line 3 in f\n',
    ),
    ("glibc_heap", {"kind": "segfault"}, steps(1) + "double free or corruption (!prev)\nAborted (core dumped)\n"),
    (
        "sglang_graph_not_oom",
        {"kind": "code_error"},
        TRACE
        + "Exception: Capture cuda graph failed: 'NoneType' object has no attribute 'shape'\nTraceback (most recent call last):\n  File \"a.py\", line 1, in f\nAttributeError: 'NoneType' object has no attribute 'shape'\n",
    ),
    (
        "triton_sram",
        {"kind": "code_error"},
        TRACE
        + "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 245760, Hardware limit: 232448. Reducing block sizes or `num_stages` may help.\n",
    ),
    # Healthy logs
    (
        "retried",
        {"kind": "none"},
        steps(1) + TRACE + "torch.OutOfMemoryError: " + NEW + "\nretrying with half the batch\n" + steps(5),
    ),
    ("skipped_eval", {"kind": "none"}, steps(1) + "WARNING eval failed, skipping: " + NEW + "\n" + steps(5)),
    ("rank_skips_batch", {"kind": "none"}, steps(1) + "[rank3]: WARNING batch skipped: " + NEW + "\n" + steps(5)),
    (
        "appended_attempts",
        {"kind": "none"},
        steps(1)
        + '[rank1]: Traceback (most recent call last):\n[rank1]:   File "t.py", line 1, in f\n[rank1]: torch.OutOfMemoryError: '
        + NEW
        + "\n"
        + elastic(1, 1)
        + "2026-03-01 11:00:00 INFO launcher attempt=2 resuming from step_1\n"
        + steps(2),
    ),
    (
        "dataset_text",
        {"kind": "none"},
        steps(1)
        + '{"prompt": "Why do I get RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 6.00 GiB already allocated; 1.00 GiB free; 6.50 GiB reserved in total by PyTorch)?", "answer": "Lower the batch size."}\n'
        + "sample[3]: 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has'\n",
    ),
    (
        "config_dump",
        {"kind": "none"},
        "Namespace(oom_text='CUDA out of memory. Tried to allocate', retries=3, on_error='RuntimeError: NCCL error in: x')\nretry_on: 'CUDA out of memory. Tried to allocate '\n  oom_pattern: \"torch.OutOfMemoryError: \"\n"
        + steps(1),
    ),
    (
        "own_words",
        {"kind": "none"},
        'supervise: GPU 5 ran out of memory, short by 174 MiB; lowering token_budget 49152 -> 45056\n2026-03-01 [warning] stopping attempt=1 because="GPU 5 ran out of memory" log_line=\'torch.OutOfMemoryError: '
        + NEW
        + "'\n"
        + steps(1),
    ),
    (
        "xla_benign",
        {"kind": "none"},
        "2026-03-01 10:00:00.1: W tsl/framework/bfc_allocator.cc:296] Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.10GiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could be performance gains if more memory were available.\n"
        + steps(1),
    ),
    (
        "overflow_benign",
        {"kind": "none"},
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n" + steps(1),
    ),
    ("nan_once", {"kind": "none"}, "step 3 | loss nan | lr 1e-4\n" + steps(4)),
    (
        "autotune_benign",
        {"kind": "none"},
        "AUTOTUNE mm(8192x4096, 4096x4096)\nRuntimeError: out of resource: shared memory, Required: 245760, Hardware limit: 232448. Ignoring this choice.\n"
        + steps(4),
    ),
    (
        "sigkill_handler_clean",
        {"kind": "none"},
        steps(4) + "[2026-03-01 10:00:06,000] [INFO] [launch.py:351:main] Process 4711 exits successfully.\n",
    ),
    ("port_next", {"kind": "none"}, "OSError: [Errno 98] Address already in use\ntrying port 29501\n" + steps(4)),
    (
        "pytest_names",
        {"kind": "none"},
        "tests/test_oom.py::test_CUDA_out_of_memory PASSED\ntests/test_x.py::test_no_space_left_on_device PASSED\n== 2 passed in 0.1s ==\n",
    ),
    ("git_log", {"kind": "none"}, "3f2a1bc Fix CUDA out of memory. Tried to allocate too much in eval\n" + steps(1)),
    (
        "source_in_log",
        {"kind": "none"},
        "    if \"CUDA out of memory\" in str(e):\n    raise RuntimeError('NCCL error in: ')\n" + steps(1),
    ),
    (
        "store_noise_at_end",
        {"kind": "none"},
        steps(4)
        + "training complete\n[rank3]:[W301 11:00:00.2 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=88, addr=[localhost]:51544, remote=[localhost]:29500): Connection reset by peer\n",
    ),
    (
        "dataloader_del",
        {"kind": "none"},
        steps(1)
        + 'Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>\nTraceback (most recent call last):\n  File "dataloader.py", line 1663, in __del__\n    self._shutdown_workers()\nAssertionError: can only test a child process\n',
    ),
    (
        "hub_retry",
        {"kind": "none"},
        "'(ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out.\"), '(Request ID: 1)')' thrown while requesting HEAD https://huggingface.co/x\nRetrying in 1s [Retry 1/5].\n"
        + steps(1),
    ),
    (
        "memory_summary",
        {"kind": "none"},
        "|            CUDA OOMs: 3            |        cudaMalloc retries: 4         |\n" + steps(1),
    ),
)
