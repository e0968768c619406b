"""Whatever fails, in whatever order, over whatever ladders: knobs move only down and only on their ladders."""

from __future__ import annotations

import pytest
from fake_specs import incident, uuid
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core import stepping
from supervisor.core.answers import _rungs
from supervisor.core.evidence import Checkpoint, Instant, MachineId
from supervisor.core.fold import fold
from supervisor.core.guard import protected_sha256
from supervisor.core.kinds import Kind
from supervisor.core.placing import RoleGpus
from supervisor.core.plans import Failure
from supervisor.core.policy import Tell, plan_after
from supervisor.core.spec import Do, Knob, Param, Rule, RunSpec, Scalar
from supervisor.core.state import State
from supervisor.core.stepping import knob_texts

HERE = MachineId("b", "m", "box")
ROLES = {"drafter": RoleGpus(ordinals=(0, 1), physical=(0, 1), uuids=(uuid(0), uuid(1)))}
ALLOC = Knob(name="alloc", rungs=({"alloc": Scalar("default")}, {"alloc": Scalar("expandable_segments:True")}))
NEVER_LOWERS = [kind for kind in Kind if kind not in (Kind.GPU_OOM, Kind.NONE)]


@st.composite
def ladders(draw: st.DrawFn) -> tuple[Knob, ...]:
    """Numbers that fall, a set that keeps its product, the allocator: some of them."""
    numbers = sorted(draw(st.lists(st.integers(1, 99_999), min_size=1, max_size=5, unique=True)), reverse=True)
    budget = Knob(name="budget", rungs=tuple({"budget": Scalar(str(n), "int")} for n in numbers))
    halvings = draw(st.integers(1, 4))
    rungs = tuple({"micro": Scalar(str(16 >> n), "int"), "accum": Scalar(str(1 << n), "int")} for n in range(halvings))
    batch = Knob(name="batch", rungs=rungs, keep="micro * accum")
    return tuple(draw(st.lists(st.sampled_from([budget, batch, ALLOC]), min_size=1, unique_by=lambda knob: knob.name)))


def spec_of(knobs: tuple[Knob, ...], rules: tuple[Rule, ...]) -> RunSpec:
    spec = incident()
    how = {name: Param(name=name) for knob in knobs for name in knob.rungs[0]} | {
        "alloc": Param(name="alloc", env="PYTORCH_CUDA_ALLOC_CONF")
    }
    params = replace(spec.params, knobs=knobs, how={**spec.params.how, **how})
    return replace(spec, params=params, recovery=replace(spec.recovery, rules=rules, max_attempts=50))


