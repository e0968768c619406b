"""What verbs ask of a run: one file each in `requests/`, whole or not there. Not what is done about them."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from supervisor.edges.files import fsync_dir, make_private_dir, read_json, to_json, write_atomic
from supervisor.edges.paths import RunDir

_ID = re.compile(r"[0-9]{19}-[0-9a-f]{8}")
_UNREADABLE = (errno.EACCES, errno.EPERM, errno.EIO, errno.ELOOP)
_LEFTOVER_S = 3600.0  # a temporary file of this age belongs to a verb that was killed


class Request(Struct, frozen=True):
    """A request: `data` as it was put, `verb` of it, `asked_wall_s` from the id (for people, and for the order)."""

    id: str
    verb: str
    data: dict[str, Any]
    asked_wall_s: float


class Malformed(Struct, frozen=True):
    """A file that is no request; it was moved to `moved_to` and is not looked at again."""

    name: str
    why: str
    moved_to: Path


def new_id() -> str:
    """An id that sorts by the time it was made; two made in the same nanosecond still differ."""
    return f"{time.time_ns():019d}-{os.urandom(4).hex()}"


def put(run_dir: RunDir, request: dict[str, Any], *, id: str | None = None) -> str:
    """Ask: `request` is a JSON object with a string `verb`. When this returns the id, the request is on the disk.

    `id` is one of `new_id`, for a caller that stages secrets under it first. Raises OSError.
    """
    if not isinstance(request.get("verb"), str):
        raise ValueError("a request has a verb")
    request_id = id or new_id()
    make_private_dir(run_dir.requests)
    write_atomic(_path(run_dir, request_id), to_json(request))
    _ring(run_dir)
    return request_id


def _ring(run_dir: RunDir) -> None:
    """Wake the run's supervisor, where it sleeps on its bell; it looks once a second without it, too."""
    try:
        fd = os.open(run_dir.bell, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # no bell yet, or nobody at it
        return
    try:
        os.write(fd, b"x")
    except BlockingIOError:
        return  # it rings already
    finally:
        os.close(fd)


def is_waiting(run_dir: RunDir) -> bool:
    """Whether anything stands in the folder that `unread` would look at."""
    return next(_names(run_dir), None) is not None


def unread(run_dir: RunDir) -> list[Request]:
    """The requests that are there, oldest first. See `look` for what is no request."""
    return look(run_dir)[0]


def look(run_dir: RunDir) -> tuple[list[Request], list[Malformed]]:
    """The requests that are there, oldest first, and what is no request: moved aside by this call, told once."""
    good: list[Request] = []
    bad: list[Malformed] = []
    for name in sorted(_names(run_dir)):
        try:
            request = _read(run_dir.requests / name)
        except ValueError as error:
            why = str(error)
        except OSError as error:
            if error.errno not in _UNREADABLE:
                continue  # no descriptors, no memory: it is looked at again
            why = f"cannot be read: {error.strerror}"
        else:
            if request is not None:
                good.append(request)
            continue
        moved = _move_aside(run_dir, name, why)
        if moved is not None:
            bad.append(moved)
    _sweep(run_dir)
    return good, bad


def remove(run_dir: RunDir, request_id: str) -> None:
    """Take the request away, durably; fine when it is gone already."""
    try:
        _path(run_dir, request_id).unlink()
    except FileNotFoundError:
        return
    fsync_dir(run_dir.requests)


def _path(run_dir: RunDir, request_id: str) -> Path:
    if not _ID.fullmatch(request_id):
        raise ValueError(f"not the id of a request: {request_id!r}")
    return run_dir.requests / f"{request_id}.json"


def _names(run_dir: RunDir) -> Iterator[str]:
    """Names of visible files in the folder; hidden ones are still being written."""
    try:
        with os.scandir(run_dir.requests) as entries:
            for entry in entries:
                if not entry.name.startswith(".") and not entry.is_dir(follow_symlinks=False):
                    yield entry.name
    except FileNotFoundError:
        return


def _read(path: Path) -> Request | None:
    """The request in the file; None when it was taken away meanwhile. Raises ValueError when it is none, OSError."""
    request_id = path.name.removesuffix(".json")
    if not path.name.endswith(".json") or not _ID.fullmatch(request_id):
        raise ValueError("the name is not that of a request")
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(seen.st_mode):
        raise ValueError("not a regular file")
    if seen.st_uid not in (os.geteuid(), path.parent.lstat().st_uid):
        raise ValueError(f"written by another user ({seen.st_uid})")
    data = read_json(path)
    if data is None:
        return None
    if not isinstance(data, dict) or not isinstance(data.get("verb"), str):
        raise ValueError("not a JSON object with a verb")
    return Request(request_id, data["verb"], data, int(request_id[:19]) / 1e9)


def _move_aside(run_dir: RunDir, name: str, why: str) -> Malformed | None:
    """To a hidden name beside it, so that it is neither lost nor looked at again; this needs no room on the disk."""
    to = run_dir.requests / f".{name}.malformed"
    try:
        (run_dir.requests / name).rename(to)
    except FileNotFoundError:
        return None  # taken away meanwhile
    return Malformed(name, why, to)


def _sweep(run_dir: RunDir) -> None:
    """Remove temporary files of verbs that were killed while writing."""
    try:
        leftovers = list(run_dir.requests.glob(".*.tmp"))
    except FileNotFoundError:
        return
    for path in leftovers:
        try:
            if time.time() - path.stat().st_mtime > _LEFTOVER_S:
                path.unlink()
        except FileNotFoundError:
            continue  # its writer just finished
