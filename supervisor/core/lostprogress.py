"""Whether a relaunched attempt goes on where its checkpoint stood, or began again. What follows is not decided here.

Rule 1: the checkpoint stands where the log stood when it became complete; its name counts only where this run never
saw it written, or where name and log count the same steps.
Rule 2: two steps that follow each other as steps do are evidence; a jump or a rush of a resumed bar is none.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from supervisor.core.events import Failure
from supervisor.core.evidence import Step
from supervisor.core.kinds import Kind
from supervisor.core.lineage import Known
from supervisor.core.state import State

JUMP = 3
"""A step so many strides after the one before is a jump: a bar that begins at 0 and is then set to where it stands."""

RUSH = 4.0
"""Steps so many times faster than any attempt made them are batches that are skipped."""

RUSH_S = 1800.0
"""A rush that lasts so long is the attempt's pace."""

LOOK_S = 1.0
"""Steps of one look were read at one time: they may be this far apart."""

LATE_S = 60.0
"""A checkpoint that is written beside the training is complete this much later than where it stands."""


class Start(Struct, frozen=True, kw_only=True):
    """The first steps of an attempt, as far as they tell. `done`: they have told; `lost`: the two that were too low."""

    step: int | None = None
    boot_s: float = 0.0
    first_boot_s: float = 0.0
    done: bool = False
    lost: tuple[int, int] | None = None


class Stand(Struct, frozen=True, kw_only=True):
    """Where an attempt should go on. `stride` 0 and `steps_per_s` 0: not known; `slack`: what may be missing beside
    one stride."""

    step: int
    stride: int
    steps_per_s: float
    slack: int
    how: str


def counted_at(name: int, logged: int | None) -> int:
    """Where a checkpoint stands in the steps that the log counts; -1: nowhere.

    One written beside the training is complete later than where it stands: then its name is nearer the truth. A name
    that counts something else (epochs, samples) is nowhere near what was logged.
    """
    if logged is None:
        return name
    return name if same_count(name, logged) else logged


def same_count(name: int, logged: int) -> bool:
    """True where the number in a checkpoint's name counts the steps of the log."""
    return name >= 0 and logged // 2 <= name <= logged


def stand(state: State) -> Stand | None:
    """Where the current attempt should go on; None where nothing is to be compared."""
    attempt = state.attempt
    if attempt is None or attempt.checkpoint is None or attempt.number < 2:
        return None
    checkpoint = attempt.checkpoint
    known = next((one for one in state.lineage.known if one.path == checkpoint.path), None)
    logged = known.logged if known is not None else None
    pace = state.paces[-1] if state.paces else None
    stride, speed = (pace.stride, pace.steps_per_s) if pace is not None else (0, 0.0)
    if logged is None:
        return _by_name(state, checkpoint.path, checkpoint.step, stride, speed)
    step = counted_at(checkpoint.step, logged)
    late = 0 if same_count(checkpoint.step, logged) else int(LATE_S * speed)
    return Stand(step=step, stride=stride, steps_per_s=speed, slack=late, how=f"complete at step {step}")


def _by_name(state: State, path: str, step: int, stride: int, speed: float) -> Stand | None:
    """Where the run's first attempt took the same one, its first step says whether the name counts these steps."""
    first, began = state.lineage.first, state.lineage.first_began
    counts_else = first is not None and first.path == path and began is not None and began < step
    if step < 0 or counts_else:
        return None
    return Stand(step=step, stride=stride, steps_per_s=speed, slack=0, how=f"by its name of step {step}")


def begun(start: Start, steps: Sequence[Step], at: Stand) -> Start:
    """After more growing steps."""
    for step in steps:
        if start.done:
            return start
        start = _stepped(start, step, at)
    return start


def _stepped(start: Start, step: Step, at: Stand) -> Start:
    before = start.step
    if step.step >= at.step - at.stride - at.slack:
        return replace(start, done=True)
    if before is None:
        return replace(start, step=step.step, boot_s=step.seen_boot_s, first_boot_s=step.seen_boot_s)
    grown, took = step.step - before, max(LOOK_S, step.seen_boot_s - start.boot_s)
    if step.step >= at.step - (at.stride or grown) - at.slack:
        return replace(start, done=True)
    jumps = at.stride > 0 and grown > JUMP * at.stride
    rushes = at.steps_per_s > 0 and grown / took > RUSH * at.steps_per_s
    if jumps or (rushes and step.seen_boot_s - start.first_boot_s < RUSH_S):
        return replace(start, step=step.step, boot_s=step.seen_boot_s)
    return replace(start, done=True, lost=(before, step.step))


def lost(state: State, start: Start) -> Failure | None:
    """The failure that the first steps tell of."""
    at = stand(state)
    if start.lost is None or at is None or state.spec is None or state.spec.health.lost_progress == "off":
        return None
    assert state.attempt is not None
    assert state.attempt.checkpoint is not None
    one, two = start.lost
    text = f"launched from {state.attempt.checkpoint.path}, {at.how}, and its first steps are {one} and {two}"
    return Failure(kind=Kind.LOST_PROGRESS, because=f"it began again: {text}", confidence="high")


def stands_at(known: Known) -> int:
    """Where a checkpoint of the run stands, in the steps of the log."""
    return counted_at(known.step, known.logged)
