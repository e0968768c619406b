"""The rehearsal: a small run before the full one. When it is due and when it has passed; how it differs: `small.py`.

Rule 1: a rehearsal is an attempt like any other, with its own number, folder, claim and watch; its launch says so.
Rule 2: what the run writes to is moved into the attempt's folder, and what lands elsewhere stays out of play.
Rule 3: nothing is learned from it: no pace, no peaks, no length of a start, no lineage.
"""

from __future__ import annotations

from supervisor.core.kinds import Kind
from supervisor.core.plans import Failure
from supervisor.core.seen import Seen
from supervisor.core.state import Attempt, State
from supervisor.core.verdicts import elapsed_s
from supervisor.core.watch import Watch


def is_due(state: State) -> bool:
    """True where the next launch of this episode is a rehearsal."""
    spec = state.spec
    return spec is not None and spec.rehearsal is not None and not state.rehearsed and not state.launched_in_episode


def steps_made(attempt: Attempt, watch: Watch) -> int:
    """How many steps it has trained: reports may be ten steps apart, or fewer than its steps."""
    if watch.last_step is None:
        return watch.steps
    began = max(attempt.checkpoint.step, 0) if attempt.checkpoint is not None else 0
    return max(watch.steps, watch.last_step - began)


def has_passed(state: State, watch: Watch, seen: Seen) -> bool:
    """True once the rehearsal made its steps, and nothing speaks against it."""
    spec, attempt = state.spec, state.attempt
    assert spec is not None
    assert attempt is not None
    if spec.rehearsal is None or watch.pending or seen.violations:
        return False
    well = attempt.end is None or attempt.end.code == 0
    return well and steps_made(attempt, watch) >= spec.rehearsal.steps


def falls_short(state: State, watch: Watch, seen: Seen) -> Failure | None:
    """Why the attempt is a rehearsal that will not pass, where nothing else is wrong with it."""
    spec, attempt = state.spec, state.attempt
    assert spec is not None
    assert attempt is not None
    if not attempt.rehearsal or spec.rehearsal is None or attempt.launched_at is None:
        return None
    rules = spec.rehearsal
    made, took = steps_made(attempt, watch), elapsed_s(seen.at, attempt.launched_at)
    of = f"{made} of {rules.steps} steps"
    if attempt.end is not None and made < rules.steps:
        return Failure(kind=Kind.EXIT, because=f"the rehearsal ended after {of}", code=0, confidence="high")
    if attempt.end is None and took >= rules.within_s:
        because = f"the rehearsal made {of} in {took:.0f} s"
        return Failure(kind=Kind.STARTUP_TIMEOUT, because=because, confidence="high")
    return None
