"""How far a step goes after an out-of-memory failure: the fewest rungs for what was missing, by arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
from fake_specs import incident, knob, uuid
from msgspec.structs import replace

from supervisor.core.evidence import Instant, Reading, Unreadable
from supervisor.core.kinds import Kind
from supervisor.core.peaks import Peaks, ended, failed, risen, wanted_mib
from supervisor.core.placing import RoleGpus
from supervisor.core.plans import Failure
from supervisor.core.sizing import Sized, advice, allocator, cheapest, cost, least_squares, remaining, sized
from supervisor.core.spec import Knob, Param, Rule, Scalar
from supervisor.core.state import Attempt, Past, State
from supervisor.core.stepping import stepped
from supervisor.core.wellbeing import Paced

NOW = Instant("b", 10.0, 10.0)
TOTAL = 97_253.0
BUDGET = knob("token_budget", "49152", "45056", "40960", "36864")
BATCH = knob("max_batch_size", "64", "48", "32")
ALLOC = Knob(name="alloc", rungs=({"alloc": Scalar("default")}, {"alloc": Scalar("expandable_segments:True")}))


def oom(short: float | None = 174.0, tried: float = 4854.0, **more: Any) -> Failure:
    sizes = {} if short is None else {"short_by_mib": short, "free_mib": tried - short, "total_mib": TOTAL}
    of = {"gpu": 5, "uuid": uuid(5), "tried_mib": tried, **sizes, **more}
    return Failure(kind=Kind.GPU_OOM, because="GPU 5 ran out of memory", **of)


def state(*knobs: Knob, rungs: dict[str, int] | None = None, **changes: Any) -> State:
    spec = incident()
    how = {**spec.params.how, "alloc": Param(name="alloc", env="PYTORCH_CUDA_ALLOC_CONF")}
    spec = replace(spec, params=replace(spec.params, knobs=knobs or (BUDGET, BATCH), how=how))
    rungs = rungs or {}
    attempt = Attempt(number=9, token="t", argv=(), rungs=rungs, checkpoint=None, began=NOW)
    roles = {"drafter": RoleGpus(ordinals=(5, 6, 7), physical=(5, 6, 7), uuids=(uuid(5), uuid(6), uuid(7)))}
    return State(run="dflash", spec=spec, rungs=rungs, attempt=attempt, roles=roles, **changes)


def at(n: int, budget: int, *mib: float, progressed: bool = True) -> Peaks:
    gpus = {uuid(5 + i): float(m) for i, m in enumerate(mib)}
    return Peaks(attempt=n, rungs={"token_budget": budget}, mib=gpus, progressed=progressed)


BOTH = ("token_budget", "max_batch_size")


def test_the_incident_takes_one_rung_and_says_what_it_frees():
    assert sized(state(), oom(), BOTH) == Sized(1, "one rung frees >= 404 MiB of the 4854 MiB asked for", covers=True)


def test_a_larger_shortfall_takes_more_rungs_at_once():
    step = sized(state(), oom(700.0), BOTH)
    assert step.rungs == 2
    assert step.text == "2 rungs free >= 808 MiB of the 4854 MiB asked for"


def test_where_no_rung_is_known_to_suffice_the_fewest_that_may_are_taken():
    step = sized(state(BUDGET), oom(4000.0, in_use_mib=90_000.0), ("token_budget",))
    assert (step.rungs, step.covers) == (1, False)
    assert "may not be enough; 1 of 3 taken to learn it" in step.text


def test_where_not_even_all_rungs_may_suffice_all_are_taken():
    assert sized(state(BUDGET), oom(4000.0, in_use_mib=0.0), ("token_budget",)).rungs == 3


def test_what_came_after_the_load_bounds_what_scales_and_the_middle_of_both_bounds_is_expected():
    failure = oom(700.0, 2000.0, loaded_mib=40_960.0)
    step = sized(state(BUDGET), failure, ("token_budget",))
    bounds = ">= 166 MiB of the 2000 MiB asked for, <= 4749 MiB with the 54993 MiB that came after the load"
    assert step == Sized(1, f"one rung frees about 889 MiB, an estimate: {bounds}", covers=True)
    assert sized(state(BUDGET), oom(700.0, 2000.0), ("token_budget",)).text.startswith("all rungs free >= 500 MiB")


def test_memory_that_lay_unused_is_not_what_came_after_the_load():
    failure = oom(700.0, 2000.0, loaded_mib=40_960.0, reserved_mib=50_000.0)
    step = sized(state(BUDGET), failure, ("token_budget",))
    assert step.rungs == 3
    assert "with the 4993 MiB that came after the load" in step.text


def test_where_the_failing_allocation_suffices_nothing_is_estimated():
    text = "one rung frees >= 404 MiB of the 4854 MiB asked for"
    assert sized(state(), oom(loaded_mib=40_000.0), BOTH) == Sized(1, text, covers=True)


@pytest.mark.parametrize("loaded_mib", [None, 97_000.0])
def test_a_load_that_brought_all_or_was_not_seen_leaves_it_to_the_failing_allocation(loaded_mib: float | None):
    step = sized(state(), oom(700.0, loaded_mib=loaded_mib), BOTH)
    assert (step.rungs, step.text) == (2, "2 rungs free >= 808 MiB of the 4854 MiB asked for")


def test_without_the_size_of_the_gpu_it_is_not_known_what_came_after_the_load():
    assert "estimate" not in sized(state(), oom(700.0, loaded_mib=40_000.0, total_mib=None), BOTH).text


def test_an_estimate_that_does_not_suffice_leaves_it_to_what_teaches_most():
    step = sized(state(BUDGET), oom(1900.0, 2000.0, loaded_mib=96_000.0, in_use_mib=90_000.0), ("token_budget",))
    assert "taken to learn it" in step.text


def test_two_failures_that_contradict_their_own_bounds_are_no_measure():
    def failed_at(n: int, budget: int, wanted: float) -> Peaks:
        return Peaks(attempt=n, rungs={"token_budget": budget}, wanted={uuid(5): wanted})

    def text(before: float, **more: Any) -> str:
        known = state(BUDGET, rungs={"token_budget": 1}, peaks=(failed_at(1, 0, before),))
        return sized(known, oom(300.0, **more), ("token_budget",)).text

    assert "measured in attempts 1, 9" in text(TOTAL + 1000.0)
    assert "measured" not in text(TOTAL + 310.0), "less than what was asked for alone"
    assert "measured" not in text(TOTAL + 1000.0, loaded_mib=92_000.0), "more than what came after the load"
    assert "measured" in text(TOTAL + 1000.0, loaded_mib=60_000.0)


def test_without_sizes_in_the_text_the_step_is_one_rung():
    assert sized(state(), oom(None), BOTH) == Sized(1)


def test_without_a_rung_left_or_numbers_nothing_is_predicted():
    assert sized(state(rungs={"token_budget": 3, "max_batch_size": 2}), oom(), BOTH) == Sized(1)
    assert sized(state(ALLOC), oom(), ("alloc",)) == Sized(1)


def test_what_was_measured_decides_once_two_attempts_differ():
    before = replace(at(1, 0, 0, 96_000, 96_500), wanted={uuid(5): TOTAL + 5000.0})
    now = at(9, 1, 0, 94_100, 94_500)
    step = sized(state(BUDGET, rungs={"token_budget": 1}, peaks=(before, now)), oom(3000.0), ("token_budget",))
    assert (step.rungs, step.covers) == (2, True)
    assert step.text == "2 rungs free 3933 +- 197 MiB, measured in attempts 1, 9"


def test_what_was_measured_may_say_that_nothing_will_suffice():
    known = state(BUDGET, rungs={"token_budget": 1}, peaks=(at(1, 0, 97_000), at(2, 1, 96_900)))
    step = sized(known, oom(90.0, free_mib=None), ("token_budget",))
    assert step.rungs == 2
    assert "not even the last rung frees enough: 200 +- 50 MiB" not in step.text
    step = sized(known, oom(400.0, free_mib=None), ("token_budget",))
    assert (step.rungs, step.covers) == (2, False)
    assert step.text == "as measured in attempts 1, 2 not even the last rung frees enough: 200 +- 50 MiB"


def test_a_load_that_died_and_other_knobs_elsewhere_are_no_measure():
    other = replace(at(1, 0, 90_000), rungs={"token_budget": 0, "max_batch_size": 1})
    known = state(BUDGET, BATCH, rungs={"token_budget": 1}, peaks=(other, at(2, 0, 80_000, progressed=False)))
    assert sized(known, oom(), ("token_budget",)).text.startswith("one rung frees >= ")


def test_a_gpu_of_no_known_role_is_measured_alone():
    known = replace(state(BUDGET, rungs={"token_budget": 1}, peaks=(at(1, 0, 97_000), at(2, 1, 95_000))), roles={})
    assert "measured in attempts" in sized(known, oom(100.0, free_mib=None), ("token_budget",)).text
    assert "asked for" in sized(known, oom(100.0, uuid=None), ("token_budget",)).text


def test_need_that_does_not_rise_with_the_knob_predicts_nothing():
    known = state(BUDGET, rungs={"token_budget": 1}, peaks=(at(1, 0, 90_000), at(2, 1, 95_000)))
    assert "asked for" in sized(known, oom(100.0, free_mib=None), ("token_budget",)).text


def test_knobs_that_are_no_numbers_have_no_load():
    known = state(ALLOC, peaks=(at(1, 0, 97_000),))
    assert sized(known, oom(), ("alloc",)) == Sized(1)


@pytest.mark.parametrize(
    ("groups", "slope", "error"),
    [
        ([[(0.0, 0.0), (1.0, 10.0)]], 10.0, 2.5),
        ([[(0.0, 0.0), (1.0, 10.0)], [(0.0, 5.0), (1.0, 15.0)]], 10.0, 0.5),
        ([[(0.0, 0.0), (1.0, 9.0)], [(0.0, 5.0), (1.0, 16.0)]], 10.0, 3.078),
    ],
)
def test_groups_share_a_slope_and_have_a_level_each(groups: Any, slope: float, error: float):
    found = least_squares(groups)
    assert found is not None
    assert found == (pytest.approx(slope), pytest.approx(error))


def test_many_points_use_the_normal_bound():
    points = [(float(x), 2.0 * x + (-1) ** x) for x in range(14)]
    found = least_squares([points])
    assert found is not None
    assert 0.0 < found[1] < 0.2


def test_points_that_do_not_differ_have_no_slope():
    assert least_squares([[(1.0, 3.0), (1.0, 4.0)]]) is None
    assert least_squares([]) is None


# ── which knob ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_several_knobs_the_one_that_costs_least_throughput_goes():
    assert cheapest(state(), oom(), ("max_batch_size", "token_budget")) == "token_budget"


def test_one_that_frees_enough_goes_before_a_cheaper_one_that_does_not():
    small = knob("token_budget", "49152", "49000")
    assert cheapest(state(small, BATCH), oom(1000.0, in_use_mib=90_000.0), BOTH) == "max_batch_size"


def test_what_the_run_measured_of_its_own_throughput_is_the_price():
    paces = (
        Paced(attempt=1, steps_per_s=1, stride=1, rate=40.0, settled=True, rungs={}),
        Paced(attempt=2, steps_per_s=1, stride=1, rate=39.9, settled=True, rungs={"max_batch_size": 1}),
        Paced(attempt=3, steps_per_s=1, stride=1, rate=1.0, settled=True, rungs={"max_batch_size": 2}),
    )
    assert cheapest(state(paces=paces), oom(), BOTH) == "max_batch_size"
    assert cost(state(paces=paces), BATCH, 1) == pytest.approx(0.0025)


def test_a_set_that_keeps_its_product_costs_little():
    rungs = (
        {"micro": Scalar("8", "int"), "acc": Scalar("4", "int")},
        {"micro": Scalar("4", "int"), "acc": Scalar("8", "int")},
    )
    batch = Knob(name="batch", rungs=rungs, keep="micro * acc")
    assert remaining(batch, 0, 1) == 0.5
    assert cost(state(batch), batch, 1) == 0.05


def test_a_knob_whose_price_is_not_known_goes_last():
    assert cheapest(state(ALLOC, BUDGET), oom(), ("alloc", "token_budget")) == "token_budget"
    assert cheapest(state(ALLOC, BUDGET), oom(None), ("alloc", "token_budget")) == "token_budget"


def test_a_knob_that_goes_up_predicts_nothing():
    assert remaining(replace(BUDGET, up=True), 0, 1) is None
    assert remaining(BUDGET, 3, 1) is None


# ── the step ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_fragmentation_moves_the_allocator_first_though_the_rule_names_others():
    known = state(BUDGET, ALLOC)
    assert known.spec is not None
    assert allocator(known.spec) == "alloc"
    step = stepped(known, oom(reserved_mib=1700.0), ("token_budget",), rule="dflash.yaml:44")
    assert step.lowered == {"alloc": ("default", "expandable_segments:True")}
    assert step.text == "1700 MiB lay reserved but unallocated: fragmentation, the allocator goes first"


def test_the_allocator_of_another_rule_is_left_to_it():
    known = state(BUDGET, ALLOC)
    assert known.spec is not None
    mine = Rule(on=(Kind.HOST_OOM,), do=known.spec.recovery.rules[0].do, lower=("alloc",), where="x:1")
    spec = replace(known.spec, recovery=replace(known.spec.recovery, rules=(mine,)))
    step = stepped(replace(known, spec=spec), oom(reserved_mib=1700.0), ("token_budget",), rule="x:2")
    assert list(step.lowered) == ["token_budget"]


def test_an_allocator_that_is_down_already_leaves_it_to_the_others():
    known = state(BUDGET, ALLOC, rungs={"alloc": 1})
    step = stepped(known, oom(reserved_mib=1700.0), ("token_budget",))
    assert list(step.lowered) == ["token_budget"]
    assert "fragmentation" not in step.text, "its rung is what would be advised"


def test_an_allocator_at_another_last_rung_is_advised_to_be_expandable():
    split = knob("alloc", "expandable_segments:True", "max_split_size_mb:128")
    step = stepped(state(BUDGET, split, rungs={"alloc": 1}), oom(reserved_mib=1700.0), ("token_budget",))
    assert step.text.endswith("try env: {PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True}")


def test_without_such_a_knob_fragmentation_is_advised():
    text = stepped(state(), oom(reserved_mib=1700.0), BOTH).text
    assert text.endswith("fragmentation, try env: {PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True}")


def test_what_the_job_has_already_is_not_advised():
    known = state()
    assert known.spec is not None
    spec = replace(known.spec, env={"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
    assert advice(spec, oom(reserved_mib=1700.0), {}) == ""
    assert advice(known.spec, oom(reserved_mib=100.0), {}) == ""


def test_rungs_that_failed_of_the_same_cause_are_passed_over():
    past = Past(
        attempt=1,
        kind=Kind.GPU_OOM,
        at=NOW,
        gained=False,
        rule="",
        did="relaunch",
        lowered=True,
        rungs={"token_budget": 1},
    )
    step = stepped(state(BUDGET, past=(past,)), oom(), ("token_budget",))
    assert step.rungs == {"token_budget": 2}
    held = stepped(state(BUDGET, past=(past,)), replace(oom(), kind=Kind.HANG), ("token_budget",))
    assert held.rungs == {"token_budget": 1}


def test_at_the_last_rung_there_is_no_step():
    known = state(BUDGET, rungs={"token_budget": 3})
    assert stepped(known, oom(), ("token_budget",), one_of=True).lowered == {}


def test_one_of_for_another_cause_is_the_first():
    step = stepped(state(), replace(oom(), kind=Kind.HOST_OOM), ("max_batch_size", "token_budget"), one_of=True)
    assert list(step.lowered) == ["max_batch_size"]


def test_a_step_beyond_the_last_rung_stops_there():
    past = [
        Past(
            attempt=n,
            kind=Kind.GPU_OOM,
            at=NOW,
            gained=False,
            rule="",
            did="relaunch",
            lowered=True,
            rungs={"token_budget": n},
        )
        for n in (2, 3)
    ]
    known = state(BUDGET, rungs={"token_budget": 1}, past=tuple(past))
    assert stepped(known, oom(), ("token_budget",)).rungs == {"token_budget": 3}


# ── peaks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def reading(n: int, used: float) -> Reading:
    return Reading(uuid(n), n, 0.0, used, TOTAL, 0.0, 90.0)


def test_a_peak_only_rises_and_an_unreadable_gpu_has_none():
    first = risen({}, {uuid(5): reading(5, 800.4), uuid(6): Unreadable(uuid(6), 6, 0.0, "lost")})
    assert first == {uuid(5): 800.0}
    assert risen(first, {uuid(5): reading(5, 800.9)}) is None
    assert risen(first, {uuid(5): reading(5, 900.0)}) == {uuid(5): 900.0}


def test_an_attempt_that_nobody_read_leaves_no_peak():
    assert ended((), 1, {}, {}, progressed=True) == ()


def test_end_and_verdict_of_an_attempt_make_one_record_in_either_order():
    one = failed(ended((), 1, {"a": 1}, {uuid(5): 9.0}, progressed=True), 1, {"a": 1}, oom())
    other = ended(failed((), 1, {"a": 1}, oom()), 1, {"a": 1}, {uuid(5): 9.0}, progressed=True)
    assert one == other
    assert one[0].wanted == {uuid(5): TOTAL + 174.0}


def test_only_an_out_of_memory_text_of_the_run_itself_tells_what_was_needed():
    assert wanted_mib(replace(oom(), kind=Kind.HANG)) is None
    assert wanted_mib(replace(oom(), leftover="an orphan")) is None
    assert wanted_mib(oom(None)) is None
    assert failed((), 1, {}, replace(oom(), uuid=None)) == ()
