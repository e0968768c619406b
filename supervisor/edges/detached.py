"""Processes that outlive whoever starts them: the guardian, and a run's supervisors. Not when one is needed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from supervisor.edges import secrets
from supervisor.edges.files import make_private_dir
from supervisor.edges.locks import is_held
from supervisor.edges.paths import Home, RunDir

_LOG_CAP_BYTES = 2**20
_PACKAGE = Path(__file__).resolve().parents[1]
_TOKEN = "SUPERVISE_TOKEN"  # who was started from inside a run is no member of it


def ensure_guardian(home: Home) -> bool:
    """See that a guardian is there, and wake it. True when one was; else one was started, detached, in milliseconds.

    Call it after the request was put. Two callers at once start two; the lock lets one through. Raises OSError.
    """
    if is_held(home.guardian_lock):
        wake(home)
        return True
    make_private_dir(home.root)
    _cap(home.guardian_log)
    # The shell leaves its child behind and ends: whoever calls this has no child to wait for. The folder is changed
    # first because `-m` looks for modules in it, and the caller's may hold a `supervisor.py` or `json.py`.
    script = 'cd "$1" || exit 1; shift; "$@" &'
    environ = {name: value for name, value in _without(os.environ).items() if not secrets.is_secret_name(name)}
    pid = spawn(("/bin/sh", "-c", script, "sh", str(home.root), *guardian_argv(home)), environ, home.guardian_log)
    with contextlib.suppress(ChildProcessError):  # the caller ignores SIGCHLD: then nothing is left to wait for
        os.waitpid(pid, 0)
    return False


def wake(home: Home) -> None:
    """Tell the guardian to look now instead of at its next turn; fine when there is none."""
    with contextlib.suppress(OSError):  # nobody reads, no FIFO, or it is full: the next turn comes anyway
        fd = os.open(home.guardian_wake, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(fd, b"!")
        finally:
            os.close(fd)


def guardian_argv(home: Home) -> tuple[str, ...]:
    """How the guardian of a state directory is started."""
    return (sys.executable, "-m", "supervisor.guardian", "--home", str(home.root))


def supervisor_argv(name: str) -> tuple[str, ...]:
    """How a supervisor of the run is started."""
    return (sys.executable, "-m", "supervisor.supervise_run", name)


def runner_argv(attempt_dir: Path) -> list[str]:
    """How the runner of an attempt is started (`supervisor.runner.command`, without importing it)."""
    return [sys.executable, "-I", "-S", f"{_PACKAGE}/runner.py", str(attempt_dir)]


def start_supervisor(home: Home, run: RunDir) -> int:
    """Start a supervisor, detached but a child of this process, in the environment that the run's `up` staged.

    Must be called with the state directory as the working directory. Raises OSError.
    """
    try:
        own = secrets.own_for_start(run)
    except ValueError:
        own = None  # damaged: the supervisor starts from ours, and is the one to say so
    environ = _without(os.environ if own is None else own) | {"SUPERVISE_HOME": str(home.root)}
    return spawn(supervisor_argv(run.name), environ, run.supervisor_log)


def spawn(argv: tuple[str, ...], environ: Mapping[str, str], log: Path) -> int:
    """Start a process in a session of its own, with nothing of ours but the working directory."""
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    return os.posix_spawn(
        argv[0],
        argv,
        environ,
        file_actions=(
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ),
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD),
    )


def _without(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what would change the Python that is started, and without a run's token."""
    return {name: value for name, value in environ.items() if not name.startswith("PYTHON") and name != _TOKEN}


def _cap(log: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _LOG_CAP_BYTES:
            log.replace(log.with_name(log.name + ".1"))
