"""How far a step goes down and which knob goes, at the limits: what is enough, what is left, what it costs."""

from __future__ import annotations

from math import inf

import pytest
from changes import replace
from fake_specs import incident, knob, uuid

from supervisor.core.evidence import Instant
from supervisor.core.kinds import Kind
from supervisor.core.peaks import Peaks
from supervisor.core.placing import RoleGpus
from supervisor.core.plans import Failure
from supervisor.core.sizing import (
    T_90,
    advice,
    cheapest,
    cost,
    is_fragmented,
    least_squares,
    remaining,
    sized,
)
from supervisor.core.spec import Knob, Param, Rule, Scalar
from supervisor.core.state import Attempt, Past, State
from supervisor.core.stepping import has_rung, knob_texts, lower, stepped
from supervisor.core.wellbeing import Paced

NOW = Instant("b", 10.0, 10.0)
HALVES = knob("batch", "8", "4", "2", "1")
OTHER = knob("other", "100", "90", "80")
ALLOC = Knob(name="alloc", rungs=({"alloc": Scalar("default")}, {"alloc": Scalar("expandable_segments:True")}))


def state(*knobs: Knob, rungs: dict[str, int] | None = None, **changes) -> State:
    spec = incident()
    how = {**spec.params.how, "alloc": Param(name="alloc", env="PYTORCH_CUDA_ALLOC_CONF")}
    spec = replace(spec, params=replace(spec.params, knobs=knobs or (HALVES,), how=how), env=changes.pop("env", {}))
    spec = replace(spec, recovery=replace(spec.recovery, rules=changes.pop("rules", ())))
    attempt = Attempt(number=9, token="t", argv=(), rungs=rungs or {}, checkpoint=None, began=NOW)
    roles = {"drafter": RoleGpus(ordinals=(5, 6), physical=(5, 6), uuids=(uuid(5), uuid(6)))}
    return State(run="r", spec=spec, rungs=rungs or {}, attempt=attempt, roles=roles, **changes)


def oom(short: float | None = 100.0, tried: float = 1_000.0, **more) -> Failure:
    sizes = {} if short is None else {"short_by_mib": short, "free_mib": tried - short, "total_mib": 10_000.0}
    return Failure(kind=Kind.GPU_OOM, because="oom", gpu=5, uuid=uuid(5), tried_mib=tried, **sizes, **more)


# ── by the failing allocation ──


def test_a_step_that_frees_exactly_what_was_missing_is_enough():
    assert sized(state(), oom(500.0), ("batch",)).rungs == 1
    assert sized(state(), oom(500.1), ("batch",)).rungs == 2
    assert sized(state(), oom(750.0), ("batch",)).rungs == 2
    assert sized(state(), oom(875.0), ("batch",)).covers
    last = sized(state(), oom(875.1), ("batch",))
    assert (last.rungs, last.covers) == (3, False)
    assert last.text == "all rungs free >= 875 MiB, which may not be enough; 3 of 3 taken to learn it"


def test_only_named_knobs_with_a_rung_left_are_counted():
    both = state(HALVES, OTHER)
    assert sized(both, oom(450.0), ("batch",)).rungs == 1
    assert sized(both, oom(199.9), ("batch", "other")).text.startswith("2 rungs free >= 199 MiB"), "the least of both"
    assert sized(replace(both, rungs={"other": 2}), oom(450.0), ("batch", "other")).rungs == 1
    assert sized(both, oom(None), ("batch",)).text == ""
    assert sized(replace(both, rungs={"batch": 3}), oom(), ("batch",)).text == ""


