"""Days of one supervisor in minutes: does anything grow? `python -m benchmarks.soak [--days 7] [--lines 80]`.

Real: loop, core, journal, snapshot, log follower and matcher, samples, now.json, watch.json, supervisor.log. Simulated:
the clock, processes, GPUs (tests/world). The job prints so many lines a second and a step each two, saves each half
hour and fails each six (in the first hour far more often). Asked for: memory and descriptors of the last hour within
2 % of the first hour's, files bounded.

The files lie in memory (/dev/shm) where there is room: ext4 puts a file on the disk before it lets it replace another,
4 ms for each now.json, which is time and neither memory nor work.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "world"))

from fake_machine import FakeMachine
from fake_specs import incident
from fake_world import World

from supervisor.core.events import SupervisorStarted
from supervisor.core.seen import Follow, Order, Seen
from supervisor.core.spec import Health, Progress, Resume, RunSpec
from supervisor.core.state import State
from supervisor.core.watch import Watch
from supervisor.edges import proc
from supervisor.edges.files import to_json, write_atomic
from supervisor.edges.log import open_log
from supervisor.edges.paths import Home, RunDir
from supervisor.loop import Loop
from supervisor.machines import remembered
from supervisor.machines.samples import Samples
from supervisor.machines.trail import Trail
from supervisor.record import Record

HOUR_S = 3600.0
ALLOWED = 1.02
LOOKS_AN_HOUR = 4
SAVE_EVERY_S, FAIL_EVERY_S = 1800.0, 6 * HOUR_S
FIRST_SAVES_S, FIRST_FAILS_S = 180.0, 840.0
"""In the first hour, so that it has had some of everything: what is imported and first used then is no growth."""
KEPT, RUNGS = 3, 3
SHM, SHM_FREE_BYTES = "/dev/shm", 2 << 30
INTERNED = 12_000
"""The interpreter makes its table of interned strings anew after so many new ones, whether they live or not: half a MiB
more, once, at an hour that depends on the imports. Here before the first."""
LINE = "2026-01-01 00:00:00,123 INFO [rank{0}] train.py:{1} grad_norm 0.41 lr 3.00e-05 42.3 Ktok/s mem 88.1 GiB\n"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.74 GiB. GPU 1 has a total capacity of 94.97 GiB "
    "of which 4.57 GiB is free. Including non-PyTorch memory, this process has 90.40 GiB memory in use. Of the "
    "allocated memory 90.29 GiB is allocated by PyTorch, and 56.32 MiB is reserved by PyTorch but unallocated.\n"
)


@dataclass
class Printing(World):
    """A world whose job writes a real log, saves, and fails now and then."""

    run: RunDir | None = None
    lines_per_s: int = 80
    step: int = 690
    _saved_s: float = 0.0
    _first_s: float = 0.0
    _failed_s: float = 0.0
    _begun: int = 0
    _failures: int = 0
    _chatter: bytes = b""
    _log: int = -1

    def pass_time(self, seconds: float) -> None:
        """Time goes by, and the job does what it does."""
        super().pass_time(seconds)
        runner = self.runners.get(self.current)
        if runner is None or runner.leader is None or runner.leader.pid not in self.procs:
            return
        if self._begun != self.current:
            self._begin()
        self._print()
        self._first_s = self._first_s or self.boot_s
        is_first = self.boot_s - self._first_s < HOUR_S
        if self.boot_s - self._saved_s >= (FIRST_SAVES_S if is_first else SAVE_EVERY_S):
            self._saved_s = self.boot_s
            self.save(self.step)
        if self.boot_s - self._failed_s >= (FIRST_FAILS_S if is_first else FAIL_EVERY_S):
            self._failed_s = self.boot_s
            self._fails()

    def _fails(self) -> None:
        """Out of memory as often as there are rungs; then it is killed."""
        self._failures += 1
        if self._failures < RUNGS:
            os.write(self._log, OOM.encode())
            self.job_ends(code=1)
        else:
            self.job_ends(signal=9)

    def _begin(self) -> None:
        """The log of the attempt before goes, so that a week needs no more disk than six hours."""
        told = self.launch_files[self.current].checkpoint
        self.step, self._saved_s = told.step if told else 690, self.boot_s
        self._failed_s = self._failed_s or self.boot_s
        if self._begun and self.run is not None:
            self.run.attempt(self._begun).output.unlink(missing_ok=True)
        self._forget()
        self._begun = self.current
        assert self.run is not None
        out = self.run.attempt(self.current).output
        out.parent.mkdir(parents=True, exist_ok=True)
        if self._log >= 0:
            os.close(self._log)
        self._log = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._chatter = "".join(LINE.format(n % 8, n) for n in range(self.lines_per_s)).encode()

    def _forget(self) -> None:
        """Attempts long ago, of which a test would ask this world; it is the supervisor that is measured."""
        for of_attempts in (self.claims, self.runners, self.launch_files, self.exits, self.logs):
            for number in [one for one in of_attempts if one < self.current - 1]:
                del of_attempts[number]
        del self.started[:-1]

    def _print(self) -> None:
        text = self._chatter
        if int(self.boot_s) % 2 == 0:
            self.step += 1
            text += f"step {self.step} loss {2.0 + self.step % 7 / 10:.4f}\n".encode()
        os.write(self._log, text)

    def close(self) -> None:
        """Let go of the log."""
        os.close(self._log)


class SoakMachine(FakeMachine):
    """A supervisor's hold on that world, with the real follower, samples and small files."""

    def __init__(self, world: Printing, run: RunDir, spec: RunSpec) -> None:
        super().__init__(world)
        self._run, self._spec = run, spec
        self._trail: Trail | None = None
        self._samples = Samples(run.samples)
        self._saved = b""

    def do(self, order: Order, state: State) -> None:
        """What the simulated box does; it needs no list of all orders."""
        super().do(order, state)
        self.orders.clear()

    def look(self, order: Order, state: State) -> Seen:
        """Samples are taken of what is seen."""
        seen = super().look(order, state)
        if isinstance(order, Follow):
            self._samples.keep(seen.at, seen.gpus, seen.steps)
        return seen

    def _log(self, n: int) -> dict[str, Any]:
        if self._trail is None or self._trail.attempt != n:
            self.leave()
            self._trail = Trail(self._spec, self._run.attempt(n), None)
        read = self._trail.look(self.world.boot_s, ended=n in self.world.exits)
        return {"hits": read.hits, "steps": read.steps, "done_seen": read.done_seen, "last_line": read.last_line}

    def remember(self, watch: Watch) -> None:
        """The real watch.json."""
        if self._trail is not None and self._trail.attempt == watch.attempt:
            self._saved = remembered.save(self._run, watch, self._trail.saved(), self._saved)

    def show(self, now: Mapping[str, Any]) -> None:
        """The real now.json."""
        write_atomic(self._run.now, to_json(now), sync=False)

    def leave(self) -> None:
        """Let go of the log."""
        if self._trail is not None:
            self._trail.close()
            self._trail = None


