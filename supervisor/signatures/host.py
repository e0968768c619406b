"""The host: its memory, its shared memory, its signals, its scheduler. Data only."""
# ruff: noqa: E501  # messages stand as they are printed

from __future__ import annotations

from supervisor.core.evidence import Weight
from supervisor.core.kinds import Kind
from supervisor.signatures.model import SIZE, Text

TEXTS = (
    Text(
        name="kernel_oom",
        kind=Kind.HOST_OOM,
        pattern=r"oom-kill:constraint=[^\n]*,pid=(?P<pid>\d+)|[Oo]ut of memory: Kill(?:ed)? process (?P<pid2>\d+)|invoked oom-killer: ",
        example="Memory cgroup out of memory: Killed process 41240 (python3.12) total-vm:412331008kB, anon-rss:71204112kB, file-rss:310224kB",
        other="oom_score_adj of 41234 set to -500 (was 0)",
        source="linux mm/oom_kill.c",
        details=(r"oom-kill:.*,pid=(?P<pid>\d+)", r"Kill(?:ed)?process(?P<pid>\d+)"),
    ),
    Text(
        name="oom_reported",
        kind=Kind.HOST_OOM,
        pattern=(
            r"Detected [1-9]\d* oom[_-]kill event|have been OOM Killed|killed by the cgroup out-of-memory handler|killed by the OOM killer|Failed with result 'oom-kill'"
            r"|\bOOMKilled\b|[Ee]xceeded (?:job |step )?memory limit|systemd-oomd[^\n]*[Kk]illed|due to memory pressure for |PBS: job killed: (?:v?mem|mem) |TERM_MEMLIMIT"
            r"|sending SIG(?:TERM|KILL) to process (?P<pid>\d+)"
        ),
        example="slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed.",
        other="sending SIGTERM when mem <= 10.00% and swap <= 10.00%,",
        source="Slurm cgroup plugin; systemd; Kubernetes; earlyoom; PBS; LSF",
    ),
    Text(
        name="cpu_allocator",
        kind=Kind.HOST_OOM,
        pattern=r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)[^\n]*?(?P<tried_b>\d+) bytes",
        example="RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 36218470400 bytes. Error code 12 (Cannot allocate memory)",
        other="DefaultCPUAllocator: using jemalloc",
        source="c10/core/impl/alloc_cpu.cpp",
    ),
    Text(
        name="numpy_memory",
        kind=Kind.HOST_OOM,
        pattern=r"Unable to allocate (?P<tried>[\d.]+ ?(?:[KMGT]iB|bytes)) for an array with shape",
        example="numpy._core._exceptions._ArrayMemoryError: Unable to allocate 37.3 GiB for an array with shape (10000000, 1001) and data type float32",
        other="Unable to allocate a port for the dashboard",
        source="numpy _core/_exceptions.py",
    ),
    Text(
        name="ray_memory",
        kind=Kind.HOST_OOM,
        pattern=r"ray\.exceptions\.OutOfMemoryError|killed due to (?:the node running low on memory|memory pressure \(OOM\))|running low on memory",
        example="ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        other="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        source="ray memory monitor",
    ),
    Text(
        name="host_alloc_failed",
        kind=Kind.HOST_OOM,
        pattern=(
            r"std::bad_alloc|\[Errno 12\] Cannot allocate memory|\bMemoryError\b:?|ArrowMemoryError|malloc of size \d+ failed|java\.lang\.OutOfMemoryError"
            r"|unable to mmap \d+ bytes from file </[^/>\n]+/[^>\n]*>: Cannot allocate memory|(?:fork|mmap|malloc|vm_map)[^\n]{0,40}: Cannot allocate memory|Cannot allocate memory \(os error 12\)|memory allocation of \d+ bytes failed|cudaHostAlloc[^\n]*failed|Failed to allocate [^\n]{0,40}pinned (?:host )?memory"
        ),
        example="OSError: [Errno 12] Cannot allocate memory",
        other="MemoryErrorHandler registered",
        source="libc, C++, Python, Rust, JVM",
        details=(r"(?:mallocofsize|memoryallocationof)(?P<tried_b>\d+)", rf"tried(?:toallocate)?(?P<tried>{SIZE})"),
    ),
    Text(
        name="worker_killed",
        kind=Kind.HOST_OOM,
        pattern=r"DataLoader worker \(pid (?P<pid>\d+)\) is killed by signal: Killed",
        example="RuntimeError: DataLoader worker (pid 3302) is killed by signal: Killed. ",
        other="RuntimeError: DataLoader worker (pid 7716) is killed by signal: Segmentation fault. ",
        source="torch/csrc/DataLoader.cpp",
    ),
    Text(
        name="shm_worker",
        kind=Kind.SHM_FULL,
        pattern=r"insufficient shared memory \(shm\)|workers are out of shared memory|is killed by signal: Bus error",
        example="ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
        other="No available shared memory broadcast block found in 60 seconds.",
        source="torch/csrc/DataLoader.cpp",
    ),
    Text(
        name="nccl_shm",
        kind=Kind.SHM_FULL,
        pattern=r"(?:\[(?P<gpu>\d+)\] [^\n]*NCCL WARN )?(?:Error: failed to extend|Error while creating shared memory segment) /dev/shm/nccl-",
        example="gx:2281:2410 [5] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-uXbQ4p to 9637892 bytes, error: No space left on device (28)",
        other="gx:2281:2410 [5] NCCL INFO Channel 00 : 5[5] -> 6[6] via SHM/direct/direct",
        source="nccl src/misc/shmutils.cc",
    ),
    Text(
        name="shm_file",
        kind=Kind.SHM_FULL,
        pattern=(
            r"</(?:torch_|psm_)[^>\n]*>[^\n]*(?:No space left|Cannot allocate)|No space left on device[^\n]*(?:/dev/shm|</torch_|'/psm_|/psm_|/sem\.)"
            r"|/dev/shm[^\n]*(?:No space left|is full|is too small|too small)|shm(?:get|_open|at)[^\n]*No space left|unable to (?:allocate|resize) shared memory"
        ),
        example="RuntimeError: unable to write to file </torch_1234_5>: No space left on device (28)",
        other="OSError: [Errno 28] No space left on device: '/ckpt/dflash/.tmp_step_3200'",
        source="torch MapAllocator.cpp; multiprocessing.shared_memory",
    ),
    Text(
        name="bus_error",
        kind=Kind.SHM_FULL,
        pattern=r"Bus error(?: +\(core dumped\))?|Fatal Python error: Bus error",
        example="train.sh: line 3: 4711 Bus error               (core dumped) python train.py",
        other="message bus errors=0",
        source="bash, faulthandler: a mapped page of a full /dev/shm",
        weight=Weight.GENERIC,
    ),
    Text(
        name="segfault",
        kind=Kind.SEGFAULT,
        pattern=(
            r"[Ss]egmentation fault(?: encountered)?\b|\bsegfault at [0-9a-f]+ ip|Segfault encountered|Fatal Python error: Segmentation fault|SIGSEGV\b"
            r"|double free or corruption|free\(\): double free|corrupted (?:double-linked list|unsorted chunks)|realloc\(\): invalid|malloc_consolidate\(\): |free\(\): invalid|munmap_chunk\(\)|corrupted size vs\. prev_size|malloc\(\): [a-z]|stack smashing detected|general protection fault ip"
        ),
        example="[Wed Feb 11 07:10:01 2026] python3.12[41236]: segfault at 18 ip 00007f4c560b9446 sp 00007ffd1b2c4d90 error 4 in libtorch_cuda.so",
        other="tests/test_failures.py::test_segfault_exit_code PASSED",
        source="bash, kernel, faulthandler, glibc",
    ),
    Text(
        name="illegal_instruction",
        kind=Kind.ENV_ERROR,
        pattern=r"Illegal instruction(?: +\(core dumped\))|Fatal Python error: Illegal instruction|trap invalid opcode ip",
        example="train.sh: line 3: 4711 Illegal instruction     (core dumped) python train.py",
        other="illegal instructions are rejected by the filter",
        source="bash, faulthandler, kernel: a build for another CPU",
    ),
    Text(
        name="time_limit",
        kind=Kind.PREEMPTED,
        pattern=r"CANCELLED AT \S+ DUE TO (?:TIME LIMIT|PREEMPTION|JOB REQUEUE|NODE FAILURE)|PBS: job killed: walltime|TERM_(?:RUNLIMIT|PREEMPT|ADMIN|OWNER)\b|DUE TO (?:PREEMPTION|TIME LIMIT)",
        example="slurmstepd: error: *** JOB 4711 ON gx-03 CANCELLED AT 2026-02-11T06:00:00 DUE TO TIME LIMIT ***",
        other="srun: job 4711 has been allocated resources",
        source="slurmstepd; PBS; LSF",
    ),
    Text(
        name="evicted",
        kind=Kind.PREEMPTED,
        pattern=(
            r"Preempted by (?:pod )?\S+|\bpod was evicted|TaintManagerEviction|DeletionByTaintManager|Evict(?:ed|ing) pod|The system (?:will power off|is going down|will reboot|will halt)"
            r"|[Ss]pot (?:instance )?(?:interruption|termination|reclaim)|(?:instance|node|VM|machine) (?:is|was|has been|will be) (?:being )?(?:preempted|reclaimed|terminated|shut down)"
            r"|[Pp]reemption (?:notice|signal|warning) (?:received|detected)|(?:[Jj]ob|[Ii]nstance|[Nn]ode|[Pp]od) (?:was |has been |is being )?[Pp]reempted\b|Instance was preempted"
        ),
        example="Warning  Preempted  2m10s  default-scheduler  Preempted by pod ml-prod/serve-27b-0 on node gx-node-06",
        other="Sequence group 118 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space.",
        source="Kubernetes, cloud providers, systemd",
    ),
    Text(
        name="sigterm",
        kind=Kind.PREEMPTED,
        pattern=(
            r"(?:[Rr]eceived|got|caught|Caught|Got)\s(?:signal:? )?(?:SIGTERM|SIGUSR1|SIGINT|signal 15|15\b)|(?:SignalException|Exception): Process \d+ got signal: 15"
            r"|[Ss]ignal (?:15|SIGTERM)(?: \(SIGTERM\))? received|^Terminated$|\bTerminated +python|CANCELLED AT \d|Received SIGTERM: 15|[Bb]ypassing signal SIGTERM"
        ),
        example="[2026-02-11 03:14:31,004] [INFO] [launch.py:343:sigkill_handler] Main process received SIGTERM, exiting",
        other="Sending process 41234 closing signal SIGTERM",
        source="DeepSpeed launcher, torchrun, Lightning, submitit, bash, Slurm",
        weight=Weight.SUMMARY,
    ),
    Text(
        name="killed",
        kind=Kind.KILLED,
        pattern=r"^(?:\[?\d{4}-\d\d-\d\d[T ][\d:.,]+Z?\]? (?:std(?:err|out) [FP] )?|\[[a-z]+\d+\]: ?)?Killed$|: line \d+: +\d+ Killed\b|\[\d+\][+-]? +(?:\d+ )?Killed\b|Fatal: killed by signal 9|\bwas killed by SIGKILL|^\d+ Killed +\S",
        example="train.sh: line 12: 41234 Killed                  python train.py",
        other="Killed process cleanup enabled",
        source="bash",
        weight=Weight.SUMMARY,
    ),
    Text(
        name="worker_died",
        kind=Kind.KILLED,
        pattern=r"Worker proc \S*?(?P<rank>\d+) died unexpectedly|died unexpectedly|worker died or was killed|[Ww]orker unexpectedly exits|its worker process has died|(?:actor|worker|process) (?:has )?died unexpectedly|A worker process managed by the executor was unexpectedly terminated|process in the process pool was terminated abruptly|WorkerCrashedError|worker crashed unexpectedly",
        example="ERROR 11-08 11:04:29 [multiproc_executor.py:135] Worker proc VllmWorker-3 died unexpectedly, shutting down executor.",
        other="worker 3 exited normally",
        source="vLLM multiproc_executor.py; ray; joblib; concurrent.futures",
        weight=Weight.SUMMARY,
    ),
    Text(
        name="hung_start",
        kind=Kind.HANG,
        pattern=r"No available shared memory broadcast block found in \d+ second",
        example="INFO 02-11 09:10:36 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds.",
        other="Shared memory broadcast block size: 16 MiB",
        source="vLLM distributed/device_communicators/shm_broadcast.py",
        weight=Weight.AFTERMATH,
        repeats=3,
        own_rank=False,
    ),
    Text(
        name="waiting_for_engines",
        kind=Kind.HANG,
        pattern=r"Waiting for \d+ local, \d+ remote core engine proc|[Ss]till waiting for |Waiting for (?:other ranks|all ranks|rank \d+|the other workers)",
        example="DEBUG 07-10 14:48:13 [utils.py:485] Waiting for 1 local, 0 remote core engine proc(s) to start.",
        other="Waiting 5 s before the next poll",
        source="vLLM v1/engine/utils.py; training scripts",
        weight=Weight.AFTERMATH,
        repeats=8,
        own_rank=False,
    ),
    Text(
        name="hang_reported",
        kind=Kind.HANG,
        pattern=r"Timeout \(\d+:\d\d:\d\d\)!|blocked for more than \d+ seconds|soft lockup - CPU|Did not get (?:initial|subsequent) heartbeat|(?:[Hh]ang|[Ss]tall|[Dd]eadlock) (?:was )?detected|no progress (?:for|in) \d+|appears to be (?:hung|stuck)|[Ll]ack of heartbeats?\b|No heartbeat for |[Ww]atchdog timeout \(self\.",
        example="INFO: task python3:41234 blocked for more than 120 seconds.",
        other="hang_detection: enabled",
        source="faulthandler; kernel hung task detector; nvidia-resiliency-ext",
        weight=Weight.AFTERMATH,
    ),
)