class Knobs(RuleBasedStateMachine):
    """One run over several episodes; the records are those of the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.state = State(run="dflash")
        self.n = 0
        self.lowest: dict[str, int] = {}
        self.launched: list[dict[str, int]] = []
        self.oom_on: list[dict[str, int]] = []
        self.steps = 690

    def record(self, event: ev.Event) -> None:
        self.n += 1
        self.state = fold(self.state, event, Instant("b", float(self.n), float(self.n)))

    @property
    def now(self) -> Instant:
        return Instant("b", float(self.n), float(self.n))

    @property
    def is_open(self) -> bool:
        return self.state.attempt is not None and not self.state.phase.is_end

    @initialize(knobs=ladders(), named=st.booleans(), one_of=st.booleans(), times=st.none() | st.integers(1, 3))
    def begins(self, knobs: tuple[Knob, ...], named: bool, one_of: bool, times: int | None) -> None:
        names = tuple(knob.name for knob in knobs)[: 1 if named else None]
        rules = (Rule(on=(Kind.GPU_OOM,), do=Do.RELAUNCH, lower=names, one_of=one_of, times=times, where="a.yaml:9"),)
        self.spec = spec_of(knobs, rules if named or one_of else ())
        self.opens({})

    def opens(self, asked: dict[str, int]) -> None:
        rungs = _rungs(self.state, self.spec, asked)
        sha = protected_sha256(self.spec)
        self.record(ev.EpisodeOpened(request="r", spec=self.spec, machine=HERE, rungs=rungs, protected_sha256=sha))
        self.record(ev.PreflightPassed(roles=ROLES))
        self.lowest, self.oom_on = dict(rungs), []
        self.launches()

    def launches(self) -> None:
        rungs = dict(self.state.rungs)
        told = Checkpoint(f"/c/step_{self.steps}", self.steps, self.steps, 1)
        self.record(
            ev.LaunchIntended(
                attempt=self.state.attempts_made + 1, argv=("x",), rungs=rungs, knobs=knob_texts(self.spec, rungs),
                protected={}, checkpoint=told, token="t", because="",
            )
        )  # fmt: skip
        self.launched.append(rungs)
        assert self.state.attempt is not None
        self.record(ev.FirstProgress(attempt=self.state.attempt.number, step=self.steps + 1, startup_s=5.0))

    def fails(self, failure: Failure) -> None:
        """Judged by the policy; what it plans is recorded and done."""
        attempt = self.state.attempt
        assert attempt is not None
        if failure.kind is Kind.GPU_OOM:
            self.oom_on.append(dict(attempt.rungs))
        plan = plan_after(self.state, failure, self.now)
        if isinstance(plan, Tell):
            return
        before = dict(self.state.rungs)
        if plan.ending is None:
            self.judge_step(failure, before, plan)
        n = attempt.number
        self.record(ev.Judged(attempt=n, failure=failure, plan=plan, last_step=self.steps))
        self.record(ev.StopIntended(attempt=n, by=ev.By.POLICY, grace_s=0.0, because=plan.because, plan=plan))
        self.record(ev.MembersGone(attempt=n))
        self.record(ev.VerifiedZero(attempt=n, waited_s=1.0, used_mib=(0.0, 0.0)))
        if plan.ending is None:
            self.state = replace(self.state, rungs=dict(plan.rungs))
            self.launches()
        else:
            self.record(ev.EpisodeEnded(ending=plan.ending, because=plan.because))

    def judge_step(self, failure: Failure, before: dict[str, int], plan: ev.Plan) -> None:
        """A step is told as it is made, and is only made for want of memory."""
        moved = {name for name, rung in plan.rungs.items() if rung != before.get(name, 0)}
        old, new = knob_texts(self.spec, before), knob_texts(self.spec, plan.rungs)
        assert plan.lowered == {name: (old[name], new[name]) for name in old if old[name] != new[name]}
        assert bool(moved) == bool(plan.lowered)
        if failure.kind is not Kind.GPU_OOM:
            assert not moved, f"{failure.kind.value} moved {moved}"
            return
        assert moved, "an out-of-memory failure is not relaunched as it was"
        left = any(plan.rungs[knob.name] < len(knob.rungs) - 1 for knob in self.spec.params.knobs if knob.name in moved)
        assert plan.rungs not in self.oom_on or not left, "the same rungs again"

    @precondition(lambda self: self.is_open)
    @rule(short=st.none() | st.floats(1.0, 30_000.0), tried=st.floats(1.0, 30_000.0), reserved=st.floats(0.0, 9000.0))
    def runs_out_of_memory(self, short: float | None, tried: float, reserved: float) -> None:
        sizes = (
            {} if short is None else {"short_by_mib": short, "tried_mib": tried, "free_mib": max(0.0, tried - short)}
        )
        self.fails(
            Failure(
                kind=Kind.GPU_OOM, because="out of memory", gpu=0, uuid=uuid(0), total_mib=97_253.0,
                in_use_mib=90_000.0, reserved_mib=reserved, **sizes,
            )
        )  # fmt: skip

    @precondition(lambda self: self.is_open)
    @rule(kind=st.sampled_from(NEVER_LOWERS))
    def fails_otherwise(self, kind: Kind) -> None:
        self.fails(Failure(kind=kind, because=kind.value, gpu=0, uuid=uuid(0)))

    @precondition(lambda self: self.is_open)
    @rule()
    def gains_a_checkpoint(self) -> None:
        assert self.state.attempt is not None
        self.steps += 10
        saved = Checkpoint(f"/c/step_{self.steps}", self.steps, self.steps, 1)
        self.record(ev.CheckpointWritten(attempt=self.state.attempt.number, checkpoint=saved, logged_step=self.steps))

    @precondition(lambda self: self.state.phase.is_end)
    @rule(data=st.data(), sets=st.booleans())
    def comes_up_again(self, data: st.DataObject, sets: bool) -> None:
        """Knobs stay where they stood unless --set moves them, to a rung."""
        stood = dict(self.state.rungs)
        knob = data.draw(st.sampled_from(self.spec.params.knobs))
        asked = {knob.name: data.draw(st.integers(0, len(knob.rungs) - 1))} if sets else {}
        self.opens(asked)
        assert self.launched[-1] == {**stood, **asked}

    @invariant()
    def knobs_go_down_within_an_episode_and_stay_on_their_ladders(self) -> None:
        for knob in self.spec.params.knobs if self.launched else ():
            rung = self.state.rungs[knob.name]
            assert self.lowest[knob.name] <= rung < len(knob.rungs)
            self.lowest[knob.name] = rung

    @invariant()
    def a_set_keeps_its_product(self) -> None:
        if self.launched and any(knob.name == "batch" for knob in self.spec.params.knobs):
            texts = knob_texts(self.spec, self.launched[-1])
            assert int(texts["micro"]) * int(texts["accum"]) == 16

    @invariant()
    def nothing_but_knobs_is_moved(self) -> None:
        if self.launched:
            assert self.state.protected_sha256 == protected_sha256(self.spec)
            assert set(self.launched[-1]) == {knob.name for knob in self.spec.params.knobs}


TestKnobs = Knobs.TestCase
TestKnobs.settings = settings(
    max_examples=80, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.parametrize("by", [-1, 0, 9])
def test_a_step_that_goes_up_nowhere_or_beyond_the_ladder_is_seen(monkeypatch: pytest.MonkeyPatch, by: int):
    """Else the test above would prove less than it says."""
    lower = stepping.lower

    def otherwise(state: State, names: list[str], n: int = 1) -> tuple[dict[str, int], dict[str, tuple[str, str]]]:
        rungs, lowered = lower(state, names, n)
        return {
            name: state.rungs[name] + by if rung != state.rungs[name] else rung for name, rung in rungs.items()
        }, lowered

    monkeypatch.setattr(stepping, "lower", otherwise)
    few = settings(TestKnobs.settings, database=None, phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises((AssertionError, IndexError)):
        run_state_machine_as_test(Knobs, settings=few)
