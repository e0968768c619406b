"""What is done about each failure: selectors of rules, counts and waits, at their limits."""

from __future__ import annotations

from zlib import crc32

import pytest
from changes import replace
from fake_specs import BOTH, incident

from supervisor.core.evidence import Checkpoint, Instant
from supervisor.core.kinds import Kind
from supervisor.core.phases import Phase
from supervisor.core.placing import RoleGpus
from supervisor.core.plans import Ending, Failure, Plan
from supervisor.core.policy import MATCHED_TEXT, POLICY, WAITS, Tell, plan_after, relaunches, role_of
from supervisor.core.spec import Do, Rule, Silent
from supervisor.core.state import Attempt, Past, State


def at(boot_s: float) -> Instant:
    return Instant("b", boot_s, boot_s)


def rule(**changes) -> Rule:
    return replace(Rule(on=(Kind.HANG,), do=Do.RELAUNCH, wait_s=7.0, where="r.yaml:9"), **changes)


def state(*rules: Rule, phase: Phase = Phase.RUNNING, past: tuple[Past, ...] = (), **of) -> State:
    """An attempt that was launched at 100 s and made progress; changes of `of` are its."""
    spec = incident()
    spec = replace(spec, recovery=replace(spec.recovery, rules=rules))
    made = Attempt(
        number=4,
        token="t",
        argv=(),
        rungs={},
        checkpoint=None,
        began=at(90.0),
        launched_at=at(100.0),
        progressed_at=at(110.0),
    )
    roles = {"all": RoleGpus(ordinals=(4, 5), physical=(4, 5), uuids=("GPU-4", "GPU-5"))}
    rungs = {"token_budget": 0, "max_batch_size": 0}
    return State(run="r", spec=spec, phase=phase, attempt=replace(made, **of), past=past, rungs=rungs, roles=roles)


def failed(kind: Kind = Kind.HANG, **changes) -> Failure:
    return replace(Failure(kind=kind, because="it hangs"), **changes)


def before(number: int, kind: Kind = Kind.HANG, **changes) -> Past:
    made = Past(attempt=number, kind=kind, at=at(50.0), gained=False, rule="", did="relaunch", lowered=False)
    return replace(made, **changes)


def planned(of: State, failure: Failure | None = None, now_s: float = 200.0, **more) -> Plan | Tell:
    return plan_after(of, failure or failed(), at(now_s), **more)


def took(rule_: Rule, failure: Failure | None = None, now_s: float = 200.0, **of) -> bool:
    """Whether this rule was the one."""
    plan = planned(state(rule_, **of), failure, now_s)
    return isinstance(plan, Plan) and plan.rule == rule_.where


# ── selectors: all that are given must hold ──


def test_a_rule_holds_for_its_kinds_only():
    assert took(rule())
    assert not took(rule(on=(Kind.SEGFAULT,)))


def test_a_rule_of_a_role_holds_for_a_gpu_of_that_role():
    assert took(rule(role="drafter"), failed(gpu=5))
    assert took(rule(role="drafter"), failed(uuid="GPU-5", gpu=5))
    assert not took(rule(role="drafter"), failed(gpu=4))
    assert not took(rule(role="drafter"), failed())
    assert role_of(state(), failed(gpu=5)) == "drafter"
    assert role_of(state(), failed()) is None


def test_a_rule_of_a_phase_holds_in_the_job_s_own_phases_and_in_starting_and_running():
    assert took(rule(phase="eval"), failed(phase="eval"))
    assert not took(rule(phase="eval"), failed(phase="save"))
    assert took(rule(phase="running"))
    assert not took(rule(phase="running"), phase=Phase.STARTING)
    assert took(rule(phase="starting"), phase=Phase.STARTING)
    assert took(rule(phase="starting"), progressed_at=None), "it has ended before its first step"
    assert not took(rule(phase="running"), progressed_at=None)


def test_a_rule_is_matched_against_the_line_that_decided_as_far_as_it_is_read():
    assert took(rule(match="Xid 79"), failed(log_line="NVRM: Xid 79"))
    assert not took(rule(match="Xid 79"), failed(log_line="NVRM: Xid 31"))
    assert took(rule(match="hangs")), "where no line decided, against what is said of it"
    assert took(rule(match="end"), failed(log_line="x" * (MATCHED_TEXT - 3) + "end"))
    assert not took(rule(match="end"), failed(log_line="x" * (MATCHED_TEXT - 2) + "end"))


def test_a_rule_that_waits_for_an_attempt_to_be_old_holds_from_that_age_on():
    assert not took(rule(after_s=60.0), now_s=159.9)
    assert took(rule(after_s=60.0), now_s=160.0)
    assert took(rule(after_s=60.0), now_s=150.0, launched_at=None), "one that was not launched, since it began"
    assert not took(rule(after_s=60.0), now_s=149.9, launched_at=None)


