"""Shows the growing output file in the pane of a terminal, and never waits for the pane. What is shown is not kept.

Used by the runner only; standard library only. The job writes to the file itself, so a pane that nobody reads, a
stopped tmux server or a dead one costs it nothing: what the pane does not take is dropped, the file has it all.
"""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 64 << 10
BEHIND_MAX = 1 << 20
"""More than this behind and the pane is of no use to a person: it jumps to the last CHUNK."""
_IN_MODIFY, _IN_CLOEXEC, _IN_NONBLOCK = 0x2, 0o2000000, 0o4000


class Mirror:
    """Follows one file into one descriptor. `changed` is a descriptor to poll for reading, -1 where there is none."""

    def __init__(self, path: str, pane: int, libc: ctypes.CDLL) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._pane = _own_nonblocking(pane)
        self._at = os.fstat(self._file).st_size
        self._waiting = b""
        self.changed = _watch(path, libc)

    @property
    def blocked(self) -> int:
        """The descriptor to poll for writing while bytes wait for the pane, else -1."""
        return self._pane if self._waiting else -1

    @property
    def is_over(self) -> bool:
        """True once the pane is gone; nothing is read or shown any more."""
        return self._pane < 0

    def pump(self) -> None:
        """Hands the pane what it takes now of what is new; at most BEHIND_MAX bytes, never waiting."""
        if self.changed >= 0:
            _drain(self.changed)
        for _ in range(BEHIND_MAX // CHUNK):
            if self._pane < 0 or not self._next():
                return
            try:
                self._waiting = self._waiting[os.write(self._pane, self._waiting) :]
            except BlockingIOError:
                return
            except OSError:  # the terminal is gone, and with it the reader
                self.close()

    def say(self, text: str) -> None:
        """A line of ours in the pane only."""
        self.pump()
        if self._pane >= 0:
            self._waiting += f"\r\n[supervise] {text}\r\n".encode()
            self.pump()

    def close(self) -> None:
        """Stops showing."""
        for fd in (self._pane, self.changed, self._file):
            if fd >= 0:
                os.close(fd)
        self._pane = self.changed = self._file = -1
        self._waiting = b""

    def _next(self) -> bool:
        """True when there are bytes for the pane."""
        size = os.fstat(self._file).st_size
        if size < self._at:  # somebody cut the file: what is new begins at its end
            self._at = size
        if size - self._at > BEHIND_MAX:
            dropped = size - self._at - CHUNK
            self._waiting = f"\r\n[supervise] {dropped} bytes not shown here\r\n".encode()
            self._at = size - CHUNK
        if not self._waiting:
            self._waiting = os.pread(self._file, CHUNK, self._at)
            self._at += len(self._waiting)
        return bool(self._waiting)


def _own_nonblocking(fd: int) -> int:
    """A description of our own where that can be had: O_NONBLOCK on a shared one would reach its other users."""
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_APPEND)
    except OSError:
        own = os.dup(fd)
        os.set_blocking(own, False)
        return own


def _watch(path: str, libc: ctypes.CDLL) -> int:
    """An inotify descriptor for writes to the file, or -1: then the caller's own pace has to do."""
    init: Callable[[int], int] = libc.inotify_init1
    fd = init(_IN_CLOEXEC | _IN_NONBLOCK)
    if fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(fd)
        return -1
    return fd


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            continue
    except BlockingIOError:
        return
