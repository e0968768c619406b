"""A night lived through: the real loop and core, a box that is not there, a clock that costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fake_journals import Killed, MemoryJournal
from fake_machine import PAUSES, FakeMachine
from fake_specs import BOTH, CHECKPOINTS, inventory, knob, small
from fake_world import World
from msgspec.structs import replace
from plots import LENGTH_S, Deed, Plot
from promises import Broken, Promises, answered_once

from supervisor.core.events import Event, SupervisorStarted
from supervisor.core.evidence import Checkpoint, Holder, Instant, Owner, Step
from supervisor.core.fold import fold
from supervisor.core.kinds import Kind
from supervisor.core.seen import Order, Problem, Seen
from supervisor.core.spec import Do, Foreign, Health, Progress, Recovery, Resume, Rule, RunSpec, VerifyZero
from supervisor.core.state import State
from supervisor.edges.journal import JournalFull
from supervisor.loop import Loop

STALL_S, START_S = 90.0, 200.0
SETTLE_S, PATIENCE_S = 100.0, 900.0
"""After the last deed so long passes; who is then between two phases gets so long to come to one that may last."""

BEGAN_S = 1000.0
TURNS = 20_000
NEXT_SUPERVISOR_S = 0.5
FULL_WAIT_S = 5.0


@dataclass
class SimWorld(World):
    """A world with a trainer in it: it loads, steps, saves, hangs, and knows nothing of supervision."""

    gpu_count: int = 2
    pace_s: float = 1.0
    step_s: float = 5.0
    save_every: int = 4
    load_s: float = 5.0
    total: int = 10_000
    rungs: int = 3
    disturbed: dict[str, float] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    own_at_start: dict[int, float] = field(default_factory=dict)
    strangers: set[int] = field(default_factory=set)
    strangers_hit: list[tuple[int, str]] = field(default_factory=list)
    hangs: set[int] = field(default_factory=set)
    half_written: bool = False
    wall_offset_s: float = 0.0
    _at: dict[int, tuple[int, float]] = field(default_factory=dict)

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(gpu.uuid for gpu in inventory(self.gpu_count))

    def now(self) -> Instant:
        at = super().now()
        return Instant(at.boot_id, at.boot_s, at.wall_s + self.wall_offset_s)

    def own_mib(self, uuid: str) -> float:
        """What the run's own processes hold, dead ones' draining memory included."""
        return self.used_mib(uuid) - self.residents.get(uuid, (0.0, None))[0]

    def job_begins(self, n: int) -> None:
        self.own_at_start[n] = max(self.own_mib(uuid) for uuid in self.uuids)
        super().job_begins(n)

    def signal(self, pid: int, ticks: int, name: str) -> None:
        if pid in self.strangers:
            self.strangers_hit.append((pid, name))
        super().signal(pid, ticks, name)

    def pass_time(self, seconds: float) -> None:
        super().pass_time(seconds)
        self._train()

    def _train(self) -> None:
        n = self.current
        runner = self.runners.get(n)
        if runner is None or runner.leader is None or runner.leader.pid not in self.procs or n in self.hangs:
            return
        told = self.launch_files[n].checkpoint
        step, next_s = self._at.get(n, (told.step if told is not None else 0, self.boot_s + self.load_s))
        while next_s <= self.boot_s:
            step, next_s = step + 1, next_s + self.step_s
            self.log(Step(step, 0.0))
            if self.save_every and step % self.save_every == 0:
                self._saves(step)
            if step >= self.total:
                self.job_ends(code=0, orphans=False)
                return
        self._at[n] = (step, next_s)

    def _saves(self, step: int) -> None:
        if self.half_written:
            self.half_written = False
            self.tear(step, "it is being written")
            return
        self.save(step)
        self.written.add(f"{CHECKPOINTS}/step_{step}")

    def newest(self) -> int | None:
        """The step of the newest checkpoint that this run wrote."""
        whole = [one for one in self.checkpoints.values() if isinstance(one, Checkpoint)]
        return max((one.step for one in whole if one.path in self.written), default=None)


class SimJournal(MemoryJournal):
    """Outlives its supervisors; may have no room."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.full = False
        self._state = State(run="dflash")
        self._n = 0

    def append(self, event: Event) -> Instant:
        if self.full:
            raise JournalFull("journal.jsonl", "no space left on device")  # type: ignore[arg-type]
        return super().append(event)

    def keep(self, state: State) -> None:
        """That states go through JSON is shown elsewhere."""

    @property
    def state(self) -> State:
        """The fold of all records."""
        self._folded()
        return self._state

    def _folded(self) -> None:
        for event, at in self.records[self._n :]:
            self._state = fold(self._state, event, at)
        self._n = len(self.records)