def test_a_rule_that_is_spent_gives_way_until_a_checkpoint_is_gained():
    twice = (before(2, rule="r.yaml:9"), before(3, rule="r.yaml:9"))
    assert took(rule(times=3), past=twice)
    assert not took(rule(times=2), past=twice)
    assert took(rule(times=2), past=twice, gained=1)
    assert took(rule(times=2), past=(twice[0], replace(twice[1], gained=True)))
    assert not took(rule(times=1), past=(twice[0], replace(twice[1], gained=True)))
    assert took(rule(times=2), past=(before(2, rule="r.yaml:8"), before(3, rule="r.yaml:8")))


# ── what follows ──


def test_a_rule_says_halt_tell_or_relaunch():
    halt = planned(state(rule(do=Do.HALT)))
    assert isinstance(halt, Plan)
    assert (halt.ending, halt.rule, halt.because) == (
        Ending.HALTED,
        "r.yaml:9",
        "it hangs; the rule at r.yaml:9 says halt",
    )
    assert planned(state(rule(do=Do.NOTIFY))) == Tell("r.yaml:9")
    again = planned(state(rule(from_older=True)))
    assert isinstance(again, Plan)
    assert (again.ending, again.wait_s, again.from_older, again.rule) == (None, 7.0, True, "r.yaml:9")
    assert again.because == "it hangs; relaunching as it was"


def test_a_role_s_own_word_about_silence_stands_before_the_rules():
    silent = failed(Kind.SILENT_GPU, gpu=5)
    for word, wanted in (
        (Silent.NOTIFY, Tell("silent: notify")),
        (Silent.HALT, Ending.HALTED),
        (Silent.RELAUNCH, None),
    ):
        of = state(rule(on=(Kind.SILENT_GPU,)))
        roles = tuple(replace(one, silent=word if one.name == "drafter" else one.silent) for one in of.spec.topology)
        plan = planned(replace(of, spec=replace(of.spec, topology=roles)), silent)
        assert (plan if isinstance(plan, Tell) else plan.ending) == wanted


def test_a_changed_protected_param_always_halts_whatever_a_rule_says():
    plan = planned(state(rule(on=(Kind.PROTECTED_VIOLATION,))), failed(Kind.PROTECTED_VIOLATION))
    assert isinstance(plan, Plan)
    assert (plan.ending, plan.next_command) == (Ending.HALTED, "supervise history dflash -v")


def test_lost_progress_is_only_told_where_the_spec_says_so():
    of = state()
    assert planned(of, failed(Kind.LOST_PROGRESS)).ending is Ending.HALTED
    told = replace(of, spec=replace(of.spec, health=replace(of.spec.health, lost_progress="notify")))
    assert planned(told, failed(Kind.LOST_PROGRESS)) == Tell("health.lost_progress: notify")
    assert planned(told, failed()).ending is None, "of another failure it says nothing"


def test_a_run_that_is_slow_is_told_of_however_often_it_failed():
    spent = tuple(before(n) for n in range(1, 10))
    assert planned(state(past=spent), failed(Kind.SLOW)) == Tell("the built-in policy")


def test_the_budget_is_spent_by_the_failure_that_makes_it_full_and_counts_a_window():
    five = tuple(before(n, Kind.NETWORK_ERROR) for n in range(1, 6))
    spent = planned(state(past=five))
    assert spent.ending is Ending.HALTED
    assert "6 attempts failed without gaining a checkpoint (recovery.max_attempts)" in spent.because
    assert planned(state(past=five[1:])).ending is None
    assert planned(state(past=five, gained=1)).ending is None
    assert planned(state(past=(*five[1:], replace(five[0], gained=True)))).ending is None
    window = state().spec.recovery.per_s
    assert planned(state(past=five), now_s=50.0 + window).ending is Ending.HALTED
    assert planned(state(past=five), now_s=50.1 + window).ending is None
    assert planned(state(rule(), past=five)).ending is Ending.HALTED, "a rule does not stretch the budget"


@pytest.mark.parametrize("kind", sorted(set(POLICY) - {Kind.GPU_OOM, Kind.SLOW, Kind.PROTECTED_VIOLATION}))
def test_every_kind_is_relaunched_as_often_as_the_table_says_and_then_halts(kind):
    wanted = {3: "HANG SILENT_GPU HOST_OOM COLLECTIVE_TIMEOUT COLLECTIVE_ERROR CUDA_ERROR SEGFAULT KILLED SHM_FULL"}
    wanted[3] += " NETWORK_ERROR PORT_IN_USE PREEMPTED"
    wanted |= {2: "EXIT", 1: "STARTUP_TIMEOUT CHECKPOINT_ERROR GPU_FAULT"}
    times = next((n for n, names in wanted.items() if kind.name in names.split()), 0)
    for done in range(times + 1):
        plan = planned(state(past=tuple(before(n, kind) for n in range(1, done + 1))), failed(kind))
        assert (plan.ending is None) == (done < times), done
        assert plan.from_older == (kind is Kind.CHECKPOINT_ERROR and done < times)
    said = {0: "no relaunch can mend it", 1: "1 relaunch for", 2: "2 relaunches for", 3: "3 relaunches for"}[times]
    assert said in plan.because


