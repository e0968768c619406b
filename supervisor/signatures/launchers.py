"""What launchers and engines say about the end of others: summaries and wrappers, never a cause. Data only."""
# ruff: noqa: E501  # messages stand as they are printed

from __future__ import annotations

from supervisor.core.evidence import Weight
from supervisor.core.kinds import Kind
from supervisor.signatures.model import Refine, Text

_S = Weight.SUMMARY


def _by_code(before: str, after: str) -> tuple[Refine, ...]:
    """What an exit code says, for one spelling (squeezed)."""
    return (
        Refine(rf"{before}(?:-9|137){after}", Kind.KILLED, _S),
        Refine(rf"{before}(?:-11|139){after}", Kind.SEGFAULT, _S),
        Refine(rf"{before}(?:-7|135){after}", Kind.SHM_FULL, _S),
        Refine(rf"{before}(?:-15|143){after}", Kind.PREEMPTED, _S),
    )


TEXTS = (
    Text(
        name="elastic_failed",
        kind=Kind.EXIT,
        pattern=r"failed \(exitcode: -?\d+\) local_rank: (?P<rank>\d+) \(pid: (?P<pid>\d+)\)",
        example="E0211 03:11:12.982000 40112 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: -9) local_rank: 5 (pid: 41239) of binary: /usr/bin/python3.12",
        other="Sending process 41234 closing signal SIGTERM",
        source="torch/distributed/elastic/multiprocessing/api.py",
        weight=_S,
        refine=_by_code(r"exitcode:", r"\)"),
    ),
    Text(
        name="elastic_root",
        kind=Kind.EXIT,
        pattern=r"Root Cause \(first observed failure\):",
        example="Root Cause (first observed failure):",
        other="root cause analysis written to /tmp/rca.json",
        source="torch/distributed/elastic/multiprocessing/errors",
        weight=_S,
        lines=9,
        until=r"traceback:.",
        details=(r"rank:(?P<rank>\d+)\(local_rank", r"exitcode:-?\d+\(pid:(?P<pid>\d+)\)"),
        refine=_by_code(r"exitcode:", r"\(pid"),
    ),
    Text(
        name="command_failed",
        kind=Kind.EXIT,
        pattern=r"returned non-zero exit status -?\d+|died with <Signals\.\w+: \d+>|exits with return code = -?\d+|[Ee]xit(?:ed)? (?:with )?(?:code|status):? (?:-\d+|1\d\d)\b|terminated with (?:signal|exit code) \S+|exitcode=-\d+|^make(?:\[\d+\])?: \*\*\* \[[^\n]*\] Error \d+|exited (?:with|on) signal \d+|processes exited with non-zero status|SystemExit: [1-9]",
        example="[2026-02-11 03:14:31,004] [ERROR] [launch.py:325:sigkill_handler] ['python', 'train.py'] exits with return code = -9",
        other="exit code 0",
        source="subprocess, DeepSpeed, docker, torch.multiprocessing",
        weight=_S,
        details=(r"rocess(?P<rank>\d+)terminatedwith", r"rocessrank(?P<rank>\d+)"),
        refine=(
            *_by_code(r"(?:status|code=|code:?|exitcode=|\]Error)", r"(?:\D|$)"),
            Refine(r"SIGKILL|signal9", Kind.KILLED, _S),
            Refine(r"SIGSEGV|signal11", Kind.SEGFAULT, _S),
            Refine(r"SIGBUS|signal7", Kind.SHM_FULL, _S),
            Refine(r"SIGTERM|signal15", Kind.PREEMPTED, _S),
        ),
    ),
    Text(
        name="srun_task",
        kind=Kind.EXIT,
        pattern=r"srun: error: \S+: tasks? (?P<rank>\d+)[\d,-]*: (?:Killed|Exited with exit code|Segmentation fault|Terminated|Aborted|Bus error|Out Of Memory)",
        example="srun: error: gx-03: task 5: Killed",
        other="srun: job 4711 queued and waiting for resources",
        source="Slurm",
        weight=_S,
        refine=(
            Refine(r"OutOfMemory", Kind.HOST_OOM),
            Refine(r":Killed", Kind.KILLED, _S),
            Refine(r"Segmentationfault", Kind.SEGFAULT, _S),
            Refine(r":Terminated", Kind.PREEMPTED, _S),
            Refine(r"Buserror", Kind.SHM_FULL, _S),
            *_by_code(r"exitcode", r"$"),
        ),
    ),
    Text(
        name="aborted",
        kind=Kind.EXIT,
        pattern=r"terminate called after throwing|Aborted +\(core dumped\)|Fatal Python error: Aborted|MPI_ABORT was invoked|^Aborted$|Signal: Aborted|\[error\] \S+ aborted",
        example="terminate called after throwing an instance of 'c10::DistBackendError'",
        other="aborted requests: 0",
        source="libstdc++, bash, faulthandler, MPI",
        weight=_S,
    ),
    Text(
        name="engine_wrapper",
        kind=Kind.EXIT,
        pattern=(
            r"Worker failed with error '|[Ee]ngine core (?:proc )?\S* ?initialization failed|EngineDeadError|EngineCore (?:encountered|failed to start)|Engine (?:process|loop) (?:failed|is not running|died)"
            r"|Capture cuda graph failed: |Scheduler hit an exception|-- Process \d+ terminated with the following error"
        ),
        example="RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        other="EngineCore started",
        source="vLLM, SGLang, torch.multiprocessing",
        weight=Weight.WRAPPER,
        refine=_by_code(r"Failedcoreproc\(s\):\{[^}]*:", r"\b"),
    ),
    Text(
        name="shutdown_noise",
        kind=Kind.EXIT,
        pattern=r"Parent process exited, terminating worker|Killing subprocess \d+|closing signal SIG(?:TERM|KILL|INT)",
        example="[launch.py:335:sigkill_handler] Killing subprocess 41234",
        other="subprocess 41234 finished",
        source="DeepSpeed, torchrun, vLLM",
        weight=Weight.NOISE,
    ),
)
