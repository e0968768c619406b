"""What one record of the journal changes of a state, and what it leaves alone."""

from __future__ import annotations

import pytest
from changes import replace
from fake_specs import CHECKPOINTS, incident, knob

from supervisor.core import events as ev
from supervisor.core.alive import Dumped, DumpIntended
from supervisor.core.around import Notified, NotifyIntended
from supervisor.core.evidence import Checkpoint, ExitRecord, Instant, MachineId, ProcessId
from supervisor.core.fold import DUMPS_KEPT, fold
from supervisor.core.kinds import Kind
from supervisor.core.lineage import Lineage
from supervisor.core.peaks import Peaks
from supervisor.core.phases import Phase
from supervisor.core.plans import Failure, Plan
from supervisor.core.spec import Params
from supervisor.core.state import (
    ANSWERED_KEPT,
    PACES_KEPT,
    PAST_KEPT,
    TOLD_KEPT,
    Attempt,
    Past,
    Settled,
    State,
    Waiting,
)
from supervisor.core.wellbeing import Paced

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


def opened(**changes) -> ev.EpisodeOpened:
    made = ev.EpisodeOpened(request="2-b", spec=incident(), machine=HERE, rungs={}, protected_sha256="x")
    return replace(made, **changes)


def judged(failure: Failure = OOM, plan: Plan = AGAIN, number: int = 3) -> ev.Judged:
    return ev.Judged(attempt=number, failure=failure, plan=plan)


OF_ANOTHER = [
    ev.Launched(attempt=2, runner=ProcessId(9, 9)),
    ev.LaunchAbandoned(attempt=2, because="b"),
    ev.FirstProgress(attempt=2, step=1, startup_s=9.0),
    ev.CheckpointWritten(attempt=2, checkpoint=SAVED, logged_step=9),
    ev.JobEnded(attempt=2, end=ExitRecord(code=1, signal=None)),
    judged(number=2),
    ev.SignalSent(attempt=2, signal="SIGTERM", group=True),
    DumpIntended(attempt=2, why="hang"),
    Dumped(attempt=2, why="hang", path="/d"),
    ev.HeldBack(attempt=2, failure=OOM, plan=AGAIN),
]


@pytest.mark.parametrize("event", OF_ANOTHER, ids=lambda one: type(one).__name__)
def test_a_record_of_another_attempt_changes_nothing_of_this_one(event):
    before = state()
    assert fold(before, event, at(9.0)) == before
    none = state(attempt=None)
    assert fold(none, event, at(9.0)) == none


def test_a_record_with_no_row_in_this_phase_changes_no_phase_and_one_with_a_row_says_since_when():
    assert fold(state(), ev.BackoffOver(), at(9.0)).phase is Phase.RUNNING
    told = fold(state(Phase.BACKOFF), ev.BackoffOver(), at(9.0))
    assert (told.phase, told.entered, told.verify_from) == (Phase.VERIFYING, at(9.0), at(9.0))
    assert fold(state(), ev.BackoffOver(), at(9.0)).entered == at(2.0)


# ── what is kept has a cap, and the newest stay ──


def test_the_newest_of_what_was_answered_told_judged_and_paced_stay():
    answered = tuple(f"{n}" for n in range(ANSWERED_KEPT))
    after = fold(state(answered=answered), ev.Answered(request="new", verb="up", exit=0, text=""), at(9.0))
    assert after.answered == (*answered[1:], "new")
    told = tuple((f"{n}", 0.0) for n in range(TOLD_KEPT))
    after = fold(state(told=told), NotifyIntended(key="new", on="failed", title="", text=""), at(9.0))
    assert after.told == (*told[1:], ("new", 1_009.0))
    past = Past(attempt=1, kind=Kind.HANG, at=at(0.0), gained=False, rule="", did="relaunch", lowered=False)
    after = fold(state(past=(past,) * PAST_KEPT), judged(), at(9.0))
    assert len(after.past) == PAST_KEPT
    assert after.past[-1].kind is Kind.GPU_OOM
    paces = tuple(Paced(attempt=100 + n, steps_per_s=1.0, stride=1) for n in range(PACES_KEPT))
    after = fold(state(paces=paces), Paced(attempt=3, steps_per_s=2.0, stride=1), at(9.0))
    assert [one.attempt for one in after.paces] == [*range(101, 100 + PACES_KEPT), 3]
    dumped = tuple((f"{n}", n) for n in range(DUMPS_KEPT))
    after = fold(state(attempt=attempt(dumped=dumped)), Dumped(attempt=3, why="hang", step=7), at(9.0))
    assert after.attempt.dumped == (*dumped[1:], ("hang", 7))


def test_an_attempts_later_pace_takes_the_place_of_its_first():
    paces = (Paced(attempt=2, steps_per_s=1.0, stride=1), Paced(attempt=3, steps_per_s=1.0, stride=1))
    after = fold(state(paces=paces), Paced(attempt=3, steps_per_s=2.0, stride=1), at(9.0))
    assert [(one.attempt, one.steps_per_s) for one in after.paces] == [(2, 1.0), (3, 2.0)]


def test_a_message_is_owed_until_it_is_delivered_but_one_that_was_held_back_is_not():
    first = NotifyIntended(key="a", on="failed", title="", text="")
    owed = fold(fold(state(), first, at(9.0)), replace(first, key="b", held_back=True), at(9.0))
    assert [one.key for one in owed.untold] == ["a"]
    assert fold(owed, Notified(key="b"), at(9.0)).untold == owed.untold
    assert fold(owed, Notified(key="a"), at(9.0)).untold == ()


