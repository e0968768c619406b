"""The output directory before a launch: looked at, removed when empty, renamed. What is right is `core/stale.py`.

Rule 1: nothing is deleted but by rmdir, which fails on anything that is not empty.
Rule 2: it is looked at again right before it is touched; what has changed since is left alone.
"""

# Paths are text here: they are compared and matched, and a trailing slash or a link must not be resolved early.
# ruff: noqa: PTH104, PTH106, PTH118, PTH119, PTH120, PTH207, PTH208

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct

from supervisor.core.stale import OutputSeen
from supervisor.edges.bounded import within
from supervisor.edges.files import fsync_dir

MATCHES_CAP = 100_000


class Cleaned(Struct, frozen=True):
    """What was done: `did` is `removed`, `archived` or empty, `why` says it in words."""

    did: str
    why: str


def look(path: str, workdir: str, protecting: Sequence[str], deadline_s: float = 10.0) -> OutputSeen:
    """The output directory as it is now. What cannot be read in time has a `bar`, never an empty look.

    `protecting`: absolute globs (`resume.from`, `health.progress.files`, `output.units`).
    """
    path = os.path.normpath(path)
    try:
        return within(deadline_s, lambda: _look(path, workdir, protecting), f"looking at {path}")
    except OSError as error:
        return OutputSeen(path=path, bar=f"it cannot be read: {error}")


def ensure_clean(
    path: str, how: str, to: str | None, workdir: str, protecting: Sequence[str], deadline_s: float = 10.0
) -> Cleaned:
    """Does what the journal says (`remove` or `archive`), once: a second call finds it done. Raises OSError."""
    path = os.path.normpath(path)
    seen = look(path, workdir, protecting, deadline_s)
    if not seen.exists:
        archived = to is not None and os.path.lexists(to)
        return Cleaned("archived", f"renamed to {to}") if archived else Cleaned("", "there is none")
    if seen.bar is not None:
        return Cleaned("", seen.bar)
    if how == "remove":
        return _remove(path) if seen.empty else Cleaned("", "it is not empty any more")
    if seen.holds is not None:
        return Cleaned("", f"it holds {seen.holds}")
    if to is None or os.path.lexists(to):
        return Cleaned("", f"{to} is there already")
    os.rename(path, to)
    fsync_dir(Path(path).parent)
    return Cleaned("archived", f"renamed to {to}")


def _remove(path: str) -> Cleaned:
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return Cleaned("", "there is none")
    except OSError as error:  # not empty any more, busy: left alone, whatever it is
        return Cleaned("", f"it could not be removed: {error.strerror}")
    fsync_dir(Path(path).parent)
    return Cleaned("removed", "it was empty")


def _look(path: str, workdir: str, protecting: Sequence[str]) -> OutputSeen:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return OutputSeen(path=path, exists=False)
    bar = _bar(path, workdir, status)
    if bar is not None:
        return OutputSeen(path=path, bar=bar)
    with os.scandir(path) as entries:
        empty = next(entries, None) is None
    folder, name = os.path.split(path)
    beside = frozenset(one for one in os.listdir(folder) if one.startswith(name))
    return OutputSeen(path=path, empty=empty, holds=None if empty else _held(path, protecting), beside=beside)


def _bar(path: str, workdir: str, status: os.stat_result) -> str | None:
    if stat.S_ISLNK(status.st_mode):
        return "it is a symbolic link"
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a directory"
    real, root = os.path.realpath(path), os.path.realpath(workdir).rstrip("/")
    if not real.startswith(f"{root}/"):
        return f"it is not inside workdir ({workdir})"
    for mount in _mount_points():
        if mount == real:
            return "it is a mount point"
        if mount.startswith(f"{real}/"):
            return f"{mount} is mounted in it"
    return None


def _mount_points() -> list[str]:
    """Field 5 of /proc/self/mountinfo, octal escapes undone: bind mounts too, which os.path.ismount misses."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        fields = [line.split(" ")[4] for line in file]
    return [re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), field) for field in fields]


def _held(path: str, protecting: Sequence[str]) -> str | None:
    """The first match of a pattern that lies in the directory, by where paths really lead, or is it."""
    real = os.path.realpath(path)
    for pattern in protecting:
        if not _may_lie_in(pattern, real):
            continue
        for match in islice(glob.iglob(pattern, recursive=True), MATCHES_CAP):
            match = os.path.normpath(match)
            where = os.path.join(os.path.realpath(os.path.dirname(match)), os.path.basename(match))
            if f"{where}/".startswith(f"{real}/"):
                return os.path.relpath(match, path) if where != real else f"what matches {pattern}"
    return None


def _may_lie_in(pattern: str, real: str) -> bool:
    """False where the fixed part of the pattern leads elsewhere: that tree is not walked."""
    fixed = pattern
    while glob.has_magic(fixed):
        fixed = os.path.dirname(fixed)
    fixed = os.path.realpath(fixed)
    return f"{fixed}/".startswith(f"{real}/") or f"{real}/".startswith(f"{fixed.rstrip('/')}/")
