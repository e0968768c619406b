"""Lost progress, losses and what joins them with pace and trends, at their limits."""

from __future__ import annotations

import pytest
from changes import replace
from fake_specs import incident

from supervisor.core.course import Course, amiss, followed, logged_at, notes, slowed
from supervisor.core.events import Paced
from supervisor.core.evidence import Checkpoint, ExitRecord, Hit, Instant, MachineId, Reading, RoomSeen, Step
from supervisor.core.kinds import Kind
from supervisor.core.lineage import Known, Lineage
from supervisor.core.lostprogress import Stand, Start, begun, counted_at, lost, same_count, stand
from supervisor.core.numeric import Losses, bad, floored
from supervisor.core.numeric import read as losses_after
from supervisor.core.pace import Pace
from supervisor.core.phases import Phase
from supervisor.core.placing import RoleGpus
from supervisor.core.seen import Seen
from supervisor.core.state import Attempt, State
from supervisor.core.trends import Series, Trends

HERE = MachineId("b", "m", "h")
MINUTES_3 = 180.0


def at(boot_s: float) -> Instant:
    return Instant("b", boot_s, 1_000.0 + boot_s)


def state(phase: Phase = Phase.RUNNING, **changes) -> State:
    of = changes.pop("of", {})
    attempt = Attempt(
        number=2, token="t", argv=(), rungs={"k": 0}, checkpoint=None, began=at(0.0), progressed_at=at(0.0)
    )
    roles = {"all": RoleGpus((0,), (5,), ("GPU-a",))}
    return State(run="r", spec=incident(), phase=phase, attempt=replace(attempt, **of), roles=roles, **changes)


# ── lost progress ──


def where(step: int = 690, stride: int = 0, speed: float = 0.0, slack: int = 0) -> Stand:
    return Stand(step=step, stride=stride, steps_per_s=speed, slack=slack, how="by hand")


def steps(at_: Stand, *seen: tuple[int, float]) -> Start:
    return begun(Start(), [Step(number, boot_s) for number, boot_s in seen], at_)


def test_one_stride_and_the_slack_may_be_missing():
    assert steps(where(stride=10, slack=5), (675, 1.0)).done
    assert not steps(where(stride=10, slack=5), (674, 1.0)).done
    assert steps(where(slack=5), (670, 1.0), (677, 2.0)).lost == (670, 677)
    assert steps(where(slack=5), (663, 1.0), (674, 2.0)).lost is None, "its own stride is 11"


def test_a_jump_is_more_than_three_strides():
    assert steps(where(stride=10), (0, 1.0), (30, 2.0)).lost == (0, 30)
    assert steps(where(stride=10), (0, 1.0), (31, 2.0)).lost is None


def test_a_rush_is_more_than_four_times_any_pace_and_ends_after_half_an_hour():
    assert steps(where(speed=1.0), (0, 1.0), (4, 2.0)).lost == (0, 4)
    assert steps(where(speed=1.0), (0, 1.0), (5, 2.0)).lost is None
    assert steps(where(speed=1.0), (0, 1.0), (4, 1.5)).lost == (0, 4), "of one look: a second at least"
    long = [(0, 0.0), *((5 * n, float(n)) for n in range(1, 100))]
    assert steps(where(step=100_000, speed=1.0), *long).lost is None
    assert steps(where(step=100_000, speed=1.0), (0, 500.0), (9_000, 2_299.9)).lost is None
    assert steps(where(step=100_000, speed=1.0), (0, 500.0), (9_000, 2_300.0)).lost == (0, 9_000)


@pytest.mark.parametrize(
    ("name", "logged", "same"),
    [(690, 690, True), (691, 690, False), (345, 690, True), (344, 690, False), (-1, 0, False)],
)
def test_a_name_counts_the_steps_of_the_log_from_half_of_them_on(name, logged, same):
    assert same_count(name, logged) is same
    assert counted_at(name, logged) == (name if same else logged)
    assert counted_at(name, None) == name


CHECKPOINT = Checkpoint(path="/c/690", step=690, real="", inode=1, mtime_ns=int(50e9))


