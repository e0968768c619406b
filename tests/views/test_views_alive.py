"""What status and history say of a run that may not be well: dumps, what pause held back, how far a load is."""

from __future__ import annotations

from recorded import T0_S, entries, first_attempt, now_json, opened, second_attempt

from supervisor.core import events as ev
from supervisor.core.kinds import Kind
from supervisor.views import history, status
from supervisor.views.fold import fold
from supervisor.views.run import RunView
from supervisor.views.status import Look

HANG = ev.Failure(kind=Kind.HANG, because="no step for 10m00s after step 812")
PLAN = ev.Plan(ending=None, because="no step for 10m00s after step 812; relaunching as it was")
DUMPED = ev.Dumped(attempt=2, why="hang", step=812, path="/s/attempts/0002/dump-1-hang.txt", summary="9 processes")


def told(*more: ev.Event) -> RunView:
    return fold("dflash", entries([opened(), *first_attempt(), *second_attempt(), *more]))


def look(view: RunView, **now: object) -> Look:
    at_s = T0_S + 10_000
    return Look(view, {**now_json(at_s), **now}, alive=True, at_s=at_s)


def test_a_dump_stands_in_history_and_status():
    gone = ev.Dumped(attempt=9, why="hang", problem="of no attempt")
    view = told(ev.DumpIntended(attempt=2, why="hang", step=812), DUMPED, gone)
    assert "hang: 9 processes" in history.text(view, T0_S)
    (dump,) = history.document(view)["attempts"][1]["dumps"]
    assert (dump["why"], dump["step"], dump["path"]) == ("hang", 812, DUMPED.path)
    assert "dump-1-hang.txt" in status.text([look(view)], detailed=True)
    assert status.document([look(view)])["runs"][0]["dump"] == DUMPED.path
    assert status.document([look(told())])["runs"][0]["dump"] is None


def test_a_dump_without_an_answer_says_why():
    view = told(ev.Dumped(attempt=2, why="hang", problem="no answer within 30 s"))
    assert "hang: no answer within 30 s" in history.text(view, T0_S)


def test_what_pause_held_back_is_said_until_it_is_resumed():
    paused = told(ev.PauseSet(paused=True), ev.HeldBack(attempt=2, failure=HANG, plan=PLAN))
    assert paused.would == f"would relaunch: {PLAN.because}"
    assert "would relaunch: no step for 10m00s" in status.text([look(paused)], detailed=True)
    assert status.document([look(paused)])["runs"][0]["would"] == paused.would
    resumed = told(ev.HeldBack(attempt=2, failure=HANG, plan=PLAN), ev.PauseSet(paused=False))
    assert resumed.would == ""
    halting = ev.Plan(ending=ev.Ending.HALTED, because="spent")
    assert told(ev.HeldBack(attempt=2, failure=HANG, plan=halting)).would == "would halt: spent"


def test_how_far_a_load_is_is_said_while_it_starts():
    load = "loading shard 13 of 47, last time 22m04s"
    starting = look(told(), load=load, phase="starting")
    assert load in status.text([starting], detailed=True)
    assert status.document([starting])["runs"][0]["load"] == load
    assert status.document([look(told(), load=load)])["runs"][0]["load"] is None
