"""Our tmux server: started clean, asked with a deadline, found again without its socket. Not what runs in it.

Rule 1: every call has a deadline. libtmux has none, so it is called in a thread that can be given up on; while one
hangs none is started.
Rule 2: the server is started by `start` alone, without libtmux, which would hand it the caller's environment for all
later sessions; what is asked starts none, though the server dies under it (`-N`, tmux 3.2). The launch of a runner
goes without libtmux too: importing it costs more than a launch may.
Rule 3: options are set before the first session, and the user's tmux.conf is never read.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from supervisor.core.errors import Exit, Refusal, SuperviseError
from supervisor.core.evidence import ProcessId
from supervisor.edges import proc
from supervisor.edges.files import make_private_dir, read_json, to_json, write_atomic
from supervisor.edges.paths import Home

T = TypeVar("T")

DEADLINE_S = 5.0
KEEP = "_keep"
"""The session that is there first: the server's command line is that of its first command, not of a job."""
_SOCKET_WAIT_S = 2.0  # a server answers USR1 in about 1 ms
_OPTIONS = (
    ("-s", "exit-unattached", "off"),
    ("-g", "default-shell", "/bin/sh"),
    ("-g", "default-command", ""),
    ("-g", "destroy-unattached", "off"),
    ("-g", "detach-on-destroy", "on"),
    ("-g", "update-environment", ""),
    ("-g", "history-limit", "20000"),
    ("-g", "remain-on-exit", "on"),
    ("-g", "automatic-rename", "off"),
    ("-g", "allow-rename", "off"),
)


class TmuxMissing(Refusal):
    """There is no tmux to run."""

    def __init__(self) -> None:
        super().__init__(
            Exit.PREFLIGHT,
            "tmux was not found: a run lives in a tmux session that you can attach to. Install it (apt-get install "
            "tmux, dnf install tmux, conda install -c conda-forge tmux), or set `launch: {terminal: none}`.",
        )


class TmuxSilent(SuperviseError):
    """The server did not answer, or not as one: what it holds is unknown."""


class Answer(Struct, frozen=True):
    """What the client printed and how it ended."""

    code: int
    out: tuple[str, ...]
    err: str

    @property
    def nobody_there(self) -> bool:
        """The client found no server behind the socket (which proves nothing about a server without a socket)."""
        return self.code != 0 and (
            self.err.startswith("no server running on ")
            or (
                self.err.startswith("error connecting to ")
                and self.err.endswith(("(No such file or directory)", "(Connection refused)"))
            )
        )


