"""More logs written for the tests, in other words than those before: what they show was missed once.

Each entry: name, what must come out (`kind`, and fields that must be exact), the log.
"""
# ruff: noqa: E501  # logs stand as they are printed

from __future__ import annotations

from variant_logs import TRACE


def elastic(rank: int) -> str:
    """How torchrun ends when the worker of this rank has failed without an error file."""
    return (
        f"E0412 22:10:11.120000 4100 site-packages/torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: {rank} (pid: 5150) of binary: /opt/conda/bin/python\n"
        "Traceback (most recent call last):\n"
        '  File "/opt/conda/bin/torchrun", line 33, in <module>\n'
        "    sys.exit(load_entry_point('torch==2.6.0', 'console_scripts', 'torchrun')())\n"
        '  File "/opt/conda/lib/python3.11/site-packages/torch/distributed/run.py", line 918, in main\n'
        "    run(args)\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
        "============================================================\n"
        "train.py FAILED\n"
        "------------------------------------------------------------\n"
        "Failures:\n"
        "  <NO_OTHER_FAILURES>\n"
        "------------------------------------------------------------\n"
        "Root Cause (first observed failure):\n"
        "[0]:\n"
        "  time      : 2026-04-12_22:10:10\n"
        "  host      : nodeA\n"
        f"  rank      : {rank} (local_rank: {rank})\n"
        "  exitcode  : 1 (pid: 5150)\n"
        "  error_file: <N/A>\n"
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
        "============================================================\n"
    )


