"""Whether a relaunched attempt goes on where its checkpoint stood."""

from __future__ import annotations

import pytest
from fake_specs import incident
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from supervisor.core.course import Course, logged_at
from supervisor.core.events import Failure, Paced
from supervisor.core.evidence import Checkpoint, Instant, Step
from supervisor.core.kinds import Kind
from supervisor.core.lineage import Known, Lineage
from supervisor.core.lostprogress import RUSH_S, Stand, Start, begun, counted_at, lost, stand
from supervisor.core.state import Attempt, State
from supervisor.core.stopping import saves_worthless

AT = Instant("boot", 100.0, 5000.0)
CHECKPOINT = Checkpoint(path="/ck/step_690", step=690, inode=1, mtime_ns=1)


def state(checkpoint: Checkpoint | None = CHECKPOINT, number: int = 2, logged: int | None = 690, **changes) -> State:
    known = (Known(path="/ck/step_690", real="/ck/step_690", step=690, attempt=1, logged=logged),)
    attempt = Attempt(number=number, token="t", argv=(), rungs={}, checkpoint=checkpoint, began=AT)
    return State(run="r", spec=incident(), attempt=attempt, **{"lineage": Lineage(known=known), **changes})


def start(at: Stand, *steps: tuple[int, float]) -> Start:
    return begun(Start(), [Step(number, boot_s) for number, boot_s in steps], at)


def where(step: int = 690, stride: int = 0, speed: float = 0.0, slack: int = 0) -> Stand:
    return Stand(step=step, stride=stride, steps_per_s=speed, slack=slack, how="")


@pytest.mark.parametrize(
    "steps",
    [
        [(691, 1.0)],
        [(690, 1.0), (691, 2.0)],
        [(670, 1.0), (681, 2.0)],  # one logging interval below
        [(0, 1.0), (691, 2.0)],  # a bar that is set to where it stands
        [(0, 1.0)],
    ],
)
def test_what_goes_on_where_it_stood_lost_nothing(steps):
    assert start(where(), *steps).lost is None


@pytest.mark.parametrize("steps", [[(1, 1.0), (2, 2.0)], [(10, 1.0), (20, 9.0), (30, 17.0)], [(500, 1.0), (501, 2.0)]])
def test_two_steps_far_below_lost_it(steps):
    assert start(where(), *steps).lost == (steps[0][0], steps[1][0])


def test_a_jump_is_no_evidence_but_two_steps_after_it_are():
    at = where(stride=1)
    assert start(at, (0, 1.0), (600, 2.0)).lost is None
    assert start(at, (0, 1.0), (100, 2.0), (101, 3.0)).lost == (100, 101)


def test_a_rush_is_no_evidence_until_it_has_lasted():
    at = where(step=10**6, stride=1, speed=0.1)
    rush = [(n, float(n)) for n in range(1, 100)]
    assert start(at, *rush).lost is None
    assert start(at, (1, 1.0), (2, 2.0), (3, 12.0)).lost == (2, 3)
    late = [(n, float(n)) for n in range(1, int(RUSH_S) + 10)]
    assert start(at, *late).lost is not None


def test_once_told_no_later_step_matters():
    kept = start(where(), (700, 1.0), (701, 2.0))
    assert kept.done
    assert begun(kept, [Step(1, 9.0)], where()) == kept


@given(
    step=st.integers(50, 10**6),
    stride=st.integers(1, 50),
    known=st.booleans(),
    after=st.integers(0, 3),
)
def test_no_trainer_that_resumes_and_logs_at_its_stride_is_ever_taken_for_lost(step, stride, known, after):
    logged = step // stride * stride
    first = logged + after * stride
    steps = [(first + n * stride, 10.0 * n) for n in range(4)]
    assert start(where(step=counted_at(step, logged), stride=stride if known else 0), *steps).lost is None


@given(step=st.integers(50, 10**6), stride=st.integers(1, 10), known=st.booleans())
def test_every_trainer_that_begins_from_nothing_is(step, stride, known):
    steps = [(stride + n * stride, 10.0 * n) for n in range(2)]
    at = where(step=step, stride=stride if known else 0)
    assert start(at, *steps).lost is not None