class SimMachine(FakeMachine):
    """Waits no longer than until something happens."""

    def __init__(self, life: Life) -> None:
        super().__init__(life.world, life.touch)
        self._life = life

    def wait(self, order: Order, seen: Seen) -> None:
        self._life.pass_time(PAUSES.get(type(order), self._life.world.pace_s))


@dataclass
class Life:
    """One night. `lived()` raises Broken; `transcript` says what was done and recorded."""

    plot: Plot

    def __post_init__(self) -> None:
        box = self.plot.box
        names = ("drain_s", "pace_s", "step_s", "save_every", "load_s", "rungs")
        self.world = SimWorld(
            **{name: box[name] for name in names}, total=box["steps"], output=box["output"], boot_s=BEGAN_S
        )
        if box["start"]:
            self.world.save(690)
        if box["left_by_others"]:
            self.world.save(750)  # a branch that is not this run's
        self.journal = SimJournal(self.world)
        self.promises = Promises(self.world)
        self.spec = _spec(box)
        self.asked: list[str] = []
        self.transcript: list[str] = []
        self._deeds = list(self.plot.deeds)
        self._loop: Loop | None = None
        self._kill = False
        self._shift_s = 0.0  # what reboots took
        self._told = 0

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def lived(self) -> State:
        """Live it; the last state. Raises Broken."""
        for _ in range(TURNS):
            if self._is_over():
                answered_once(self.world, self.journal.records, self.asked)
                return self.state
            self._turn()
            self._tell()
            self.promises.look(self.journal.records)
        raise Broken(f"{TURNS} turns, and still {self.state.phase.value}")

    def pass_time(self, seconds: float) -> None:
        """Up to so long: until the next deed, and do it."""
        until = self._deeds[0].at_s + BEGAN_S if self._deeds else float("inf")
        until += self._shift_s
        self.world.pass_time(max(0.0, min(seconds, until - self.world.boot_s)))
        while self._deeds and self._deeds[0].at_s + BEGAN_S + self._shift_s <= self.world.boot_s:
            self._do(self._deeds.pop(0))

    @property
    def state(self) -> State:
        """The fold of all records."""
        return self._loop.state if self._loop is not None else self.journal.state

    def _is_over(self) -> bool:
        """Nothing more happens, and the run is at an end or goes on with nobody needed."""
        late_s = self.world.boot_s - BEGAN_S - self._shift_s - LENGTH_S
        if self._deeds or (late_s < SETTLE_S and self._loop is not None):
            return False
        if self._unread():
            return False
        phase = self.state.phase
        if phase.is_end or self._goes_on():
            return True
        if late_s > SETTLE_S + PATIENCE_S:
            raise Broken(f"stuck in {phase.value}: {self.state.because}")
        return False

    def _goes_on(self) -> bool:
        runner = self.world.runners.get(self.world.current)
        at_work = runner is not None and runner.leader is not None and runner.leader.pid in self.world.procs
        return at_work and self.state.phase.value in ("starting", "running", "degraded")

    # ── supervisors ──────────────────────────────────────────────────────────────────────────────────────────────────

    def touch(self, what: str) -> None:
        """Every touch of the world: a supervisor may be killed here."""
        if self._kill:
            self._kill = False
            raise Killed(what)

    def _turn(self) -> None:
        try:
            if self._loop is None and not self._start():
                self.pass_time(60.0)
                return
            assert self._loop is not None
            if not self._loop.turn():
                self._loop.machine.close(self._loop.state)
                self._loop = None
        except Killed as killed:
            self._dies(f"killed at {killed}", NEXT_SUPERVISOR_S)
        except JournalFull:
            self._dies("the journal has no room", FULL_WAIT_S)

    def _dies(self, why: str, away_s: float) -> None:
        self.transcript.append(f"{self._clock()} the supervisor is gone: {why}")
        self._loop = None
        self.pass_time(away_s)

    def _start(self) -> bool:
        """As the guardian does: for an open run, or a request that nobody has read."""
        if self.state.phase.is_end and not self._unread():
            return False
        self._loop = Loop(self.journal, SimMachine(self), SupervisorStarted(pid=1, version="test"))
        return True

    def _unread(self) -> bool:
        answered = self.state.answered
        return any(request.id not in answered for request in self.world.requests)

    # ── what happens ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _do(self, deed: Deed) -> None:
        self._tell()
        self.transcript.append(f"{self._clock()} > {' '.join(str(deed).split()[1:])}")
        getattr(self, f"do_{deed.what}")(**deed.args)

    def _clock(self) -> str:
        return f"{self.world.boot_s - BEGAN_S:8.1f}"

    def _tell(self) -> None:
        for event, _ in self.journal.records[self._told :]:
            self.transcript.append(f"{self._clock()}   {_words(event)}")
        self._told = len(self.journal.records)

    def _alive(self) -> bool:
        runner = self.world.runners.get(self.world.current)
        return runner is not None and runner.leader is not None and runner.leader.pid in self.world.procs

    def _worker(self, gpu: int) -> Iterator[Any]:
        yield from (p for p in list(self.world.procs.values()) if p.name == f"rank{gpu}")

    def do_up(self) -> None:
        self.world.violations.clear()
        self._ask("up", spec=self.spec, rungs={})

    def do_down(self) -> None:
        self._ask("down")

    def do_restart(self) -> None:
        self._ask("restart")

    def do_pause(self) -> None:
        self._ask("pause")

    def do_resume(self) -> None:
        self._ask("resume")

    def _ask(self, verb: str, **args: Any) -> None:
        self.asked.append(self.world.ask(verb, **args))

    def do_supervisor_killed(self) -> None:
        self._kill = True

    def do_killed_after(self, record: str) -> None:
        self.journal.kill_after = record

    def do_oom(self, gpu: int, survived: bool, orphans: bool) -> None:
        if self._alive():
            self.world.oom(gpu)
            for worker in self._worker(gpu):
                self.world.die(worker, code=1)
            if not survived:
                self.world.job_ends(code=1, orphans=orphans)

    def do_text(self, kind: str, code: int, orphans: bool) -> None:
        if self._alive():
            self.world.hit(Kind(kind), f"{kind}: it says so")
            self.world.job_ends(code=code, orphans=orphans)

    def do_ends(self, code: int, orphans: bool) -> None:
        if self._alive():
            self.world.job_ends(code=code, orphans=orphans)

    def do_signalled(self, signal: int) -> None:
        if self._alive():
            self.world.job_ends(signal=signal)

    def do_worker_dies(self, gpu: int) -> None:
        for worker in self._worker(gpu):
            self.world.die(worker, signal=9)

    def do_hangs(self) -> None:
        self.world.hangs.add(self.world.current)

    def do_idles(self, gpu: int) -> None:
        self.world.idle.add(self.world.uuids[gpu])

    def do_worker_deaf(self, gpu: int) -> None:
        for worker in self._worker(gpu):
            worker.deaf = True

    def do_worker_writes(self, gpu: int) -> None:
        for worker in self._worker(gpu):
            worker.writing = True

    def do_stuck(self, gpu: int, state: str) -> None:
        for worker in self._worker(gpu):
            worker.state, worker.wchan = state, "nvidia_poll"

    def do_unstuck(self, gpu: int) -> None:
        for worker in self._worker(gpu):
            worker.state = "S"

    def do_unreadable(self, gpu: int) -> None:
        self._disturbed(gpu)
        self.world.unreadable[self.world.uuids[gpu]] = "GPU is lost"

    def do_readable(self, gpu: int) -> None:
        self.world.unreadable.pop(self.world.uuids[gpu], None)

    def do_foreign(self, gpu: int) -> None:
        self._disturbed(gpu)
        uuid = self.world.uuids[gpu]
        self.world.strangers.add(4242 + gpu)
        self.world.residents[uuid] = (9000.0, Holder(uuid, 4242 + gpu, "eve", "python eve.py", Owner.FOREIGN))

    def do_foreign_gone(self, gpu: int) -> None:
        self.world.residents.pop(self.world.uuids[gpu], None)

    def _disturbed(self, gpu: int) -> None:
        self.world.disturbed[self.world.uuids[gpu]] = self.world.boot_s

    def do_journal_full(self) -> None:
        self.journal.full = True

    def do_journal_room(self) -> None:
        self.journal.full = False

    def do_no_runner(self) -> None:
        self.world.runner_comes = False

    def do_runner_again(self) -> None:
        self.world.runner_comes = True

    def do_runner_killed(self) -> None:
        runner = self.world.runners.get(self.world.current)
        if runner is not None:
            runner.alive = False

    def do_refused(self) -> None:
        self.world.problems = (Problem(exit=6, text="no room"),)

    def do_fit_again(self) -> None:
        self.world.problems = ()

    def do_clock(self, by_s: float) -> None:
        self.world.wall_offset_s += by_s

    def do_reboot(self) -> None:
        self.world.reboot()
        self._shift_s += 60.0
        self._loop = None
        self._kill = True  # whoever was in the middle of something is gone too

    def do_tear(self) -> None:
        step = self.world.newest()
        if step is not None:
            self.world.tear(step)

    def do_half_written(self) -> None:
        self.world.half_written = True

    def do_violation(self) -> None:
        if self._alive():
            self.world.violations.append("pid 7: --anchors is 512")


