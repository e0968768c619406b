"""Whatever fails in whatever order: what may change changes only as it may, and every night comes to an end."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from fake_journals import MemoryJournal
from fake_machine import FakeMachine
from fake_specs import knob, small, uuid
from fake_world import World
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core.evidence import Holder, Instant, Owner, Step
from supervisor.core.fold import fold
from supervisor.core.kinds import Kind
from supervisor.core.phases import ENDS, TRANSITIONS, Phase
from supervisor.core.render import Placement, render
from supervisor.core.spec import Do, Foreign, Progress, Rule, RunSpec
from supervisor.core.state import State
from supervisor.loop import Loop

Deed = Callable[[World], None]
KINDS = [kind for kind in Kind if kind is not Kind.NONE]
NIGHT_S, TURNS, KILLS = 3 * 3600.0, 30_000, 20
FAST = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# ── what may happen ──────────────────────────────────────────────────────────────────────────────────────────────────


def has_job(world: World) -> bool:
    return any(p.name == "start_training.sh" for p in world.procs.values())


def exits(code: int | None, signal: int | None, orphans: bool) -> Deed:
    return lambda w: w.job_ends(code, signal, orphans=orphans) if has_job(w) else None


def steps(count: int) -> Deed:
    def deed(world: World) -> None:
        before = [one.step for one in world.logs.get(world.current, ()) if isinstance(one, Step)]
        for n in range(count):
            world.log(Step(max(before, default=690) + n + 1, 0.0))

    return deed


def dies(rank: int) -> Deed:
    def deed(world: World) -> None:
        for proc in [p for p in world.procs.values() if p.name == f"rank{rank}"]:
            world.die(proc, signal=9)

    return deed


def stranger(mib: float) -> Deed:
    holder = Holder(uuid(0), 4242, "eve", "other.py", Owner.FOREIGN)
    return lambda w: w.residents.update({uuid(0): (mib, holder if mib else None)})


def unreadable(lost: bool) -> Deed:
    return lambda w: w.unreadable.update({uuid(1): "lost"}) if lost else w.unreadable.clear()


def asks(verb: str) -> Deed:
    return lambda w: w.ask(verb) and None


DEEDS = st.one_of(
    st.builds(lambda gpu: lambda w: w.oom(gpu), st.integers(0, 1)),
    st.builds(lambda kind: lambda w: w.hit(kind, f"{kind} in line", gpu=None), st.sampled_from(KINDS)),
    st.builds(exits, st.sampled_from([0, 1, 137, 143]), st.none(), st.booleans()),
    st.builds(exits, st.none(), st.sampled_from([6, 9, 11, 15]), st.booleans()),
    st.builds(steps, st.integers(1, 4)),
    st.builds(lambda step: lambda w: w.save(step), st.integers(685, 720)),
    st.builds(lambda step: lambda w: w.tear(step), st.integers(685, 720)),
    st.builds(dies, st.integers(0, 1)),
    st.builds(stranger, st.sampled_from([0.0, 30_000.0])),
    st.builds(unreadable, st.booleans()),
    st.builds(asks, st.sampled_from(["restart", "pause", "resume"])),
    st.just(lambda w: setattr(w, "output", "empty")),
)
RULES = st.lists(
    st.builds(
        Rule,
        on=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3).map(tuple),
        do=st.sampled_from([Do.RELAUNCH, Do.RELAUNCH, Do.HALT, Do.NOTIFY]),
        lower=st.lists(st.sampled_from(["token_budget", "max_batch_size"]), unique=True).map(tuple),
        one_of=st.booleans(),
        times=st.one_of(st.none(), st.integers(1, 2)),
        from_older=st.booleans(),
        wait_s=st.one_of(st.none(), st.just(30.0)),
        where=st.sampled_from(["x.yaml:1", "x.yaml:2"]),
    ),
    max_size=3,
)


@st.composite
def specs(draw: st.DrawFn) -> RunSpec:
    spec = small()
    ladder = draw(st.lists(st.integers(1, 99), min_size=1, max_size=4, unique=True))
    knobs = (knob("token_budget", *map(str, sorted(ladder, reverse=True))), spec.params.knobs[1])
    zero = replace(spec.recovery.verify_zero, foreign=Foreign(wait_s=draw(st.sampled_from([0.0, 60.0]))))
    recovery = replace(spec.recovery, rules=tuple(draw(RULES)), max_attempts=draw(st.integers(1, 6)), verify_zero=zero)
    health = replace(spec.health, progress=Progress(log="step", stall_s=120.0), startup_timeout_s=120.0)
    return replace(spec, params=replace(spec.params, knobs=knobs), recovery=recovery, health=health)


# ── a night ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def lived(spec: RunSpec, deeds: list[tuple[float, Deed]], killed_every: int) -> tuple[World, MemoryJournal, State]:
    """The night with these deeds, each so long after the one before; then `down`."""
    world = World(gpu_count=2, drain_s=0.4)
    world.save(690)
    world.ask("up", spec=spec)
    due, at = [], world.boot_s
    for wait, deed in deeds:
        at += wait
        due.append((at, deed))
    world.plot = [(lambda w, at=at: w.boot_s >= at, deed) for at, deed in due]
    world.plot.append((lambda w, at=at: w.boot_s >= at + 30.0, lambda w: w.ask("resume") and w.ask("down") and None))
    journal, turns = MemoryJournal(world), 0
    while world.boot_s < NIGHT_S and turns < TURNS:
        loop = Loop(journal, FakeMachine(world), ev.SupervisorStarted(pid=1, version="test"))
        while loop.turn() and world.boot_s < NIGHT_S and turns < TURNS:
            turns += 1
            if killed_every and turns % killed_every == 0 and turns // killed_every <= KILLS:
                break
        else:
            if not world.plot:
                return world, journal, loop.state
            world.pass_time(1.0)  # an end before the night was told: requests may still come
    raise AssertionError(f"the night does not end: {loop.state.phase} {loop.state.because}")


@given(specs(), st.lists(st.tuples(st.floats(0.5, 40.0), DEEDS), max_size=12), st.sampled_from([0, 0, 5, 13]))
@FAST
def test_every_night_ends_and_nothing_but_knobs_and_checkpoint_ever_differs(
    spec: RunSpec, deeds: list[tuple[float, Deed]], killed_every: int
):
    world, journal, state = lived(spec, deeds, killed_every)
    assert state.phase in ENDS
    assert not [r for r in world.requests if r.id not in state.answered], "a request was forgotten"
    assert_clean_launches(world)
    assert_only_knobs_and_checkpoint(spec, world)
    assert_rungs_only_go_down(journal)
    if journal.records:
        assert_every_change_of_phase_is_a_row(journal)


def assert_clean_launches(world: World) -> None:
    assert [one.attempt for one in world.started] == sorted({one.attempt for one in world.started})
    for one in world.started:
        assert one.alive == ()
        assert one.held_mib <= 64.0


def assert_only_knobs_and_checkpoint(spec: RunSpec, world: World) -> None:
    """Each launch is the first one, rendered with other rungs and another checkpoint."""
    for one in world.started:
        place = Placement(
            attempt=one.attempt,
            attempt_dir=f"/s/attempts/{one.attempt:04}",
            run_dir="/s",
            rungs=one.rungs,
            checkpoint=one.checkpoint,
            gpus=_roles(spec),
        )
        expected = render(spec, place)
        assert (one.argv, one.env) == (expected.argv, expected.env)
        words, first = list(one.argv), list(world.started[0].argv)
        assert _fixed(words) == _fixed(first)


def _roles(spec: RunSpec) -> dict[str, object]:
    from fake_specs import inventory

    from supervisor.core.placing import lay_out

    return lay_out(spec, inventory(2))  # type: ignore[return-value]


def _fixed(words: list[str]) -> list[str]:
    """What recovery may not touch: all but the values of knobs and the resume argument."""
    moved = {i + 1 for i, word in enumerate(words) if word in ("--token-budget", "--max-batch-size")}
    kept = [word for i, word in enumerate(words) if i not in moved]
    return kept[: kept.index("--resume")] if "--resume" in kept else kept


def assert_rungs_only_go_down(journal: MemoryJournal) -> None:
    before: dict[str, int] = {}
    for event, _ in journal.records:
        if isinstance(event, ev.EpisodeOpened):
            before = dict(event.rungs)
        if isinstance(event, ev.LaunchIntended):
            assert all(event.rungs[name] >= before[name] for name in before)
            assert set(event.rungs) == set(before)
            before = dict(event.rungs)


def assert_every_change_of_phase_is_a_row(journal: MemoryJournal) -> None:
    state = State(run="dflash")
    for event, at in journal.records:
        after = fold(state, event, at)
        if after.phase is not state.phase:
            assert after.phase in {to for (source, _), to in TRANSITIONS.items() if source is state.phase}
        state = after


# ── any records in any order ─────────────────────────────────────────────────────────────────────────────────────────


def _any_of(cls: Any) -> st.SearchStrategy[Any]:
    """Every field by its type; one that has a default also with that."""
    hints = get_type_hints(cls)
    return st.builds(cls, **{one.name: _any_field(one, hints[one.name]) for one in msgspec.structs.fields(cls)})


def _any_field(field: Any, hint: Any) -> st.SearchStrategy[Any]:
    if field.required:
        return st.from_type(hint)
    made = st.builds(field.default_factory) if field.default is msgspec.NODEFAULT else st.just(field.default)
    return made | st.from_type(hint)


for value in msgspec.Struct.__subclasses__():
    if value.__module__.startswith("supervisor.core."):
        st.register_type_strategy(value, _any_of)
st.register_type_strategy(RunSpec, st.just(small()))
NAMES = list(ev.EVENT_TYPES.values())


@given(st.lists(st.sampled_from(NAMES).flatmap(st.from_type), max_size=30))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_records_in_any_order_fold_without_an_error(records: list[ev.Event]):
    state = State(run="dflash")
    for n, event in enumerate(records):
        event = replace(event, attempt=1) if hasattr(event, "attempt") else event
        state = fold(state, event, Instant("boot-1", float(n), float(n)))
    assert isinstance(state.phase, Phase)


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("cls", NAMES, ids=lambda cls: cls.__name__)
def test_a_record_without_a_row_changes_no_phase(phase: Phase, cls: type[ev.Event]):
    from supervisor.core.phases import trigger

    event = _example(cls)
    state = replace(State(run="dflash"), phase=phase)
    after = fold(state, event, Instant("boot-1", 1.0, 1.0))
    assert after.phase is TRANSITIONS.get((phase, trigger(event)), phase)


@cache
def _example(cls: Any) -> Any:
    """The least value of a type: the first of an enum, None where that may be, no items."""
    if cls is RunSpec:
        return small()
    if isinstance(cls, type) and issubclass(cls, msgspec.Struct):
        hints = get_type_hints(cls)
        needed = [field.name for field in msgspec.structs.fields(cls) if field.required]
        return cls(**{name: _example(hints[name]) for name in needed})
    if isinstance(cls, type) and issubclass(cls, Enum):
        return next(iter(cls))
    return None if type(None) in get_args(cls) else (get_origin(cls) or cls)()
