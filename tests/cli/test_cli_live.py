"""`status -w`: what it writes on terminals that can and cannot be drawn on. The real rich, a real pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import recorded

from supervisor.cli import live

NIGHT = recorded.first_attempt() + recorded.second_attempt()
WITHIN_S = 60.0


def test_what_has_no_room_is_counted():
    assert list(live.fitted("a\nb\nc", 3)) == ["a", "b", "c"]
    assert list(live.fitted("a\nb\nc", 2)) == ["a", "... 2 more lines: a taller window shows them"]


def test_a_picture_in_which_only_seconds_went_by_is_not_written_again():
    one, two = "x  halted  5 s ago  97.1 % productive of 5 s", "x  halted  1m 06s ago  90.2 % productive of 1m 06s"
    assert live._steady(one).replace("# #", "#") == live._steady(two).replace("# #", "#")
    assert live._steady(one) != live._steady(one.replace("halted", "running"))


class Watcher:
    """`supervise status -w` on a terminal of its own."""

    def __init__(self, home: Path, columns: int, rows: int, **environ: str) -> None:
        self.shown = b""
        self.terminal, far = pty.openpty()
        self.resize(columns, rows)
        clean = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "supervisor.cli", "status", "-w", "dflash"],
            stdin=far, stdout=far, stderr=far, start_new_session=True,
            env=clean | {"SUPERVISE_HOME": str(home), "TERM": "xterm-256color"} | environ,
        )  # fmt: skip
        os.close(far)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, words: bytes) -> bytes:
        """All that was shown up to these words; what came before is forgotten then."""
        deadline_s = time.monotonic() + WITHIN_S
        while words not in self.shown:
            assert time.monotonic() < deadline_s, self.shown[-2000:]
            if select.select([self.terminal], [], [], 0.2)[0]:
                self.shown += os.read(self.terminal, 65536)
        at = self.shown.index(words) + len(words)
        shown, self.shown = self.shown[:at], self.shown[at:]
        return shown

    def end(self) -> int:
        """Its exit code, once all that it showed has been read."""
        self.process.send_signal(signal.SIGINT)
        deadline_s = time.monotonic() + WITHIN_S
        with suppress(OSError):  # the far side has gone, and nothing is left to read
            while time.monotonic() < deadline_s:
                if select.select([self.terminal], [], [], 0.05)[0]:
                    self.shown += os.read(self.terminal, 65536)
        return self.process.wait(WITHIN_S)


@contextmanager
def watching(home: Path, columns: int = 100, rows: int = 40, **environ: str) -> Iterator[Watcher]:
    watcher = Watcher(home, columns, rows, **environ)
    try:
        yield watcher
    finally:
        if watcher.process.poll() is None:
            watcher.process.kill()
            watcher.process.wait(WITHIN_S)
        os.close(watcher.terminal)


@pytest.mark.real
def test_the_view_follows_the_run_and_the_size_of_the_window_and_ends_by_ctrl_c(tmp_path: Path):
    run = recorded.write(tmp_path, NIGHT, is_open=True)
    with watching(tmp_path) as watcher:
        first = watcher.until(b"the run goes on")
        assert b"\x1b[?1049h" in first
        assert b"\x1b[32m" in first
        watcher.resize(60, 4)
        watcher.until(b"more lines: a taller window")
        recorded.append(run, recorded.finish(), from_s=recorded.T0_S + 500)
        watcher.until(b"finished")
        assert watcher.end() == 0
        assert b"\x1b[?1049l" in watcher.shown


@pytest.mark.real
def test_no_color_means_none_and_a_dumb_terminal_gets_no_escape_at_all(tmp_path: Path):
    recorded.write(tmp_path, NIGHT, is_open=True)
    with watching(tmp_path, NO_COLOR="1") as watcher:
        assert b"\x1b[32m" not in watcher.until(b"the run goes on")
        assert watcher.end() == 0
    with watching(tmp_path, TERM="dumb") as watcher:
        assert b"\x1b" not in watcher.until(b"supervise down dflash")
        assert watcher.end() == 0
