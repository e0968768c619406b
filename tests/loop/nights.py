"""Nights that are lived through again and again, killed at another instant each time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fake_journals import FileJournal, Killed, folded, read_events
from fake_machine import FakeMachine
from fake_specs import small
from fake_world import World
from msgspec.structs import replace

from supervisor.core.events import Leftover, SupervisorStarted
from supervisor.core.evidence import Step
from supervisor.core.phases import Phase
from supervisor.core.spec import RunSpec
from supervisor.core.state import State
from supervisor.loop import Loop

TURNS = 4000


@dataclass
class Lived:
    """How a night went."""

    world: World
    state: State
    journal: Path
    touches: list[tuple[str, int]]
    supervisors: int

    @property
    def worth_killing_at(self) -> list[int]:
        """Every touch by its number; of one that is repeated between the same two records, the first and last."""
        places: dict[tuple[str, int], list[int]] = {}
        for at, touch in enumerate(self.touches):
            places.setdefault(touch, []).append(at)
        return sorted({at for same in places.values() for at in (same[0], same[-1])})


@dataclass(frozen=True)
class Night:
    """A world as it stands in the evening, and how it must end."""

    name: str
    evening: Callable[[], World]
    ends: Phase
    attempts: int


def live(night: Night, folder: Path, kill_at: frozenset[int] = frozenset()) -> Lived:
    """The whole night, the supervisor killed at these touches and started anew each time."""
    world, supervisors, records = night.evening(), 0, 0
    touches: list[tuple[str, int]] = []

    def touch(what: str) -> None:
        nonlocal records
        touches.append((what, records))
        records += what.startswith("after ")
        if len(touches) - 1 in kill_at:
            raise Killed(what)

    while True:
        supervisors += 1
        journal = FileJournal(folder, world, touch)
        try:
            loop = Loop(journal, FakeMachine(world, touch), SupervisorStarted(pid=supervisors, version="test"))
            for _ in range(TURNS):
                if not loop.turn():
                    break
            else:
                raise AssertionError(f"{TURNS} turns, and still {loop.state.phase}")
            loop.machine.close(loop.state)
            break
        except Killed:
            world.pass_time(0.2)  # the next one needs a moment to start
        finally:
            journal.close()
    path = folder / "journal.jsonl"
    return Lived(world, folded(read_events(path)), path, touches, supervisors)


# ── evenings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _begun(spec: RunSpec) -> World:
    world = World(gpu_count=2, drain_s=0.4)
    world.save(690)
    world.output = "empty"
    world.ask("up", spec=spec)
    return world


def job(n: int) -> Callable[[World], bool]:
    """The job of attempt `n` has been begun."""
    return lambda world: any(one.attempt == n for one in world.started)


def after(seconds: float) -> Callable[[World], bool]:
    """So long after the deed before this one."""
    since: list[float] = []

    def over(world: World) -> bool:
        since.append(world.boot_s)
        return world.boot_s - since[0] >= seconds

    return over


def step(number: int) -> Callable[[World], None]:
    return lambda world: world.log(Step(number, 0.0))


def runs_out_of_memory(world: World) -> None:
    """GPU 1 runs out of memory, its process goes; the launcher ends, the other worker keeps its memory;
    shared memory is left behind."""
    world.oom(1)
    world.die(world.of("rank1"), code=1)
    world.job_ends(code=1)
    path = f"/dev/shm/torch_{world.current}_1_0"
    world.left.append(Leftover(path=path, what="shared memory", proof="of a member", device=1, inode=world.current))


def finishes(world: World) -> None:
    world.log(Step(700, 0.0))
    world.save(700)
    world.job_ends(code=0, orphans=False)


def incident() -> World:
    """Out of memory at once, then a run at the next rung that saves, runs out of memory again, and finishes."""
    world = _begun(small())
    world.plot = [
        (job(1), step(691)),
        (after(1.0), runs_out_of_memory),
        (job(2), step(691)),
        (after(1.0), lambda w: w.save(695)),
        (after(1.0), step(692)),
        (after(1.0), runs_out_of_memory),
        (job(3), step(696)),
        (after(1.0), finishes),
    ]
    return world


def stopped_in_the_middle() -> World:
    """`down` while the second attempt trains; its worker is deaf to TERM."""

    def down(world: World) -> None:
        world.of("rank0").deaf = True
        world.ask("down")

    world = _begun(small())
    world.plot = [
        (job(1), step(691)),
        (after(1.0), runs_out_of_memory),
        (job(2), step(691)),
        (after(1.0), down),
    ]
    return world


def stopped_while_ending() -> World:
    """`down` while the first attempt, out of memory, is just being ended."""

    def oom_and_down(world: World) -> None:
        runs_out_of_memory(world)
        world.ask("down")

    world = _begun(small())
    world.plot = [(job(1), step(691)), (after(1.0), oom_and_down)]
    return world


def ladder_exhausted() -> World:
    """Out of memory on both rungs."""
    spec = small()
    short = tuple(replace(knob, rungs=knob.rungs[:2]) for knob in spec.params.knobs)
    world = _begun(replace(spec, params=replace(spec.params, knobs=short)))
    for n in (1, 2):
        world.plot += [(job(n), step(690 + n)), (after(1.0), runs_out_of_memory)]
    return world


def attempts_spent() -> World:
    """Exit code 1 without a word, twice: backoff between, then halted."""
    spec = small()
    world = _begun(replace(spec, recovery=replace(spec.recovery, max_attempts=2)))
    for n in (1, 2):
        world.plot += [(job(n), step(690 + n)), (after(1.0), lambda w: w.job_ends(code=1))]
    return world


def late_runner() -> World:
    """The runner of the first attempt never claims; a `down` abandons the launch, and then it arrives."""
    world = _begun(small())
    world.runner_comes = False

    def launching(world: World) -> bool:
        return 1 in world.launch_files

    world.plot = [
        (launching, lambda w: None),
        (after(0.5), lambda w: w.ask("down") and None),
        (lambda w: w.claims.get(1) == "supervisor", lambda w: w.runner_arrives(1)),
    ]
    return world


def hit_long_ago() -> World:
    """Out of memory, and the job hangs on for so long that the failure text is known from memory only."""
    world = _begun(small())
    world.plot = [
        (job(1), step(691)),
        (after(1.0), lambda w: w.oom(1)),
        (after(13.0), lambda w: w.job_ends(code=1)),
        (job(2), step(691)),
        (after(1.0), finishes),
    ]
    return world


NIGHTS = [
    Night("incident", incident, Phase.FINISHED, 3),
    Night("stopped in the middle", stopped_in_the_middle, Phase.STOPPED, 2),
    Night("stopped while ending", stopped_while_ending, Phase.STOPPED, 1),
    Night("ladder exhausted", ladder_exhausted, Phase.HALTED, 2),
    Night("attempts spent", attempts_spent, Phase.HALTED, 2),
    Night("hit long ago", hit_long_ago, Phase.FINISHED, 2),
    Night("late runner", late_runner, Phase.STOPPED, 0),
]
