"""What a verb is answered in each phase, with which exit code, and which command it names next."""

from __future__ import annotations

import pytest
from changes import replace
from fake_specs import incident, knob

from supervisor.core import events as ev
from supervisor.core.answers import answer
from supervisor.core.errors import Exit
from supervisor.core.evidence import Instant, MachineId
from supervisor.core.phases import HAS_JOB, Phase
from supervisor.core.plans import By, Ending, Plan
from supervisor.core.seen import Request, Seen
from supervisor.core.spec import Params, Scalar
from supervisor.core.state import Attempt, Settled, State, Waiting
from supervisor.core.watch import begun

HERE = MachineId("b", "m", "here")
SPEC = incident()
RUNGS = {"token_budget": 1, "max_batch_size": 0}
STOPPED = Plan(ending=Ending.STOPPED, because="stopped by the user")
DOWN, UP = "supervise down r", SPEC.up_command


def at(boot_s: float) -> Instant:
    return Instant("b", boot_s, boot_s)


WATCH = replace(begun(1, at(0.0)), first_step=3, last_step=9)


def state(phase: Phase, **changes) -> State:
    attempt = Attempt(number=1, token="t", argv=(), rungs={}, checkpoint=None, began=at(0.0), launched_at=at(1.0))
    made = State(run="r", spec=SPEC, phase=phase, attempt=attempt, rungs=RUNGS, because="so", attempts_made=1)
    return replace(made, **changes)


def asked(of: State, verb: str, /, **args) -> tuple[ev.Event, ...]:
    request = Request(id="7-x", verb=verb, args=args)
    return answer(of, WATCH, Seen(at=at(9.0), machine=HERE, requests=(request,)))


def said(of: State, verb: str, /, **args) -> tuple[Exit, str]:
    *_, last = asked(of, verb, **args)
    assert isinstance(last, ev.Answered)
    assert (last.request, last.verb) == ("7-x", verb)
    return Exit(last.exit), last.text


def kinds(events) -> list[str]:
    return [type(one).__name__ for one in events]


# ── when a wait is over ──


def due(of: State, verb: str) -> tuple[Exit, str] | None:
    waiting = Waiting(request="1-a", verb=verb)
    found = answer(replace(of, waiting=(waiting,)), WATCH, Seen(at=at(9.0), machine=HERE))
    if not found:
        return None
    (one,) = found
    assert (one.request, one.verb) == ("1-a", verb)
    return Exit(one.exit), one.text


@pytest.mark.parametrize("verb", ["up", "restart"])
def test_a_launch_is_answered_once_the_runner_came_or_nothing_can_come_any_more(verb):
    for phase in HAS_JOB:
        assert due(state(phase), verb) == (Exit.OK, "r: attempt 1 is running")
    starting = state(Phase.STARTING)
    assert due(replace(starting, attempt=replace(starting.attempt, launched_at=None)), verb) is None
    for phase in (Phase.PREFLIGHT, Phase.STOPPING, Phase.VERIFYING, Phase.CLEANING, Phase.BACKOFF):
        assert due(state(phase), verb) is None
    assert due(state(Phase.FINISHED), verb) == (Exit.OK, "r: finished: so")
    assert due(state(Phase.STOPPED), verb) == (Exit.NOT_RUNNING, "r: stopped: so")
    halted = state(Phase.HALTED, next_command="supervise gpus")
    assert due(halted, verb) == (Exit.HALTED, "r: halted: so\n  next: supervise gpus")
    assert due(state(Phase.STOPPED, refused=6), verb) == (Exit.PREFLIGHT, "so")


def test_down_is_answered_at_the_end_and_says_where_somebody_still_holds_the_gpus():
    assert due(state(Phase.VERIFYING), "down") is None
    assert due(state(Phase.RUNNING), "down") is None
    assert due(state(Phase.STOPPED), "down") == (Exit.OK, "r: stopped: so")
    assert due(state(Phase.FINISHED), "down") == (Exit.OK, "r: finished: so")
    assert due(state(Phase.HALTED, held=True), "down") == (Exit.NOT_ZERO, "r: halted: so")


def test_a_request_is_taken_up_once():
    request = Request(id="7-x", verb="down")
    seen = Seen(at=at(9.0), machine=HERE, requests=(request, replace(request, id="8-y")))
    first = answer(state(Phase.STOPPED), WATCH, seen)
    assert [one.request for one in first] == ["7-x"]
    assert [one.request for one in answer(state(Phase.STOPPED, answered=("7-x",)), WATCH, seen)] == ["8-y"]
    waits = state(Phase.RUNNING, waiting=(Waiting(request="7-x", verb="down"),))
    assert [one.request for one in answer(waits, WATCH, seen) if isinstance(one, ev.Accepted)] == ["8-y"]
    assert answer(state(Phase.STOPPED, answered=("7-x", "8-y")), WATCH, seen) == ()