def test_what_came_after_the_load_bounds_from_above_and_the_middle_is_expected():
    came = {"loaded_mib": 5_100.0}  # in use then: 10,000 - 900
    step = sized(state(), oom(100.0, 1_000.0, **came), ("batch",))
    assert step.covers
    assert step.text.startswith("one rung frees >= 500 MiB"), "no estimate is needed"
    wide = sized(state(), oom(900.0, 1_000.0, loaded_mib=5_900.0), ("batch",))  # came: 4,000; 500 to 2,500 MiB
    assert wide.text.startswith("one rung frees about 1118 MiB, an estimate: >= 500 MiB")
    none = sized(state(), oom(900.0, 1_000.0, loaded_mib=9_900.0), ("batch",))
    assert "estimate" not in none.text
    known = sized(state(), oom(900.0, 1_000.0, in_use_mib=500.0), ("batch",))
    assert (known.rungs, known.covers) == (2, False), "half of all in use is not enough, three quarters are"


def test_what_does_not_shrink_is_not_counted():
    assert remaining(HALVES, 0, 1) == 0.5
    assert remaining(HALVES, 0, 9) == 0.125
    assert remaining(HALVES, 3, 1) is None
    assert remaining(replace(HALVES, up=True), 0, 1) is None
    assert remaining(ALLOC, 0, 1) is None
    pair = Knob(
        name="p",
        rungs=({"a": Scalar("8", "int"), "b": Scalar("1", "int")}, {"a": Scalar("4", "int"), "b": Scalar("2", "int")}),
    )
    assert remaining(pair, 0, 1) == 0.5
    assert remaining(knob("z", "4", "0"), 0, 1) == 0.0
    assert remaining(knob("z", "0", "-4"), 0, 1) is None
    assert remaining(knob("z", "4", "-4"), 0, 1) is None
    assert sized(state(ALLOC), oom(), ("alloc",)).text == "", "nothing is known of it"


# ── as measured ──


def peaks(n: int, rung: int, mib: float, **more) -> Peaks:
    made = Peaks(attempt=n, rungs={"batch": rung}, mib={uuid(5): mib}, progressed=True)
    return replace(made, **more)


def bare(short: float) -> Failure:
    """One that does not tell what it needed in all, so that it measures nothing itself."""
    return replace(oom(short), total_mib=None)


def test_two_attempts_with_other_values_measure_what_a_rung_frees():
    two = (peaks(1, 1, 6_000.0), peaks(2, 2, 5_000.0))
    step = sized(state(peaks=two, rungs={"batch": 1}), bare(375.0), ("batch",))
    assert (step.rungs, step.covers) == (1, True)
    assert step.text == "one rung frees 1000 +- 250 MiB, measured in attempts 1, 2"
    more = sized(state(peaks=two, rungs={"batch": 1}), bare(750.1), ("batch",))
    assert more.text == "2 rungs free 1500 +- 375 MiB, measured in attempts 1, 2"
    none = sized(state(peaks=two, rungs={"batch": 1}), bare(1_125.1), ("batch",))
    assert (none.rungs, none.covers) == (2, False)
    assert none.text == "as measured in attempts 1, 2 not even the last rung frees enough: 1500 +- 375 MiB"
    load = (two[0], replace(two[1], progressed=False))
    assert "measured" not in sized(state(peaks=load, rungs={"batch": 1}), bare(375.0), ("batch",)).text
    elsewhere = (two[0], replace(two[1], rungs={"batch": 2, "other": 1}))
    of = state(HALVES, OTHER, peaks=elsewhere, rungs={"batch": 1})
    assert "measured" not in sized(of, bare(375.0), ("batch",)).text, "another knob stood elsewhere"


def test_the_load_is_of_knobs_that_fall_and_have_a_value():
    below_one = Knob(name="rate", rungs=tuple({"rate": Scalar(t, "float")} for t in ("0.8", "0.4", "0.2")))
    taken = ((1, 6_000.0), (2, 5_000.0))
    two = tuple(Peaks(attempt=n, rungs={"rate": n - 1}, mib={uuid(5): mib}, progressed=True) for n, mib in taken)
    step = sized(state(below_one, peaks=two), bare(375.0), ("rate",))
    assert step.text == "one rung frees 1000 +- 250 MiB, measured in attempts 1, 2"


