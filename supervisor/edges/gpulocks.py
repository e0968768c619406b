"""One lock for each GPU of the box, by UUID, shared by all its users. Not a word here on what the GPU shows.

`SUPERVISE_LOCKS` (default /run/lock/supervise) is a sticky directory that everybody may write; a lock is a file
UUID.lock (0666, never removed) that names run, user and pid, for people. A run that is wanted up keeps its locks over
backoff and verify, so a GPU that looks idle is still somebody's.
"""

from __future__ import annotations

import json
import os
import pwd
import re
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, field

from supervisor.core.errors import Exit, Refusal
from supervisor.core.evidence import Uuid
from supervisor.edges.locks import Lock, is_held, read_note

DEFAULT = "/run/lock/supervise"
FOLDER_MODE = 0o1777
FILE_MODE = 0o666
UNKNOWN = "?"


class Conflict(Struct, frozen=True):
    """A GPU that another run has. Run and user are `?` where the lock's file does not tell."""

    uuid: Uuid
    run: str
    user: str
    pid: int | None = None

    def __str__(self) -> str:
        pid = f", pid {self.pid}" if self.pid else ""
        return f"GPU {self.uuid} belongs to run {self.run} of {self.user}{pid}"


class GpuLocks(Struct):
    """GPUs that are ours until `release`, or until this process ends."""

    run: str
    folder: Path
    held: dict[Uuid, Lock] = field(default_factory=dict)

    @property
    def uuids(self) -> frozenset[Uuid]:
        """The GPUs whose locks are held."""
        return frozenset(self.held)

    def release(self, uuids: Iterable[Uuid] | None = None) -> None:
        """Gives these GPUs back, or all."""
        for uuid in [*self.held] if uuids is None else uuids:
            lock = self.held.pop(uuid, None)
            if lock is not None:
                lock.note("")
                lock.release()


def folder() -> Path:
    """Where the locks of this box are."""
    return Path(os.environ.get("SUPERVISE_LOCKS") or DEFAULT)


def take(uuids: Iterable[Uuid], run: str, *, held: GpuLocks | None = None) -> GpuLocks | Conflict:
    """All of these GPUs, or none and the first that another run has.

    Idempotent with `held`: what it holds is kept, what is missing is added. Refusal (6) where locks cannot be made.
    """
    locks = held or GpuLocks(run, folder())
    fresh: list[Uuid] = []
    for uuid in sorted(set(uuids) - locks.uuids):
        try:
            _ensure_folder(locks.folder)
            lock = Lock.try_take(_path(locks.folder, uuid), mode=FILE_MODE)
        except OSError as error:
            locks.release(fresh)
            raise Refusal(Exit.PREFLIGHT, _cannot(locks.folder, error)) from error
        if lock is None:
            locks.release(fresh)
            return who(uuid, locks.folder) or Conflict(uuid, UNKNOWN, UNKNOWN)
        lock.note(json.dumps({"run": run, "user": _user(), "pid": os.getpid()}))
        locks.held[uuid] = lock
        fresh.append(uuid)
    return locks


def who(uuid: Uuid, where: Path | None = None) -> Conflict | None:
    """Whose a GPU is, without taking anything; None for a free one. A lock that may not be read is free or unknown."""
    path = _path(where or folder(), uuid)
    try:
        if not is_held(path):
            return None
        note = json.loads(read_note(path))
        return Conflict(uuid, str(note["run"]), str(note["user"]), int(note["pid"]))
    except PermissionError:
        return Conflict(uuid, UNKNOWN, UNKNOWN)
    except (ValueError, KeyError, TypeError):  # held, and its holder has not yet written who it is, or never did
        return Conflict(uuid, UNKNOWN, UNKNOWN)


def _ensure_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return
    path.chmod(FOLDER_MODE)


def _path(where: Path, uuid: Uuid) -> Path:
    return where / f"{re.sub('[^A-Za-z0-9-]', '_', uuid)}.lock"


def _cannot(path: Path, error: OSError) -> str:
    return (
        f"the GPU locks in {path} cannot be used ({error.strerror}), so it cannot be known whether another run has "
        f"these GPUs. Once, as root: `install -d -m 1777 {path}`; or set SUPERVISE_LOCKS, the same for all users"
    )


def _user() -> str:
    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
