"""`supervise logs`: the job's output. Reads files only; the end of a huge log is found from its end."""

from __future__ import annotations

import codecs
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from supervisor.cli import common
from supervisor.core.errors import Exit, Refusal
from supervisor.edges.paths import AttemptDir, RunDir
from supervisor.views.words import ESCAPE_CAP, safe_block, unfinished_escape

BLOCK_BYTES = 2**16
BACK_CAP_BYTES = 64 * 2**20
"""So far back the last lines are looked for; lines longer than that are cut at their beginning."""
LOOK_EVERY_S = 0.05


@click.command("logs")
@common.run_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, over attempts, until the run ends.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=20, show_default=True, help="How many last lines.")
@click.option("-p", "--previous", is_flag=True, help="The attempt before the last one.")
@click.option("--attempt", type=click.IntRange(min=1), help="That attempt.")
def command(run: str | None, follow: bool, lines: int, previous: bool, attempt: int | None) -> None:
    """The last lines of the output. On a terminal its control sequences are taken out; a pipe gets it as it was."""
    if previous and attempt is not None:
        raise click.UsageError("-p and --attempt name two attempts; give one of them")
    where = common.find_run(run)
    chosen = _chosen(where, previous, attempt)
    write = writer()
    with open(chosen.output, "rb") as file:
        seek_last_lines(file.fileno(), lines)
        if not follow:
            while data := file.read(BLOCK_BYTES):
                write(data)
            return
    is_pinned = previous or attempt is not None
    _follow(where, chosen, lines, is_pinned, write)


def _chosen(run: RunDir, previous: bool, number: int | None) -> AttemptDir:
    there = attempts(run)
    if number is not None:
        if run.attempt(number) not in there:
            raise Refusal(Exit.NO_SUCH_RUN, f"{run.name} has no output of attempt {number}; {_which(there, run.name)}")
        return run.attempt(number)
    if len(there) <= int(previous):
        what = "no attempt before its last one" if previous and there else "no output yet: nothing was launched"
        raise Refusal(Exit.NO_SUCH_RUN, f"{run.name} has {what}. See: supervise status {run.name}")
    return there[-2 if previous else -1]


def _which(there: list[AttemptDir], name: str) -> str:
    if not there:
        return f"nothing was launched. See: supervise status {name}"
    return f"it has: {', '.join(str(each.n) for each in there)}. The last: supervise logs {name}"


def attempts(run: RunDir) -> list[AttemptDir]:
    """The attempts that have an output, in order."""
    try:
        names = [name for name in os.listdir(run.attempts) if name.isdigit()]  # noqa: PTH208 - names only
    except FileNotFoundError:
        return []
    found = (run.attempt(int(name)) for name in names)
    return sorted((each for each in found if each.output.exists()), key=lambda each: each.n)


def seek_last_lines(fd: int, count: int) -> None:
    """Go to where the last `count` lines begin, reading from the end."""
    end = os.lseek(fd, 0, os.SEEK_END)
    if count == 0:
        return
    at, found = end, 0
    floor = max(0, end - BACK_CAP_BYTES)
    while at > floor:
        start = max(floor, at - BLOCK_BYTES)
        block = os.pread(fd, at - start, start)
        # A newline at the very end ends the last line, it does not begin another.
        cut = len(block) - 1 if at == end and block.endswith(b"\n") else len(block)
        while (cut := block.rfind(b"\n", 0, cut)) >= 0:
            found += 1
            if found == count:
                os.lseek(fd, start + cut + 1, os.SEEK_SET)
                return
        at = start
    os.lseek(fd, floor, os.SEEK_SET)


def writer() -> Callable[[bytes], None]:
    """Writes the job's output to stdout: as it is into a pipe, without control sequences onto a terminal."""
    out = sys.stdout.buffer
    if not sys.stdout.isatty():
        return lambda data: (out.write(data), out.flush())[1]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = ""

    def write(data: bytes) -> None:
        nonlocal held
        text = held + decoder.decode(data)
        cut = unfinished_escape(text)
        text, held = (text[:cut], text[cut:]) if len(text) - cut < ESCAPE_CAP else (text, "")
        out.write(safe_block(text).encode("utf-8", "replace"))
        out.flush()

    return write


def _follow(run: RunDir, at: AttemptDir, lines: int, is_pinned: bool, write: Callable[[bytes], None]) -> None:
    """Until the run ends (or, for one attempt, until that has ended)."""
    try:
        for data in following(run, at, lines, is_pinned):
            write(data)
    except KeyboardInterrupt:
        common.leave(Exit.INTERRUPTED)


def following(
    run: RunDir,
    at: AttemptDir,
    lines: int,
    is_pinned: bool,
    *,
    nap: Callable[[], None] = lambda: time.sleep(LOOK_EVERY_S),
) -> Iterator[bytes]:
    """What is written to the output, block by block; a later attempt is announced on stderr."""
    is_first = True
    while True:
        with open(at.output, "rb") as file:
            if is_first:
                seek_last_lines(file.fileno(), lines)
            is_first = False
            while True:
                # Asked before reading: what was written before the end is then read after it.
                after = _after(run, at)
                is_over = (at.exit_json.exists() or after is not None) if is_pinned else not run.open.exists()
                while data := file.read(BLOCK_BYTES):
                    yield data
                if is_pinned and is_over:
                    return
                if after is not None or is_over:
                    break
                nap()
        if after is None:
            return
        at = after
        common.say(f"==> {run.name}, attempt {at.n} <==")


def _after(run: RunDir, at: AttemptDir) -> AttemptDir | None:
    """The next attempt that has an output."""
    return next((each for each in attempts(run) if each.n > at.n), None)


def output_of(run: RunDir) -> Path | None:
    """The output of the last attempt."""
    there = attempts(run)
    return there[-1].output if there else None
