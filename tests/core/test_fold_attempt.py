"""What the records of an attempt change of it and of the run, and what they leave alone."""

from __future__ import annotations

import pytest
from changes import replace
from fake_specs import CHECKPOINTS, incident

from supervisor.core import events as ev
from supervisor.core.between import VerifiedZero
from supervisor.core.evidence import Checkpoint, ExitRecord, Instant, MachineId, ProcessId, Proof
from supervisor.core.fold import fold
from supervisor.core.kinds import Kind
from supervisor.core.lineage import Lineage
from supervisor.core.phases import Phase
from supervisor.core.plans import Failure, Plan, Target
from supervisor.core.state import (
    Attempt,
    Past,
    Settled,
    State,
    Waiting,
)
from supervisor.core.wellbeing import Foretold, Paced, Regained

HERE = MachineId("b", "m", "h")
OOM = Failure(kind=Kind.GPU_OOM, because="GPU 5 ran out of memory", gpu=5)
AGAIN = Plan(ending=None, because="relaunching")
SAVED = Checkpoint(path=f"{CHECKPOINTS}/step_700", step=700, real="", inode=7, mtime_ns=7)


def at(boot_s: float) -> Instant:
    return Instant("b", boot_s, 1_000.0 + boot_s)


def attempt(**changes) -> Attempt:
    made = Attempt(number=3, token="t", argv=("x",), rungs={"token_budget": 1}, checkpoint=None, began=at(1.0))
    return replace(made, **changes)


def state(phase: Phase = Phase.RUNNING, **changes) -> State:
    of = changes.pop("attempt", attempt(launched_at=at(2.0)))
    return replace(
        State(run="r", spec=incident(), phase=phase, entered=at(2.0), attempt=of, attempts_made=3), **changes
    )


def judged(failure: Failure = OOM, plan: Plan = AGAIN, number: int = 3) -> ev.Judged:
    return ev.Judged(attempt=number, failure=failure, plan=plan)


def test_a_start_that_took_no_time_is_not_the_last_start_and_the_longest_stays_the_longest():
    before = state(Phase.STARTING, last_start_s=40.0, longest_start_s=90.0)
    after = fold(before, ev.FirstProgress(attempt=3, step=7, startup_s=0.0), at(9.0))
    assert (after.last_start_s, after.longest_start_s, after.phase) == (40.0, 90.0, Phase.RUNNING)
    after = fold(before, ev.FirstProgress(attempt=3, step=7, startup_s=50.0), at(9.0))
    assert (after.last_start_s, after.longest_start_s) == (50.0, 90.0)
    after = fold(before, ev.FirstProgress(attempt=3, step=7, startup_s=91.0), at(9.0))
    assert (after.longest_start_s, after.attempt.progressed_at, after.attempt.first_step) == (91.0, at(9.0), 7)


def test_nothing_is_learned_of_starts_from_a_rehearsal():
    before = state(Phase.STARTING, attempt=attempt(rehearsal=True), last_start_s=40.0)
    after = fold(before, ev.FirstProgress(attempt=3, step=7, startup_s=50.0), at(9.0))
    assert (after.last_start_s, after.longest_start_s, after.lineage) == (40.0, 0.0, before.lineage)
    assert after.attempt.progressed_at == at(9.0)


def test_peaks_of_an_attempt_that_made_no_step_are_those_of_a_load():
    event = ev.JobEnded(attempt=3, end=ExitRecord(code=1, signal=None), first_step=7, last_step=9, peaks={"GPU-0": 5.0})
    (load,) = fold(state(), event, at(9.0)).peaks
    assert (load.mib, load.progressed, load.rungs) == ({"GPU-0": 5.0}, False, {"token_budget": 1})
    after = fold(state(attempt=attempt(progressed_at=at(5.0))), event, at(9.0))
    assert after.peaks[0].progressed
    assert (after.attempt.first_step, after.attempt.last_step, after.attempt.end.code) == (7, 9, 1)
    assert fold(state(attempt=attempt(rehearsal=True)), event, at(9.0)).peaks == ()