def resumed(logged: int | None = 690, number: int = 2, lineage: Lineage | None = None, **changes) -> State:
    known = (Known(path="/c/690", real="/c/690", step=690, attempt=1, logged=logged),)
    of = {"checkpoint": CHECKPOINT, "number": number}
    return state(of=of, lineage=lineage or Lineage(known=known), **changes)


def test_where_an_attempt_should_go_on_is_known_from_the_second_on():
    assert stand(resumed()) is not None
    assert stand(resumed(number=1)) is None
    assert stand(state()) is None
    pace = Paced(attempt=1, steps_per_s=0.5, stride=10)
    newest = replace(pace, steps_per_s=2.0)
    found = stand(resumed(logged=5_000, paces=(pace, newest)))
    assert found is not None
    assert (found.step, found.stride, found.steps_per_s, found.slack) == (5_000, 10, 2.0, 120)
    near = stand(resumed(logged=700, paces=(newest,)))
    assert near is not None
    assert (near.step, near.slack) == (690, 0)


def test_by_its_name_one_stands_unless_the_first_attempt_counted_otherwise():
    by_name = stand(resumed(logged=None))
    assert by_name is not None
    assert (by_name.step, by_name.how) == (690, "by its name of step 690")
    for began, counts in ((690, True), (689, False), (None, True)):
        first = Lineage(first=CHECKPOINT, first_began=began)
        assert (stand(resumed(logged=None, lineage=first)) is not None) is counts
    other = Lineage(first=replace(CHECKPOINT, path="/c/1"), first_began=0)
    assert stand(resumed(logged=None, lineage=other)) is not None
    nameless = replace(CHECKPOINT, step=-1)
    assert stand(state(of={"checkpoint": nameless, "number": 2})) is None
    assert stand(state(of={"checkpoint": replace(CHECKPOINT, step=0), "number": 2})) is not None


def test_that_it_began_again_is_said_unless_the_spec_wants_it_not():
    began = Start(done=True, lost=(1, 2))
    failure = lost(resumed(), began)
    assert failure is not None
    assert (failure.kind, failure.confidence) == (Kind.LOST_PROGRESS, "high")
    assert lost(resumed(), Start(done=True)) is None
    off = resumed()
    off = replace(off, spec=replace(off.spec, health=replace(off.spec.health, lost_progress="off")))
    assert lost(off, began) is None


# ── losses ──


def test_a_loss_counts_once_a_step_and_from_step_0_on():
    nan = float("nan")
    losses = losses_after(Losses(), [Step(0, 0.0, loss=nan), Step(0, 1.0, loss=nan), Step(1, 2.0)])
    assert (losses.bad, losses.first_bad, losses.reported) == (1, 0, 0)
    losses = losses_after(losses, [Step(2, 3.0, loss=float("inf")), Step(3, 4.0, loss=nan)])
    assert (losses.bad, losses.first_bad, losses.said) == (3, 0, "nan")
    failure = bad(state(), losses)
    assert failure is not None
    assert failure.because == "the loss is nan for 3 reported steps, first at step 0"
    assert bad(state(), replace(losses, bad=2)) is None
    good = losses_after(losses, [Step(4, 5.0, loss=1.0)])
    assert (good.bad, good.first_bad, good.last_good) == (0, None, 4)
    hit = Hit(signature="s", kind=Kind.NUMERIC, file="/o", line=1, offset=0, text="Minimum loss scale reached (1)")
    floors = floored(Losses(), [hit] * 3, 7)
    assert (floors.floors, floors.first_bad) == (3, 7)
    failure = bad(state(), floors)
    assert failure is not None
    assert failure.because == "the loss scale is at its floor (3 reports), first at step 7"
    assert bad(state(), replace(floors, floors=2)) is None
    assert losses_after(floors, [Step(9, 5.0, loss=1.0)]).floors == 0
    assert losses_after(floors, [Step(9, 5.0, loss=nan)]).floors == 3


# ── what joins them ──


def stretches(*speeds: float, **changes) -> Pace:
    """A pace whose last stretches had these speeds."""
    return replace(Pace(step=0, speeds=speeds, now_boot_s=10_000.0), **changes)