def test_what_cannot_be_read_or_is_not_known_is_refused_in_words():
    torn = replace(Request(id="7-x", verb="up"), problem="it is torn")
    (one,) = answer(state(Phase.STOPPED), WATCH, Seen(at=at(9.0), machine=HERE, requests=(torn,)))
    assert (one.exit, one.text) == (Exit.ERROR, "it is torn")
    assert said(state(Phase.STOPPED), "fly") == (Exit.USAGE, "no verb 'fly' is known to this version")


# ── up ──


def test_up_opens_an_episode_with_knobs_where_they_stood_and_says_so_first():
    warned, opened = asked(state(Phase.HALTED, lowered_in={"token_budget": 4}), "up", spec=SPEC)
    assert warned.text == "knobs stay where they stood: token_budget 45056, lowered in attempt 4"
    assert (opened.request, opened.spec, opened.machine, opened.rungs) == ("7-x", SPEC, HERE, RUNGS)
    assert opened.from_ is None
    both = state(Phase.HALTED, rungs={"token_budget": 1, "max_batch_size": 2}, lowered_in={"token_budget": 4})
    assert asked(both, "up", spec=SPEC)[0].text == (
        "knobs stay where they stood: token_budget 45056, lowered in attempt 4; max_batch_size 32"
    )


def test_up_moves_a_knob_that_set_names_or_whose_section_was_changed():
    for phase in (Phase.FINISHED, Phase.STOPPED, Phase.HALTED):
        (opened,) = asked(state(phase), "up", spec=SPEC, rungs={"token_budget": 2}, **{"from": "none"})
        assert (opened.rungs, opened.from_) == ({"token_budget": 2, "max_batch_size": 0}, "none")
    other = replace(SPEC, params=replace(SPEC.params, knobs=(knob("token_budget", "9", "8"), SPEC.params.knobs[1])))
    (opened,) = asked(state(Phase.STOPPED, rungs={"token_budget": 1, "max_batch_size": 0}), "up", spec=other)
    assert opened.rungs == {"token_budget": 0, "max_batch_size": 0}
    (opened,) = asked(State(run="r"), "up", spec=SPEC)
    assert opened.rungs == {"token_budget": 0, "max_batch_size": 0}


def test_up_of_a_run_whose_processes_may_be_left_is_refused():
    of = state(Phase.HALTED)
    of = replace(of, attempt=replace(of.attempt, stop_at=at(2.0)))
    assert said(of, "up", spec=SPEC) == (Exit.NOT_ZERO, "r: so.\n  next: supervise down r")


def locked() -> State:
    settled = Settled(spec=SPEC, rungs=RUNGS, protected_sha256=None)
    return state(Phase.STOPPED, settled=settled, protected=dict(SPEC.params.protected))


def test_up_with_other_protected_params_is_refused_for_the_life_of_the_run():
    changed = {"anchors": Scalar("512", "int"), "block_size": Scalar("16", "int")}
    other = replace(SPEC, params=replace(SPEC.params, protected=changed))
    code, text = said(locked(), "up", spec=other)
    assert code is Exit.CONFLICT
    assert "anchors 1024 -> 512" in text
    assert "block_size 32 -> 16" in text
    assert "They shape the training signal. To train with other values, give the spec another `name`." in text
    assert kinds(asked(replace(locked(), settled=None), "up", spec=other))[-1] == "EpisodeOpened", "it never launched"
    dropped = replace(SPEC, params=replace(SPEC.params, protected={}))
    assert said(locked(), "up", spec=dropped)[0] is Exit.CONFLICT


def test_up_of_a_run_that_goes_on_is_well_where_nothing_would_be_other():
    live = state(Phase.RUNNING)
    assert said(live, "up", spec=SPEC) == (Exit.OK, "r: already running")
    for args, what in (({"rungs": {"token_budget": 2}}, "--set"), ({"from": "none"}, "--from")):
        code, text = said(live, "up", spec=SPEC, **args)
        assert (code, text) == (Exit.CONFLICT, f"r is running: {what} needs a launch.\n  next: {DOWN}")
    code, text = said(live, "up", spec=replace(SPEC, workdir="/x", venv="/v"))
    assert code is Exit.CONFLICT
    assert text.startswith("r is running with another spec; changed: ")
    assert ", " in text
    assert text.endswith(f"\n  next: {DOWN}")
    running = replace(locked(), phase=Phase.RUNNING)
    other = replace(SPEC, params=Params(knobs=SPEC.params.knobs))
    assert "give the spec another `name`" in said(running, "up", spec=other)[1]