@dataclass
class Figures:
    """One look at the process and its files."""

    hour: float
    rss_mib: float
    fds: int
    threads: int
    blocks: int


@dataclass
class Soaked:
    """What a soak found."""

    first: list[Figures] = field(default_factory=list)
    last: deque[Figures] = field(default_factory=lambda: deque(maxlen=LOOKS_AN_HOUR + 1))
    """Of the first hour and of the last: a list of them all would itself grow."""
    attempts: int = 0
    steps: int = 0
    records: int = 0
    state_bytes: int = 0
    files: dict[str, int] = field(default_factory=dict)
    looks: int = 0
    took_s: float = 0.0

    def growth(self, name: str) -> float:
        """The most of the last hour, over the most of the first."""
        return float(max(getattr(each, name) for each in self.last) / max(getattr(each, name) for each in self.first))


def spec() -> RunSpec:
    """Eight GPUs, saves of which three are kept."""
    made = incident()
    assert made.resume is not None
    progress = Progress(log=r"step (?P<step>[0-9]+) loss (?P<loss>[0-9.]+)")
    return replace(
        made,
        resume=Resume(from_=made.resume.from_, start=made.resume.start, args=made.resume.args, keep=KEPT),
        health=Health(startup_timeout_s=2400.0, progress=progress),
    )


