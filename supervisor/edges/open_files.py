"""Which files below given folders a process has open for writing, and how large they are: is it saving something?"""

# asked of every member ten times a second while a run is being stopped:
# ruff: noqa: PTH115, PTH116, PTH208
from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from supervisor.core.evidence import ProcessId
from supervisor.edges import proc
from supervisor.edges.signals import Named

FDS_MAX = 65536


class Writing(Struct, frozen=True):
    """A file open for writing. Two looks with a larger size or a new file in between are a file that grows."""

    id: ProcessId
    path: str
    size_bytes: int
    inode: int


def open_for_writing(member: Named, under: Sequence[Path]) -> tuple[Writing, ...]:
    """What the process has open for writing below the folders; empty also where that may not be seen.

    `under` is compared after its links were followed, as the kernel shows paths.
    """
    folders = tuple(f"{path.resolve()}{os.sep}" for path in under)
    if not folders or proc.start_ticks(member.id.pid) != member.id.start_ticks:
        return ()
    where = proc.folder(member.id.pid)
    try:
        fds = os.listdir(f"{where}/fd")[:FDS_MAX]
    except OSError:  # ended, or another user's
        return ()
    found = (_writing(member.id, where, fd, folders) for fd in fds)
    return tuple(one for one in found if one is not None)


def _writing(process: ProcessId, where: str, fd: str, folders: tuple[str, ...]) -> Writing | None:
    try:
        path = os.readlink(f"{where}/fd/{fd}")
        if not path.startswith(folders) or not _is_for_writing(f"{where}/fdinfo/{fd}"):
            return None
        seen = os.stat(f"{where}/fd/{fd}")  # the file itself, also where its name is gone
    except OSError:  # closed meanwhile
        return None
    return Writing(process, path.removesuffix(" (deleted)"), seen.st_size, seen.st_ino)


def _is_for_writing(fdinfo: str) -> bool:
    """By the access mode in `flags:`, which is octal; proc_pid_fdinfo(5)."""
    for line in (proc.read(fdinfo, 4096) or b"").splitlines():
        if line.startswith(b"flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False