def test_the_name_counts_where_it_counts_the_same_steps():
    assert counted_at(690, None) == 690
    assert counted_at(690, 690) == 690
    assert counted_at(690, 720) == 690  # written beside the training
    assert counted_at(690, 680) == 680  # logged every ten
    assert counted_at(3, 690) == 690  # epochs
    assert counted_at(88_000, 690) == 690  # samples
    assert counted_at(-1, 690) == 690
    assert counted_at(-1, None) == -1


def test_nothing_is_compared_without_a_checkpoint_or_at_the_first_launch():
    assert stand(State(run="r")) is None
    assert stand(state(checkpoint=None)) is None
    assert stand(state(number=1)) is None


def test_the_stand_has_the_stride_and_speed_of_the_attempt_before():
    pace = Paced(attempt=1, steps_per_s=0.5, stride=10)
    found = stand(state(paces=(pace,)))
    assert found is not None
    assert (found.step, found.stride, found.steps_per_s, found.slack) == (690, 10, 0.5, 0)


def test_a_name_that_counts_epochs_gets_a_minute_of_slack():
    epoch = Checkpoint(path="/ck/epoch_3", step=3, inode=1, mtime_ns=1)
    known = (Known(path="/ck/epoch_3", real="", step=3, attempt=1, logged=690),)
    pace = Paced(attempt=1, steps_per_s=0.5, stride=10)
    found = stand(state(checkpoint=epoch, lineage=Lineage(known=known), paces=(pace,)))
    assert found is not None
    assert (found.step, found.slack) == (690, 30)


def test_one_that_was_never_seen_written_counts_by_its_name():
    found = stand(state(lineage=Lineage(first=CHECKPOINT, first_began=691)))
    assert found is not None
    assert found.how == "by its name of step 690"
    nameless = Checkpoint(path="/ck/last", step=-1, inode=1, mtime_ns=1)
    assert stand(state(checkpoint=nameless, lineage=Lineage())) is None


def test_a_name_that_the_first_attempt_did_not_count_by_says_nothing():
    assert stand(state(lineage=Lineage(first=CHECKPOINT, first_began=1))) is None
    assert stand(state(lineage=Lineage(first=CHECKPOINT, first_began=None))) is not None
    elsewhere = replace(CHECKPOINT, path="/other/step_5")
    assert stand(state(lineage=Lineage(first=elsewhere, first_began=1))) is not None


def test_what_is_said_of_it_and_when_nothing_is():
    low = Start(done=True, lost=(1, 2))
    failure = lost(state(), low)
    assert failure is not None
    assert failure.kind is Kind.LOST_PROGRESS
    assert "its first steps are 1 and 2" in failure.because
    assert lost(state(), Start(done=True)) is None
    assert lost(state(number=1), low) is None
    off = state()
    assert off.spec is not None
    off = replace(off, spec=replace(off.spec, health=replace(off.spec.health, lost_progress="off")))
    assert lost(off, low) is None
    assert lost(replace(off, spec=None), low) is None


def test_what_such_a_trainer_would_save_is_worthless():
    assert saves_worthless(Failure(kind=Kind.LOST_PROGRESS, because=""))
    assert saves_worthless(Failure(kind=Kind.NUMERIC, because="", bad_step=7))
    assert not saves_worthless(Failure(kind=Kind.NUMERIC, because=""))
    assert not saves_worthless(None)


def test_a_checkpoint_stands_where_the_log_stood_when_it_became_complete():
    course = Course(last_step=730, marks=((80.0, 700), (90.0, 710), (99.0, 730)))

    def at(ago_s: float) -> int | None:
        return logged_at(course, replace(CHECKPOINT, mtime_ns=int((AT.wall_s - ago_s) * 1e9)), AT)

    assert at(5.0) == 710
    assert at(0.5) == 730
    assert at(-60.0) == 730  # the file server's clock is ahead
    assert at(3600.0) == 700  # older than what is remembered
    assert logged_at(Course(last_step=3), CHECKPOINT, AT) == 3
