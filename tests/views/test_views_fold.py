"""What people see agrees with what the supervisor acts on, and follows from the records alone."""

from __future__ import annotations

import pytest
import recorded
from msgspec.structs import replace
from recorded import T0_S, entries

from supervisor.core import events as ev
from supervisor.core import phases
from supervisor.core.scalars import typed
from supervisor.core.spec import Scalar
from supervisor.views import fold as folding
from supervisor.views import words
from supervisor.views.fold import fold
from supervisor.views.run import Entry, next_phase


def test_the_phases_that_people_see_are_those_of_the_one_transition_table():
    triggers = {by for _, by in phases.TRANSITIONS} | set(ev.EVENT_TYPES)
    for phase in phases.Phase:
        for by in triggers:
            expected = phases.TRANSITIONS.get((phase, by), phase)
            assert next_phase(phase.value, by) == expected.value, (phase, by)


def test_every_record_that_is_folded_is_a_record_of_the_journal():
    assert set(folding._CHANGES) <= set(ev.EVENT_TYPES)


@pytest.mark.parametrize("text", ["1024", "0x10", "1e-4", "true", "null", "no", "012", "-5", "1.50", ".5"])
def test_a_value_for_json_is_the_value_that_the_core_compares(text):
    scalar = typed(text)
    assert words.value_of(scalar.text, scalar.tag) == scalar.value


@pytest.mark.parametrize("text", [".nan", "-.inf"])
def test_a_number_that_json_does_not_have_stays_text(text):
    assert words.value_of(text, "float") == text
    assert Scalar(text, "float").value != text


def test_an_attempt_without_progress_has_no_step_yet():
    view = fold("d", entries(recorded.first_attempt()))
    assert view.step == 712
    assert fold("d", entries(recorded.first_attempt() + recorded.second_attempt()[:2])).step is None


def test_a_run_without_records_was_never_launched():
    view = fold("x", [])
    assert (view.phase, view.wanted, view.because, view.is_open) == ("stopped", "down", "never launched", False)


def test_the_night_of_the_incident():
    view = fold("dflash", entries(recorded.first_attempt() + recorded.second_attempt()))
    assert (view.phase, view.wanted, view.restarts, view.step) == ("running", "up", 1, 711)
    assert view.knobs == {"token_budget": 45056, "max_batch_size": 48}
    assert view.protected == {"anchors": 1024, "layers": [1, 2]}
    first, second = view.attempts
    assert (first.first_step, first.last_step, second.first_step) == (691, 712, 711)
    assert second.changed == {"token_budget": (49152, 45056), "max_batch_size": (64, 48)}
    assert view.last_failure["kind"] == "gpu_oom"
    assert view.warnings == ("notify is not built yet, without effect", "persistence mode is off")


def test_a_process_that_got_two_signals_was_stopped_once():
    (first,) = fold("dflash", entries(recorded.first_attempt())).attempts
    assert [(each["pid"], each["by"]) for each in first.stopped] == [(4002, "policy")]


def test_the_start_is_when_the_runner_first_held_the_claim():
    (first,) = fold("dflash", entries(recorded.first_attempt())).attempts
    assert first.started_s == T0_S + 50.0
    assert first.leader == 4001


def test_the_last_failure_stays_until_finished():
    so_far = recorded.first_attempt() + recorded.second_attempt()
    assert fold("d", entries(so_far + recorded.user_stop())).last_failure["kind"] == "gpu_oom"
    assert fold("d", entries(so_far + recorded.finish())).last_failure is None


def test_a_new_episode_counts_its_restarts_anew_and_numbers_go_on():
    so_far = recorded.first_attempt() + recorded.second_attempt() + recorded.user_stop()
    again = [recorded.opened(), ev.PreflightPassed(), recorded.launch(3, 1, recorded.STEP_710, "up")]
    view = fold("dflash", entries(so_far + again))
    assert (view.restarts, view.attempts[-1].number, view.phase, view.ended_s) == (0, 3, "starting", None)


def test_the_first_reading_of_a_new_episode_says_nothing_about_the_attempt_before():
    so_far = recorded.first_attempt() + recorded.second_attempt() + recorded.user_stop()
    zero = ev.VerifiedZero(attempt=2, waited_s=99.0, used_mib=(1.0,))
    view = fold("dflash", entries([*so_far, recorded.opened(), zero]))
    assert view.attempts[-1].verified["waited_s"] == 2.0


def test_a_refused_up_leaves_the_run_down_and_says_why():
    view = fold("dflash", entries([recorded.opened(), ev.PreflightRefused(exit=6, text="GPU 9 does not exist")]))
    assert (view.phase, view.wanted, view.because, view.is_open) == ("stopped", "down", "GPU 9 does not exist", False)


def test_an_accepted_down_is_wanted_down_at_once():
    view = fold("d", entries([*recorded.first_attempt(), ev.Accepted(request="r", verb="down")]))
    assert view.wanted == "down"


def test_a_degraded_run_says_what_it_lacks():
    so_far = recorded.first_attempt() + recorded.second_attempt()
    view = fold("d", entries([*so_far, ev.Degraded(attempt=2, failure=recorded.OOM)]))
    assert (view.phase, view.because) == ("degraded", recorded.OOM.because)


def test_a_plan_changed_by_the_user_is_the_one_that_counts():
    stopped = ev.Plan(ending=ev.Ending.STOPPED, because="down")
    view = fold("d", entries([*recorded.first_attempt(), ev.Planned(plan=stopped)]))
    assert view.attempts[-1].plan["ending"] == "stopped"
    assert view.wanted == "down"


def test_a_record_of_a_later_version_changes_nothing():
    base = entries(recorded.first_attempt())
    assert fold("d", [*base, Entry("Teleported", base[-1].wall_s, {"attempt": 1})]) == fold("d", base)


def test_pause_is_a_flag_beside_the_phase_and_ends_with_the_episode():
    so_far = [*recorded.first_attempt(), *recorded.second_attempt(), ev.PauseSet(paused=True)]
    assert fold("d", entries(so_far)).paused
    assert not fold("d", entries(so_far + recorded.user_stop())).paused


def test_an_abandoned_launch_has_ended():
    events = [recorded.opened(), ev.PreflightPassed(), recorded.launch(1, 0, recorded.STEP_690, "up")]
    (one,) = fold("d", entries([*events, ev.LaunchAbandoned(attempt=1, because="no pane")])).attempts
    assert (one.abandoned, one.ended_s) == ("no pane", T0_S + 30.0)


def test_a_moved_run_belongs_to_the_new_machine():
    moved = ev.MachineMoved(machine=replace(recorded.HERE, host="new"))
    assert fold("d", entries([*recorded.first_attempt(), moved])).machine["host"] == "new"