def _words(event: Event) -> str:
    plain = {name: getattr(event, name) for name in event.__struct_fields__}
    short = {k: v for k, v in plain.items() if isinstance(v, (str, int, float, dict)) and v not in ("", None, {})}
    short.pop("env", None)
    return " ".join([type(event).__name__, *(f"{k}={str(v)[:120]}" for k, v in short.items())])


def _spec(box: dict[str, Any]) -> RunSpec:
    rungs = box["rungs"]
    spec = small()
    knobs = (
        knob("token_budget", *("49152", "45056", "40960")[:rungs]),
        knob("max_batch_size", *("64", "48", "32")[:rungs]),
    )
    resume = Resume(
        from_=f"{CHECKPOINTS}/step_*",
        start=f"{CHECKPOINTS}/step_690" if box["start"] else None,
        args=("--resume", "${{ checkpoint.path }}"),
        if_none=box["if_none"] if box["start"] else "fresh",
    )
    rules = (BOTH, Rule(on=(Kind.HANG,), do=Do.RELAUNCH, where="dflash.yaml:45")) if box["rules"] else ()
    zero = VerifyZero(stable_for_s=0.5, timeout_s=20.0, foreign=Foreign(wait_s=box["foreign_wait_s"]))
    recovery = Recovery(
        rules=rules,
        grace_s=3.0,
        backoff_first_s=2.0,
        backoff_cap_s=30.0,
        max_attempts=box["max_attempts"],
        verify_zero=zero,
    )
    health = Health(
        startup_timeout_s=START_S, progress=Progress(log="step (?P<step>[0-9]+)", stall_s=STALL_S), silent_for_s=30.0
    )
    return replace(
        spec, params=replace(spec.params, knobs=knobs), resume=resume, recovery=recovery, health=health, name="dflash"
    )
