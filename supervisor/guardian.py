"""A supervisor for each open run that has none. One process per state directory; it decides nothing about a run.

Rule 1: a run is open from before its first record until after its last (`open`), or somebody asked something of it;
then, and only then, it needs a supervisor, whatever is wanted of it.
Rule 2: whether a supervisor is there is what the run's lock says, nothing else. Two that are started at once are
harmless: the lock lets one through.
Rule 3: standard library and the ground only: this process is resident for days.

The guardian has an understudy, a fork that sleeps on its lock and becomes the guardian when it is killed. So a
supervisor and the guardian can be killed in the same instant. A service manager does without: it restarts by itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from supervisor.edges import detached, proc
from supervisor.edges.detached import ensure_guardian, wake
from supervisor.edges.files import make_private_dir, read_json
from supervisor.edges.locks import Lock, is_held, read_note
from supervisor.edges.paths import Home, RunDir

__all__ = ["Guardian", "ensure_guardian", "guard", "is_here", "main", "wake"]

LOOK_S = 0.15
"""How often the locks are looked at while a run has no supervisor, or one whose end would not wake us."""
SEARCH_S = 0.5
"""How often all runs are searched for open ones; whoever asks something wakes the guardian, which then searches."""
IDLE_S = 10.0
"""How long the guardian stays when no run is open and nothing was asked."""
BACKOFF_FIRST_S = 0.1
BACKOFF_CAP_S = 1.0
SHORT_LIFE_S = 1.0
"""A supervisor that ends by itself within this is broken for now: the next one waits longer."""
_TAKE_EVERY_S = 0.5


def main(argv: list[str]) -> int:
    """`python -m supervisor.guardian [--watch] [--home DIR]`. 0 when there is one already or nothing is left to do."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # whatever the caller's caller left open: we stay for days
    home = Home(Path(argv[argv.index("--home") + 1])) if "--home" in argv else Home.find(os.environ)
    watch = "--watch" in argv
    return guard(home, watch=watch, understudy=not watch)


def guard(home: Home, *, watch: bool = False, understudy: bool = False) -> int:
    """Be the guardian of `home`; `watch`: for a service manager, waits for the lock and never ends by itself.

    `understudy`: only in a process that is nothing else, because it is forked. Returns 0. Raises OSError where the
    state directory cannot be used.
    """
    make_private_dir(home.root)
    os.chdir(home.root)  # supervisors inherit it
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored (and inherited) it would take our children's ends away
    lock = _take(home, watch)
    while lock is not None:
        with contextlib.closing(Guardian(home, understudy)) as guardian:
            lock.note(f"{os.getpid()}\n")
            guardian.run(watch=watch, is_ours=lock.is_ours)
            guardian.send_the_understudy_home()  # before the lock is free, or it would take over
            # Somebody may have asked while our lock still told them that we are there: look again without it.
            lock.release()
            lock = Lock.try_take(home.guardian_lock) if guardian.is_anything_open() else None
    return 0


def is_here(machine: Any) -> bool:
    """Whether a recorded machine is this one. A box without a machine id is known by its host name."""
    if not isinstance(machine, dict):
        return True
    known, ours = machine.get("machine_id"), proc.machine_id()
    if known and ours:
        return bool(known == ours)
    return bool(machine.get("host", socket.gethostname()) == socket.gethostname())


class _Watched:
    """What the guardian remembers of a run: its child, when the next may start, what it read.

    `pidfd` is that of the child, else of whoever holds the run's lock. It only ends a sleep early: what counts is the
    lock (rule 2), and a pid of another PID namespace may be anybody here.
    """

    def __init__(self) -> None:
        self.pid = 0
        self.pidfd = -1
        self.started_s = 0.0
        self.not_before_s = 0.0
        self.backoff_s = BACKOFF_FIRST_S
        self.machine_read: tuple[int, ...] = ()
        self.here = True


