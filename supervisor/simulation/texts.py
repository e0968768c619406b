"""What the stand-in trainer prints when it fails, in the words of PyTorch 2.9 and torchrun. Prints nothing itself.

Sources: torch/c10/cuda/CUDACachingAllocator.cpp and torch/distributed/elastic, wording of release 2.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePosixPath

from msgspec import Struct

SITE = PurePosixPath("/opt/venvs/train/lib/python3.12/site-packages")


def size(gib: float) -> str:
    """A size as torch's `format_size` writes it."""
    if gib >= 1:
        return f"{gib:.2f} GiB"
    return f"{gib * 1024:.2f} MiB"


class Memory(Struct, frozen=True):
    """A GPU when an allocation failed, in GiB; `in_use` is what this process holds."""

    tried: float
    free: float
    total: float
    in_use: float


def out_of_memory(rank: int, gpu: int, memory: Memory, others: Sequence[tuple[int, float]]) -> str:
    """The traceback of a rank that ran out of memory; `others` are (pid, GiB) of the GPU's other holders."""
    outside = min(0.11, memory.in_use)  # the context, not PyTorch's: the incident's 90.40 are 90.29 to PyTorch
    processes = "".join(f"Process {pid} has {size(held)} memory in use. " for pid, held in others)
    error = (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size(memory.tried)}. GPU {gpu} has "
        f"a total capacity of {size(memory.total)} of which {size(max(0.0, memory.free))} is free. {processes}"
        f"Including non-PyTorch memory, this process has {size(memory.in_use)} memory in use. "
        f"Of the allocated memory {size(memory.in_use - outside)} is allocated by PyTorch, "
        f"and {size(outside / 2)} is reserved by PyTorch but unallocated. "
        "If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True "
        "to avoid fragmentation.  See documentation for Memory Management  "
        "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )
    frames = [
        "Traceback (most recent call last):",
        '  File "/workspace/dflash/train_dflash.py", line 412, in <module>',
        "    main()",
        '  File "/workspace/dflash/train_dflash.py", line 371, in main',
        "    loss = drafter(batch, anchors=anchors, block_size=cfg.block_size)",
        f'  File "{SITE}/torch/nn/modules/module.py", line 1775, in _wrapped_call_impl',
        "    return self._call_impl(*args, **kwargs)",
        '  File "/workspace/dflash/modeling.py", line 288, in forward',
        "    logits = self.lm_head(h).float()",
        error,
    ]
    return "".join(f"[rank{rank}]: {line}\n" for line in frames)


def connection_lost(rank: int, at: datetime) -> str:
    """What a rank says whose peer went away."""
    return (
        f"[rank{rank}]:[W{at:%m%d %H:%M:%S}.204118820 TCPStore.cpp:125] [c10d] recvValue failed "
        "on SocketImpl(fd=88, addr=[localhost]:51544, remote=[localhost]:29500): Connection reset by peer\n"
    )


def closing(launcher: int, pid: int, at: datetime) -> str:
    """The launcher ends a worker."""
    return (
        f"W{at:%m%d %H:%M:%S}.417000 {launcher} torch/distributed/elastic/multiprocessing/api.py:908] "
        f"Sending process {pid} closing signal SIGTERM\n"
    )


def worker_failed(launcher: int, rank: int, pid: int, code: int, script: str, at: datetime) -> str:
    """The launcher's last words: which worker failed first, and its summary."""
    signal = " (SIGKILL)" if code == -9 else ""
    return (
        f"E{at:%m%d %H:%M:%S}.982000 {launcher} torch/distributed/elastic/multiprocessing/api.py:882] "
        f"failed (exitcode: {code}) local_rank: {rank} (pid: {pid}) of binary: {SITE.parents[2]}/bin/python3.12\n"
        "Traceback (most recent call last):\n"
        f'  File "{SITE}/torch/distributed/launcher/api.py", line 293, in launch_agent\n'
        "    raise ChildFailedError(\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        f"{'=' * 60}\n{script} FAILED\n{'-' * 60}\n"
        "Failures:\n  <NO_OTHER_FAILURES>\n"
        f"{'-' * 60}\nRoot Cause (first observed failure):\n[0]:\n"
        f"  time      : {at:%Y-%m-%d_%H:%M:%S}\n"
        f"  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: {pid}){signal}\n"
        "  error_file: <N/A>\n"
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
        f"{'=' * 60}\n"
    )
