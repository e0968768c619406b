"""What status and history say of an attempt that became slow, and of what will run full."""

from __future__ import annotations

from recorded import T0_S, entries, first_attempt, now_json, opened, second_attempt

from supervisor.core import events as ev
from supervisor.core.kinds import Kind
from supervisor.views import history, status
from supervisor.views.fold import fold
from supervisor.views.run import RunView
from supervisor.views.status import Look

SLOW = ev.Failure(kind=Kind.SLOW, because="throughput is at 50% of its own best for 10 minutes")
FULL = "GPU 5 full in 40 min at this rate"


def told(*more: ev.Event) -> RunView:
    return fold("dflash", entries([opened(), *first_attempt(), *second_attempt(), *more]))


def look(view: RunView, **now: object) -> Look:
    at_s = T0_S + 10_000
    return Look(view, {**now_json(at_s), **now}, alive=True, at_s=at_s)


def test_a_slow_run_is_degraded_until_it_is_as_fast_again():
    view = told(ev.Degraded(attempt=2, failure=SLOW))
    assert view.phase == "degraded"
    assert status.exit_code([Look(view)]) == 10
    assert "degraded: slow: throughput is at 50%" in " ".join(history.text(view, T0_S).split())
    again = told(ev.Degraded(attempt=2, failure=SLOW), ev.Regained(attempt=2, because="as fast again as it was"))
    assert again.phase == "running"
    assert status.exit_code([Look(again)]) == 0
    assert again.because == "as fast again as it was"
    assert [note[:8] for note in again.attempts[-1].notes] == ["degraded", "as fast "]


def test_what_will_run_full_is_said_while_it_is_so_and_stays_in_the_history():
    view = told(ev.Foretold(attempt=2, what="GPU 5", text=FULL, full_in_s=2400.0))
    assert FULL in " ".join(history.text(view, T0_S).split())
    shown = look(view, ahead=[FULL], less="running on 2 of 3 drafters")
    text = status.text([shown], detailed=True)
    assert FULL in text
    assert "running on 2 of 3 drafters" in text
    (run,) = status.document([shown])["runs"]
    assert (run["ahead"], run["less"]) == ([FULL], "running on 2 of 3 drafters")
    (before,) = status.document([look(told())])["runs"]
    assert (before["ahead"], before["less"]) == ([], None)


def test_a_note_of_no_attempt_changes_nothing():
    view = told(ev.Foretold(attempt=9, what="GPU 5", text=FULL, full_in_s=2400.0))
    assert view.attempts[-1].notes == ()
