"""Losses that are no numbers and loss scales at their floor; which checkpoints are from before. Decides no plan.

Rule 1: so many reported steps in a row (`health.numeric.steps`); a single one may be a step that was skipped.
Rule 2: a relaunch never starts from what was saved at or after the first bad step.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from supervisor.core.events import CheckpointDemoted, Failure, Plan
from supervisor.core.evidence import Checkpoint, Hit, Step
from supervisor.core.kinds import Kind
from supervisor.core.lostprogress import counted_at, stands_at
from supervisor.core.state import Attempt, State

AT_FLOOR = ("loss scale already at minimum", "inimum loss scale reached", "reducing loss scale to")
"""What trainers print whose loss scale cannot fall any more (DeepSpeed, fairseq, Apex). Apex halves its scale for
ever; the catalogue of failure texts takes that for one only where nothing is left of it."""


class Losses(Struct, frozen=True, kw_only=True):
    """What was reported. `bad` counts the newest losses in a row that are no numbers, from step `first_bad`;
    `last_good` is the last step before with a number; `floors` counts reports of a loss scale at its floor."""

    reported: int = -1
    bad: int = 0
    first_bad: int | None = None
    last_good: int | None = None
    said: str = ""
    floors: int = 0


def read(losses: Losses, steps: Sequence[Step]) -> Losses:
    """After more steps; one that reports no loss, or the loss of a step that did already, changes nothing."""
    reported, bad, first, good, said = losses.reported, losses.bad, losses.first_bad, losses.last_good, losses.said
    for step in steps:
        if step.loss is None or step.step <= reported:
            continue
        reported = step.step
        if math.isfinite(step.loss):
            bad, first, good = 0, None, step.step
        else:
            bad, first, said = bad + 1, step.step if first is None else first, str(step.loss)
    if reported == losses.reported:
        return losses
    floors = losses.floors if bad else 0
    return replace(losses, reported=reported, bad=bad, first_bad=first, last_good=good, said=said, floors=floors)


def floored(losses: Losses, hits: Sequence[Hit], last_step: int | None) -> Losses:
    """After more failure texts: those that tell of a loss scale at its floor count."""
    count = sum(1 for hit in hits if hit.kind is Kind.NUMERIC and _at_floor(hit.text))
    if not count:
        return losses
    first = losses.first_bad if losses.first_bad is not None else last_step
    return replace(losses, floors=losses.floors + count, first_bad=first)


def _at_floor(text: str) -> bool:
    return any(words in text for words in AT_FLOOR)


def bad(state: State, losses: Losses) -> Failure | None:
    """The failure that the losses tell of."""
    assert state.spec is not None
    limit = state.spec.health.numeric_steps
    if losses.bad < limit and losses.floors < limit:
        return None
    first = losses.first_bad
    if losses.bad >= limit:
        text = f"the loss is {losses.said} for {losses.bad} reported steps, first at step {first}"
    else:
        text = f"the loss scale is at its floor ({losses.floors} reports), first at step {first}"
    known = {"bad_step": first, "good_step": losses.last_good}
    return Failure(kind=Kind.NUMERIC, because=text, confidence="high", **known)  # type: ignore[arg-type]


def mended(state: State, failure: Failure, plan: Plan) -> tuple[Plan, tuple[CheckpointDemoted, ...]]:
    """The plan with what the first bad step means for it: a relaunch starts before, a halt names what to start from.

    A rule that says `from: older` wants one that a good loss was reported after, not merely none that was bad.
    """
    limit = failure.bad_step
    if limit is None:
        return plan, ()
    if plan.ending is not None:
        return _told(state, plan, limit), ()
    if plan.from_older and failure.good_step is not None:
        limit = min(limit, failure.good_step + 1)
    late = [one for one in state.lineage.known if stands_at(one) >= limit]
    because = f"saved at or after step {limit}, where the loss was no number any more"
    plan = replace(plan, from_older=False, because=f"{plan.because}, from before step {limit}")
    return plan, tuple(CheckpointDemoted(path=one.path, because=because) for one in late)


def _told(state: State, plan: Plan, limit: int) -> Plan:
    before = [one for one in state.lineage.known if 0 <= stands_at(one) < limit]
    if not before or state.spec is None:
        return plan
    newest = max(before, key=stands_at)
    return replace(plan, next_command=f"{state.spec.up_command} --from {shlex.quote(newest.path)}")


def demoted_late(attempt: Attempt, written: Sequence[Checkpoint]) -> tuple[CheckpointDemoted, ...]:
    """Of what the attempt wrote while it was ended: all that holds its bad numbers."""
    limit = attempt.failure.bad_step if attempt.failure is not None else None
    if limit is None:
        return ()
    late = (one for one in written if counted_at(one.step, attempt.last_step) >= limit)
    return tuple(CheckpointDemoted(path=one.path, because=f"saved after the bad step {limit}") for one in late)