def follow(course: Course, boot_s: float, of: State | None = None, *, inside: bool = False, **what) -> Course:
    return followed(course, Seen(at=at(boot_s), machine=HERE, **what), of or state(), inside=inside, idle=())


def test_memory_is_followed_once_an_attempt_has_warmed_up_and_trains():
    gpus = {"GPU-a": Reading("GPU-a", 5, 0.0, 70.0, 97_000.0, None, None)}
    assert follow(Course(), 899.9, gpus=gpus).trends.gpus == {}
    assert set(follow(Course(), 900.0, gpus=gpus).trends.gpus) == {"GPU-a"}
    assert set(follow(Course(), 900.0, state(Phase.DEGRADED), gpus=gpus).trends.gpus) == {"GPU-a"}
    assert follow(Course(), 900.0, state(Phase.STOPPING), gpus=gpus).trends.gpus == {}
    assert follow(Course(), 900.0, state(of={"progressed_at": None}), gpus=gpus).trends.gpus == {}
    assert follow(Course(), 1.0, gpus=gpus).peaks == {"GPU-a": 70.0}
    assert follow(Course(), 1.0, state(Phase.STOPPING), gpus=gpus).peaks == {}
    room = RoomSeen(at_boot_s=1.0, used_mib=10.0, limit_mib=100.0, disks=(("/w", 900.0, 1_000.0),))
    assert follow(Course(), 900.0, state(of={"gained": 3}), room=room).trends.saves["/w"].gained == 3


def test_marks_are_a_second_apart():
    course = follow(Course(), 10.0, steps=(Step(5, 10.0),))
    course = follow(course, 11.0, steps=(Step(6, 10.9),))
    assert course.marks == ((10.0, 5),)
    assert follow(course, 11.0, steps=(Step(7, 11.0),)).marks == ((10.0, 5), (11.0, 7))


def test_the_step_of_a_checkpoint_is_the_last_that_was_read_before_it_was_complete():
    course = Course(last_step=9, marks=((10.0, 5), (20.0, 7), (30.0, 8)))

    def logged(complete_s: float) -> int | None:
        """When it was complete, by the wall clock, which is 1000 s ahead of the boot clock."""
        return logged_at(course, replace(CHECKPOINT, mtime_ns=int((1_000.0 + complete_s) * 1e9)), at(40.0))

    assert [logged(s) for s in (5.0, 10.0, 19.0, 20.0, 29.0, 30.0, 35.0)] == [5, 5, 5, 7, 7, 9, 9]
    assert logged_at(Course(last_step=9), CHECKPOINT, at(40.0)) == 9


def test_what_is_amiss_is_told_of_a_job_that_lives_and_noted_until_it_ends():
    losing = Course(losses=Losses(reported=8, bad=3, first_bad=6), start=Start(done=True, lost=(1, 2)))
    assert [one.kind for one in amiss(resumed(), losing)] == [Kind.LOST_PROGRESS, Kind.NUMERIC]
    assert list(amiss(resumed(), Course())) == []
    low = stretches(*(0.5,) * 10, best=1.0, low_since_boot_s=0.0)
    assert [one.kind for one in slowed(state(), Course(pace=low))] == [Kind.SLOW]
    paced = Course(pace=Pace(best=1.0))
    assert len(notes(state(), paced)) == 1
    assert notes(state(of={"end": ExitRecord(code=0, signal=None)}), paced) == ()
    assert notes(replace(state(), attempt=None), paced) == ()


def test_what_is_foretold_is_told_once():
    full = Course(trends=Trends(gpus={"GPU-a": Series(began_boot_s=0.0, low=0.0, high=0.0, full_in_s=600.4)}))
    known = Paced(attempt=2, steps_per_s=1.0, stride=1, settled=True, rungs={"k": 0})
    (told_,) = notes(state(paces=(known,)), full)
    assert (told_.what, told_.full_in_s, told_.attempt) == ("GPU 5", 600, 2)
    assert notes(state(paces=(known,), foretold=("GPU 5",)), full) == ()