class Guardian:
    """The watch over one state directory; its lock is the caller's affair."""

    def __init__(self, home: Home, has_understudy: bool = False) -> None:
        self.home = home
        self.has_understudy = has_understudy
        self.runs: dict[str, _Watched] = {}
        self._poll = select.poll()
        self._open: list[RunDir] = []
        self._search_at_s = 0.0
        self._understudy = 0
        self._wake = _open_fifo(self.home.guardian_wake)
        if self._wake >= 0:
            self._poll.register(self._wake, select.POLLIN)

    def close(self) -> None:
        """Close what is open; supervisors go on."""
        self.send_the_understudy_home()
        for watched in self.runs.values():
            if watched.pidfd >= 0:
                os.close(watched.pidfd)
        if self._wake >= 0:
            os.close(self._wake)

    def send_the_understudy_home(self) -> None:
        """End it and wait for its end."""
        if self._understudy:
            os.kill(self._understudy, signal.SIGKILL)  # ours until it is waited for: the pid cannot be another's
            os.waitpid(self._understudy, 0)
            self._understudy = 0

    def run(self, *, watch: bool, is_ours: Callable[[], bool]) -> None:
        """Keep supervisors up until nothing is open for IDLE_S; with `watch` for ever. Also ends without its lock."""
        busy_s = time.monotonic()
        while is_ours():
            is_open = self.look(time.monotonic())
            now_s = time.monotonic()
            if is_open or any(watched.pid for watched in self.runs.values()):
                busy_s = now_s
            elif not watch and now_s - busy_s >= IDLE_S:
                return
            self._wait(now_s, SEARCH_S if self._hears_of_all() else LOOK_S)

    def look(self, now_s: float) -> bool:
        """Start what is missing; returns whether any run is open. Searches for open runs when it is time."""
        self._reap(now_s)
        if now_s >= self._search_at_s:
            self._open = self._open_runs()
            self._search_at_s = now_s + SEARCH_S
            if self.has_understudy:
                self._see_to_the_understudy()
        for run in self._open:
            watched = self.runs.setdefault(run.name, _Watched())
            if watched.pid or now_s < watched.not_before_s:
                continue
            if is_held(run.lock):
                self._listen(watched, _noted_pid(run.lock))
            elif _is_open(run):  # still: the search may be a moment ago
                self._start(run, watched, now_s)
        return bool(self._open)

    def _hears_of_all(self) -> bool:
        return all(self.runs[run.name].pidfd >= 0 for run in self._open)

    def _listen(self, watched: _Watched, pid: int) -> None:
        """Be woken when this process ends. Where that is not to be had, the next look sees it."""
        if watched.pidfd < 0 and pid > 0:
            with contextlib.suppress(OSError):
                watched.pidfd = os.pidfd_open(pid)
                self._poll.register(watched.pidfd, select.POLLIN)

    def _deafen(self, watched: _Watched) -> None:
        if watched.pidfd >= 0:
            self._poll.unregister(watched.pidfd)
            os.close(watched.pidfd)
            watched.pidfd = -1

    def is_anything_open(self) -> bool:
        """Whether any run of this machine needs a supervisor."""
        return next(iter(self._open_runs()), None) is not None

    def _open_runs(self) -> list[RunDir]:
        runs = (self.home.run(name) for name in self.home.names())
        return [run for run in runs if _is_open(run) and self._is_here(run)]

    def _is_here(self, run: RunDir) -> bool:
        """Read again only when the file changed: this is asked several times a second."""
        watched = self.runs.setdefault(run.name, _Watched())
        path = run.machine if run.machine.exists() else run.run_json
        try:
            seen = path.stat()
            read = (seen.st_ino, seen.st_mtime_ns, seen.st_size)
            if read != watched.machine_read:
                plain = read_json(path)
                if path == run.run_json and isinstance(plain, dict):
                    plain = plain.get("machine")
                watched.machine_read, watched.here = read, is_here(plain)
        except (OSError, ValueError):
            return True  # not there yet, or damaged: the supervisor is the one to say so
        return watched.here

    def _start(self, run: RunDir, watched: _Watched, now_s: float) -> None:
        self._deafen(watched)
        try:
            watched.pid = detached.start_supervisor(self.home, run)
        except (OSError, ValueError) as error:  # no processes, no memory, no room: tried again, ever slower
            _say(f"{run.name}: no supervisor could be started: {error}")
            watched.not_before_s = now_s + watched.backoff_s
            watched.backoff_s = min(2 * watched.backoff_s, BACKOFF_CAP_S)
            return
        watched.started_s = now_s
        _say(f"{run.name}: supervisor {watched.pid} started")
        self._listen(watched, watched.pid)

    def _reap(self, now_s: float) -> None:
        for name, watched in self.runs.items():
            if not watched.pid:
                continue
            pid, status = os.waitpid(watched.pid, os.WNOHANG)
            if not pid:
                continue
            _say(f"{name}: supervisor {pid} ended: {_how(status)}")
            self._deafen(watched)
            watched.pid = 0
            _back_off(watched, status, now_s)

    def _see_to_the_understudy(self) -> None:
        if self._understudy and os.waitpid(self._understudy, os.WNOHANG) == (0, 0):
            return
        try:
            self._understudy = os.fork()
        except OSError as error:
            self._understudy = 0
            _say(f"no understudy: {error}")
            return
        if not self._understudy:
            _stand_by(self.home)

    def _wait(self, now_s: float, most_s: float) -> None:
        """Until a supervisor ends, somebody asks, a backoff is over, or it is time to look."""
        due = [watched.not_before_s - now_s for watched in self.runs.values() if watched.not_before_s > now_s]
        for fd, _ in self._poll.poll(1000 * min([most_s, *due])):
            if fd == self._wake:
                self._search_at_s = 0.0
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, 4096)
                continue
            for watched in self.runs.values():  # a child is heard until it is reaped; whoever else has ended is gone
                if watched.pidfd == fd and not watched.pid:
                    self._deafen(watched)