def test_the_first_step_of_an_attempt_is_told_once_and_its_last_again_and_again():
    before = state(attempt=attempt(first_step=5, last_step=8))
    event = ev.JobEnded(attempt=3, end=ExitRecord(code=1, signal=None), first_step=6, last_step=9)
    after = fold(before, event, at(9.0)).attempt
    assert (after.first_step, after.last_step) == (5, 9)
    after = fold(before, ev.JobEnded(attempt=3, end=ExitRecord(code=1, signal=None)), at(9.0)).attempt
    assert (after.first_step, after.last_step) == (5, 8)


@pytest.mark.parametrize("gained", [0, 1])
def test_a_judged_attempt_gained_something_if_it_wrote_a_checkpoint(gained):
    (past,) = fold(state(attempt=attempt(gained=gained)), judged(), at(9.0)).past
    assert (past.gained, past.attempt, past.kind, past.at) == (gained > 0, 3, Kind.GPU_OOM, at(9.0))


def test_a_checkpoint_that_is_recorded_after_the_verdict_counts_for_the_attempt_that_wrote_it():
    past = tuple(
        Past(attempt=n, kind=Kind.HANG, at=at(0.0), gained=False, rule="", did="relaunch", lowered=False)
        for n in (2, 3)
    )
    after = fold(state(past=past), ev.CheckpointWritten(attempt=3, checkpoint=SAVED, logged_step=9), at(9.0))
    assert [one.gained for one in after.past] == [False, True]
    assert (after.attempt.gained, after.gained_in_episode) == (1, True)
    assert after.lineage.known[0].logged == 9


def test_a_verdict_remembers_what_was_moved_and_from_which_checkpoint_nothing_came():
    lowered = Plan(
        ending=None,
        because="lower",
        rungs={"token_budget": 1, "other": 0},
        lowered={"token_budget": ("49152", "45056")},
    )
    before = state(attempt=attempt(checkpoint=SAVED, launched_at=at(2.0)), rungs={"token_budget": 0, "other": 0})
    after = fold(before, judged(plan=lowered), at(9.0))
    assert after.past[0].moved == ("token_budget 49152 -> 45056",)
    assert (after.past[0].lowered, after.past[0].loaded) == (True, SAVED.path)
    assert after.lowered_in == {"token_budget": 3}, "what stayed on its rung was not lowered"
    never = replace(before, attempt=attempt(checkpoint=SAVED))
    assert fold(never, judged(), at(9.0)).past[0].loaded == "", "nothing was loaded"
    went_on = replace(before, attempt=attempt(checkpoint=SAVED, launched_at=at(2.0), progressed_at=at(5.0)))
    assert fold(went_on, judged(), at(9.0)).past[0].loaded == ""
    assert not fold(went_on, judged(), at(9.0)).past[0].lowered


def test_a_healthy_end_is_no_failure_of_the_past():
    none = Failure(kind=Kind.NONE, because="done")
    after = fold(state(last_failure=OOM), judged(none), at(9.0))
    assert (after.past, after.last_failure, after.plan) == ((), OOM, AGAIN)


def test_who_asked_first_for_a_stop_ended_the_attempt():
    stop = ev.StopIntended(attempt=3, by=ev.By.POLICY, grace_s=5.0, because="b", plan=AGAIN)
    first = fold(state(), stop, at(9.0))
    assert (first.attempt.stopped_by, first.attempt.grace_s, first.attempt.stop_at) == (ev.By.POLICY, 5.0, at(9.0))
    again = fold(first, replace(stop, by=ev.By.USER, grace_s=0.0, plan=None), at(12.0))
    assert (again.attempt.stopped_by, again.attempt.grace_s, again.plan) == (ev.By.POLICY, 0.0, AGAIN)


