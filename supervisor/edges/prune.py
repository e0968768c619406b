"""Checkpoints that the journal says are given up: renamed, then removed. Which ones is decided in `core/keeping.py`.

Rule 1: only what is still what the journal names (inode, newest mtime), is no link and no mount point is touched.
Rule 2: it is renamed first, to a name that no reader takes for a checkpoint: what is half removed is never loaded.
"""

# Paths are text here, as in `checkpoints.py`.
# ruff: noqa: PTH104, PTH108, PTH118

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from supervisor.core.events import Pruned
from supervisor.core.evidence import Checkpoint
from supervisor.core.spec import Resume
from supervisor.edges.checkpoints import describe
from supervisor.edges.files import fsync_dir

MIB = 2**20


def aside(path: str) -> str:
    """Where a checkpoint goes before it is removed: hidden, so never a checkpoint (contract, "Checkpoints")."""
    folder, name = os.path.split(os.path.normpath(path))
    return os.path.join(folder, f".{name}.pruned")


def remove(checkpoints: Iterable[Checkpoint], resume: Resume) -> Pruned:
    """Removes them; a second call goes on where the first was killed. What cannot be removed is told, not raised."""
    removed: list[str] = []
    kept: list[str] = []
    freed = 0.0
    for one in checkpoints:
        try:
            why = _set_aside(one, resume)
            if why is not None:
                kept.append(f"{one.path}: {why}")
                continue
            freed += _size_mib(aside(one.path))
            _remove(aside(one.path))
            removed.append(one.path)
        except (OSError, TimeoutError) as error:
            kept.append(f"{one.path}: {error}")
    return Pruned(removed=tuple(removed), kept=tuple(kept), freed_mib=round(freed, 1))


def _set_aside(one: Checkpoint, resume: Resume) -> str | None:
    """Renames it; None where it stands aside now, was so before, or is gone. Raises OSError."""
    path = os.path.normpath(one.path)
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
        return "it is no folder and no file"
    if os.path.ismount(path):
        return "it is a mount point"
    now = describe(path, resume)
    if not isinstance(now, Checkpoint) or (now.inode, now.mtime_ns) != (one.inode, one.mtime_ns):
        return "it is not what was recorded any more"
    if os.path.lexists(aside(path)):
        return f"{aside(path)} is there already"
    os.rename(path, aside(path))
    fsync_dir(Path(path).parent)
    return None


def _remove(path: str) -> None:
    """Links inside are removed, not followed. Raises OSError."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(status.st_mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _size_mib(path: str) -> float:
    return sum(_sizes(path)) / MIB


def _sizes(path: str) -> Iterator[int]:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    yield status.st_size
    if stat.S_ISDIR(status.st_mode):
        for folder, _names, files in os.walk(path):
            yield from (os.lstat(os.path.join(folder, name)).st_size for name in files)
