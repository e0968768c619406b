"""Locks that die with their holder: open-file-description locks on files that are never unlinked.

A lock belongs to one opened file, so it is gone when the process that took it is gone, however it ended.
Two ways that could be undone are closed here: a child that inherits the descriptor (close-on-exec, and closed
after a fork), and a lock file that was removed and made anew (inode and path are compared after locking).
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

# F_OFD_* are in the fcntl module from Python 3.9 on where the C library has them; the numbers are Linux'.
_GETLK = getattr(fcntl, "F_OFD_GETLK", 36)
_SETLK = getattr(fcntl, "F_OFD_SETLK", 37)
_SETLKW = getattr(fcntl, "F_OFD_SETLKW", 38)
# struct flock: type, whence, start, length, pid (must be 0 for OFD locks); length 0 means the whole file.
_FLOCK = struct.Struct("hhqqi4x")
_TRIES = 16  # how often a lock file may be replaced under us before that is an error
_NOTE_CAP_BYTES = 4096

_held: set[int] = set()


class Lock:
    """A lock that is held, by this process, until `release` or death."""

    def __init__(self, path: Path, fd: int) -> None:
        """Not for callers: see `try_take`."""
        self.path = path
        self._fd = fd
        _held.add(fd)

    @classmethod
    def try_take(cls, path: Path, *, mode: int = 0o600) -> Lock | None:
        """The lock, or None when another holds it. Makes the file (exactly `mode`) where there is none.

        Raises OSError when the file cannot be made or opened, or the file system has no locks.
        """
        for _ in range(_TRIES):
            fd = _open(path, mode)
            try:
                if not _lock(fd):
                    os.close(fd)
                    return None
                if _is_at(fd, path):
                    return cls(path, fd)
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
        raise OSError(errno.ESTALE, "the lock file is replaced again and again", str(path))

    @classmethod
    def wait(cls, path: Path, *, mode: int = 0o600) -> Lock:
        """The lock, as soon as its holder is gone: blocks without a deadline, for a process that does nothing else."""
        while True:
            lock = cls.try_take(path, mode=mode)
            if lock is not None:
                return lock
            fd = _open(path, mode)
            try:
                fcntl.fcntl(fd, _SETLKW, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            finally:
                os.close(fd)  # taken again above, where the inode is looked at

    def note(self, text: str) -> None:
        """Write who holds the lock into its file, for people; it proves nothing. At most 4 KiB."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, text.encode()[:_NOTE_CAP_BYTES], 0)

    def is_ours(self) -> bool:
        """True while the file at the path is the one that is locked, not another or none."""
        return self._fd >= 0 and _is_at(self._fd, self.path)

    def release(self) -> None:
        """Give the lock back, also if a child holds a copy of the descriptor. The file stays."""
        if self._fd < 0:
            return
        fcntl.fcntl(self._fd, _SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))
        os.close(self._fd)
        _held.discard(self._fd)
        self._fd = -1


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock, this process included. Takes nothing. False when there is no file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        answer = fcntl.fcntl(fd, _GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    finally:
        os.close(fd)
    kind: int = _FLOCK.unpack(answer)[0]
    return kind != fcntl.F_UNLCK


def read_note(path: Path) -> str:
    """What the last holder wrote into the file; empty when nothing or no file. Proves nothing."""
    try:
        with open(path, "rb") as file:
            return file.read(_NOTE_CAP_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""


def _open(path: Path, mode: int) -> int:
    """Open or make the lock file.

    Not with O_CREAT alone: in a sticky shared folder fs.protected_regular refuses that for files of others.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    for _ in range(_TRIES):
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            pass  # made below
        try:
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            continue  # another was faster: open theirs
        os.fchmod(fd, mode)  # whatever the umask says
        return fd
    raise OSError(errno.ESTALE, "the lock file comes and goes", str(path))


def _lock(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, _SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False


def _close_in_child() -> None:
    """After a fork the child drops its copies: the lock stays with the parent alone."""
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)