def test_a_stop_that_is_intended_anew_signals_anew():
    target = Target(id=ProcessId(7, 1), cmdline="x", proof=Proof.TOKEN)
    signal = ev.SignalIntended(attempt=3, signal="SIGTERM", group=True, targets=(target,))
    stop = ev.StopIntended(attempt=3, by=ev.By.POLICY, grace_s=5.0, because="b")
    asked = fold(fold(state(), stop, at(9.0)), signal, at(10.0))
    assert asked.attempt.intended == {"SIGTERM:group"}
    assert asked.attempt.signalled == {(7, 1, "SIGTERM")}
    assert asked.attempt.kill_at is None, "a signal to the group is no KILL yet"
    sent = fold(asked, ev.SignalSent(attempt=3, signal="SIGTERM", group=True), at(10.0))
    assert sent.attempt.sent == {"SIGTERM:group"}
    killing = fold(sent, replace(signal, signal="SIGKILL", group=False), at(11.0))
    killing = fold(killing, replace(signal, signal="SIGKILL", group=False), at(13.0))
    assert (killing.attempt.kill_at, len(killing.attempt.signalled)) == (at(11.0), 2)
    assert killing.attempt.intended == {"SIGTERM:group", "SIGKILL"}
    anew = fold(replace(killing, phase=Phase.VERIFYING), stop, at(20.0)).attempt
    assert (anew.intended, anew.sent, anew.signalled, anew.kill_at) == (frozenset(),) * 3 + (None,)


def test_a_launch_is_known_from_when_its_runner_came_and_by_the_leader_that_was_told():
    runner, leader = ProcessId(9, 9), ProcessId(10, 9)
    came = fold(state(attempt=attempt()), ev.Launched(attempt=3, runner=runner, leader=leader), at(9.0))
    assert (came.attempt.launched_at, came.attempt.leader) == (at(9.0), leader)
    again = fold(came, ev.Launched(attempt=3, runner=runner), at(12.0))
    assert (again.attempt.launched_at, again.attempt.leader) == (at(9.0), leader)


def test_while_recovery_is_paused_a_verdict_is_held_back_once_and_a_new_pause_asks_again():
    held = fold(state(paused=True), ev.HeldBack(attempt=3, failure=OOM, plan=AGAIN), at(9.0))
    assert (held.attempt.held_back, held.would) == (("gpu_oom:5",), "would relaunch: relaunching")
    halt = Plan(ending=ev.Ending.HALTED, because="no rung left")
    assert fold(held, ev.HeldBack(attempt=3, failure=OOM, plan=halt), at(9.0)).would == "would halt: no rung left"
    on = fold(held, ev.PauseSet(paused=False), at(9.0))
    assert (on.paused, on.attempt.held_back, on.would) == (False, (), "")


def test_what_a_run_goes_on_with_is_told_until_it_is_well_again():
    slow = Failure(kind=Kind.SLOW, because="half as fast")
    told = fold(state(), ev.Degraded(attempt=3, failure=slow), at(9.0))
    assert (told.phase, told.because, told.last_failure) == (Phase.DEGRADED, "half as fast", slow)
    assert told.attempt.told == {"slow:None"}
    more = fold(told, ev.Degraded(attempt=3, failure=OOM), at(9.0))
    assert more.attempt.told == {"slow:None", "gpu_oom:5"}
    well = fold(more, Regained(attempt=3, because="as fast again"), at(9.0))
    assert (well.phase, well.because, well.attempt.told) == (Phase.RUNNING, "as fast again", frozenset())


def launch(**changes) -> ev.LaunchIntended:
    made = ev.LaunchIntended(
        attempt=4,
        argv=("t",),
        rungs={"token_budget": 1},
        knobs={},
        protected={},
        checkpoint=None,
        token="t",
        because="b",
    )
    return replace(made, **changes)


def test_a_launch_begins_with_what_it_was_made_with_and_forgets_what_led_to_it():
    before = state(
        Phase.CLEANING,
        attempt=attempt(progressed_at=at(3.0)),
        plan=AGAIN,
        waited=True,
        cleaned=True,
        tidied=True,
        set_aside=("/x",),
        would="w",
        foretold=("memory",),
        hooked=("after_stop:3",),
        launched_in_episode=1,
        protected={"old": incident().params.protected["anchors"]},
    )
    after = fold(before, launch(), at(9.0))
    fresh = State(run="r")
    for name in ("plan", "waited", "cleaned", "tidied", "set_aside", "would", "foretold", "hooked", "hook_end"):
        assert getattr(after, name) == getattr(fresh, name), name
    assert (after.phase, after.attempts_made, after.launched_in_episode, after.good) == (Phase.STARTING, 4, 2, 3)
    assert (after.rungs, after.because, after.rehearsals) == ({"token_budget": 1}, "b", 0)
    assert set(after.protected) == {"old", "anchors", "block_size"}, "what was ever protected stays so"
    assert after.settled == Settled(spec=incident(), rungs={"token_budget": 1}, protected_sha256=None)
    assert (after.attempt.number, after.attempt.began, after.attempt.launched_at) == (4, at(9.0), None)


