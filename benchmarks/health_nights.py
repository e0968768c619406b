"""Simulated nights, sick states among healthy phases: is each found in time, and is nothing ended falsely?

    python -m benchmarks.health_nights [NIGHTS] [--sick] [--seed N]

The real core (`looked`, `decide`, `fold`) looks at a simulated job: readings, steps, checkpoints, bars, phases. The
supervisor dies now and then. Seeds are fixed: night N is the same night everywhere. No clock, no process, no GPU.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core.decisions import decide
from supervisor.core.evidence import Checkpoint, GpuSeen, Instant, MachineId, ProcessId, Reading, Sign, Step, Unreadable
from supervisor.core.fold import fold
from supervisor.core.kinds import Kind
from supervisor.core.orders import order
from supervisor.core.phases import Phase
from supervisor.core.placing import RoleGpus
from supervisor.core.seen import Follow, JobSeen, Seen
from supervisor.core.spec import Health, Progress, Role, RunSpec
from supervisor.core.state import Attempt, State
from supervisor.core.watch import Watch, begun, looked, memo, recalled

GPUS = tuple(f"GPU-{n}" for n in range(8))
ROLES = {
    "target": RoleGpus(ordinals=(0, 1, 2, 3, 4), physical=(0, 1, 2, 3, 4), uuids=GPUS[:5]),
    "drafter": RoleGpus(ordinals=(5, 6, 7), physical=(5, 6, 7), uuids=GPUS[5:]),
}
TOTAL_MIB = 97_253.0
HERE = MachineId("boot", "machine", "box")
STARTUP_S, EVAL_LIMIT_S, FOR_S = 2400.0, 7200.0, 120.0
STRONG_S = 15.0
FINE_S, COARSE_S, FINE_FOR_S = 1.0, 10.0, 20.0
"""Looks come each second after a change and each ten seconds in between, so that a thousand nights are affordable."""
DUMP_S = 2 * COARSE_S + 2.0
"""A dump is asked for at one look and answered at the next."""


@dataclass
class Gpu:
    """One simulated GPU. `util` None: it cannot be read."""

    mib: float = 88_000.0
    util: float | None = 95.0
    pids: tuple[int, ...] = (1,)


@dataclass
class Outcome:
    """What a night led to: what was injected and when it was found; what was ended though nothing was wrong."""

    seed: int
    found: list[tuple[str, float, float]] = field(default_factory=list)
    """(what, seconds until it was found, the bound)."""
    missed: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)
    looks: int = 0
    hours: float = 0.0


class Found(Exception):
    """The attempt was judged."""


class Night:
    """One night of one run: `live` until it is over."""

    def __init__(self, seed: int, sick: int) -> None:
        self.dice = random.Random(seed)
        self.now_s = 1000.0
        self.out = Outcome(seed)
        self.sick_left = sick
        self.sick: tuple[str, float, float] | None = None
        self.has_phases = self.dice.random() < 0.3
        self.may_finish = self.dice.random() < 0.3
        self.step_s = self.dice.choice((0.5, 2.0, 8.0, 30.0))
        self.spec = self._spec()
        self.state = State(run="night", spec=self.spec, roles=ROLES)
        self._attempt(1)

    def _spec(self) -> RunSpec:
        roles = (
            Role(name="target", gpus=("0", "1", "2", "3", "4"), for_s=FOR_S),
            Role(name="drafter", gpus=("5", "6", "7"), for_s=FOR_S, may_finish=self.may_finish),
        )
        phase: dict[str, str | float] = {"name": "eval", "from": "a", "to": "b", "limit_s": EVAL_LIMIT_S}
        health = Health(
            startup_timeout_s=STARTUP_S,
            progress=Progress(log=r"step (?P<step>\d+)"),
            phases=(phase,) if self.has_phases else (),
        )
        return RunSpec(name="night", command=("train",), file="n.yaml", workdir="/w", topology=roles, health=health)

    def _attempt(self, number: int) -> None:
        """The next attempt is launched and knows nothing yet."""
        at = self.at()
        attempt = Attempt(number=number, token="t", argv=(), rungs={}, checkpoint=None, began=at, launched_at=at)
        self.state = replace(
            self.state,
            phase=Phase.STARTING,
            attempt=replace(attempt, runner=ProcessId(2, 2), leader=ProcessId(3, 3)),
            plan=None,
            past=(),
        )
        self.watch: Watch = begun(number, at)
        self.gpus = [Gpu() for _ in GPUS]
        self.step, self.stepped_s = 0, self.now_s
        self.sleeps = 0
        self.saved = self.gone_on = False
        self.sign_s: float | None = None
        self.slowest_s = 0.0
        self.inside = False
        self.deed: dict[str, Any] = {}

    def at(self) -> Instant:
        return Instant("boot", self.now_s, 1e9 + self.now_s)

    # ── the night ────────────────────────────────────────────────────────────────────────────────────────────────────

    def live(self) -> Outcome:
        """Attempts until one goes well to its end."""
        began_s, number = self.now_s, 1
        while True:
            try:
                self._load()
                self._train()
                break
            except Found:
                number += 1
                self._attempt(number)
        self.out.hours = (self.now_s - began_s) / 3600
        return self.out

    def _load(self) -> None:
        """22 minutes: one GPU after the other takes its memory, at little utilisation; shards are counted."""
        if self.sick_left and self.dice.random() < 0.1:
            self._inject("startup_timeout", STARTUP_S + DUMP_S)
            self._pass(STARTUP_S + 120, util=0.0)
            self._miss()
        length_s = self.dice.uniform(1200, 1400)
        for shard in range(1, 48):
            for n, gpu in enumerate(self.gpus):
                gpu.mib = 88_000.0 * min(1.0, shard / 47 + n * 0.01)
            self.deed["signs"] = (Sign("loading shard", shard, 47, self.now_s),)
            self._pass(length_s / 47, util=self.dice.choice((0.0, 3.0, 40.0)))
        self.gpus = [Gpu() for _ in GPUS]

    def _train(self) -> None:
        healthy = [self._save, self._stall, self._recompile, self._evaluate, self._sleep, self._blink, self._restart]
        self._steps(self.dice.uniform(60, 400))
        rounds = self.dice.randint(4, 8)
        ill = set(self.dice.sample(range(rounds), k=min(self.sick_left, rounds)))
        for round_ in range(rounds):
            self.dice.choice(healthy)()
            self._steps(self.dice.uniform(30, 600))
            if round_ in ill:
                self._fall_ill()
        self._finish()

    def _finish(self) -> None:
        """Workers that may finish end early; after the last step they all end one after the other."""
        if self.may_finish:
            self.gpus[6] = Gpu(0.0, 0.0, ())
            self._steps(self.dice.uniform(60, 300))
        self._look(total=self.step + 1, steps=1)
        for n in self.dice.sample(range(8), k=6):
            self.gpus[n] = Gpu(0.0, 0.0, ())
            self._pass(self.dice.uniform(1, 30), keep=True)

    # ── healthy ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _steps(self, seconds: float) -> None:
        self._pass(max(seconds, 3 * self.step_s), stepping=True)

    def _save(self) -> None:
        """54 GB: rank 0 writes, the others spin in a barrier; then the checkpoint is there."""
        self.gpus[0].util = 0.0
        self._pass(self.dice.uniform(20, 360), keep=True)
        self.gpus[0].util = 95.0
        one = Checkpoint(path=f"/c/step_{self.step}", step=self.step, inode=self.step, mtime_ns=self.step)
        written = ev.CheckpointWritten(attempt=self.watch.attempt, checkpoint=one, logged_step=self.step)
        self.state = fold(self.state, written, self.at())
        self._alive()
        self.saved = True
        self._look()

    def _stall(self) -> None:
        """The data do not come: everybody waits."""
        self._pass(self.dice.uniform(20, 540), util=0.0)

    def _recompile(self) -> None:
        """Some compile on the CPU while the others spin in a barrier."""
        for n in self.dice.sample(range(8), k=3):
            self.gpus[n].util = 0.0
        self._pass(self.dice.uniform(20, 400), keep=True)
        for gpu in self.gpus:
            gpu.util = 95.0

    def _evaluate(self) -> None:
        """25 minutes on some GPUs: a declared phase, or a bar that grows."""
        if self.has_phases:
            self.deed["marks"] = (("eval", True, self.now_s),)
            self._alive()
            self.inside = True
        for n in self.dice.sample(range(8), k=self.dice.randint(0, 7)):
            self.gpus[n].util = 0.0
        for item in range(10):
            if not self.has_phases:
                self.deed["signs"] = (Sign("Evaluating", item, 10, self.now_s),)
                self._alive()
            self._pass(self.dice.uniform(120, 180), keep=True)
        if self.has_phases:
            self.deed["marks"] = (("eval", False, self.now_s),)
            self.inside = False
            self.sign_s = self.now_s
        for gpu in self.gpus:
            gpu.util = 95.0

    def _sleep(self) -> None:
        """The drafters give their memory back and come again: shortly at first, later for longer."""
        for gpu in self.gpus[5:]:
            gpu.mib, gpu.util = 2_500.0, 0.0
        most = 10.0 if self.sleeps == 0 else 100.0
        self.sleeps += 1
        self._pass(self.dice.uniform(3, most), stepping=True, keep=True)
        self.gpus[5:] = [Gpu() for _ in range(3)]
        self._steps(30)

    def _blink(self) -> None:
        """A GPU cannot be read for a while."""
        gpu = self.dice.choice(self.gpus)
        gpu.util = None
        self._pass(self.dice.uniform(5, 90), stepping=True, keep=True)
        gpu.util = 95.0

    def _restart(self) -> None:
        """The supervisor dies; the next one begins with what was saved."""
        saved = memo(self.watch)
        self.now_s += self.dice.uniform(0.1, 20)
        self.watch = recalled(saved)

    # ── sick ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fall_ill(self) -> None:
        deeds: tuple[Callable[[], None], ...] = (self._falls, self._dies, self._idles, self._hangs, self._hangs_idle)
        self.sick_left -= 1
        self.dice.choice(deeds)()
        self._miss()

    def _falls(self) -> None:
        self._inject("silent_gpu: fell", STRONG_S)
        self.gpus[self.dice.randint(0, 4)] = Gpu(31_232.0, 0.0)
        self._pass(400, stepping=True, keep=True)

    def _dies(self) -> None:
        self._inject("silent_gpu: gone", STRONG_S)
        self.gpus[self.dice.randint(0, 4)] = Gpu(0.0, 0.0, ())
        self._pass(400, stepping=True, keep=True)

    def _idles(self) -> None:
        self._inject("silent_gpu: idle", FOR_S + 2 * max(self.step_s, COARSE_S) + COARSE_S)
        self.gpus[self.dice.randint(0, 7)].util = 0.0
        self._pass(800, stepping=True, keep=True)

    def _hangs(self) -> None:
        """The collective spins at 100 %, a heartbeat still prints."""
        self._inject("hang: spinning", self._stall_s() + DUMP_S + COARSE_S)
        self._pass(self._stall_s() + 600, util=100.0)

    def _hangs_idle(self) -> None:
        self._inject("hang: idle", self._stall_s() + DUMP_S + COARSE_S)
        self._pass(self._stall_s() + 600, util=0.0)

    def _stall_s(self) -> float:
        """`stall: auto`, told by the night's own clock."""
        if not (self.saved and self.gone_on):
            return max(1800.0, self.slowest_s)
        return max(600.0, 6.0 * self.slowest_s)

    def _inject(self, what: str, bound_s: float) -> None:
        self.sick = (what, self.now_s, bound_s)

    def _miss(self) -> None:
        if self.sick is not None:
            self.out.missed.append(self.sick[0])
            self.sick = None
        raise Found

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _alive(self) -> None:
        """A sign of life by the night's own clock."""
        if self.sign_s is not None and not self.inside:
            self.slowest_s = max(self.slowest_s, self.now_s - self.sign_s)
        if self.sign_s is not None:
            self.sign_s = self.now_s

    def _pass(self, seconds: float, *, util: float | None = None, stepping: bool = False, keep: bool = False) -> None:
        """Time passes. `util` is everybody's; `keep`: it stays as it was set, else everybody works."""
        if not keep:
            for gpu in self.gpus:
                gpu.util = 95.0 if util is None else util
        until_s, began_s = self.now_s + seconds, self.now_s
        while self.now_s < until_s:
            pace = FINE_S if self.now_s - began_s < FINE_FOR_S else COARSE_S
            self.now_s += min(pace, max(0.1, until_s - self.now_s))
            steps = 0
            if stepping and self.now_s - self.stepped_s >= self.step_s:
                steps = max(1, int((self.now_s - self.stepped_s) / self.step_s))
            self._look(steps=steps)

    def _look(self, steps: int = 0, total: int | None = None) -> None:
        told: tuple[Step, ...] = ()
        if steps:
            self.step, self.stepped_s = self.step + steps, self.now_s
            self.gone_on = self.saved
            self.sign_s = self.now_s if self.sign_s is None else self.sign_s
            self._alive()
            told = (Step(self.step, self.now_s, rate=42.0, loss=2.0, total=total),)
        job = JobSeen(claim="runner", runner=ProcessId(2, 2), runner_alive=True, leader=ProcessId(3, 3))
        asked = order(self.state, self.watch, Seen(at=self.at(), machine=HERE))
        assert isinstance(asked, Follow)
        dump = asked.dump
        answer = None if dump is None else ev.Dumped(attempt=dump.attempt, why=dump.why, step=dump.step, path="/d")
        seen = Seen(
            at=self.at(),
            machine=HERE,
            job=job,
            gpus=dict(self._readings(asked.processes)),
            steps=told,
            dumped=answer,
            **self.deed,
        )
        self.deed = {}
        self.out.looks += 1
        self.watch = looked(self.watch, seen, self.state)
        self._think(seen)

    def _think(self, seen: Seen) -> None:
        while events := decide(self.state, self.watch, seen):
            for event in events:
                self.state = fold(self.state, event, seen.at)
                if isinstance(event, ev.Judged):
                    self._judged(event.failure)

    def _judged(self, failure: ev.Failure) -> None:
        if self.sick is None:
            self.out.false.append(f"{failure.kind.value} at {self.now_s:.0f} s: {failure.because}")
        else:
            what, since_s, bound_s = self.sick
            right = Kind(what.partition(":")[0]) is failure.kind
            self.out.found.append(
                (what if right else f"{what} taken for {failure.kind.value}", self.now_s - since_s, bound_s)
            )
            self.sick = None
        raise Found

    def _readings(self, processes: bool) -> Iterator[tuple[str, GpuSeen]]:
        """Each second a GPU at work may show nothing for once."""
        for n, (uuid, gpu) in enumerate(zip(GPUS, self.gpus, strict=True)):
            if gpu.util is None:
                yield uuid, Unreadable(uuid, n, self.now_s, "GPU is lost")
                continue
            util = 0.0 if self.dice.random() < 0.03 else max(0.0, gpu.util - self.dice.random() * 10 * (gpu.util > 20))
            pids = gpu.pids if processes else None
            yield uuid, Reading(uuid, n, self.now_s, gpu.mib, TOTAL_MIB, 0.0, util, pids=pids)