def _stand_by(home: Home) -> NoReturn:
    """Sleep until the guardian's lock is free, then be the guardian: as a new program, with a memory of its own."""
    try:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        Lock.wait(home.guardian_lock).release()
        argv = detached.guardian_argv(home)
        os.execv(argv[0], argv)
    finally:
        os._exit(1)  # never back into the guardian's code


def _back_off(watched: _Watched, status: int, now_s: float) -> None:
    """A killed supervisor is replaced at once; one that ended by itself after BACKOFF_FIRST_S, longer each time."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        watched.not_before_s, watched.backoff_s = now_s, BACKOFF_FIRST_S
        return
    if now_s - watched.started_s >= SHORT_LIFE_S:
        watched.backoff_s = BACKOFF_FIRST_S
    watched.not_before_s = now_s + watched.backoff_s
    watched.backoff_s = min(2 * watched.backoff_s, BACKOFF_CAP_S)


def _noted_pid(lock: Path) -> int:
    words = read_note(lock).split()
    return int(words[0]) if words and words[0].isdigit() else 0


def _is_open(run: RunDir) -> bool:
    if run.open.exists():
        return True
    try:
        return any(name.endswith(".json") and not name.startswith(".") for name in os.listdir(run.requests))  # noqa: PTH208
    except OSError:
        return False


def _take(home: Home, watch: bool) -> Lock | None:
    lock = Lock.try_take(home.guardian_lock)
    while lock is None and watch:
        time.sleep(_TAKE_EVERY_S)
        lock = Lock.try_take(home.guardian_lock)
    return lock


def _open_fifo(path: Path) -> int:
    """The FIFO, opened so that it never ends; -1 where the file system has none."""
    try:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        raise FileExistsError(errno.EEXIST, "not a FIFO", str(path))
    except OSError as error:
        _say(f"cannot be woken ({error}): every look is at its time")
        return -1


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"exit {os.waitstatus_to_exitcode(status)}"


def _say(text: str) -> None:
    """A line for the guardian's log; a log that is full or closed is no reason to end."""
    with contextlib.suppress(OSError):
        os.write(2, f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}\n".encode("utf-8", "replace"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