def test_a_rehearsal_is_counted_and_is_no_launch_of_the_episode():
    after = fold(state(Phase.CLEANING, launched_in_episode=0), launch(rehearsal=True), at(9.0))
    assert (after.rehearsals, after.launched_in_episode, after.attempt.rehearsal) == (1, 0, True)
    assert not after.lineage.begun
    progressed = replace(after, attempt=replace(after.attempt, progressed_at=at(10.0)))
    assert progressed.last_good is None, "a rehearsal is no good attempt"


@pytest.mark.parametrize(("made", "there", "after"), [(False, True, False), (False, False, True), (True, True, True)])
def test_the_output_is_ours_once_a_launch_found_none(made, there, after):
    assert fold(state(Phase.CLEANING, made_output=made), launch(output_there=there), at(9.0)).made_output is after


def test_the_last_good_attempt_is_the_last_that_made_progress():
    assert state(good=2).last_good == 2
    assert state(attempt=attempt(progressed_at=at(5.0)), good=2).last_good == 3
    assert state(attempt=None, good=2).last_good == 2


def test_somebody_may_be_left_where_an_end_was_reached_before_the_last_process_was_seen_gone():
    stopped = attempt(stop_at=at(5.0))
    assert state(Phase.HALTED, attempt=stopped).may_have_left
    assert not state(Phase.STOPPING, attempt=stopped).may_have_left
    assert not state(Phase.HALTED, attempt=replace(stopped, gone_at=at(6.0))).may_have_left
    assert not state(Phase.HALTED, attempt=attempt()).may_have_left
    assert not state(Phase.HALTED, attempt=None).may_have_left


def test_a_relaunch_is_held_back_by_a_pause_alone_and_a_restart_overrules_it():
    held = state(Phase.BACKOFF, paused=True, plan=AGAIN, attempt=attempt(failure=OOM))
    assert held.is_held_back
    assert not replace(held, paused=False).is_held_back
    assert not replace(held, attempt=attempt()).is_held_back
    assert not replace(held, attempt=None).is_held_back
    assert not replace(held, plan=None).is_held_back
    assert not replace(held, plan=Plan(ending=ev.Ending.HALTED, because="b")).is_held_back
    assert not replace(held, waiting=(Waiting(request="1", verb="restart"),)).is_held_back
    assert replace(held, plan=Plan(ending=ev.Ending.HALTED, because="b")).is_ending
    assert not held.is_ending


def test_another_machine_has_other_floors_and_other_paces():
    before = state(floors={"GPU-0": 3.0}, paces=(Paced(attempt=2, steps_per_s=1.0, stride=1),))
    after = fold(before, ev.MachineMoved(machine=HERE), at(9.0))
    assert (after.machine, after.floors, after.paces) == (HERE, {}, ())


def test_floors_are_added_to_those_that_are_known():
    before = state(Phase.VERIFYING, floors={"GPU-0": 3.0}, verify_from=at(5.0), foreign_wait_s=60.0)
    after = fold(before, VerifiedZero(attempt=3, waited_s=1.0, floors={"GPU-1": 4.0}), at(9.0))
    assert after.floors == {"GPU-0": 3.0, "GPU-1": 4.0}
    assert (after.phase, after.verify_from, after.foreign_wait_s) == (Phase.CLEANING, None, 0.0)
    passed = fold(state(Phase.PREFLIGHT, floors={"GPU-0": 3.0}), ev.PreflightPassed(floors={"GPU-0": 5.0}), at(9.0))
    assert passed.floors == {"GPU-0": 5.0}


def test_what_is_foretold_is_told_once_an_attempt():
    once = fold(state(), Foretold(attempt=3, what="memory", text="t", full_in_s=60.0), at(9.0))
    twice = fold(once, Foretold(attempt=3, what="disk", text="t", full_in_s=60.0), at(9.0))
    assert twice.foretold == ("memory", "disk")


