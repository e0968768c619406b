"""Following a run that was just launched: its output on stdout, what becomes of it on stderr, until first progress."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from supervisor.cli.common import say
from supervisor.cli.logs import BLOCK_BYTES, seek_last_lines, writer
from supervisor.core.errors import Exit
from supervisor.edges.journal_lines import Record
from supervisor.edges.journal_tail import Tail
from supervisor.edges.paths import RunDir
from supervisor.views.run import Entry, next_phase, trigger
from supervisor.views.words import safe_block

LOOK_EVERY_S = 0.05
LAST_LINES = 200
_ENDS = {"finished": Exit.OK, "stopped": Exit.NOT_RUNNING, "halted": Exit.HALTED}


def until_progress(run: RunDir) -> int:
    """The verb's exit code: 0 at the first progress or when finished, 3 stopped, 9 halted, 130 after Ctrl-C."""
    try:
        return _until_progress(run, Output(run, writer(), is_screen=sys.stdout.isatty()))
    except KeyboardInterrupt:
        say(f"detached; {run.name} goes on. See: supervise status {run.name}, supervise logs -f {run.name}")
        return Exit.INTERRUPTED


def _until_progress(run: RunDir, output: Output) -> int:
    tail = Tail(run.journal)
    phase = "stopped"
    for record in tail.poll():  # what is there already was the answer's affair: only where it leads to matters
        phase = next_phase(phase, trigger(Entry(record.type, record.at.wall_s, record.data)))
        if record.type == "LaunchIntended":
            output.go_to(int(record.data["attempt"]))
    output.skip_to_last_lines()
    while (code := _code(phase)) is None:
        time.sleep(LOOK_EVERY_S)
        for record in tail.poll():
            phase = next_phase(phase, trigger(Entry(record.type, record.at.wall_s, record.data)))
            output.pass_on()
            if record.type == "LaunchIntended":
                output.go_to(int(record.data["attempt"]))
            if text := _told(record):
                output.end_line()
                say(f"{run.name}: {safe_block(text)}")
        output.pass_on()
    output.pass_on()  # once more: what came before this began to look
    output.end_line()
    if phase not in _ENDS:
        say(f"{run.name} is {phase}. See: supervise status {run.name}, supervise logs -f {run.name}")
    return code


def _code(phase: str) -> int | None:
    """The exit code that this phase means; None: follow on."""
    if phase in ("running", "degraded"):
        return Exit.OK
    return _ENDS.get(phase)


def _told(record: Record) -> str:
    """What a person who watches wants to hear of a record; empty for nothing."""
    of = record.data
    match record.type:
        case "LaunchIntended" if of["attempt"] > 1:
            return f"attempt {of['attempt']}: {of.get('because', '')}"
        case "FirstProgress":
            return f"first progress after {of['startup_s']:.0f} s" + (
                "" if of["step"] is None else f", step {of['step']}"
            )
        case "Judged":
            return str(of["failure"].get("because", "")) + "; " + str(of["plan"].get("because", ""))
        case "BackoffBegan" | "EpisodeEnded":
            next_command = f". Next: {of['next_command']}" if of.get("next_command") else ""
            return str(of.get("because", "")) + next_command
    return ""


class Output:
    """The output of the run's attempts, passed on as it grows."""

    def __init__(self, run: RunDir, write: Callable[[bytes], None], *, is_screen: bool) -> None:
        self._run = run
        self._write = write
        self._is_screen = is_screen
        self._is_in_line = False
        self._attempt = 0
        self._offset = 0

    def go_to(self, attempt: int) -> None:
        """From now on that attempt's, from its beginning."""
        self._attempt, self._offset = attempt, 0

    def skip_to_last_lines(self) -> None:
        """Of what is there already only the end: the run may be days old."""
        with suppress(FileNotFoundError), open(self._run.attempt(self._attempt).output, "rb") as file:
            seek_last_lines(file.fileno(), LAST_LINES)
            self._offset = file.tell()

    def pass_on(self) -> None:
        """Everything that was written since the last call."""
        if self._attempt == 0:
            return
        try:
            fd = os.open(self._run.attempt(self._attempt).output, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            while data := os.pread(fd, BLOCK_BYTES, self._offset):
                self._offset += len(data)
                self._is_in_line = not data.endswith(b"\n")
                self._write(data)
        finally:
            os.close(fd)

    def end_line(self) -> None:
        """On a screen our own words begin a line, also after a bar that is redrawn; a file gets what was printed."""
        if self._is_screen and self._is_in_line:
            self._is_in_line = False
            self._write(b"\n")
