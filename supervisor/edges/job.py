"""Starts a command in a session of its own, as a fresh login would: environment, signals, limits. Once; no judgement.

Used by the runner only; standard library only. The child waits for a word from its parent before it executes, so
that it is recorded first: a parent that dies in between leaves no job behind.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOT_FOUND = 127
NOT_EXECUTABLE = 126
"""As a shell says them."""


class Job:
    """A started command: its process id, and the pipe that says why it could not be executed."""

    def __init__(self, pid: int, go: int, trouble: int) -> None:
        self.pid = pid
        self._go = go
        self._trouble = trouble

    def release(self) -> None:
        """Lets the child execute the command."""
        try:
            os.write(self._go, b"g")
        except BrokenPipeError:
            return  # it failed before and has said why
        finally:
            os.close(self._go)

    def trouble(self) -> str:
        """Why the command was not executed; "" where it was. To be asked once the process has ended."""
        try:
            return os.read(self._trouble, 4096).decode("utf-8", "replace")
        except BlockingIOError:
            return ""


def start(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    stdout: int,
    umask: int | None = None,
    rlimits: Mapping[str, Sequence[int]] | None = None,
    cgroup: str | None = None,
) -> Job:
    """Forks a child that leads its own session and waits for `release`; stdin is /dev/null, 1 and 2 are `stdout`."""
    go_read, go_write = os.pipe()
    trouble_read, trouble_write = os.pipe()
    os.set_blocking(trouble_read, False)
    pid = os.fork()
    if pid:
        os.close(go_read)
        os.close(trouble_write)
        return Job(pid, go_write, trouble_read)
    code = NOT_EXECUTABLE
    try:  # nothing but the child's own end may leave this branch: the parent's code must not run twice
        os.close(go_write)
        os.setsid()
        _settle(stdout, umask, rlimits, cgroup)
        if not os.read(go_read, 1):
            os._exit(NOT_EXECUTABLE)  # the runner is gone: nothing was started
        code = _execute(argv, cwd, env, trouble_write)
    except OSError as error:
        code = _give_up(trouble_write, NOT_EXECUTABLE, f"cannot start {argv[0]}: {error}")
    finally:
        os._exit(code)


def terminal(like: int) -> tuple[int, int]:
    """A new terminal (master, slave), as large as `like` where that is one; newlines stay as they are.

    It becomes nobody's controlling terminal: its end sends no SIGHUP.
    """
    import fcntl
    import termios

    master, slave = os.openpty()
    os.set_blocking(master, False)
    modes = termios.tcgetattr(slave)
    modes[1] &= ~termios.ONLCR
    termios.tcsetattr(slave, termios.TCSANOW, modes)
    if os.isatty(like):
        fcntl.ioctl(slave, termios.TIOCSWINSZ, fcntl.ioctl(like, termios.TIOCGWINSZ, b"\0" * 8))
    return master, slave


def _settle(stdout: int, umask: int | None, rlimits: Mapping[str, Sequence[int]] | None, cgroup: str | None) -> None:
    """What the tmux server or a nohup handed down is undone: signals, descriptors, umask, limits, cgroup."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(stdout, 1)
    os.dup2(stdout, 2)
    signal.set_wakeup_fd(-1)
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):  # 32 and 33 are glibc's own
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if umask is not None:
        os.umask(umask)
    if rlimits:
        _limit(rlimits)
    if cgroup:
        _enter(cgroup)


def _limit(rlimits: Mapping[str, Sequence[int]]) -> None:
    import resource  # only where asked for

    for name, (soft, hard) in rlimits.items():
        try:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (soft, hard))
        except (ValueError, OSError) as error:
            _say(f"supervise: limit {name} stays as it was: {error}\n")


def _enter(cgroup: str) -> None:
    try:
        fd = os.open(f"{cgroup}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, b"0")
        os.close(fd)
    except OSError as error:
        _say(f"supervise: started outside its cgroup: {error}\n")  # one proof of ownership less; the others stand


def _execute(argv: Sequence[str], cwd: str, env: Mapping[str, str], trouble: int) -> int:
    """Does not return where the command could be executed; else the exit code, with the reason said."""
    try:
        os.chdir(cwd)
    except OSError as error:
        return _give_up(trouble, NOT_EXECUTABLE, f"cannot enter {cwd}: {error.strerror}")
    try:
        os.execvpe(argv[0], list(argv), dict(env))
    except (FileNotFoundError, NotADirectoryError):
        return _give_up(trouble, NOT_FOUND, f"cannot start {argv[0]}: {_missing(argv[0])}")
    except OSError as error:
        return _give_up(trouble, NOT_EXECUTABLE, f"cannot start {argv[0]}: {error.strerror}")
    except ValueError as error:  # a NUL byte in an argument or in the environment
        return _give_up(trouble, NOT_EXECUTABLE, f"cannot start {argv[0]}: {error}")


def _missing(program: str) -> str:
    """A script that is there, but whose interpreter is not, gives the same errno as one that is not there."""
    if "/" in program and os.access(program, os.F_OK):
        return "it is there, but the interpreter that it names is not"
    return "no such file" if "/" in program else "not found in PATH"


def _give_up(trouble: int, code: int, why: str) -> int:
    os.write(trouble, why.encode()[:4096])
    _say(f"supervise: {why}\n")
    return code


def _say(text: str) -> None:
    try:
        os.write(2, text.encode())
    except OSError:
        return  # output is full or gone: exit.json carries the reason
