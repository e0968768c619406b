"""The pipe to one NVML helper process: start it, send a line, read lines, end it. What the lines mean: `gpus.py`.

Nothing here blocks but `end`, which waits at most twice a second for a process that was told to go.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LINE_CAP = 1024 * 1024  # a line of 8 GPUs with process lists is 3 KiB; what goes on for a MiB is no answer
END_S = 1.0
TOKEN = "SUPERVISE_TOKEN"  # a helper started from inside a run's pane is no member of that run


def boot_s() -> float:
    """CLOCK_BOOTTIME: does not jump, and counts while the box sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Link:
    """One helper process and its pipes. `ready`: its nvmlInit has returned, well or ill."""

    def __init__(self, wake_fd: int, options: Sequence[str]) -> None:
        """Starts the process; OSError where the system has none to give."""
        argv = [sys.executable, "-I", "-m", "supervisor.edges.gpus_helper", "--wake", str(wake_fd), *options]
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            pass_fds=(wake_fd,),
            start_new_session=True,  # Ctrl-C in the terminal of `supervise gpus` is not for it
            env={name: value for name, value in os.environ.items() if name != TOKEN},
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        os.set_blocking(self._stdin.fileno(), False)
        os.set_blocking(self._stdout.fileno(), False)
        self.started_boot_s = boot_s()
        self.ready_boot_s: float | None = None
        self.crash: str | None = None
        self.closed = False
        self._rest = b""

    def fileno(self) -> int:
        """What becomes readable when there are lines."""
        return self._stdout.fileno()

    def send(self, request: dict[str, Any]) -> bool:
        """False where the helper is gone, or so far behind that the pipe is full."""
        line = json.dumps(request).encode() + b"\n"
        try:
            return os.write(self._stdin.fileno(), line) == len(line)
        except (BrokenPipeError, BlockingIOError):
            return False

    def lines(self) -> list[dict[str, Any]]:
        """Every whole line that has come; sets `closed` at the end of the stream, `ready_boot_s` and `crash`."""
        while True:
            try:
                chunk = os.read(self._stdout.fileno(), 65536)
            except BlockingIOError:
                break
            if not chunk or len(self._rest) > LINE_CAP:
                self.closed = True
                break
            self._rest += chunk
        *whole, self._rest = self._rest.split(b"\n")
        answers = []
        for line in whole:
            try:
                answer: dict[str, Any] = json.loads(line)
            except ValueError:
                self.crash, self.closed = f"the NVML helper wrote what is no answer: {line[:80]!r}", True
                break
            if "ready" in answer:
                self.ready_boot_s = boot_s()
            elif "crash" in answer:
                self.crash = str(answer["crash"])
            else:
                answers.append(answer)
        return answers

    def why_closed(self) -> str:
        """Why the stream ended, in words."""
        code = self.process.poll()
        return self.crash or f"the NVML helper (pid {self.process.pid}) ended with status {code}"

    def let_go(self) -> None:
        """Closes the pipes: a helper that is not stuck ends by itself."""
        self._stdin.close()
        self._stdout.close()

    def kill(self) -> None:
        """SIGKILL, and the pipes closed. A process in state D stays; `gone` tells."""
        self.process.kill()
        self.let_go()

    def gone(self) -> bool:
        """True once the process has ended; reaps it."""
        return self.process.poll() is not None

    def end(self) -> bool:
        """Lets go, waits, kills, waits. False for a process that even KILL did not end in time."""
        self.let_go()
        for insist in (False, True):
            if insist:
                self.process.kill()
            try:
                self.process.wait(END_S)
            except subprocess.TimeoutExpired:
                continue
            return True
        return False


def options_for(world: Path | None) -> tuple[str, ...]:
    """The helper's options: the driver's NVML, or a simulated one over a world directory."""
    if world is None:
        return ()
    return ("--nvml", "supervisor.simulation.nvml", "--world", str(world.resolve()))
