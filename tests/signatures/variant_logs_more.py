"""More logs written for the tests: name, kind, log. See variant_logs.py."""
# ruff: noqa: E501  # logs stand as they are printed

from __future__ import annotations

from variant_logs import NEW, TRACE, steps

MORE: tuple[tuple[str, str, str], ...] = (
    (
        "spawn",
        "killed",
        steps(1)
        + TRACE
        + "torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGKILL\n",
    ),
    (
        "calledproc",
        "killed",
        TRACE + "subprocess.CalledProcessError: Command '['python','t.py']' died with <Signals.SIGKILL: 9>.\n",
    ),
    (
        "rayactor",
        "killed",
        TRACE + "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.\n",
    ),
    ("ancdata", "env_error", TRACE + "RuntimeError: received 0 items of ancdata\n"),
    ("eio", "network_error", TRACE + "OSError: [Errno 5] Input/output error: '/mnt/x'\n"),
    ("busy", "env_error", TRACE + "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable\n"),
    (
        "1eb",
        "cuda_error",
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "t.py", line 1\n[rank1]: RuntimeError: CUDA error: an illegal memory access was encountered\n'
        + TRACE
        + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.\n",
    ),
    (
        "constraint",
        "numeric",
        TRACE
        + "ValueError: Expected parameter logits (Tensor of shape (4, 10)) of distribution Categorical() to satisfy the constraint IndependentConstraint(Real(), 1), but found invalid values:\ntensor([[nan, nan]])\n",
    ),
    ("assertnan", "numeric", TRACE + "AssertionError: loss is nan at step 12\n"),
    ("cancel", "preempted", steps(1) + "slurmstepd: error: *** JOB 4711 ON gx CANCELLED AT 2026-03-01T06:00:00 ***\n"),
    (
        "spot",
        "preempted",
        steps(1) + "WARNING: Spot instance interruption notice received, terminating in 120 s\nTerminated\n",
    ),
    (
        "commsetup",
        "collective_error",
        TRACE
        + "torch.distributed.DistBackendError: [2] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer\n",
    ),
    (
        "commsetup2",
        "collective_timeout",
        TRACE
        + "torch.distributed.DistBackendError: [2] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms, keys: /0\n",
    ),
    (
        "aborted",
        "collective_timeout",
        TRACE
        + "RuntimeError: NCCL communicator was aborted on rank 3.  Original reason for failure was: [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=10, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800117 milliseconds before timing out.\n",
    ),
    (
        "ncclint",
        "collective_error",
        TRACE
        + "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, internal error - please report this issue to the NCCL developers, NCCL version 2.19.3\nncclInternalError: Internal check failed.\nLast error:\nNet : Connect to 10.0.0.5<43210> failed : Connection refused\n",
    ),
    (
        "ncclshm",
        "shm_full",
        TRACE
        + "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\nLast error:\nError: failed to extend /dev/shm/nccl-abc to 33030532 bytes\n",
    ),
    (
        "nccloom",
        "gpu_oom",
        TRACE
        + "RuntimeError: NCCL error in: x.cpp:1, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'\n",
    ),
    (
        "dup",
        "code_error",
        TRACE
        + "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.21.5\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000\n",
    ),
    (
        "ninja",
        "env_error",
        TRACE
        + "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.\n\nThe above exception was the direct cause of the following exception:\n\n"
        + TRACE
        + "RuntimeError: Error building extension 'cpu_adam'\n",
    ),
    (
        "vision",
        "env_error",
        TRACE
        + "RuntimeError: Detected that PyTorch and torchvision were compiled with different CUDA major versions. PyTorch has CUDA Version=13.0 and torchvision has CUDA Version=12.8.\n",
    ),
    ("keyerror", "code_error", TRACE + "KeyError: 'acc_len'\n"),
    ("assert", "code_error", TRACE + "AssertionError\n"),
    ("custom", "code_error", TRACE + "drafter.errors.TopologyError: expected 8 gpus\n"),
    (
        "hydra",
        "code_error",
        "Could not override 'training.batchsize'.\nTo append to your config use +training.batchsize=4\nKey 'batchsize' is not in struct\n",
    ),
    ("syntax", "code_error", '  File "/w/train.py", line 12\n    def f(:\n          ^\nSyntaxError: invalid syntax\n'),
    (
        "dcp",
        "checkpoint_error",
        TRACE + "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0, 1])\n",
    ),
    (
        "optkeys",
        "checkpoint_error",
        TRACE
        + "ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group\n",
    ),
    (
        "empty",
        "data_error",
        TRACE + "ValueError: num_samples should be a positive integer value, but got num_samples=0\n",
    ),
    (
        "utf",
        "data_error",
        TRACE + "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte\n",
    ),
    (
        "missing",
        "data_error",
        TRACE + "FileNotFoundError: [Errno 2] No such file or directory: '/data/shards/train-00417.parquet'\n",
    ),
    ("cfgmissing", "code_error", TRACE + "FileNotFoundError: [Errno 2] No such file or directory: 'conf/sft.yaml'\n"),
    ("perm", "env_error", TRACE + "PermissionError: [Errno 13] Permission denied: '/ckpt/x'\n"),
    (
        "s3",
        "network_error",
        TRACE + 'botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "https://s3.x"\n',
    ),
    ("connreset", "network_error", TRACE + "ConnectionResetError: [Errno 104] Connection reset by peer\n"),
    (
        "nvlink",
        "gpu_fault",
        "[1] NVRM: Xid (PCI:0000:27:00): 145, pid=12, name=python, RLW_REMAP Nonfatal XC0 i0 Link 01\n",
    ),
    (
        "rocmhang",
        "gpu_fault",
        "HW Exception by GPU node-1 (Agent handle: 0x55) reason :GPU Hang\nAborted (core dumped)\n",
    ),
    (
        "rocmfault",
        "cuda_error",
        "Memory access fault by GPU node-2 (Agent handle: 0x1) on address 0x7f. Reason: Unknown.\nAborted (core dumped)\n",
    ),
    (
        "jaxcuda",
        "cuda_error",
        TRACE
        + "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to execute XLA Runtime executable: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered\n",
    ),
    (
        "hungtask",
        "hang",
        steps(1)
        + "[1234.0] INFO: task python3:4711 blocked for more than 120 seconds.\n[1354.0] INFO: task python3:4711 blocked for more than 241 seconds.\n",
    ),
    (
        "faulth",
        "hang",
        steps(1) + 'Timeout (0:30:00)!\nThread 0x00007f (most recent call first):\n  File "t.py", line 3 in f\n',
    ),
    (
        "accept",
        "none",
        "INFO:     Started server process [1]\nOSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use\nINFO:     retry on port 8001\nINFO:     Uvicorn running on http://0.0.0.0:8001\n",
    ),
    (
        "acc503",
        "none",
        'INFO:     10.0.0.1:4 - "GET /health HTTP/1.1" 503 Service Unavailable\nINFO:     10.0.0.1:4 - "GET /health HTTP/1.1" 200 OK\n',
    ),
    (
        "hf",
        "none",
        "{'loss': 2.1, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}\nWARNING: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has\n{'loss': 2.0, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.2}\n{'loss': 1.9, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.3}\n",
    ),
    (
        "keras",
        "none",
        "OOM when allocating tensor with shape[1,2] and type float on /job:localhost/replica:0/task:0/device:GPU:1 by allocator GPU_1_bfc\n90/100 [========>.....................] - ETA: 5s - loss: 0.11\n91/100 [========>.....................] - ETA: 4s - loss: 0.10\n92/100 [=>] - ETA: 4s - loss: 0.10\n",
    ),
    ("zero oom", "none", "Detected 0 oom_kill events in StepId=1\n" + steps(2)),
    (
        "nbsave",
        "none",
        steps(1)
        + TRACE
        + "OSError: [Errno 28] No space left on device: '/ckpt/x'\nWARNING checkpoint not written, continuing\n"
        + steps(6),
    ),
    (
        "nccl info",
        "none",
        "gx:1:2 [0] NCCL INFO NET/IB : No device found.\ngx:1:2 [0] NCCL INFO NCCL_TIMEOUT set\nNCCL_ASYNC_ERROR_HANDLING=1\n"
        + steps(1),
    ),
    (
        "errfile",
        "gpu_oom",
        '{"message": {"message": "OutOfMemoryError: '
        + NEW
        + '", "extraInfo": {"py_callstack": "Traceback (most recent call last):\\n  File x\\ntorch.OutOfMemoryError: '
        + NEW
        + '\\n", "timestamp": "1769"}}}',
    ),
    ("repr", "gpu_oom", "ERROR worker 3 raised OutOfMemoryError('" + NEW + "')\n"),
    (
        "tee",
        "gpu_oom",
        '[default3]:Traceback (most recent call last):\n[default3]:  File "t.py", line 1\n[default3]:torch.OutOfMemoryError: '
        + NEW
        + "\n",
    ),
    (
        "srun",
        "gpu_oom",
        '3: Traceback (most recent call last):\n3:   File "t.py", line 1\n3: torch.OutOfMemoryError: ' + NEW + "\n",
    ),
    ("crlf", "gpu_oom", (TRACE + "torch.OutOfMemoryError: " + NEW + "\n").replace("\n", "\r\n")),
    (
        "mem",
        "gpu_oom",
        "[mem] rank=2 allocated=93.8GiB free=0.05GiB\n[rank2]: Traceback (most recent call last):\n[rank2]:   File\n[rank2]: RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`\n",
    ),
    (
        "mem2",
        "gpu_oom",
        "|   5  NVIDIA RTX PRO 6000            On  |   00000000:C1:00.0 Off |                    0 |\n| N/A   61C    P0            512W /  600W |   97102MiB /  97253MiB |     97%      Default |\nRuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`\n",
    ),
    (
        "cudnninit",
        "gpu_oom",
        "free memory: 12 MiB\n" + TRACE + "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n",
    ),
    (
        "handles",
        "gpu_oom",
        "WARNING caught OutOfMemoryError('"
        + NEW
        + "'), freeing cache\n"
        + TRACE
        + 'RuntimeError: !handles_.at(i) INTERNAL ASSERT FAILED at "/pytorch/c10/cuda/CUDACachingAllocator.cpp":387, please report a bug to PyTorch.\n',
    ),
)