def nights(count: int, *, sick: bool, seed: int = 0) -> Iterator[Outcome]:
    """So many nights, one after the other; with `sick` each has one to three sick states."""
    for number in range(seed, seed + count):
        yield Night(number, random.Random(number).randint(1, 3) if sick else 0).live()


def main(argv: list[str]) -> int:
    """Prints what was found and what was falsely ended; 1 where anything was missed, late or false."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("nights", nargs="?", type=int, default=100)
    parser.add_argument("--sick", action="store_true", help="inject one to three sick states into each night")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(argv)
    began_s, looks, hours, bad = time.process_time(), 0, 0.0, 0
    late: dict[str, list[float]] = {}
    for one in nights(asked.nights, sick=asked.sick, seed=asked.seed):
        looks, hours = looks + one.looks, hours + one.hours
        for what, took_s, bound_s in one.found:
            late.setdefault(what, []).append(took_s)
            if took_s > bound_s or "taken for" in what:
                bad += 1
                print(f"night {one.seed}: {what} found after {took_s:.0f} s, bound {bound_s:.0f} s")
        for text in (*(f"missed {what}" for what in one.missed), *(f"false: {text}" for text in one.false)):
            bad += 1
            print(f"night {one.seed}: {text}")
    spent_s = time.process_time() - began_s
    print(f"{asked.nights} nights, {hours:.0f} h, {looks} looks, {1e6 * spent_s / max(1, looks):.0f} us of CPU a look")
    for what, took in sorted(late.items()):
        middle = sorted(took)[len(took) // 2]
        print(f"{what}: {len(took)} found, median {middle:.0f} s, longest {max(took):.0f} s")
    print(f"{bad} missed, late or false")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