def test_only_the_wait_that_was_answered_is_over():
    waiting = (Waiting(request="1", verb="up"), Waiting(request="2", verb="restart"))
    after = fold(state(waiting=waiting), ev.Answered(request="1", verb="up", exit=0, text=""), at(9.0))
    assert after.waiting == waiting[1:]
    assert after.asked_to_restart
    assert not replace(after, waiting=waiting[:1]).asked_to_restart


# ── an episode ──


def test_an_episode_begins_with_nothing_of_the_one_before_but_what_outlives_it():
    """Budgets, plans, hooks and clean-ups begin anew; numbers, floors and lineage go on."""
    past = Past(attempt=1, kind=Kind.HANG, at=at(0.0), gained=False, rule="", did="relaunch", lowered=False)
    before = state(
        Phase.HALTED,
        past=(past,),
        plan=AGAIN,
        refused=6,
        waited=True,
        cleaned=True,
        tidied=True,
        rehearsed=True,
        gained_in_episode=True,
        launched_in_episode=2,
        set_aside=("/x",),
        next_command="n",
        episodes=4,
        floors={"GPU-0": 3.0},
        hooked=("before_launch:3",),
        lowered_in={"token_budget": 2, "max_batch_size": 2},
        rungs={"token_budget": 1, "max_batch_size": 2},
        lineage=replace(Lineage(), demoted_paths=frozenset({"/c"}), begun=True),
    )
    after = fold(before, opened(rungs={"token_budget": 1, "max_batch_size": 0}, from_="none"), at(9.0))
    fresh = State(run="r")
    for name in ("past", "plan", "refused", "waited", "cleaned", "tidied", "rehearsed", "gained_in_episode"):
        assert getattr(after, name) == getattr(fresh, name), name
    for name in ("launched_in_episode", "set_aside", "next_command", "hook", "hook_end", "cleaning", "tidying"):
        assert getattr(after, name) == getattr(fresh, name), name
    assert (after.phase, after.episodes, after.episode_first, after.from_) == (Phase.PREFLIGHT, 5, 4, "none")
    assert (after.floors, after.attempts_made) == ({"GPU-0": 3.0}, 3)
    assert after.hooked == ("after_stop:3",), "the attempt of another episode has no hook of this one"
    assert after.lowered_in == {"token_budget": 2}, "a knob that was moved back was not lowered any more"
    assert (after.lineage.demoted_paths, after.lineage.begun) == (frozenset(), True)
    assert after.waiting == (Waiting(request="2-b", verb="up"),)


def test_what_was_measured_stays_while_the_spec_and_its_params_stay():
    paces, peaks = (Paced(attempt=1, steps_per_s=1.0, stride=1),), (Peaks(attempt=1, rungs={}, mib={"GPU-0": 1.0}),)
    before = state(Phase.STOPPED, paces=paces, peaks=peaks)
    same = fold(before, opened(), at(9.0))
    assert (same.paces, same.peaks) == (paces, peaks)
    moved = fold(before, opened(spec=incident(workdir="/elsewhere")), at(9.0))
    assert (moved.paces, moved.peaks) == ((), peaks)
    other = fold(before, opened(spec=incident(params=Params(knobs=(knob("token_budget", "2", "1"),)))), at(9.0))
    assert (other.paces, other.peaks) == ((), ())
    assert fold(replace(before, spec=None), opened(), at(9.0)).peaks == ()


def test_the_tracking_id_is_that_of_the_first_request_for_ever():
    first = fold(State(run="r"), opened(request="1-a"), at(9.0))
    assert first.tracking_id == "1-a"
    assert fold(replace(first, phase=Phase.STOPPED), opened(), at(9.0)).tracking_id == "1-a"


def test_an_episode_that_launched_nothing_leaves_spec_and_knobs_as_at_the_last_launch():
    old = incident(workdir="/old")
    settled = Settled(spec=old, rungs={"token_budget": 2}, protected_sha256="then")
    before = state(Phase.PREFLIGHT, settled=settled, rungs={"token_budget": 0}, protected_sha256="now")
    refused = ev.PreflightRefused(exit=6, text="no room", ending=ev.Ending.STOPPED)
    after = fold(before, refused, at(9.0))
    assert (after.spec, after.rungs, after.protected_sha256) == (old, {"token_budget": 2}, "then")
    assert (after.phase, after.refused, after.because, after.plan) == (Phase.STOPPED, 6, "no room", None)
    assert fold(replace(before, settled=None), refused, at(9.0)).rungs == {}
    launched = fold(replace(before, launched_in_episode=1), refused, at(9.0))
    assert (launched.spec, launched.rungs) == (incident(), {"token_budget": 0})


def ended(ending: ev.Ending) -> ev.EpisodeEnded:
    return ev.EpisodeEnded(ending=ending, because="so", next_command="then", held=ending is ev.Ending.HALTED)


def test_an_end_says_whether_the_run_was_halted_and_a_finish_leaves_no_failure():
    before = state(Phase.CLEANING, last_failure=OOM, paused=True, plan=AGAIN, launched_in_episode=1)
    halted = fold(before, ended(ev.Ending.HALTED), at(9.0))
    assert (halted.phase, halted.was_halted, halted.held, halted.last_failure) == (Phase.HALTED, True, True, OOM)
    assert (halted.paused, halted.plan, halted.because, halted.next_command) == (False, None, "so", "then")
    finished = fold(before, ended(ev.Ending.FINISHED), at(9.0))
    assert (finished.was_halted, finished.held, finished.last_failure) == (False, False, None)
    stopped = fold(before, ended(ev.Ending.STOPPED), at(9.0))
    assert (stopped.was_halted, stopped.last_failure) == (False, OOM)