HELD_OUT: tuple[tuple[str, dict[str, object], str], ...] = (
    (
        "oom_vllm_engine",
        {"kind": "gpu_oom", "gpu": 2, "rank": 2, "tried_mib": 224.0, "free_mib": 104.5, "total_mib": 24166.4},
        "(EngineCore_DP0 pid=5120) INFO 03-02 08:15:50 [core.py:77] Initializing a V1 LLM engine (v0.10.2) with config: model='/m/q', tensor_parallel_size=4\n"
        "(VllmWorker TP2 pid=5133) ERROR 03-02 08:15:56 [multiproc_executor.py:596] WorkerProc failed to start.\n"
        "(VllmWorker TP2 pid=5133) ERROR 03-02 08:15:56 [multiproc_executor.py:596] Traceback (most recent call last):\n"
        '(VllmWorker TP2 pid=5133) ERROR 03-02 08:15:56 [multiproc_executor.py:596]   File "/v/multiproc_executor.py", line 571, in worker_main\n'
        "(VllmWorker TP2 pid=5133) ERROR 03-02 08:15:56 [multiproc_executor.py:596]     worker = WorkerProc(*args, **kwargs)\n"
        "(VllmWorker TP2 pid=5133) ERROR 03-02 08:15:56 [multiproc_executor.py:596] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 2 has a total capacity of 23.60 GiB of which 104.50 MiB is free. Including non-PyTorch memory, this process has 23.49 GiB memory in use. Of the allocated memory 23.00 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.\n"
        "(EngineCore_DP0 pid=5120) ERROR 03-02 08:15:58 [core.py:718] EngineCore failed to start.\n"
        "(EngineCore_DP0 pid=5120) ERROR 03-02 08:15:58 [core.py:718] Traceback (most recent call last):\n"
        "(EngineCore_DP0 pid=5120) ERROR 03-02 08:15:58 [core.py:718]     raise e from None\n"
        "(EngineCore_DP0 pid=5120) ERROR 03-02 08:15:58 [core.py:718] Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.\n"
        "(EngineCore_DP0 pid=5120) Process EngineCore_DP0:\n"
        "(APIServer pid=5101) Traceback (most recent call last):\n"
        '(APIServer pid=5101)   File "/usr/local/bin/vllm", line 10, in <module>\n'
        "(APIServer pid=5101) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n",
    ),
    (
        "oom_jax_hbm_runtime",
        {"kind": "gpu_oom", "tried_mib": 4096.0, "free_mib": 1536.0},
        TRACE
        + "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Attempting to allocate 4.00G. That was not possible. There are 1.50G free.; (0x0x0_HBM0)\n",
    ),
    (
        "oom_jax_tpu_load",
        {"kind": "gpu_oom"},
        TRACE
        + "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Error loading program 'jit_train_step': Attempting to reserve 9.31G at the bottom of memory. That was not possible. There are 7.02G free, 0B reserved, and 6.90G reservable.\n",
    ),
    (
        "cuda_cudnn_noengine",
        {"kind": "cuda_error"},
        TRACE + "RuntimeError: GET was unable to find an engine to execute this computation\n",
    ),
    (
        "ct_jax_heart",
        {"kind": "collective_timeout"},
        "I0302 08:15:01.000001 5101 trainer.py:501] Training: step 41\n"
        "2026-03-02 08:18:15.140058: E external/org_tensorflow/tensorflow/core/distributed_runtime/coordination/coordination_service.cc:954] /job:jax_worker/replica:0/task:6 has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:6 heartbeat timeout. This indicates that the remote task has failed, got preempted, or crashed unexpectedly.\n"
        "2026-03-02 08:18:16.140058: F external/xla/pjrt/distributed/client.h:77] Terminating process because the coordinator detected missing heartbeats.\n",
    ),
    (
        "ct_sglang_watchdog",
        {"kind": "hang"},
        "[2026-03-02 08:15:01 TP0] Watchdog timeout (self.watchdog_timeout=300)\n"
        "[2026-03-02 08:15:06] Received sigquit from a child process. It usually means the child failed.\n"
        "Killed\n",
    ),
    (
        "ce_jax",
        {"kind": "collective_error"},
        TRACE
        + "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: NCCL operation ncclGroupEnd() failed: unhandled system error (run with NCCL_DEBUG=INFO for details). Last NCCL warning(error) log entry (may be unrelated) 'Call to connect to 10.0.0.2<40000> failed : Connection refused'.\n",
    ),
    (
        "ck_ds_zero",
        {"kind": "checkpoint_error"},
        TRACE
        + "deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint being loaded used a DP world size of 16 but the current world size is 8. Automatic adjustment of ZeRO's optimizer state partitioning with a new world size is not currently supported.\n",
    ),
    (
        "ck_megatron",
        {"kind": "checkpoint_error"},
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/app/train.py", line 210, in <module>\n'
        "[rank0]:     main()\n"
        '[rank0]:   File "/app/train.py", line 188, in main\n'
        "[rank0]:     loss = model(**b).loss\n"
        "[rank0]:            ^^^^^^^^^^^^^^\n"
        "[rank0]: megatron.core.dist_checkpointing.core.CheckpointingException: /ckpt/iter_0000010 is not a distributed checkpoint\n",
    ),
    (
        "ck_lightning",
        {"kind": "checkpoint_error"},
        TRACE + "FileNotFoundError: Checkpoint file not found: /out/last.ckpt. Aborting training.\n",
    ),
    (
        "ck_orbax",
        {"kind": "checkpoint_error"},
        TRACE
        + 'ValueError: NOT_FOUND: Error opening "zarr" driver: Metadata at local file "/ckpt/10/default/.zarray" does not exist\n',
    ),
    (
        "ck_orbax2",
        {"kind": "checkpoint_error"},
        TRACE + "FileNotFoundError: No structure could be identified for the checkpoint at /ckpt/300/default.\n",
    ),
    (
        "ck_tf",
        {"kind": "checkpoint_error"},
        TRACE
        + "tensorflow.python.framework.errors_impl.DataLossError: Unable to open table file /ckpt/model.ckpt-1000: Data loss: not an sstable (bad magic number): perhaps your file is in a different file format and you need to use a different restore operator?\n",
    ),
    (
        "data_mosaic",
        {"kind": "data_error"},
        TRACE
        + "ValueError: Checksum failure: Decompressed shard.00012.mds.zstd hash mismatch: got abcd, expected ef01\n",
    ),
    (
        "data_audio",
        {"kind": "data_error"},
        TRACE + "soundfile.LibsndfileError: Error opening '/data/wav/3312.flac': Format not recognised.\n",
    ),
    ("num_lightning", {"kind": "numeric"}, TRACE + "ValueError: The loss returned in `training_step` is inf.\n"),
    (
        "num_keras",
        {"kind": "numeric"},
        "Batch 40: Invalid loss, terminating training\n40/1000 [>....] - ETA: 2:03 - loss: nan\n",
    ),
    ("num_composer", {"kind": "numeric"}, TRACE + "RuntimeError: Train loss contains a NaN.\n"),
    (
        "code_dynamo",
        {"kind": "code_error"},
        TRACE + "torch._dynamo.exc.Unsupported: call_function BuiltinVariable(print) [ConstantVariable()] {}\n",
    ),
    ("code_stopiter", {"kind": "code_error"}, TRACE + "StopIteration\n"),
    (
        "env_ninja",
        {"kind": "env_error"},
        TRACE + "RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)\n",
    ),
    (
        "env_cuda_home",
        {"kind": "env_error"},
        TRACE
        + "deepspeed.ops.op_builder.builder.MissingCUDAException: CUDA_HOME does not exist, unable to compile CUDA op(s)\n",
    ),
    (
        "kill_ray",
        {"kind": "killed"},
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem, check the logs for the dead worker. Lease ID: 04 Worker ID: cd Node ID: 6b Worker IP address: 10.0.0.9 Worker port: 10010 Worker PID: 5140 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the process was killed by the OOM killer due to high memory usage, (2) ray stop --force was called, or (3) the worker crashed unexpectedly due to SIGSEGV or another unexpected error.\n"
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        "\tclass_name: create_colocated_worker_cls.<locals>.WorkerDict\n"
        "\tactor_id: 00ff\n"
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV or other unexpected errors.\n",
    ),
    ("kill_137", {"kind": "killed"}, "make: *** [Makefile:12: train] Error 137\n"),
    (
        "seg_heap",
        {"kind": "segfault"},
        "corrupted double-linked list\nrun.sh: line 3: 41234 Aborted                 (core dumped) python train.py\n",
    ),
    (
        "hang_sf",
        {"kind": "hang"},
        "[2026-03-02 08:15:01,000][5101] No heartbeat for components :InferenceWorker_p0-w0 (300 seconds)\n"
        "[2026-03-02 08:15:01,000][5101] Stopping training due to lack of heartbeats from <class 'InferenceWorker'>\n",
    ),
    (
        "exit_engine",
        {"kind": "exit"},
        '(APIServer pid=5101)   File "/vllm/v1/engine/utils.py", line 900, in wait_for_engine_startup\n'
        "(APIServer pid=5101)     raise RuntimeError(\n"
        "(APIServer pid=5101) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n",
    ),
    (
        "ok_gen_sample",
        {"kind": "none"},
        "Prompt: How do I fix RuntimeError: CUDA error: device-side assert triggered?\n"
        "Response: You should set CUDA_LAUNCH_BLOCKING=1 and look for the index error.\n"
        " [2026-04-12 22:00:11] iteration       10/  250000 | consumed samples:         5120 | elapsed time per iteration (ms): 4120.2 | throughput per GPU (TFLOP/s/GPU): 411.2 | learning rate: 2.9E-04 | global batch size:   512 | lm loss: 2.110000E+00 | loss scale: 1.0 | grad norm: 0.310 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        " [2026-04-12 22:01:11] iteration       11/  250000 | consumed samples:         5632 | elapsed time per iteration (ms): 4120.2 | throughput per GPU (TFLOP/s/GPU): 411.2 | learning rate: 2.9E-04 | global batch size:   512 | lm loss: 2.111000E+00 | loss scale: 1.0 | grad norm: 0.310 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        " [2026-04-12 22:02:11] iteration       12/  250000 | consumed samples:         6144 | elapsed time per iteration (ms): 4120.2 | throughput per GPU (TFLOP/s/GPU): 411.2 | learning rate: 2.9E-04 | global batch size:   512 | lm loss: 2.112000E+00 | loss scale: 1.0 | grad norm: 0.310 | number of skipped iterations:   0 | number of nan iterations:   0 |\n",
    ),
    (
        "ok_optuna",
        {"kind": "none"},
        "[I 2026-02-11 10:10:10] Trial 12 pruned. Trial was pruned at epoch 3.\n"
        "[W 2026-02-11 10:11:10] Trial 13 failed with parameters: {'lr': 0.1} because of the following error: ValueError('The loss returned in `training_step` is nan').\n"
        "[I 2026-02-11 10:12:10] Trial 14 finished with value: 0.31 and parameters: {'lr': 0.01}. Best is trial 14 with value: 0.31.\n"
        "[I 2026-02-11 10:13:10] Trial 15 finished with value: 0.30 and parameters: {'lr': 0.02}. Best is trial 15 with value: 0.30.\n",
    ),
    (
        "oom_cusolver",
        {"kind": "gpu_oom"},
        TRACE
        + "torch._C._LinAlgError: cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`\n",
    ),
    ("oom_cufft", {"kind": "gpu_oom"}, TRACE + "RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED\n"),
    (
        "oom_nvml_smi",
        {"kind": "gpu_oom"},
        "E0211 02:10:01 tensorrt_llm [TensorRT-LLM][ERROR] tensorrt_llm::common::TllmException: [TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMalloc(ptr, n): out of memory (/src/memoryUtils.cu:31)\n",
    ),
    (
        "oom_trt",
        {"kind": "gpu_oom"},
        "[02/11/2026-02:10:01] [TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::145] Error Code 2: OutOfMemory (Requested size was 4294967296 bytes.)\n"
        + TRACE
        + "RuntimeError: engine build failed\n",
    ),
    (
        "host_mmap",
        {"kind": "host_oom"},
        TRACE
        + "RuntimeError: unable to mmap 137438953472 bytes from file </data/m.bin>: Cannot allocate memory (12)\n",
    ),
    (
        "cuda_tf",
        {"kind": "cuda_error"},
        "2026-02-11 02:10:01.1 F tensorflow/core/common_runtime/gpu/gpu_util.cc:340] CPU->GPU Memcpy failed\n"
        "Aborted (core dumped)\n",
    ),
    (
        "disk_tmp",
        {"kind": "disk_full"},
        TRACE
        + "FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp', '/var/tmp', '/usr/tmp', '/app']\n",
    ),
    (
        "ck_frames",
        {"kind": "checkpoint_error"},
        "Traceback (most recent call last):\n"
        '  File "/app/train.py", line 30, in main\n'
        "    start = load_checkpoint(model, opt, path)\n"
        '  File "/app/ckpt.py", line 12, in load_checkpoint\n'
        '    model.load_state_dict(state["model"])\n'
        "KeyError: 'model'\n",
    ),
    (
        "ck_hf_shard",
        {"kind": "checkpoint_error"},
        TRACE
        + "OSError: Error no file named pytorch_model.bin, model.safetensors, tf_model.h5, model.ckpt.index or flax_model.msgpack found in directory /out/checkpoint-300.\n",
    ),
    (
        "ck_dcp_size",
        {"kind": "checkpoint_error"},
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/app/train.py", line 210, in <module>\n'
        "[rank0]:     main()\n"
        '[rank0]:   File "/app/train.py", line 188, in main\n'
        "[rank0]:     loss = model(**batch).loss\n"
        "[rank0]:            ^^^^^^^^^^^^^^\n"
        "[rank0]: ValueError: Size mismatch between saved torch.Size([32000, 4096]) and current: torch.Size([32064, 4096]) for model.embed.weight\n",
    ),
    (
        "ck_flax",
        {"kind": "checkpoint_error"},
        TRACE
        + "ValueError: The target dict keys and state dict keys do not match, target dict contains keys {'lora'} which are not present in state dict at path ./params\n",
    ),
    ("data_files", {"kind": "data_error"}, TRACE + "FileNotFoundError: Unable to find '/data/train.jsonl'\n"),
    ("data_h5", {"kind": "data_error"}, TRACE + "OSError: Can't read data (inflate() failed)\n"),
    (
        "data_keycol",
        {"kind": "data_error"},
        TRACE + "ValueError: Column to remove ['idx'] not in the dataset. Current columns in the dataset: ['text']\n",
    ),
    (
        "num_hf0",
        {"kind": "numeric"},
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.10}\n"
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.11}\n"
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.12}\n"
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.13}\n"
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.14}\n"
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.15}\n"
        "stopped: grad_norm nan for 6 logs\n" + elastic(0),
    ),
    (
        "env_mig",
        {"kind": "env_error"},
        TRACE + "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable\n",
    ),
    (
        "env_apptainer",
        {"kind": "env_error"},
        "FATAL:   could not open image /img/train.sif: failed to retrieve path for /img/train.sif: lstat /img/train.sif: no such file or directory\n",
    ),
    (
        "port_accel",
        {"kind": "port_in_use"},
        TRACE
        + "ConnectionError: Tried to launch distributed communication on port `29500`, but another process is utilizing it. Please specify a different port (such as using the `--main_process_port` flag or specifying a different `main_process_port` in your config file) and rerun your script.\n",
    ),
    (
        "port_ray",
        {"kind": "port_in_use"},
        TRACE
        + "ValueError: Ray component dashboard_agent_http is trying to use a port number 52365 that is used by other components.\n",
    ),
    (
        "exit_mpi",
        {"kind": "exit"},
        "--------------------------------------------------------------------------\n"
        "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
        "the job to be terminated. The first process to do so was:\n"
        "\n"
        "  Process name: [[1,1],3]\n"
        "  Exit code:    1\n"
        "--------------------------------------------------------------------------\n",
    ),
    (
        "oom_vllm_util",
        {"kind": "gpu_oom", "rank": 3, "gpu": 3, "free_mib": 61542.4, "total_mib": 97249.28},
        "(Worker_TP3_EP3 pid=3315) ERROR 02-11 09:10:36 [multiproc_executor.py:741] ValueError: Free memory on device cuda:3 (60.1/94.97 GiB) on startup is less than desired GPU memory utilization (0.9, 85.47 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n"
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n",
    ),
    (
        "code_kw_loader",
        {"kind": "code_error"},
        TRACE + "NameError: Caught NameError in DataLoader worker process 0.\n"
        "Original Traceback (most recent call last):\n"
        '  File "/t/worker.py", line 351, in _worker_loop\n'
        "    data = fetcher.fetch(index)\n"
        "NameError: name 'np' is not defined\n",
    ),
    (
        "ray_actor_exc",
        {"kind": "code_error"},
        "ray.exceptions.RayTaskError(KeyError): ray::WorkerDict.ref_init() (pid=31, ip=10.0.0.1)\n"
        '  File "/v/x.py", line 3, in f\n'
        "    y = d['k']\n"
        "KeyError: 'k'\n",
    ),
    (
        "jax_dnn",
        {"kind": "cuda_error"},
        TRACE
        + "jaxlib.xla_extension.XlaRuntimeError: FAILED_PRECONDITION: DNN library initialization failed. Look at the errors above for more details.\n",
    ),
    (
        "jax_cudnn_oom",
        {"kind": "gpu_oom"},
        "E0211 02:10:01 external/xla/xla/stream_executor/cuda/cuda_dnn.cc:502] Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED\n"
        + TRACE
        + "jaxlib.xla_extension.XlaRuntimeError: FAILED_PRECONDITION: DNN library initialization failed. Look at the errors above for more details.\n",
    ),
    (
        "jax_nvlink_unavail",
        {"kind": "collective_error"},
        TRACE
        + "jax.errors.JaxRuntimeError: UNAVAILABLE: failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.2:1234: Failed to connect to remote host: Connection refused\n",
    ),
    (
        "tf_worker",
        {"kind": "collective_error"},
        TRACE
        + "tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: failed to connect to all addresses\n",
    ),
    (
        "ib_dmesg",
        {"kind": "collective_error"},
        "gx1:31:99 [0] ibvwrap.c:171 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out errno 110\n"
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/app/train.py", line 210, in <module>\n'
        "[rank0]:     main()\n"
        '[rank0]:   File "/app/train.py", line 188, in main\n'
        "[rank0]:     loss = model(**batch).loss\n"
        "[rank0]:            ^^^^^^^^^^^^^^\n"
        "[rank0]: torch.distributed.DistBackendError: NCCL error in: /p/NCCLUtils.cpp:77, unhandled system error, NCCL version 2.26.2\n"
        "[rank0]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n"
        "[rank0]: Last error:\n"
        "[rank0]: Call to ibv_modify_qp failed with error Connection timed out errno 110\n",
    ),
    (
        "vllm_wrapped_only",
        {"kind": "killed"},
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': -9}\n",
    ),
    (
        "unsloth_cuda",
        {"kind": "env_error"},
        TRACE
        + "RuntimeError: CUDA Setup failed despite GPU being available. Please run the following command to get more information:\n"
        "\n"
        "python -m bitsandbytes\n",
    ),
    ("apex", {"kind": "env_error"}, TRACE + "ModuleNotFoundError: No module named 'fused_layer_norm_cuda'\n"),
    (
        "megahelpers",
        {"kind": "env_error"},
        "make: *** No rule to make target 'default'.  Stop.\n"
        "ERROR: Failed to compile the C++ dataset helper functions\n"
        "ERROR:megatron.core.datasets.utils:Failed to compile the C++ dataset helper functions\n",
    ),
    (
        "ckpt_async",
        {"kind": "disk_full"},
        "[titan] 2026-11-13 02:34:10,480 - root - INFO - step:  1  loss:  8.0000  grad_norm:  1.31  memory: 41.10GiB(51.97%)  tps: 7,011  tflops: 311.11  mfu: 31.11%\n"
        "[titan] 2026-11-13 02:34:11,480 - root - INFO - step:  2  loss:  7.9000  grad_norm:  1.31  memory: 41.10GiB(51.97%)  tps: 7,011  tflops: 311.11  mfu: 31.11%\n"
        "[titan] 2026-11-13 02:34:12,480 - root - INFO - step:  3  loss:  7.8000  grad_norm:  1.31  memory: 41.10GiB(51.97%)  tps: 7,011  tflops: 311.11  mfu: 31.11%\n"
        "[titan] 2026-11-13 02:34:13,480 - root - INFO - step:  4  loss:  7.7000  grad_norm:  1.31  memory: 41.10GiB(51.97%)  tps: 7,011  tflops: 311.11  mfu: 31.11%\n"
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/t/state_dict_saver.py", line 3, in save\n'
        "[rank0]: torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0])\n"
        "[rank0]: Traceback (most recent call last): (RANK 0)\n"
        '[rank0]:   File "/t/filesystem.py", line 3, in _write_item\n'
        "[rank0]: OSError: [Errno 28] No space left on device\n",
    ),
    (
        "numeric_ds_bf16",
        {"kind": "numeric"},
        TRACE + "ValueError: Training stopped: non-finite loss encountered at global step 311\n",
    ),
    (
        "mps",
        {"kind": "gpu_oom"},
        TRACE
        + "RuntimeError: MPS backend out of memory (MPS allocated: 17.11 GB, other allocations: 1.02 MB, max allowed: 18.13 GB). Tried to allocate 1.20 GB on private pool.\n",
    ),
    (
        "ok_markdown",
        {"kind": "none"},
        "# Troubleshooting\n"
        "* `CUDA error: device-side assert triggered`: check labels\n"
        "* `RuntimeError: NCCL error in`: see docs\n",
    ),
    (
        "during_handling",
        {"kind": "gpu_oom", "gpu": 0, "tried_mib": 1024.0},
        TRACE
        + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 23.60 GiB of which 500.00 MiB is free. Of the allocated memory 20.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.\n"
        "\n"
        "During handling of the above exception, another exception occurred:\n"
        "\n"
        "Traceback (most recent call last):\n"
        '  File "/a.py", line 3, in g\n'
        "    save_checkpoint()\n"
        "OSError: [Errno 28] No space left on device: '/ckpt/x'\n",
    ),
    (
        "two_errors_first_wins",
        {"kind": "data_error", "rank": 3},
        "[rank3]: Traceback (most recent call last):\n"
        '[rank3]:   File "/app/train.py", line 210, in <module>\n'
        "[rank3]:     main()\n"
        '[rank3]:   File "/app/train.py", line 188, in main\n'
        "[rank3]:     loss = model(**batch).loss\n"
        "[rank3]:            ^^^^^^^^^^^^^^\n"
        "[rank3]: PIL.UnidentifiedImageError: cannot identify image file '/d/x.jpg'\n"
        "[rank0]:[E1113 03:00:00.1 ProcessGroupNCCL.cpp:685] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8841, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=100000) ran for 100012 milliseconds before timing out.\n"
        + elastic(3),
    ),
    (
        "ok_ckpt_corrupt_skip",
        {"kind": "none"},
        "Found corrupt checkpoint /out/step_300 (missing optim.pt), trying /out/step_200\n"
        "Resumed training from /out/step_200\n"
        "[titan] 2026-11-13 02:34:10,480 - root - INFO - step: 200  loss:  8.0000  grad_norm:  1.31  memory: 41.10GiB(51.97%)  tps: 7,011  tflops: 311.11  mfu: 31.11%\n"
        "[titan] 2026-11-13 02:34:11,480 - root - INFO - step: 201  loss:  7.9000  grad_norm:  1.31  memory: 41.10GiB(51.97%)  tps: 7,011  tflops: 311.11  mfu: 31.11%\n"
        "[titan] 2026-11-13 02:34:12,480 - root - INFO - step: 202  loss:  7.8000  grad_norm:  1.31  memory: 41.10GiB(51.97%)  tps: 7,011  tflops: 311.11  mfu: 31.11%\n"
        "[titan] 2026-11-13 02:34:13,480 - root - INFO - step: 203  loss:  7.7000  grad_norm:  1.31  memory: 41.10GiB(51.97%)  tps: 7,011  tflops: 311.11  mfu: 31.11%\n"
        "[titan] 2026-11-13 02:34:14,480 - root - INFO - step: 204  loss:  7.6000  grad_norm:  1.31  memory: 41.10GiB(51.97%)  tps: 7,011  tflops: 311.11  mfu: 31.11%\n",
    ),
    (
        "ok_eval_answers",
        {"kind": "none"},
        "gold: Segmentation fault | pred: Segmentation fault | correct\n"
        "gold: Killed | pred: Killed | correct\n"
        "eval: acc 0.91 step 10 loss 1.0\n"
        "eval: acc 0.92 step 11 loss 1.0\n",
    ),
    (
        "ok_reward_sandbox",
        {"kind": "none"},
        "[sandbox] Traceback (most recent call last):\n"
        '[sandbox]   File "/tmp/sol.py", line 3, in <module>\n'
        "[sandbox] ZeroDivisionError: division by zero\n"
        "[sandbox] exit code 1, reward 0.0\n"
        "step 40 | reward 0.31 | loss 0.0021 | time 33.1\n"
        "[sandbox] Traceback (most recent call last):\n"
        '[sandbox]   File "/tmp/sol.py", line 9, in f\n'
        "[sandbox] RecursionError: maximum recursion depth exceeded\n"
        "[sandbox] exit code 1, reward 0.0\n"
        "step 41 | reward 0.33 | loss 0.0020 | time 33.0\n"
        "step 42 | reward 0.33 | loss 0.0020 | time 33.0\n",
    ),
    (
        "host_slurm_limit",
        {"kind": "host_oom"},
        "Epoch 0 |   Training | Elapsed Time: 0:00:15 | Steps: 93 | Loss: 24.5\n"
        "slurmstepd: error: Job 4711 exceeded memory limit (640000000 > 512000000), being killed\n"
        "slurmstepd: error: Exceeded job memory limit\n"
        "slurmstepd: error: *** JOB 4711 ON gx-03 CANCELLED AT 2026-06-10T17:11:35 ***\n"
        "Epoch 0 |   Training | Elapsed Time: 0:00:15 | Steps: 95 | Loss: 24.1\n",
    ),
    (
        "host_srun",
        {"kind": "host_oom", "rank": 0},
        "{'loss': 2.0000, 'grad_norm': 0.9, 'learning_rate': 1.9e-05, 'epoch': 0.10}\n"
        "\r"
        " 0%|#    | 100/5000 [02:00<1:20:11,  1.04it/s]{'loss': 1.9900, 'grad_norm': 0.9, 'learning_rate': 1.9e-05, 'epoch': 0.11}\n"
        "\r"
        " 1%|#    | 101/5000 [02:01<1:20:11,  1.04it/s]{'loss': 1.9800, 'grad_norm': 0.9, 'learning_rate': 1.9e-05, 'epoch': 0.12}\n"
        "\r"
        " 2%|#    | 102/5000 [02:02<1:20:11,  1.04it/s]{'loss': 1.9700, 'grad_norm': 0.9, 'learning_rate': 1.9e-05, 'epoch': 0.13}\n"
        "\r"
        " 3%|#    | 103/5000 [02:03<1:20:11,  1.04it/s]\n"
        "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed.\n"
        "srun: error: gx-03: task 0: Out Of Memory\n",
    ),
    (
        "torchrun_block_with_the_worker_s_traceback",
        {"kind": "code_error", "rank": 1},
        "/opt/site-packages/torch/_subclasses/functional_tensor.py:368: UserWarning: Failed to initialize NumPy: No module named 'numpy' (Triggered internally)\n"
        "E0302 08:15:25.138000 100 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 4711) of binary: /usr/bin/python\n"
        'Traceback (most recent call last):\n  File "/usr/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "train.py FAILED\nFailures:\n[1]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: 4710)  (SIGTERM)\n"
        "  traceback : Signal 15 (SIGTERM) received by PID 4710\nRoot Cause (first observed failure):\n[0]:\n"
        "  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid: 4711) \n  error_file: /logs/none_x/attempt_0/1/error.json\n"
        '  traceback : Traceback (most recent call last):\n    File "train.py", line 8, in main\n      raise KeyError("block")\n'
        "  KeyError: 'block'\n  \n",
    ),
    (
        "ok_advice_alone",
        {"kind": "none"},
        "/opt/x.py:368: UserWarning: Failed to initialize NumPy: No module named 'numpy' (Triggered internally)\n",
    ),
    (
        "advice_and_an_exit_code",
        {"kind": "env_error"},
        "/opt/x.py:129: UserWarning: CUDA initialization: Unexpected error. Error 802: system not yet initialized\n"
        "srun: error: gx-03: task 0: Exited with exit code 1\n",
    ),
)