@contextmanager
def simulated_clock(world: World) -> Iterator[None]:
    """The journal's clock is the world's."""
    with mock.patch.object(proc, "now", world.now), mock.patch.object(proc, "boot_id", lambda: world.boot_id):
        yield


def soak(folder: Path, hours: float, lines_per_s: int, told: Callable[[Figures], None] | None = None) -> Soaked:
    """One supervisor for so long. `told`: of each quarter of an hour."""
    home = Home(folder)
    run = home.run("dflash")
    run.path.mkdir(parents=True)
    out, wanted = Soaked(), spec()
    world = Printing(run=run, lines_per_s=lines_per_s)
    world.save(690)
    world.ask("up", spec=wanted)
    began_s, next_hour = time.monotonic(), 1 / LOOKS_AN_HOUR
    for n in range(INTERNED):
        sys.intern(f"soak {n}")
    with simulated_clock(world):
        record = Record(home, run)
        record.log = open_log(run.supervisor_log, record.redactor, run=run.name)
        machine = SoakMachine(world, run, wanted)
        loop = Loop(record, machine, SupervisorStarted(pid=os.getpid(), version="soak"))
        origin_s = world.boot_s
        while world.boot_s - origin_s < hours * HOUR_S:
            out.looks += 1
            if not loop.turn():
                raise RuntimeError(f"the run ended: {loop.state.phase.value}: {loop.state.because}")
            if (world.boot_s - origin_s) / HOUR_S >= next_hour:
                seen = _figures(next_hour)
                (out.first if next_hour <= 1.0 else out.last).append(seen)
                if told is not None:
                    told(seen)
                next_hour += 1 / LOOKS_AN_HOUR
        machine.leave()
        world.close()
        out.state_bytes = run.snapshot.stat().st_size
        out.attempts, out.steps = loop.state.attempts_made, world.step
        record.close()
    out.records = run.journal.read_bytes().count(b"\n")
    names = ("journal.jsonl", "snapshot.json", "watch.json", "now.json", "supervisor.log", "supervisor.log.1")
    out.files = {name: (run.path / name).stat().st_size for name in names if (run.path / name).exists()}
    out.files["samples"] = sum(path.stat().st_size for path in run.samples.iterdir())
    out.took_s = time.monotonic() - began_s
    return out


def folder_in_memory() -> str | None:
    """Where there is room for the log of six hours; None for wherever temporary files go."""
    with suppress(OSError):
        if shutil.disk_usage(SHM).free >= SHM_FREE_BYTES:
            return SHM
    return None


def _figures(hour: float) -> Figures:
    rss = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    fds = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    return Figures(hour, rss, fds, threading.active_count(), sys.getallocatedblocks())


def main(argv: list[str]) -> int:
    """One line of JSON; 1 where something grew."""
    asked = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    asked.add_argument("--days", type=float, default=7.0)
    asked.add_argument("--lines", type=int, default=80, help="a second")
    asked.add_argument(
        "--figures", action="store_true", help="also those of each quarter of an hour in which memory grew"
    )
    given = asked.parse_args(argv)
    most = 0.0

    def told(seen: Figures) -> None:
        nonlocal most
        if given.figures and seen.rss_mib > most + 0.1:
            most = seen.rss_mib
            print(seen, flush=True)

    with tempfile.TemporaryDirectory(prefix="supervise-soak-", dir=folder_in_memory()) as folder:
        out = soak(Path(folder), given.days * 24.0, given.lines, told)
    grown = {name: round(out.growth(name), 4) for name in ("rss_mib", "fds", "threads", "blocks")}
    held = max(grown["rss_mib"], grown["fds"], grown["threads"]) <= ALLOWED
    first, last = out.first[-1], out.last[-1]
    ran = {"days": given.days, "looks": out.looks, "attempts": out.attempts, "records": out.records}
    rss = {"rss_first_mib": round(first.rss_mib, 1), "rss_last_mib": round(last.rss_mib, 1), "fds": last.fds}
    print(json.dumps({**ran, **rss, "growth": grown, "files": out.files, "took_s": round(out.took_s), "held": held}))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
