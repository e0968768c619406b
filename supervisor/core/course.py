"""How an attempt does beside being alive: did it go on where it should, its pace, its losses, what will run full.

Joins `lostprogress`, `pace`, `numeric` and `trends`: one value to remember, one question for the verdict, one for the
records. No opinion of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from supervisor.core import lostprogress, numeric, pace, trends
from supervisor.core.events import Failure, Foretold, Paced, Regained
from supervisor.core.evidence import Checkpoint, Instant, Step, Uuid
from supervisor.core.lostprogress import Start
from supervisor.core.numeric import Losses
from supervisor.core.pace import Pace
from supervisor.core.peaks import loaded, risen
from supervisor.core.phases import HAS_JOB, Phase
from supervisor.core.seen import Seen
from supervisor.core.state import State
from supervisor.core.trends import Trends

MARKS_KEPT, MARK_S = 40, 1.0
"""When which step was read: a checkpoint is found some seconds after it became complete."""


class Course(Struct, frozen=True, kw_only=True):
    """What is remembered. `marks`: (boot_s, step), a second apart; `peaks`: MiB, the most in use by GPU; `loaded`: the
    most that each had in use while it idled before the first step."""

    last_step: int | None = None
    marks: tuple[tuple[float, int], ...] = ()
    start: Start = field(default_factory=Start)
    losses: Losses = field(default_factory=Losses)
    pace: Pace = field(default_factory=Pace)
    trends: Trends = field(default_factory=Trends)
    peaks: dict[Uuid, float] = field(default_factory=dict)
    loaded: dict[Uuid, float] = field(default_factory=dict)


def followed(course: Course, seen: Seen, state: State, *, inside: bool, idle: Collection[Uuid] = ()) -> Course:
    """After one more look. `inside`: in a phase that is no training; `idle`: GPUs that idle, and nothing failed yet."""
    if seen.steps:
        course = _stepped(course, seen.steps, state)
    if inside:
        course = replace(course, pace=pace.interrupted(course.pace, seen.at.boot_s))
    if seen.hits:
        course = replace(course, losses=numeric.floored(course.losses, seen.hits, course.last_step))
    if seen.gpus and state.phase in HAS_JOB:
        peaks = risen(course.peaks, seen.gpus)
        course = course if peaks is None else replace(course, peaks=peaks)
        if idle and course.last_step is None and state.attempt is not None and state.attempt.progressed_at is None:
            brought = loaded(course.loaded, seen.gpus, idle)
            course = course if brought is None else replace(course, loaded=brought)
    if (seen.gpus or seen.room is not None) and _is_warm(state, seen):
        found = trends.read(course.trends, seen.gpus, seen.at.boot_s)
        gained = state.attempt.gained if state.attempt is not None else 0
        found = found if seen.room is None else trends.roomed(found, seen.room, gained)
        course = course if found is course.trends else replace(course, trends=found)
    return course


def _is_warm(state: State, seen: Seen) -> bool:
    since = state.attempt.progressed_at if state.attempt is not None else None
    trains = state.phase in (Phase.RUNNING, Phase.DEGRADED)
    return trains and since is not None and seen.at.boot_s - since.boot_s >= trends.WARM_S


def _stepped(course: Course, steps: Sequence[Step], state: State) -> Course:
    losses = numeric.read(course.losses, steps)
    growing, last = [], course.last_step
    for step in steps:
        if last is None or step.step > last:
            growing.append(step)
            last = step.step
    if not growing:
        return course if losses is course.losses else replace(course, losses=losses)
    start, at = course.start, None if course.start.done else lostprogress.stand(state)
    if at is not None:
        start = lostprogress.begun(start, growing, at)
    on_its_way = at is None or start.done
    paced = pace.stepped(course.pace, growing, pace.reference(state)) if on_its_way else course.pace
    marks = course.marks
    if not marks or growing[-1].seen_boot_s - marks[-1][0] >= MARK_S:
        marks = (*marks, (growing[-1].seen_boot_s, growing[-1].step))[-MARKS_KEPT:]
    return replace(course, last_step=last, marks=marks, start=start, losses=losses, pace=paced)


def amiss(state: State, course: Course) -> Iterator[Failure]:
    """What makes it worthless that the job steps."""
    for found in (lostprogress.lost(state, course.start), numeric.bad(state, course.losses)):
        if found is not None:
            yield found


def slowed(state: State, course: Course) -> Iterator[Failure]:
    """That it steps slower than it can."""
    found = pace.slow(state, course.pace)
    if found is not None:
        yield found


def notes(state: State, course: Course) -> tuple[Paced | Regained | Foretold, ...]:
    """What is to be recorded now of an attempt that goes on."""
    attempt = state.attempt
    if attempt is None or attempt.end is not None:
        return ()
    paced = pace.told(state, attempt, course.pace)
    if paced is not None:
        return (paced,)
    indices = dict(zip(state.gpus, state.indices, strict=True))
    return tuple(
        Foretold(attempt=attempt.number, what=one.what, text=one.text, full_in_s=round(one.full_in_s))
        for one in trends.ahead(course.trends, indices)
        if one.what not in state.foretold
    )


def ahead(state: State, course: Course) -> tuple[str, ...]:
    """What will be full, in words, the soonest first."""
    indices = dict(zip(state.gpus, state.indices, strict=True))
    return tuple(one.text for one in trends.ahead(course.trends, indices))


def logged_at(course: Course, checkpoint: Checkpoint, now: Instant) -> int | None:
    """The step last logged when this checkpoint became complete, as far as that is remembered."""
    complete_boot_s = now.boot_s - (now.wall_s - checkpoint.mtime_ns / 1e9)
    before = [step for boot_s, step in course.marks if boot_s <= complete_boot_s]
    if not course.marks or complete_boot_s >= course.marks[-1][0]:
        return course.last_step
    return before[-1] if before else course.marks[0][1]
