"""The process that owns the job: claims the attempt, starts the job once, keeps its end. It decides nothing.

    python -I -S .../supervisor/runner.py ATTEMPT_DIR          (see `command`; -m supervisor.runner does the same)

It reads ATTEMPT_DIR/launch.json, which holds no secret value:

    argv     list of strings
    cwd      absolute path
    token    the run's token; the job gets it as SUPERVISE_TOKEN
    env      {name: value} laid over the job's environment                                   default {}
    output   absolute path, appended to                                                     default output.log here
    pty      true gives the job a terminal for its output; the job then needs the runner     default false
    umask    number                                                                         default as inherited
    rlimits  {"NOFILE": [soft, hard], ...}, names as in `ulimit`'s RLIMIT_                   default as inherited
    cgroup   path of a cgroup v2 folder for the job; not being able to enter it is no error  default none
    redact   names of variables whose values are never written                              default []

and ../../secrets.json, {"job": {name: value}, ...}: the job's environment is exactly "job", then "env", then
SUPERVISE_TOKEN and PYTHONUNBUFFERED=1. It writes `claim` (before the job starts; who finds one touches nothing),
`members.jsonl`, the output, and `exit.json` once the leader has died:

    status   raw wait status; 127 and 126 as an exit code where the command could not be executed
    trouble  why it could not be, else ""
    pid, start_ticks, boot_id, ended_boot_s, ended_wall_s

It ignores what a terminal sends, adopts the job's orphans, and stays until it has no child left. Killed, it leaves
the job running. Standard library and the ground only: it starts in milliseconds and stays small.
"""

# pathlib costs milliseconds of the start:
# ruff: noqa: PTH100, PTH105, PTH108, PTH112, PTH208
from __future__ import annotations

import sys

if __name__ == "__main__" and not __package__:
    sys.path.insert(0, __file__.rsplit("/", 2)[0])  # -I and -S leave us without the folder of the package

import ctypes
import json
import os
import select
import signal
import time

from supervisor.edges import proc
from supervisor.edges.descendants import Descendants
from supervisor.edges.job import Job, start, terminal
from supervisor.edges.mirror import Mirror

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

IGNORED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGPIPE")
FIRST_LOOKS_S = (0.05, 0.1, 0.2, 0.4)
"""A launcher forks its workers at once; after these the descendants are looked at once a second."""
LOOK_S = 1.0
MIRROR_S = 0.05
"""The pane is refreshed at most so often, whatever the job prints."""
PTY_READS, PTY_READS_END = 16, 4096
"""Reads of a terminal in one go (4 KiB each at most), and what is still taken from it when the job has ended."""
FILE_MAX = 64 << 20
_PR_SET_CHILD_SUBREAPER = 36


