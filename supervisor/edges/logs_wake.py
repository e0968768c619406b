"""A descriptor that turns readable when a followed file grows or a new one appears. Only a wake-up.

What is true, `stat` says.

Two sources, one descriptor (`fd`, an epoll of both):
- each followed file has an inotify watch of our own, read in the caller's thread. Measured from write to hit, a
  hop through watchdog's two threads costs 0.3 ms more than that, which is more than all the rest;
- the directories of globs are watched by watchdog: there latency does not matter, and its threads live only
  where there are globs.
Both miss changes on network file systems and may not be had at all (limits per user, shared with all containers
of the host). All of that costs latency, never a line.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Each directory is a thread of watchdog; more are polled.
_DIRECTORIES = 32
_JOIN_S = 2.0

# <sys/inotify.h>
_MODIFY, _ATTRIB, _MOVE_SELF, _DELETE_SELF = 0x2, 0x4, 0x800, 0x400
_NONBLOCK, _CLOEXEC = 0o4000, 0o2000000


class Waker:
    """Watches files, and directories (not recursively) for new ones. `fd` is readable when it is worth a look.

    `why_polling` says why some changes give no wake-up; None while all do.
    """

    def __init__(self, appeared: Callable[[], None]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._epoll = select.epoll()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._event, select.EPOLLIN)
        self._inotify: int = self._libc.inotify_init1(_NONBLOCK | _CLOEXEC)
        self.why_polling: str | None = None
        if self._inotify >= 0:
            self._epoll.register(self._inotify, select.EPOLLIN)
        else:
            self.why_polling = _why(ctypes.get_errno())
        self._appeared = appeared
        self._observer: Any = None
        self._watched: dict[str, tuple[Any, tuple[int, int]]] = {}

    @property
    def fd(self) -> int:
        """The descriptor to wait for."""
        return self._epoll.fileno()

    def watch_file(self, fd: int) -> None:
        """Wake when the open file changes, whatever its name is by now. The kernel forgets it with the file."""
        if self._inotify < 0:
            return
        path = f"/proc/self/fd/{fd}".encode()
        mask = _MODIFY | _ATTRIB | _MOVE_SELF | _DELETE_SELF
        if self._libc.inotify_add_watch(self._inotify, path, mask) < 0:
            self.why_polling = _why(ctypes.get_errno())

    def watch_directories(self, directories: Iterable[str]) -> None:
        """Wake when something appears in them, as far as they exist; watch anew those that were recreated."""
        for directory in list(directories)[:_DIRECTORIES]:
            try:
                status = Path(directory).stat()
            except OSError:
                continue
            identity = (status.st_dev, status.st_ino)
            seen = self._watched.get(directory)
            if seen is not None and seen[1] == identity and self._hears(seen[0]):
                continue
            self._schedule(directory, identity, seen[0] if seen else None)

    def drain(self) -> None:
        """Take all wake-ups there are; what they say does not matter."""
        for fd, _ in self._epoll.poll(0):  # asked first: an exception for each that has nothing costs 40 µs
            os.read(fd, 64 << 10)

    def close(self) -> None:
        """End the threads and the descriptors."""
        if self._observer is not None:
            self._observer.stop()
            if self._observer.is_alive():
                self._observer.join(_JOIN_S)
            self._observer = None
        if self._event >= 0:
            self._epoll.close()
            os.close(self._event)
            if self._inotify >= 0:
                os.close(self._inotify)
            self._event = self._inotify = -1

    def _hears(self, watch: Any) -> bool:
        """False where the watch's thread has ended: its directory was deleted, and the new one has its inode."""
        return any(emitter.watch == watch and emitter.is_alive() for emitter in self._observer.emitters)

    def _schedule(self, directory: str, identity: tuple[int, int], old: Any) -> None:
        try:
            if self._observer is None:
                self._observer = self._start()
            if old is not None:
                with suppress(KeyError, OSError):  # the emitter of a directory that is gone has ended by itself
                    self._observer.unschedule(old)
            handler, heard = _handler(self._touched)
            watch = self._observer.schedule(handler, directory, recursive=False, event_filter=heard)
        except (OSError, RuntimeError) as error:
            self.why_polling = _why(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            return
        self._watched[directory] = (watch, identity)

    @staticmethod
    def _start() -> Any:
        from watchdog.observers import Observer  # here: only who follows globs pays for it

        observer = Observer()
        observer.daemon = True
        observer.start()
        return observer

    def _touched(self) -> None:
        if self._event >= 0:
            self._appeared()
            with suppress(BlockingIOError, OSError):  # full: the reader is awake already; closed: nobody reads
                os.eventfd_write(self._event, 1)


def _why(code: int) -> str:
    """EMFILE and ENOSPC are here the limits on inotify instances and watches, not a full disk."""
    return f"inotify: {errno.errorcode.get(code, str(code))} ({os.strerror(code)})"


def _handler(touched: Callable[[], None]) -> tuple[Any, list[type]]:
    """The handler, and what it is to hear of: else watchdog's threads look at each write of each log, which is two
    fifths of what watching costs."""
    from watchdog import events

    class Handler(events.FileSystemEventHandler):
        """Runs in watchdog's thread and does nothing there but wake the reader: its queue has no bound."""

        def on_any_event(self, event: events.FileSystemEvent) -> None:
            touched()

    return Handler(), [events.FileCreatedEvent, events.FileMovedEvent, events.DirCreatedEvent, events.DirMovedEvent]


def directory_of(pattern: str) -> str:
    """The directory that holds a path, or of a glob its part before the first wildcard."""
    parts = Path(pattern).parts
    wild = next((n for n, part in enumerate(parts) if any(char in part for char in "*?[")), len(parts) - 1)
    return str(Path(*parts[:wild])) if wild else "."