def test_the_steps_at_which_the_first_attempt_began_are_those_of_the_first_that_was_no_rehearsal():
    before = state(Phase.STARTING, attempt=attempt(number=2), rehearsals=1)
    assert fold(before, ev.FirstProgress(attempt=2, step=7, startup_s=1.0), at(9.0)).lineage.first_began == 7
    later = replace(before, attempt=attempt(number=3))
    assert fold(later, ev.FirstProgress(attempt=3, step=7, startup_s=1.0), at(9.0)).lineage.first_began is None
    assert fold(before, ev.FirstProgress(attempt=2, step=7, startup_s=1.0), at(9.0)).because == "making progress"


def test_what_a_gpu_wanted_that_ran_out_is_remembered_but_not_of_a_rehearsal():
    sized = replace(OOM, uuid="GPU-5", total_mib=100.0, free_mib=10.0, tried_mib=20.0)
    (peaks,) = fold(state(), judged(sized), at(9.0)).peaks
    assert (peaks.attempt, peaks.wanted) == (3, {"GPU-5": 110.0})
    assert fold(state(attempt=attempt(rehearsal=True)), judged(sized), at(9.0)).peaks == ()


def hooked(of: State, hook: str = "before_launch", code: int = 3) -> State:
    return fold(of, ev.HookEnded(attempt=4, hook=hook, code=code), at(9.0))


def test_a_hook_that_refuses_the_first_launch_of_an_episode_answers_its_up():
    first = state(Phase.CLEANING, hook=ev.HookIntended(attempt=4, hook="before_launch", argv=("x",), token="t"))
    assert hooked(first).refused == 6
    assert (hooked(first).hook, hooked(first).hooked) == (None, ("before_launch:4",))
    assert hooked(first, code=0).refused == 0
    assert hooked(first, hook="after_stop").refused == 0
    assert hooked(replace(first, plan=AGAIN)).refused == 6
    assert hooked(replace(first, plan=Plan(ending=ev.Ending.STOPPED, because="b"))).refused == 0
    assert hooked(replace(first, launched_in_episode=1)).refused == 0
    assert hooked(replace(first, rehearsed=True)).refused == 0


def test_what_was_cleaned_tidied_and_waited_for_is_not_begun_again():
    clean = ev.CleanIntended(path="/o", how="archive", to="/p")
    cleaned = fold(fold(state(Phase.CLEANING), clean, at(9.0)), ev.Cleaned(did="moved"), at(9.0))
    assert (cleaned.cleaning, cleaned.cleaned, cleaned.set_aside) == (None, True, ())
    aside = fold(state(Phase.CLEANING), replace(clean, path="/s", how=ev.ASIDE), at(9.0))
    aside = fold(aside, ev.Cleaned(did="moved"), at(9.0))
    assert (aside.cleaning, aside.cleaned, aside.set_aside) == (None, False, ("/s",))
    tidied = fold(state(Phase.CLEANING), ev.LeftoversRemoved(removed=("/x",)), at(9.0))
    assert (tidied.tidying, tidied.tidied) == (None, True)
    waits = fold(state(Phase.CLEANING, foreign_wait_s=9.0), ev.BackoffBegan(wait_s=5.0, because="b"), at(9.0))
    assert (waits.waited, waits.backoff_s, waits.foreign_wait_s, waits.phase) == (True, 5.0, 0.0, Phase.BACKOFF)
    others = fold(state(Phase.VERIFYING), ev.ForeignHolders(attempt=3, holders=(), wait_s=60.0), at(9.0))
    assert (others.foreign_wait_s, others.backoff_s, others.phase) == (60.0, 60.0, Phase.BACKOFF)
    assert others.because == "waiting for foreign holders"


def test_what_could_not_be_given_up_is_not_tried_again_while_it_is_known():
    wrote = state(Phase.RUNNING, lineage=Lineage().written(SAVED, 3))
    intended = fold(wrote, ev.PruneIntended(checkpoints=(SAVED,)), at(9.0))
    kept = fold(intended, ev.Pruned(kept=(f"{SAVED.path}: busy",)), at(9.0))
    assert (kept.pruning, kept.unprunable) == (None, {SAVED.path})
    gone = fold(replace(intended, unprunable=frozenset({"/long/gone"})), ev.Pruned(removed=(SAVED.path,)), at(9.0))
    assert (gone.unprunable, gone.lineage.known) == (frozenset(), ())
