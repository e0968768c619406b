"""What the processes of a job are doing at this moment, as text: for a hang, before it is ended. Nothing is stopped.

From /proc: state, wait channel, threads, the kernel's stack where it may be read. With py-spy, where there is one
(PATH, the job's venv, beside our Python): the Python stacks, without pausing the processes. And the last line of each
rank. Every part has a deadline; what could not be had is said in its place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct, field

from supervisor.core.evidence import ProcessId
from supervisor.core.ranks import last_lines, not_reporting, rank_of_file
from supervisor.edges import proc

WITHIN_S = 20.0
STACK_WITHIN_S = 8.0
SIDE_BY_SIDE = 4
PROCESSES_MAX = 128
LOGS_MAX = 256
TAIL_BYTES = 64 << 10
TEXT_MAX = 64 << 10
"""Of one process; a program with thousands of threads must not fill the disk."""

STATUS = ("Name", "State", "PPid", "Threads", "VmRSS", "SigBlk", "SigIgn", "voluntary_ctxt_switches")
THREADS_SHOWN = 32


class Subject(Struct, frozen=True):
    """A process to look at. `rank` None: it has none."""

    id: ProcessId
    rank: int | None = None


class Found(Struct):
    """The dump. `ranks` did not report, as far as the logs tell."""

    text: str = ""
    processes: int = 0
    stacks: int = 0
    ranks: tuple[int, ...] = ()
    why_no_stacks: str = ""
    parts: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """In one line."""
        stacks = f"{self.stacks} Python stacks" if self.stacks else f"no Python stacks ({self.why_no_stacks})"
        return f"{self.processes} process{'' if self.processes == 1 else 'es'}, {stacks}"


def find_py_spy(venv: str | None, search: str | None = None) -> str | None:
    """py-spy from PATH (`search`, else ours), the job's venv, or beside our Python; None where there is none."""
    found = shutil.which("py-spy", path=search)
    for folder in (f"{venv}/bin" if venv else "", os.path.dirname(sys.executable)):  # noqa: PTH120
        found = found or (shutil.which("py-spy", path=folder) if folder else None)
    return found


def take(subjects: Sequence[Subject], logs: Iterable[str], *, head: str, py_spy: str | None) -> Found:
    """Look at all of them, for `WITHIN_S` at most."""
    until_s = time.monotonic() + WITHIN_S
    found = Found()
    ranks, said = _ranks({one.rank for one in subjects if one.rank is not None}, logs)
    found.ranks = ranks
    found.parts = [head, *said]
    live = [one for one in subjects if proc.is_alive(one.id)][:PROCESSES_MAX]
    stacks = _stacks(live, py_spy, until_s, found)
    for one in live:
        found.processes += 1
        found.parts.append("\n".join([*_process(one), stacks.get(one.id.pid, "")])[:TEXT_MAX])
    found.text = "\n\n".join(part.rstrip() for part in found.parts) + "\n"
    return found


def _process(one: Subject) -> Iterator[str]:
    pid = one.id.pid
    rank = "" if one.rank is None else f" (rank {one.rank})"
    yield f"== pid {pid}{rank}: {proc.cmdline(pid)[:300]}"
    yield from _status(pid)
    yield f"wchan: {proc.wchan(pid) or '-'}"
    yield from _threads(pid)
    try:
        stack = Path(f"/proc/{pid}/stack").read_text(errors="replace").strip()
    except OSError as error:
        stack = f"not to be read ({error.strerror})"
    yield f"kernel stack: {stack or '-'}"


def _status(pid: int) -> Iterator[str]:
    for line in (proc.read(f"/proc/{pid}/status", TAIL_BYTES) or b"").decode("utf-8", "replace").splitlines():
        if line.partition(":")[0] in STATUS:
            yield " ".join(line.split())


def _threads(pid: int) -> Iterator[str]:
    """Where its other threads wait: of a hang in a collective the main thread often tells nothing."""
    shown = 0
    for thread in proc.threads(pid):
        if thread == pid:
            continue
        stat = proc.parse_stat(proc.read(f"/proc/{pid}/task/{thread}/stat", 4096) or b"")
        wchan = (proc.read(f"/proc/{pid}/task/{thread}/wchan", 256) or b"").decode("utf-8", "replace").strip("0\n")
        if stat is not None:
            yield f"thread {thread} {stat.comm}: {stat.state} {wchan or '-'}"
            shown += 1
        if shown == THREADS_SHOWN:
            yield "more threads are not shown"
            return


def _stacks(live: Sequence[Subject], py_spy: str | None, until_s: float, found: Found) -> dict[int, str]:
    """The Python stacks by pid; of other programs none are asked for."""
    pythons = [one for one in live if "python" in os.path.basename(proc.exe(one.id.pid)).lower()]  # noqa: PTH119
    if not pythons or py_spy is None:
        found.why_no_stacks = (
            "there is no Python process"
            if not pythons
            else "py-spy is not installed: pip install py-spy, beside supervise"
        )
        return {}
    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="py-spy") as pool:
        told = list(pool.map(lambda one: _py_spy(py_spy, one.id.pid, until_s), pythons))
    found.stacks = sum(1 for ok, _ in told if ok)
    found.why_no_stacks = next((text for ok, text in told if not ok), "")[:160]
    return {one.id.pid: text for one, (_, text) in zip(pythons, told, strict=True)}


def _py_spy(program: str, pid: int, until_s: float) -> tuple[bool, str]:
    """Whether there is a stack, and it; else why not."""
    left_s = min(STACK_WITHIN_S, until_s - time.monotonic())
    if left_s <= 0:
        return False, "py-spy: no time left"
    command = [program, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        said = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=left_s, check=False)
    except subprocess.TimeoutExpired:
        return False, f"py-spy: no answer within {left_s:.0f} s"
    except OSError as error:
        return False, f"py-spy: {error.strerror}"
    if said.returncode != 0:
        return False, f"py-spy: {said.stderr.decode('utf-8', 'replace').strip()[-300:]}"
    return True, said.stdout.decode("utf-8", "replace").strip()


def _ranks(expected: Iterable[int], logs: Iterable[str]) -> tuple[tuple[int, ...], list[str]]:
    """Who did not report, and the last line of each rank as text."""
    said: dict[int, str] = {}
    written_s: dict[int, float] = {}
    last: list[str] = []
    for path in list(logs)[:LOGS_MAX]:
        data, at_s = _tail(path)
        lines = data.decode("utf-8", "replace").replace("\r", "\n").splitlines()
        said.update({rank: line[:500] for rank, line in last_lines(path, lines).items()})
        own = rank_of_file(path)
        if own is not None and at_s is not None:
            written_s[own] = max(at_s, written_s.get(own, 0.0))
        shown = next((line.strip() for line in reversed(lines) if line.strip()), "")
        last.append(f"{path}: {shown[:500] or '(nothing)'}")
    ranks = not_reporting(expected, said, written_s)
    texts = ["== last line of each log", *last]
    if said:
        texts += ["== last line of each rank", *(f"rank {rank}: {said[rank]}" for rank in sorted(said))]
    if ranks:
        texts.append(f"did not report: rank {', '.join(map(str, ranks))}")
    return ranks, ["\n".join(texts)]


def _tail(path: str) -> tuple[bytes, float | None]:
    try:
        with open(path, "rb", opener=_not_waiting) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            return file.read(TAIL_BYTES), os.fstat(file.fileno()).st_mtime
    except (OSError, ValueError):  # gone, or a pipe: it tells nothing
        return b"", None


def _not_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