def test_failures_alone_measure_only_what_lies_within_what_is_known():
    def alone(slope: float, **more) -> bool:
        """Two failures, so that a rung of half frees half of `slope`."""
        wanted = ({uuid(5): 5_000.0}, {uuid(5): 5_000.0 - slope / 2})
        known = tuple(Peaks(attempt=n + 1, rungs={"batch": n}, wanted=one) for n, one in enumerate(wanted))
        failure = replace(oom(100.0, **more), uuid=uuid(6))
        return "measured" in sized(state(peaks=known), failure, ("batch",)).text

    assert alone(1_000.0)
    assert not alone(999.0)
    assert alone(9_000.0)
    assert alone(4_000.0, loaded_mib=6_100.0)  # came: 3,000
    assert not alone(4_001.0, loaded_mib=6_100.0)


def test_the_slope_of_replicas_is_common_and_its_error_is_a_twentieth_at_least():
    assert least_squares([[(1.0, 10.0), (2.0, 20.0)]]) == (10.0, 2.5)
    assert least_squares([[(1.0, 10.0), (2.0, 20.0)], [(1.0, 110.0), (2.0, 120.0)]]) == (10.0, 0.5)
    slope, error = least_squares([[(1.0, 10.0), (2.0, 20.0)], [(1.0, 10.0), (2.0, 24.0)]])
    assert (slope, round(error, 6)) == (12.0, round(T_90[0] * 2.0, 6))
    assert least_squares([[(1.0, 10.0)], [(2.0, 20.0)]]) is None
    assert least_squares([[(1.0, 20.0), (2.0, 20.0)]]) is None
    assert least_squares([[(1.0, 20.0), (2.0, 10.0)]]) is None
    many = [[(1.0, 10.0), (2.0, 20.0 + (-1) ** n)] for n in range(13)]
    slope, error = least_squares(many)
    spread = (sum((20.0 + (-1) ** n - 10.0 - slope) ** 2 for n in range(13)) / 2 / 12) ** 0.5
    assert error == pytest.approx(max(0.05 * slope, 1.282 * spread / 6.5**0.5))


# ── which knob ──


def paced(n: int, rate: float, **rungs: int) -> Paced:
    return Paced(attempt=n, steps_per_s=1.0, stride=1, rate=rate, settled=True, rungs=rungs)


def test_a_step_costs_what_printed_rates_tell_else_as_much_as_the_value_falls():
    assert cost(state(), HALVES, 1) == 0.5
    assert cost(state(), replace(HALVES, keep="batch * n"), 2) == 0.1
    assert cost(state(ALLOC), ALLOC, 1) == inf
    rates = (paced(1, 100.0, batch=0), paced(2, 90.0, batch=1), paced(3, 80.0, batch=1))
    assert cost(state(paces=rates), HALVES, 1) == pytest.approx(0.1)
    assert cost(state(paces=(rates[0], replace(rates[1], rate=200.0))), HALVES, 1) == 0.0
    assert cost(state(paces=(rates[0], replace(rates[1], settled=False))), HALVES, 1) == 0.5
    assert cost(state(paces=(rates[0], replace(rates[1], rungs={"batch": 1, "other": 1}))), HALVES, 1) == pytest.approx(
        0.1
    )
    of = state(
        HALVES,
        OTHER,
        rungs={"batch": 0, "other": 0},
        paces=(rates[0], replace(rates[1], rungs={"batch": 1, "other": 1})),
    )
    assert cost(of, HALVES, 1) == 0.5


def test_one_that_frees_enough_goes_before_a_cheaper_one_and_of_equals_the_first():
    both = state(OTHER, HALVES)
    assert cheapest(both, oom(150.0), ("batch", "other")) == "other"
    assert cheapest(both, oom(450.0), ("batch", "other")) == "batch"
    twins = state(knob("a", "8", "4"), knob("b", "8", "4"))
    assert cheapest(twins, oom(), ("a", "b")) == "a"
    assert cheapest(twins, oom(), ("b", "a")) == "b"


