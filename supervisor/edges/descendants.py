"""Which processes descend from this one, kept in `members.jsonl`: changes only, one JSON object a line.

Used by the runner once a second, and by the supervisor where the runner is dead. A record is a fact that was true
when it was written; whether the process still lives, and whether it may be signalled, is for the reader to find out.

A line: {"pid", "start_ticks", "pgid", "sid", "cmdline"}; the first one has "leader": true and "boot_id" besides.
A process gets a new line when it changes its group or session, and for its first few titles.
"""

# pathlib costs the runner milliseconds of its start:
# ruff: noqa: PTH105, PTH108
from __future__ import annotations

import json
import os
import re  # json has loaded it already

from supervisor.edges import proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from supervisor.edges.proc import ProcStat

CMDLINE_MAX = 400
TITLES_MAX = 4
"""Some programs write their step count into their title."""
FILE_MAX = 4 << 20
"""Beyond this the file is written anew with the living only: loader processes come and go every epoch."""
LINES_MAX = 4096
"""So many lines wait for a full disk; beyond it only the living are written."""
FULL_EVERY = 30
"""Every so many looks all processes are read again, for a number that was reused between two looks."""
YOUNG = 3
"""So many looks at a new process: it may still be about to leave its session or to execute its program."""


class _Known:
    __slots__ = ("cmdline", "looks", "seen", "titles")

    def __init__(self, seen: ProcStat) -> None:
        self.seen = seen
        self.cmdline = ""
        self.titles = 0
        self.looks = 0


class Descendants:
    """The processes below `top`, a process that adopts the orphans among them (a child subreaper)."""

    def __init__(self, top: int, path: str, hide: Iterable[str] = ()) -> None:
        self._top = top
        self._path = path
        values = sorted((re.escape(value) for value in hide if value), key=len, reverse=True)
        self._hide = re.compile("|".join(values)) if values else None
        self._known: dict[int, _Known] = {}
        self._others: frozenset[int] = frozenset()
        self._last_pid = b""
        self._looks = 0
        self._lines: list[bytes] = []
        self._first = b""
        self._size = 0

    def leader(self, pid: int, argv: Iterable[str], boot_id: str) -> int:
        """Records the job's first process, which leads a session of its own. Its start ticks, 0 if it is gone."""
        seen = proc.stat(pid)
        if seen is None:
            return 0
        known = self._known[pid] = _Known(seen._replace(pgid=pid, sid=pid))
        known.cmdline = self._shown(" ".join(argv))
        self._note(known, leader=True, boot_id=boot_id)
        self._first = self._lines[-1]
        self._flush()
        return seen.start_ticks

    def look(self) -> None:
        """Finds who is new and who has changed, and writes that down; what cannot be written now is kept for later."""
        self._looks += 1
        full = self._looks % FULL_EVERY == 0
        last_pid = (proc.read("/proc/loadavg", 4095) or b"").rsplit(b" ", 1)[-1]
        if full or last_pid != self._last_pid:  # the newest number of this PID namespace: nobody was born since
            self._last_pid = last_pid
            self._find_new(full)
        for pid, known in list(self._known.items()):
            if full or known.looks < YOUNG:
                known.looks += 1
                self._look_again(pid, known)
        self._flush()

    def _find_new(self, full: bool) -> None:
        here = frozenset(proc.pids())
        for pid in self._known.keys() - here:
            del self._known[pid]
        fresh = here - self._known.keys() if full else here - self._known.keys() - self._others
        unplaced = [seen for seen in map(proc.stat, fresh) if seen is not None and not seen.flags & proc.KERNEL_THREAD]
        while True:
            mine = [seen for seen in unplaced if self._is_below(seen)]
            if not mine:
                break
            for seen in mine:
                self._known[seen.pid] = _Known(seen)
            unplaced = [seen for seen in unplaced if seen.pid not in self._known]
        self._others = here - self._known.keys()
        strangers = self._others - {seen.pid for seen in unplaced if self._lost_its_parent(seen, unplaced)}
        if strangers != self._others:  # it was reparented while we read: who to is seen at the next look
            self._others, self._last_pid = strangers, b""

    def _lost_its_parent(self, seen: ProcStat, unplaced: list[ProcStat]) -> bool:
        return seen.ppid != 0 and seen.ppid not in self._others and all(seen.ppid != other.pid for other in unplaced)

    def _is_below(self, seen: ProcStat) -> bool:
        """True when the parent that was read is ours and was the same process all the while."""
        if seen.ppid == self._top:
            return True
        parent = self._known.get(seen.ppid)
        return parent is not None and proc.start_ticks(seen.ppid) == parent.seen.start_ticks

    def _look_again(self, pid: int, known: _Known) -> None:
        seen = proc.stat(pid)
        if seen is None or seen.start_ticks != known.seen.start_ticks:
            del self._known[pid]
            return
        moved = (seen.pgid, seen.sid) != (known.seen.pgid, known.seen.sid)
        cmdline = known.cmdline
        if known.titles < TITLES_MAX and not proc.is_dead(seen):
            cmdline = self._shown(proc.cmdline(pid)) or cmdline
        if moved or cmdline != known.cmdline:
            known.titles += cmdline != known.cmdline
            known.seen, known.cmdline = seen, cmdline
            self._note(known)

    def _shown(self, cmdline: str) -> str:
        return (self._hide.sub("<secret>", cmdline) if self._hide else cmdline)[:CMDLINE_MAX]

    def _note(self, known: _Known, **more: object) -> None:
        seen = known.seen
        line = {
            "pid": seen.pid,
            "start_ticks": seen.start_ticks,
            "pgid": seen.pgid,
            "sid": seen.sid,
            "cmdline": known.cmdline,
        }
        self._lines.append(json.dumps({**line, **more}, separators=(",", ":")).encode() + b"\n")

    def _flush(self) -> None:
        """One write for all lines. A full disk keeps them for the next look; a half line is ended before the next."""
        if not self._lines:
            return
        if self._size > FILE_MAX or len(self._lines) > LINES_MAX:
            self._lines[:] = [self._first]  # the leader's stays, dead or alive: it is who the job was
            for known in self._known.values():
                self._note(known)
            self._rewrite(b"".join(self._lines))
            return
        data = b"".join(self._lines)
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                written = os.write(fd, data)
            finally:
                os.close(fd)
        except OSError:
            return
        self._size += written
        if written == len(data):
            self._lines.clear()
        else:  # the torn line is unreadable to all; said again in full
            self._lines[:] = [b"\n", data]

    def _rewrite(self, data: bytes) -> None:
        tmp = f"{self._path}.tmp"
        try:
            fd = os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                whole = os.write(fd, data) == len(data)
            finally:
                os.close(fd)
            if whole:
                os.replace(tmp, self._path)
                self._size = len(data)
                self._lines.clear()
            else:
                os.unlink(tmp)
        except OSError:
            self._size = FILE_MAX + 1  # tried again at the next change
