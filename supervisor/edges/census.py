"""Everybody who is there: one pass over /proc, and the token that each process was given. Whose it is: processes.py.

Written for speed, because it runs ten times a second while a run is being stopped: one stat and one environment per
process, nothing else, and nothing of kernel threads.
"""

# a sweep reads thousands of files; pathlib would cost more than the kernel:
# ruff: noqa: PTH208
from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct, field

from supervisor.edges import proc
from supervisor.edges.proc import ProcStat

TOKEN = "SUPERVISE_TOKEN"
_ENTRY = b"\0" + TOKEN.encode() + b"="
PASSES = 3
"""A process that is born while we read is found by the next pass; one that is born in the third by the next census."""


class Census(Struct):
    """`tokens` has a process only where its environment holds a token; `unreadable` are those not shown to us."""

    stats: dict[int, ProcStat] = field(default_factory=dict)
    tokens: dict[int, str] = field(default_factory=dict)
    unreadable: set[int] = field(default_factory=set)

    @classmethod
    def take(cls) -> Census:
        """Reads everybody once, the newborn too."""
        census = cls()
        for _ in range(PASSES):
            fresh = [int(name) for name in os.listdir("/proc") if name[0] in "123456789"]
            fresh = [pid for pid in fresh if pid not in census.stats]
            if not fresh:
                break
            for pid in fresh:
                census._add(pid)
        return census

    def _add(self, pid: int) -> None:
        try:
            fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            seen = proc.parse_stat(os.read(fd, 4096))
        except OSError:  # it ended between the two calls
            return
        finally:
            os.close(fd)
        if seen is None:
            return
        self.stats[pid] = seen
        if seen.flags & proc.KERNEL_THREAD or proc.is_dead(seen):
            return
        try:
            token = token_of(f"/proc/{pid}" if seen.state not in proc.DEAD else proc.folder(pid))
        except PermissionError:
            self.unreadable.add(pid)
        except OSError:
            return
        else:
            if token:
                self.tokens[pid] = token

    def ancestors(self, pid: int) -> Iterator[int]:
        """Parent, its parent and so on; ends at the first process, or where a parent is not to be seen."""
        seen = self.stats.get(pid)
        for _ in range(len(self.stats)):
            if seen is None or seen.ppid == 0:
                return
            yield seen.ppid
            seen = self.stats.get(seen.ppid)

    def is_there(self, pid: int, start_ticks: int) -> bool:
        """True when this very process was alive at the census."""
        seen = self.stats.get(pid)
        return seen is not None and seen.start_ticks == start_ticks and not proc.is_dead(seen)


def token_of(folder: str) -> str:
    """The token in an environment; "" where there is none. Whole entries only: `r1` is not `r10`. Raises OSError."""
    fd = os.open(f"{folder}/environ", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b"\0" + os.read(fd, 1 << 16)
        while len(data) % (1 << 16) == 1 and len(data) < 4 << 20:
            more = os.read(fd, 1 << 16)
            if not more:
                break
            data += more
    finally:
        os.close(fd)
    at = data.find(_ENTRY)
    if at < 0:
        return ""
    value = data[at + len(_ENTRY) :].split(b"\0", 1)[0]
    return os.fsdecode(value)