def command(attempt_dir: str) -> list[str]:
    """The argv that runs the attempt in a process of its own."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), attempt_dir]


def main(attempt_dir: str) -> int:
    """Runs the attempt. 0: the job has ended, however; 3: claimed already; 1: could not be started at all."""
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd > 2:  # nothing that a tmux server or a shell left open reaches the job
            os.closerange(fd, fd + 1)
    try:
        launch = _read(f"{attempt_dir}/launch.json")
        env = dict(_read(f"{attempt_dir}/../../secrets.json")["job"])
        env.update(launch.get("env", {}))
        env.update(SUPERVISE_TOKEN=launch["token"], PYTHONUNBUFFERED=env.get("PYTHONUNBUFFERED", "1"))
        if not claim(attempt_dir, "runner"):
            print("supervise: this attempt is claimed already", file=sys.stderr)
            return 3
    except (OSError, ValueError, KeyError) as error:
        print(f"supervise: attempt not started: {error!r}", file=sys.stderr)
        return 1
    return Runner(attempt_dir, launch, env).run()


def claim(attempt_dir: str, by: str) -> bool:
    """True when the attempt is now ours: whole and durable at once, False when another one was first."""
    path, tmp = f"{attempt_dir}/claim", f"{attempt_dir}/.claim.{os.getpid()}"
    me = {"by": by, "pid": os.getpid(), "start_ticks": proc.start_ticks(os.getpid()), "boot_id": proc.boot_id()}
    try:
        _write(tmp, json.dumps(me).encode())
        _sync(tmp)
        _link(tmp, path)
    except FileExistsError:
        return False
    finally:
        _unlink(tmp)
    _sync(attempt_dir)
    return True


class Runner:
    """One attempt, from the claim to the last child's end."""

    def __init__(self, attempt_dir: str, launch: Mapping[str, Any], env: Mapping[str, str]) -> None:
        self._dir = attempt_dir
        self._launch = launch
        self._env = env
        self._boot_id = proc.boot_id()
        self._output = launch.get("output") or f"{attempt_dir}/output.log"
        hide = (env.get(name, "") for name in launch.get("redact", ()))
        self._family = Descendants(os.getpid(), f"{attempt_dir}/members.jsonl", [v for v in hide if len(v) >= 6])
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._mirror: Mirror | None = None
        self._pty = -1
        self._sink = -1
        self._job: Job | None = None
        self._ticks = 0
        self._end: bytes | None = None  # exit.json, until it is written
        self._ended = False
        self._childless = False

    def run(self) -> int:
        """Starts the job and keeps it until there is nobody left below us and its end is on the disk."""
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for name in IGNORED:
            signal.signal(getattr(signal, name), signal.SIG_IGN)
        woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._start()
        self._follow(woken)
        return 0

    def _start(self) -> None:
        """The job is recorded before it executes anything."""
        launch = self._launch
        try:
            self._sink = os.open(self._output, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._mirror = Mirror(self._output, 1, self._libc)
        except OSError as error:  # a full disk or an unwritable folder: a job without its log is not started
            self._keep_end(126 << 8, f"cannot write {self._output}: {error.strerror}")
            return
        stdout = self._sink
        if launch.get("pty"):
            self._pty, stdout = terminal(1)
        self._job = start(
            launch["argv"],
            cwd=launch["cwd"],
            env=self._env,
            stdout=stdout,
            umask=launch.get("umask"),
            rlimits=launch.get("rlimits"),
            cgroup=launch.get("cgroup"),
        )
        self._ticks = self._family.leader(self._job.pid, launch["argv"], self._boot_id)
        self._job.release()
        os.close(stdout)

    def _follow(self, woken: int) -> None:
        """Sleeps until something happens; on its own account it wakes once a second."""
        looks = list(FIRST_LOOKS_S)
        now = quiet_until = time.monotonic()
        next_look = now + looks.pop(0)
        self._reap()
        while not (self._childless and self._ended):
            ready = self._wait(woken, now, next_look, quiet_until)
            if woken in ready:
                _drain(woken)
                self._reap()
            if self._pty in ready:
                self._copy_pty()
            now = time.monotonic()
            if self._mirror and ready & {self._mirror.changed, self._mirror.blocked}:
                self._mirror.pump()
                quiet_until = now + MIRROR_S
            if now >= next_look:
                self._look()
                next_look = now + (looks.pop(0) if looks else LOOK_S)
        if self._mirror:
            self._mirror.pump()

    def _wait(self, woken: int, now: float, next_look: float, quiet_until: float) -> set[int]:
        """The descriptors that are ready. A pane that was just fed is left out, so a chatty job costs little."""
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        wait_s = next_look - now
        if self._pty >= 0:
            poll.register(self._pty, select.POLLIN)
        if self._mirror and now < quiet_until:
            wait_s = min(wait_s, quiet_until - now)
        elif self._mirror:
            if self._mirror.changed >= 0:
                poll.register(self._mirror.changed, select.POLLIN)
            if self._mirror.blocked >= 0:
                poll.register(self._mirror.blocked, select.POLLOUT)
        return {fd for fd, _ in poll.poll(max(0.0, wait_s) * 1000)}

    def _look(self) -> None:
        self._family.look()
        self._write_end()
        if self._mirror and self._mirror.changed < 0:
            self._mirror.pump()

    def _reap(self) -> None:
        """Every child that has ended; the job's own end is on the disk before anything else is done."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                return
            if pid == 0:
                return
            if self._job and pid == self._job.pid:
                if self._pty >= 0:
                    self._copy_pty(to_the_end=True)
                self._keep_end(status, self._job.trouble())
                if self._mirror:
                    self._mirror.say(f"the job has ended: {_in_words(status)}")

    def _keep_end(self, status: int, trouble: str) -> None:
        end = {
            "status": status,
            "trouble": trouble,
            "pid": self._job.pid if self._job else 0,
            "start_ticks": self._ticks,
            "boot_id": self._boot_id,
            "ended_boot_s": time.clock_gettime(time.CLOCK_BOOTTIME),
            "ended_wall_s": time.time(),
        }
        self._end = json.dumps(end).encode()
        self._write_end()

    def _write_end(self) -> None:
        """Tried at every look until it is written: a full disk must not lose the end of a night."""
        if self._end is None:
            return
        path, tmp = f"{self._dir}/exit.json", f"{self._dir}/.exit.json.tmp"
        try:
            _write(tmp, self._end)
            os.replace(tmp, path)  # a supervisor may see it before it is on the disk: it records the end itself
            _sync(path)
            _sync(self._dir)
        except OSError:
            _unlink(tmp)
            if os.path.isdir(self._dir):
                return
        self._end = None  # written, or its folder was taken away and nobody asks any more
        self._ended = True

    def _copy_pty(self, *, to_the_end: bool = False) -> None:
        """From the job's terminal to the file. On a full disk the text is lost, the job is not held up."""
        for _ in range(PTY_READS_END if to_the_end else PTY_READS):
            try:
                data = os.read(self._pty, 64 << 10)
            except BlockingIOError:
                return
            except OSError:  # EIO: nobody has the terminal open any more
                os.close(self._pty)
                self._pty = -1
                return
            try:
                while data:
                    data = data[os.write(self._sink, data) :]
            except OSError:
                continue


def _in_words(status: int) -> str:
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"


def _read(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        value = json.loads(file.read(FILE_MAX))
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no object")
    return value


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def _link(tmp: str, path: str) -> None:
    """As exclusive as O_EXCL, and nobody ever sees it half written; where there are no hard links, only the first."""
    try:
        os.link(tmp, path)
    except FileExistsError:
        raise
    except OSError:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.close(fd)
        os.replace(tmp, path)


def _sync(path: str) -> None:
    """A file's bytes, or a folder's names."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            continue
    except BlockingIOError:
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
