"""Processes that are never a run's, and end what belongs to a run: terminals, logins, and this program's own.

A tmux server or a supervisor may be a descendant of a job (somebody typed `supervise up` in the job's own pane), and
may carry its token. Nothing at or below such a process is the run's. Each is known by what it is: the program file
that it runs, the socket that it listens on, the claim or the lock that it holds; never by its title.
"""

# a sweep asks this of every candidate; pathlib would cost more than the kernel:
# ruff: noqa: PTH115, PTH119
from __future__ import annotations

import json
import os
import struct
import time
from enum import Enum
from pathlib import Path

from supervisor.edges import proc
from supervisor.edges.paths import Home

CONNECT_S = 0.2
LOCK_FDS = range(3, 24)
"""A supervisor takes its lock as one of the first files that it opens."""
NO_LOCK_S = 2.0
"""For so long a process that holds no lock is not looked through again; a supervisor is told by its arguments too."""
CACHE_MAX = 4096
TERMINALS = frozenset({"tmux", "screen", "zellij"})
LOGINS = frozenset({"sshd", "sshd-session", "sshd-auth", "dropbear"})
OWN_MODULES = ("cli", "loop", "supervise_run", "guardian", "edges.gpus_helper", "machines")
"""Of this package, with what lies below them. The simulation is not among them: its trainer is a job."""
_no_lock: dict[tuple[int, int], float] = {}
_PACKAGE = str(Path(__file__).resolve().parent.parent)


class Bound(str, Enum):
    """What kind of process ends a run's belongings."""

    TERMINAL = "terminal"
    LOGIN = "login"
    RUNNER = "runner"
    OWN = "own"


class Boundaries:
    """Answers for one look; what was found for a process is kept for its length."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._found: dict[int, Bound | None] = {}
        self._tmux: int | None = None
        self._locks = {str(home.guardian_lock)}
        self._runs = f"{home.runs}{os.sep}"

    def of(self, pid: int) -> Bound | None:
        """What kind of boundary the process is, None where it is an ordinary one."""
        if pid not in self._found:
            self._found[pid] = self._look(pid)
        return self._found[pid]

    def _look(self, pid: int) -> Bound | None:
        program = os.path.basename(proc.exe(pid))
        if program in TERMINALS or pid == self._tmux_server():
            return Bound.TERMINAL
        if program in LOGINS:
            return Bound.LOGIN
        if not program.startswith("python"):
            return None
        argv = proc.argv(pid)
        attempt = runner_of(argv)
        if attempt is not None:
            return Bound.RUNNER if _claims(attempt, pid) else None
        return Bound.OWN if is_own(argv) or self._holds_a_lock(pid) else None

    def _tmux_server(self) -> int:
        if self._tmux is None:
            self._tmux = listener(self._home.tmux_sock)
        return self._tmux

    def _holds_a_lock(self, pid: int) -> bool:
        """True when it has the guardian's lock or a run's locked: that is what makes a supervisor one."""
        key = (pid, proc.start_ticks(pid) or 0)
        now = time.monotonic()
        if now < _no_lock.get(key, 0.0):
            return False
        for fd in LOCK_FDS:
            try:
                path = os.readlink(f"/proc/{pid}/fd/{fd}")
            except OSError:  # not open, or not ours to read
                continue
            if self._is_lock(path) and b"OFDLCK" in (proc.read(f"/proc/{pid}/fdinfo/{fd}", 4096) or b""):
                return True
        if len(_no_lock) >= CACHE_MAX:
            _no_lock.clear()
        _no_lock[key] = now + NO_LOCK_S
        return False

    def _is_lock(self, path: str) -> bool:
        return path in self._locks or (
            path.startswith(self._runs) and path.count("/", len(self._runs)) == 1 and path.endswith("/lock")
        )


def listener(sock: Path) -> int:
    """The process that listens on a Unix socket, as the kernel tells it; 0 where there is none."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as asked:
        asked.settimeout(CONNECT_S)
        try:
            asked.connect(str(sock))
            pid, _, _ = struct.unpack("3i", asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        except OSError:
            return 0
    return int(pid)


def runner_of(argv: tuple[str, ...]) -> str | None:
    """The attempt folder, where these are a runner's arguments."""
    program, rest = _program(argv)
    is_runner = program == "-m supervisor.runner" or program.endswith("/supervisor/runner.py")
    return rest[0] if is_runner and len(rest) == 1 and rest[0].startswith("/") else None


def is_own(argv: tuple[str, ...]) -> bool:
    """True for the arguments of this program's verbs, supervisors, guardian and helpers."""
    program, _ = _program(argv)
    if program == "-m supervisor" or program in (f"{_PACKAGE}/__main__.py", f"{_PACKAGE}/cli/__main__.py"):
        return True
    for module in OWN_MODULES:
        if program == f"-m supervisor.{module}" or program.startswith(f"-m supervisor.{module}."):
            return True
        if program == f"{_PACKAGE}/{module.replace('.', '/')}.py":
            return True
    return os.path.basename(program) == "supervise" and _is_our_script(program)


def _program(argv: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """What a Python was told to run (`-m NAME`, or a script's path), and the arguments after it."""
    words = list(argv[1:])
    while words:
        word = words.pop(0)
        if word == "-m" and words:
            return f"-m {words[0]}", tuple(words[1:])
        if word in ("-X", "-W", "--check-hash-based-pycs") and words:
            words.pop(0)
        elif word == "-c" or word == "-":
            break
        elif not word.startswith("-"):
            return word, tuple(words)
    return "", ()


def _is_our_script(path: str) -> bool:
    """The console script that an installer wrote: it names the entry point in its few lines."""
    return b"supervisor.cli" in (proc.read(path, 4096) or b"")


def _claims(attempt: str, pid: int) -> bool:
    """True unless the attempt's claim is somebody else's: a runner that has only just started has none yet."""
    data = proc.read(f"{attempt}/claim", 4096)
    if data is None:
        return Path(f"{attempt}/launch.json").is_file()
    try:
        claim = json.loads(data)
        return bool(claim["pid"] == pid and claim["start_ticks"] == proc.start_ticks(pid))
    except (ValueError, KeyError, TypeError):
        return True  # torn: nobody else has it
