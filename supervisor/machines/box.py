"""What a launch needs of the box beside GPUs: room for checkpoints, shared memory, limits, a fit output directory.

Each no comes with its fix. What cannot be told in time is said, and refuses nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from supervisor.core.evidence import Checkpoint, Incomplete
from supervisor.core.lineage import is_later
from supervisor.core.spec import RunSpec, Stale
from supervisor.edges import host, output
from supervisor.edges.bounded import within

CHECKPOINTS_WANTED = 2
"""While a new one is written the one before it must stay: trainers that keep only the newest hold two for a while."""

SHM_MIN_MIB = 1024.0
OPEN_FILES_MIN, PROCESSES_MIN = 1024, 4096
SIZE_WITHIN_S = 1.0
ENTRIES_MAX = 100_000
MIB = 2**20


class Found(Struct, frozen=True):
    """Reasons not to launch, and what to know."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def found(spec: RunSpec, checkpoints: Sequence[Checkpoint | Incomplete]) -> Found:
    """All of them. `spec` is placed: its paths are those of the launch."""
    problems, warnings = _room(spec, [one for one in checkpoints if isinstance(one, Checkpoint)])
    return Found(tuple(problems), (*warnings, *_shared_memory(), *_limits(), *_stale(spec)))


def _room(spec: RunSpec, complete: list[Checkpoint]) -> tuple[list[str], list[str]]:
    """Room for the next checkpoints at the size of the last one."""
    if spec.resume is None or not complete:
        return [], []
    last = complete[0]
    for one in complete[1:]:
        last = one if is_later(one, last) else last
    try:
        mib = within(SIZE_WITHIN_S, lambda: size_mib(last.path), f"the size of {last.path}")
        free = host.disk_free_mib(os.path.dirname(last.path), SIZE_WITHIN_S)  # noqa: PTH120
    except OSError as error:
        return [], [f"room for checkpoints: {error}"]
    wanted = spec.resume.keep or CHECKPOINTS_WANTED
    text = f"{free:.0f} MiB are free where {last.path} is, which has {mib:.0f} MiB"
    fix = f"df -h {os.path.dirname(last.path)}; remove what is not needed"  # noqa: PTH120
    if free < mib:
        return [f"{text}: there is no room for one more checkpoint\n  next: {fix}"], []
    if free < wanted * mib:
        return [], [f"{text}: room for {int(free // mib)} of {wanted} more checkpoints; {fix}"]
    return [], []


def size_mib(path: str) -> float:
    """What a checkpoint takes on the disk. Raises OSError."""
    if not Path(path).is_dir():
        return Path(path).stat().st_size / MIB
    total = entries = 0
    for folder, _, files in os.walk(path):
        for name in files:
            entries += 1
            if entries > ENTRIES_MAX:
                raise OSError(f"{path} holds more than {ENTRIES_MAX} files")
            total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118
    return total / MIB


def _shared_memory() -> Iterator[str]:
    free = host.shm_free_mib()
    if free is None:
        yield f"there is no {host.SHM}: data loaders and NCCL want it; docker run --shm-size=16g"
    elif free < SHM_MIN_MIB:
        fix = "docker run --shm-size=16g, or mount -o remount,size=16g /dev/shm"
        yield f"{free:.0f} MiB are free in {host.SHM}: data loaders and NCCL may fail; {fix}"


def _limits() -> Iterator[str]:
    now = host.limits()
    if now.open_files is not None and now.open_files < OPEN_FILES_MIN:
        yield f"the job may open {now.open_files} files only; ulimit -n 65536 before `up`"
    if now.processes is not None and now.processes < PROCESSES_MIN:
        yield f"this user may have {now.processes} processes only; ulimit -u 65536 before `up`"
    if now.address_space_mib is not None:
        text = f"the job's address space is limited to {now.address_space_mib:.0f} MiB, and CUDA needs far more"
        yield f"{text}; ulimit -v unlimited"


def _stale(spec: RunSpec) -> Iterator[str]:
    """An output directory that an earlier try left, and that nothing will be done about."""
    if spec.output.dir is None or spec.output.stale is not Stale.KEEP:
        return
    seen = output.look(spec.output.dir, spec.workdir, [], SIZE_WITHIN_S)
    if seen.exists and seen.empty:
        fix = "write `output: {stale: remove_if_empty}`"
        yield f"{spec.output.dir} is there and empty: some trainers refuse a directory that exists; {fix}"
