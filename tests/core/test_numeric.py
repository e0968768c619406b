"""Losses that are no numbers, and which checkpoints are from before."""

from __future__ import annotations

import math

import pytest
from fake_specs import incident
from msgspec.structs import replace

from supervisor.core.events import Ending, Failure, Plan
from supervisor.core.evidence import Checkpoint, Hit, Instant, Step
from supervisor.core.kinds import Kind
from supervisor.core.lineage import Known, Lineage
from supervisor.core.numeric import Losses, bad, demoted_late, floored, mended, read
from supervisor.core.state import Attempt, State

KNOWN = tuple(Known(path=f"/ck/step_{n}", real="", step=n, attempt=1, logged=n) for n in (600, 690, 700, 710))
ATTEMPT = Attempt(number=1, token="t", argv=(), rungs={}, checkpoint=None, began=Instant("b", 0.0, 0.0), last_step=712)
STATE = State(run="dflash", spec=incident(), attempt=ATTEMPT, lineage=Lineage(known=KNOWN))
RELAUNCH = Plan(ending=None, because="bad; relaunching as it was")


def losses(*values: float | None, before: Losses | None = None) -> Losses:
    first = 1 if before is None else before.reported + 1
    return read(before or Losses(), [Step(first + n, float(n), loss=loss) for n, loss in enumerate(values)])


def test_so_many_in_a_row_are_bad():
    assert bad(STATE, losses(2.0, math.nan, math.nan)) is None
    failure = bad(STATE, losses(2.0, math.nan, math.inf, math.nan))
    assert failure is not None
    assert (failure.kind, failure.bad_step, failure.good_step) == (Kind.NUMERIC, 2, 1)
    assert failure.because == "the loss is nan for 3 reported steps, first at step 2"


def test_a_number_in_between_begins_the_count_anew():
    assert bad(STATE, losses(math.nan, math.nan, 2.0, math.nan)) is None


def test_steps_without_a_loss_neither_count_nor_help():
    assert bad(STATE, losses(math.nan, None, math.nan, None, math.nan)) is not None


def test_the_same_step_told_twice_counts_once():
    once = read(Losses(), [Step(1, 0.0), Step(1, 0.0, loss=math.nan), Step(1, 0.0, loss=math.nan)])
    assert once.bad == 1
    assert read(once, [Step(1, 1.0, loss=math.nan)]) is once


def hit(text: str, kind: Kind = Kind.NUMERIC) -> Hit:
    return Hit("x", kind, "output.log", 1, 0, text)


@pytest.mark.parametrize(
    "text",
    [
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        "FloatingPointError: Minimum loss scale reached (0.0001).",
        "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 0.0",
    ],
)
def test_a_loss_scale_at_its_floor_counts_like_a_loss(text):
    seen = floored(losses(2.0), [hit(text)] * 3, 712)
    failure = bad(STATE, seen)
    assert failure is not None
    assert failure.because == "the loss scale is at its floor (3 reports), first at step 712"


def test_other_failure_texts_are_no_loss_scale():
    before = losses(2.0)
    assert floored(before, [hit("loss is nan"), hit("loss scale already at minimum", Kind.EXIT)], 5) is before


def test_a_good_loss_forgives_a_loss_scale_and_a_bad_one_keeps_its_first_step():
    low = floored(losses(2.0), [hit("loss scale already at minimum")], 5)
    assert losses(2.0, before=low).floors == 0
    ill = losses(math.nan, before=losses(2.0))
    assert floored(ill, [hit("loss scale already at minimum")], 99).first_bad == 2


def test_a_relaunch_begins_before_the_first_bad_step():
    failure = Failure(kind=Kind.NUMERIC, because="", bad_step=700, good_step=689)
    plan, demoted = mended(STATE, failure, RELAUNCH)
    assert [one.path for one in demoted] == ["/ck/step_700", "/ck/step_710"]
    assert plan.because.endswith("from before step 700")


def test_older_asks_for_one_that_a_good_loss_was_reported_after():
    failure = Failure(kind=Kind.NUMERIC, because="", bad_step=700, good_step=689)
    plan, demoted = mended(STATE, failure, replace(RELAUNCH, from_older=True))
    assert [one.path for one in demoted] == ["/ck/step_690", "/ck/step_700", "/ck/step_710"]
    assert not plan.from_older
    _, demoted = mended(STATE, replace(failure, good_step=None), replace(RELAUNCH, from_older=True))
    assert [one.path for one in demoted] == ["/ck/step_700", "/ck/step_710"]


def test_a_halt_names_what_to_start_from():
    halt = Plan(ending=Ending.HALTED, because="", next_command="look")
    failure = Failure(kind=Kind.NUMERIC, because="", bad_step=700)
    plan, demoted = mended(STATE, failure, halt)
    assert plan.next_command.endswith("--from /ck/step_690")
    assert demoted == ()
    assert mended(STATE, replace(failure, bad_step=10), halt)[0].next_command == "look"
    assert mended(replace(STATE, spec=None), failure, halt)[0].next_command == "look"


def test_other_failures_change_nothing_of_a_plan():
    assert mended(STATE, Failure(kind=Kind.EXIT, because=""), RELAUNCH) == (RELAUNCH, ())


def test_what_is_saved_while_such_a_job_is_ended_is_out_of_play():
    late = [Checkpoint(path=f"/ck/step_{n}", step=n, inode=1, mtime_ns=1) for n in (690, 712)]
    assert demoted_late(ATTEMPT, late) == ()
    ill = replace(ATTEMPT, failure=Failure(kind=Kind.NUMERIC, because="", bad_step=700))
    assert [one.path for one in demoted_late(ill, late)] == ["/ck/step_712"]
    assert demoted_late(replace(ATTEMPT, failure=Failure(kind=Kind.EXIT, because="")), late) == ()