# ── the step ──


def test_rungs_go_down_to_the_last_and_only_what_changes_is_told():
    of = state(HALVES, OTHER, rungs={"batch": 1})
    assert has_rung(of, "batch")
    assert not has_rung(replace(of, rungs={"batch": 3}), "batch")
    assert has_rung(replace(of, rungs={}), "batch")
    assert lower(of, ("batch", "other")) == ({"batch": 2, "other": 1}, {"batch": ("4", "2"), "other": ("100", "90")})
    assert lower(of, ("batch",), 9) == ({"batch": 3}, {"batch": ("4", "1")})
    assert knob_texts(of.spec, {"batch": 1}) == {"batch": "4", "other": "100"}
    assert knob_texts(of.spec, {"batch": 9})["batch"] == "1"


def test_rungs_that_failed_of_the_same_cause_are_passed_over():
    past = Past(
        attempt=1, kind=Kind.GPU_OOM, at=NOW, gained=False, rule="", did="relaunch", lowered=True, rungs={"batch": 1}
    )
    assert stepped(state(past=(past,)), oom(), ("batch",)).rungs == {"batch": 2}
    assert stepped(state(past=(replace(past, kind=Kind.HANG),)), oom(), ("batch",)).rungs == {"batch": 1}
    last = state(past=(replace(past, rungs={"batch": 3}),), rungs={"batch": 2})
    assert stepped(last, oom(), ("batch",)).rungs == {"batch": 3}, "there is no other"
    both = state(HALVES, OTHER, past=(replace(past, rungs={"batch": 3, "other": 1}),), rungs={"batch": 2, "other": 0})
    assert stepped(both, oom(), ("batch", "other")).rungs == {"batch": 3, "other": 2}, "one of them can still go"
    hang = Failure(kind=Kind.HANG, because="b")
    assert stepped(state(HALVES, OTHER), hang, ("other", "batch"), one_of=True).lowered == {"other": ("100", "90")}
    assert stepped(state(rungs={"batch": 3}), oom(), ("batch",)).lowered == {}


def test_fragmentation_moves_the_allocator_first_where_it_would_have_been_enough():
    assert is_fragmented(oom(100.0, reserved_mib=100.1))
    assert not is_fragmented(oom(100.0, reserved_mib=100.0))
    assert not is_fragmented(oom(None, reserved_mib=100.0))
    of = state(HALVES, ALLOC)
    step = stepped(of, oom(100.0, reserved_mib=200.0), ("batch",))
    assert step.rungs == {"alloc": 1}
    assert "200 MiB lay reserved but unallocated" in step.text
    assert stepped(of, oom(100.0, reserved_mib=50.0), ("batch",)).rungs == {"batch": 1}
    assert stepped(replace(of, rungs={"alloc": 1}), oom(100.0, reserved_mib=200.0), ("batch",)).rungs["batch"] == 1
    named = Rule(on=(Kind.GPU_OOM,), do="relaunch", lower=("alloc",), where="r.yaml:1")
    elsewhere = state(HALVES, ALLOC, rules=(named,))
    assert stepped(elsewhere, oom(100.0, reserved_mib=200.0), ("batch",), rule="r.yaml:2").rungs == {"batch": 1}
    assert stepped(elsewhere, oom(100.0, reserved_mib=200.0), ("batch",), rule="r.yaml:1").rungs == {"alloc": 1}
    assert stepped(elsewhere, oom(100.0, reserved_mib=200.0), ("alloc",), rule="r.yaml:2").rungs == {"alloc": 1}
    advised = advice(state().spec, oom(100.0, reserved_mib=200.0), {})
    assert advised.endswith("try env: {PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True}")
    has = state(env={"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
    assert advice(has.spec, oom(100.0, reserved_mib=200.0), {}) == ""
    assert advice(state().spec, oom(100.0), {}) == ""