class TmuxServer:
    """Our tmux server. Cheap to make: nothing is started or asked before the first call."""

    def __init__(self, home: Home, deadline_s: float = DEADLINE_S) -> None:
        self.socket = home.tmux_sock
        self._is_shared = self.socket.parent != home.root  # a folder under /tmp, where others can make theirs
        self.where = ("-S", str(self.socket), "-f", "/dev/null")
        self._record = home.tmux_pid
        self._deadline_s = deadline_s
        self._hanging: threading.Thread | None = None

    def start(self) -> None:
        """Start the server; fine when another process was faster. Raises TmuxMissing, TmuxSilent.

        Nothing of ours is in its environment, and its command line, which is that of this call, names no job.
        """
        make_private_dir(self.socket.parent)
        self._refuse_a_foreign_folder()
        options = [word for option in _OPTIONS for word in ("set-option", *option, ";")]
        keep = ["new-session", "-d", "-P", "-F", "#{pid}", "-s", KEEP, "-c", "/", "--", "sleep", "infinity"]
        answer = self.run("start-server", ";", *options, *keep)
        if answer.code == 0:
            self.remember(int(answer.out[0]))
        elif "duplicate session" not in answer.err:
            raise TmuxSilent(f"tmux did not start on {self.socket}: {answer.err}")

    def is_known(self) -> bool:
        """False where there is neither a socket nor a recorded process: nobody is there to be asked."""
        return self.socket.exists() or self.process() is not None

    def ask(self, *args: str, direct: bool = False) -> Answer:
        """One command line, through libtmux unless `direct`. Raises TmuxMissing, TmuxSilent.

        A server that lost its socket is told to make it anew, once; an answer `nobody_there` then means that no
        server of ours lives.
        """
        self._refuse_a_foreign_folder()
        call = self.run if direct else self._through_libtmux
        answer = call("-N", *args)
        server = self.process() if answer.nobody_there else None
        if server is None:
            return answer
        self._recreate_socket(server)
        return call("-N", *args)

    def process(self) -> ProcessId | None:
        """The recorded server, if that very process still lives."""
        try:
            found = read_json(self._record)
            if found is None or found["boot_id"] != proc.boot_id():
                return None
            server = ProcessId(int(found["pid"]), int(found["start_ticks"]))
        except (ValueError, KeyError, TypeError):
            return None  # a damaged record is no record: the server is then known by its socket alone
        return server if proc.is_alive(server) else None

    def remember(self, pid: int) -> None:
        """Record the server's process, for when its socket is gone."""
        known = self.process()
        ticks = proc.start_ticks(pid)
        if ticks is not None and known != ProcessId(pid, ticks):
            record = {"pid": pid, "start_ticks": ticks, "boot_id": proc.boot_id()}
            write_atomic(self._record, to_json(record), sync=False)  # no server outlives what this would be safe from

    def run(self, *args: str) -> Answer:
        """The tmux program itself, in a clean environment: a server that it starts keeps it."""
        try:
            done = subprocess.run(
                [find_tmux(), *self.where, *args],
                env=_clean_environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._deadline_s,
                check=False,
                text=True,
                errors="replace",
            )
        except subprocess.TimeoutExpired as error:
            raise TmuxSilent(f"tmux {args[args[0] == '-N']} did not end in {self._deadline_s:g} s") from error
        return Answer(done.returncode, tuple(done.stdout.splitlines()), done.stderr.strip())

    def _refuse_a_foreign_folder(self) -> None:
        """Whoever owns the folder of the socket could answer in our server's place."""
        if not self._is_shared:
            return
        try:
            seen = self.socket.parent.lstat()
        except FileNotFoundError:
            return  # nobody answers there
        if seen.st_uid != os.getuid() or not stat.S_ISDIR(seen.st_mode) or seen.st_mode & 0o077:
            raise TmuxSilent(f"{self.socket.parent} is not a private folder of ours: remove it, or use a shorter path")

    def _through_libtmux(self, *args: str) -> Answer:
        binary = find_tmux()

        def call() -> Answer:
            import libtmux  # here, because it costs a tenth of a second that most verbs need not pay

            server = libtmux.Server(socket_path=str(self.socket), config_file="/dev/null", tmux_bin=binary)
            done = server.cmd(args[0], *args[1:])
            return Answer(int(done.returncode or 0), tuple(done.stdout), "\n".join(done.stderr).strip())

        return self._with_deadline(call)

    def _with_deadline(self, call: Callable[[], T]) -> T:
        if self._hanging is not None and self._hanging.is_alive():
            raise TmuxSilent(f"the tmux server on {self.socket} still has not answered an earlier call")
        import queue

        box: queue.SimpleQueue[T | Exception] = queue.SimpleQueue()

        def work() -> None:
            try:
                box.put(call())
            except Exception as error:  # noqa: BLE001  # handed to the caller's thread, whatever it is
                box.put(error)

        thread = threading.Thread(target=work, name="tmux", daemon=True)
        thread.start()
        try:
            result = box.get(timeout=self._deadline_s)
        except queue.Empty:
            self._hanging = thread
            raise TmuxSilent(f"the tmux server on {self.socket} did not answer in {self._deadline_s:g} s") from None
        if isinstance(result, Exception):
            raise TmuxSilent(f"tmux could not be called: {result}") from result
        return result

    def _recreate_socket(self, server: ProcessId) -> None:
        """USR1 makes the server bind its socket again; a second server would not know the first one's sessions."""
        try:
            pidfd = os.pidfd_open(server.pid)
        except ProcessLookupError:
            return
        try:
            if self.process() != server:
                return
            before = _inode(self.socket)
            signal.pidfd_send_signal(pidfd, signal.SIGUSR1)
        finally:
            os.close(pidfd)
        deadline = time.monotonic() + min(_SOCKET_WAIT_S, self._deadline_s)
        while _inode(self.socket) in (None, before):
            if time.monotonic() > deadline:
                raise TmuxSilent(f"the tmux server {server.pid} lives, but its socket {self.socket} does not come back")
            time.sleep(0.001)


def insist(answer: Answer) -> None:
    """Raise TmuxSilent unless the command was done."""
    if answer.code != 0:
        raise TmuxSilent(f"tmux: {answer.err or f'exit {answer.code}'}")


def _clean_environment() -> dict[str, str]:
    """No run's token, no secret, no PYTHON*, no CUDA_*: sessions of later runs would inherit them."""
    kept = {name: os.environ[name] for name in ("HOME", "USER", "LOGNAME") if name in os.environ}
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "SHELL": "/bin/sh", **kept}


def find_tmux() -> str:
    """The tmux program. Raises TmuxMissing."""
    import shutil

    found = shutil.which("tmux")
    if found is None:
        raise TmuxMissing
    return found


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