def test_relaunches_are_counted_since_the_last_gain_and_of_this_cause():
    past = (before(1), replace(before(2), gained=True), before(3), before(4, Kind.EXIT), before(5, did="halt"))
    of = state(past=past)
    assert relaunches(of, of.attempt, Kind.HANG) == 2, "the one that gained counts, those before it do not"
    assert relaunches(of, replace(of.attempt, gained=1), Kind.HANG) == 0


def test_a_sick_gpu_is_relaunched_on_only_where_every_gpu_answers_healthy():
    assert planned(state(), failed(Kind.GPU_FAULT)).ending is None
    sick = planned(state(), failed(Kind.GPU_FAULT), gpus_healthy=False)
    assert sick.ending is Ending.HALTED
    assert "not every GPU answers healthy" in sick.because
    assert planned(state(), failed(), gpus_healthy=False).ending is None


def test_waits_are_five_seconds_times_four_to_the_count_at_most_ten_minutes_and_a_tenth_more_at_random():
    assert {Kind.EXIT, Kind.NETWORK_ERROR, Kind.PORT_IN_USE, Kind.PREEMPTED} == WAITS
    spread = 1.0 + 0.1 * crc32(b"r:4") / 2**32
    assert 1.0 < spread < 1.1
    for kind, waits in ((Kind.NETWORK_ERROR, (5.0, 20.0, 80.0)), (Kind.HANG, (0.0, 20.0, 80.0))):
        for done, wait in enumerate(waits):
            plan = planned(state(past=tuple(before(n, kind) for n in range(1, done + 1))), failed(kind))
            assert plan.wait_s == pytest.approx(wait * spread)
    of = state(past=(before(1, Kind.EXIT),))
    capped = replace(of, spec=replace(of.spec, recovery=replace(of.spec.recovery, backoff_cap_s=20.0)))
    assert planned(capped, failed(Kind.EXIT)).wait_s == 20.0, "the cap holds with what is added at random"


def test_no_wait_after_a_rung_was_lowered_but_before_the_second_relaunch_of_anything_else():
    lowered = planned(state(BOTH, past=(before(1, Kind.GPU_OOM),)), failed(Kind.GPU_OOM, gpu=5))
    assert lowered.lowered
    assert lowered.wait_s == 0.0
    cleaned = planned(state(past=(before(1, Kind.GPU_OOM),)), failed(Kind.GPU_OOM, gpu=5, leftover="pid 7"))
    assert not cleaned.lowered
    assert cleaned.wait_s > 20.0


def test_out_of_memory_lowers_what_no_rule_names_and_halts_at_the_last_rungs():
    free = planned(state(), failed(Kind.GPU_OOM, gpu=5))
    assert set(free.lowered) == {"token_budget", "max_batch_size"}
    named = planned(state(replace(BOTH, lower=("token_budget",), role="target")), failed(Kind.GPU_OOM, gpu=5))
    assert set(named.lowered) == {"max_batch_size"}
    last = replace(state(), rungs={"token_budget": 2, "max_batch_size": 2})
    halted = planned(last, failed(Kind.GPU_OOM, gpu=5))
    assert "every ladder is at its last rung (token_budget 40960, max_batch_size 32)" in halted.because
    bare = replace(last, spec=replace(last.spec, params=replace(last.spec.params, knobs=())))
    assert "lists no knob that may be lowered" in planned(bare, failed(Kind.GPU_OOM, gpu=5)).because


def test_a_disk_that_is_full_is_relaunched_on_once_where_checkpoints_can_be_given_up():
    from supervisor.core.lineage import Known

    of = state()
    known = tuple(Known(path=f"/c/{n}", real=f"/c/{n}", step=n, attempt=1) for n in (1, 2, 3))
    keeps = replace(of, spec=replace(of.spec, resume=replace(of.spec.resume, keep=2)))
    keeps = replace(keeps, lineage=replace(keeps.lineage, known=known))
    assert planned(of, failed(Kind.DISK_FULL)).ending is Ending.HALTED
    assert planned(keeps, failed(Kind.DISK_FULL)).ending is None
    few = replace(keeps, lineage=replace(keeps.lineage, known=known[1:]))
    assert planned(few, failed(Kind.DISK_FULL)).ending is Ending.HALTED, "no more than are to be kept"
    from_third = Checkpoint(path="/c/3", step=3, real="", inode=1, mtime_ns=1)
    begun_from = replace(keeps, attempt=replace(keeps.attempt, checkpoint=from_third))
    assert planned(begun_from, failed(Kind.DISK_FULL)).ending is Ending.HALTED, "the one in use is none to give up"
    taken = replace(keeps, lineage=replace(keeps.lineage, known=(replace(known[0], attempt=None), *known[1:])))
    assert planned(taken, failed(Kind.DISK_FULL)).ending is Ending.HALTED, "nor one that was there before"
    assert planned(replace(keeps, past=(before(1, Kind.DISK_FULL),)), failed(Kind.DISK_FULL)).ending is Ending.HALTED
