"""One place to sleep in: until something may have changed, or until it is time."""

from __future__ import annotations

import os
import select
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


class Waker:
    """Sleeps on descriptors. `bell` is a pipe in the run's folder that verbs write to; `wake` is for threads."""

    def __init__(self, bell: Path) -> None:
        with suppress(FileExistsError):
            os.mkfifo(bell, 0o600)
        self._bell = os.open(bell, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._inner_r, self._inner_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wake(self) -> None:
        """End the current or next sleep at once. May be called from any thread."""
        with suppress(BlockingIOError):
            os.write(self._inner_w, b"x")

    def sleep(self, seconds: float, fds: Iterable[int]) -> set[int]:
        """Sleep until one of `fds` is readable, the bell rings, `wake` is called, or time is over (empty then)."""
        poll = select.poll()
        for fd in (self._bell, self._inner_r, *fds):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(max(0.0, seconds) * 1000)}
        for fd in ready & {self._bell, self._inner_r}:
            with suppress(BlockingIOError):
                os.read(fd, 4096)
        return ready