@pytest.mark.parametrize("ending", [Ending.STOPPED, Ending.FINISHED, Ending.HALTED])
def test_up_of_a_run_that_is_being_ended_waits_for_its_end(ending):
    of = state(Phase.STOPPING, plan=Plan(ending=ending, because="b"))
    code, text = said(of, "up", spec=SPEC)
    assert (code, text) == (Exit.CONFLICT, f"r is being ended ({ending.value}).\n  next: supervise wait r")
    again = state(Phase.STOPPING, plan=Plan(ending=None, because="b"))
    assert said(again, "up", spec=SPEC)[0] is Exit.OK


# ── down ──


@pytest.mark.parametrize("phase", HAS_JOB)
def test_down_ends_a_job_with_its_grace(phase):
    stop, accepted = asked(state(phase), "down")
    assert (stop.by, stop.grace_s, stop.first_step, stop.last_step) == (By.USER, 60.0, 3, 9)
    assert (stop.plan.ending, stop.because, stop.plan.next_command) == (Ending.STOPPED, "stopped by the user", UP)
    assert (accepted.request, accepted.verb) == ("7-x", "down")


def test_down_of_what_is_ending_or_waits_changes_what_follows():
    for phase in (Phase.STOPPING, Phase.VERIFYING, Phase.CLEANING):
        planned, _ = asked(state(phase), "down")
        assert planned.plan.ending is Ending.STOPPED
    for phase in (Phase.PREFLIGHT, Phase.BACKOFF):
        ended, accepted = asked(state(phase), "down")
        assert (ended.ending, ended.because, ended.next_command) == (Ending.STOPPED, "stopped by the user", UP)
        assert isinstance(accepted, ev.Accepted)
    waits = state(Phase.BACKOFF, foreign_wait_s=0.5)
    assert kinds(asked(waits, "down")) == ["Planned", "BackoffOver", "Accepted"], "whether they hold on is to be told"


def test_down_of_an_ended_run_looks_again_where_it_ended_with_gpus_held():
    for phase in (Phase.FINISHED, Phase.STOPPED, Phase.HALTED):
        assert said(state(phase), "down") == (Exit.OK, f"r: {phase.value}: so")
        assert kinds(asked(state(phase, held=True), "down")) == ["StopIntended", "Accepted"]
        assert said(state(phase, held=True, attempt=None), "down")[0] is Exit.OK


# ── restart, pause, resume, adopt ──


def test_restart_ends_the_job_and_asks_for_the_same_knobs_or_cuts_a_wait_short():
    for phase in HAS_JOB:
        stop, accepted = asked(state(phase), "restart")
        assert (stop.plan.ending, stop.plan.because, stop.plan.rungs) == (None, "restarted by the user", RUNGS)
        assert isinstance(accepted, ev.Accepted)
    for phase in (Phase.BACKOFF, Phase.VERIFYING, Phase.STOPPING, Phase.CLEANING, Phase.PREFLIGHT):
        assert kinds(asked(state(phase), "restart")) == ["Accepted"]
    for phase in (Phase.FINISHED, Phase.STOPPED, Phase.HALTED):
        assert said(state(phase), "restart") == (Exit.NOT_RUNNING, f"r: the run is not running.\n  next: {UP}")
    assert said(state(Phase.STOPPING, plan=STOPPED), "restart") == (
        Exit.CONFLICT,
        f"r is being stopped.\n  next: {UP}",
    )
    halting = replace(STOPPED, ending=Ending.HALTED)
    assert kinds(asked(state(Phase.STOPPING, plan=halting), "restart")) == ["Accepted"]


def test_where_no_spec_was_ever_given_the_next_command_says_what_to_give():
    assert said(State(run="r"), "restart")[1] == "r: the run is not running.\n  next: supervise up SPEC"


def test_pause_and_resume_say_what_is_so_now():
    paused, _ = asked(state(Phase.RUNNING), "pause")
    assert paused.paused
    assert said(state(Phase.RUNNING), "pause") == (Exit.OK, "r: recovery is paused; next: supervise resume r")
    resumed, _ = asked(state(Phase.RUNNING), "resume")
    assert not resumed.paused
    assert said(state(Phase.RUNNING), "resume") == (Exit.OK, "r: recovery is on")
    for verb in ("pause", "resume"):
        assert said(state(Phase.HALTED), verb) == (Exit.NOT_RUNNING, f"r: the run is not running.\n  next: {UP}")


def test_adopt_moves_a_run_to_this_machine_only_where_it_is_said():
    assert said(state(Phase.STOPPED), "adopt") == (Exit.OK, "r: stopped")
    assert kinds(asked(state(Phase.STOPPED), "adopt")) == ["Answered"]
    moved, _ = asked(state(Phase.STOPPED), "adopt", here=True)
    assert moved.machine == HERE
    assert said(state(Phase.STOPPED), "adopt", here=True) == (Exit.OK, "r: belongs to here now")
    there = MachineId("c", "n", "there")
    assert said(state(Phase.STOPPED), "adopt", here=True, machine=there)[1] == "r: belongs to there now"
