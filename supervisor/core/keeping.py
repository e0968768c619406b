"""Care for checkpoints: which are kept no longer, which failed to load, what a trainer that chooses itself would take.

Rule 1: only complete ones that this run wrote and that are in play are given up, never the one it began from or uses.
Rule 2: what a trainer would choose by itself and supervise would not is never launched into.
Rule 3: what an attempt wrote is on record before its run comes to rest, however it comes to it.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping

from supervisor.core.events import CheckpointDemoted, CheckpointWritten, Failure, Pruned, PruneIntended
from supervisor.core.evidence import Checkpoint
from supervisor.core.kinds import Kind
from supervisor.core.lineage import NO_STEP, Choice, Found, FromCheckpoint, gained, identity, is_later
from supervisor.core.numeric import demoted_late
from supervisor.core.seen import ReadySeen, Seen
from supervisor.core.spec import Resume
from supervisor.core.state import Attempt, State

Written = tuple[CheckpointWritten | CheckpointDemoted, ...]


def to_prune(state: State, found: Found, claimed: Mapping[str, str], chosen: Checkpoint | None) -> PruneIntended | None:
    """What `resume.keep` gives up now; None where it asks for nothing, or nothing is left over.

    `chosen`: what the next launch takes; the current attempt's own, `resume.start` and --from stay too.
    """
    resume = state.spec.resume if state.spec else None
    if resume is None or resume.keep is None or state.pruning is not None:
        return None
    ours = [one for one in found if isinstance(one, Checkpoint) and _is_ours(state, one) and one.path not in claimed]
    ours.sort(key=lambda one: (one.step, one.mtime_ns, one.path))
    begun = state.attempt.checkpoint if state.attempt else None
    used = {resume.start, state.from_}
    for one in (begun, chosen, state.lineage.first):
        used |= {one.path, one.real or one.path} if one is not None else set()
    kept = ours[-resume.keep :]
    used |= {one.real or one.path for one in kept}
    over = tuple(one for one in ours[: -resume.keep] if not {one.path, one.real or one.path} & used)
    return PruneIntended(checkpoints=over) if over else None


def _is_ours(state: State, one: Checkpoint) -> bool:
    wrote = any(known.path == one.path and known.attempt is not None for known in state.lineage.known)
    is_link = one.real not in ("", one.path)
    if one.path in state.unprunable:
        return False
    return wrote and not is_link and identity(one) in state.lineage.own and not state.lineage.is_out(one)


def pruned(intended: PruneIntended, seen: Seen) -> tuple[Pruned, ...]:
    """What came of it; empty while that is not seen. The answer to another intent is none to this one."""
    return (seen.pruned[1],) if seen.pruned is not None and seen.pruned[0] == intended else ()


def may_prune(state: State) -> bool:
    """True where a full disk can be answered by giving checkpoints up."""
    resume = state.spec.resume if state.spec else None
    if resume is None or resume.keep is None:
        return False
    begun = state.attempt.checkpoint if state.attempt else None
    written = [k for k in state.lineage.known if k.attempt is not None and (begun is None or k.path != begun.path)]
    return len(written) > resume.keep


def written_meanwhile(state: State, ready: ReadySeen | None) -> Written | None:
    """Checkpoints that the attempt wrote and nobody recorded yet; None while nobody has looked."""
    attempt, spec = state.attempt, state.spec
    if attempt is None or attempt.launched_at is None or spec is None or spec.resume is None:
        return ()
    if ready is None:
        return None
    new = gained(state.lineage, ready.found, ready.claimed, final=True)
    logged = attempt.last_step
    written = (CheckpointWritten(attempt=attempt.number, checkpoint=one, logged_step=logged) for one in new)
    return (*written, *demoted_late(attempt, new))


def failed_to_load(state: State, attempt: Attempt, failure: Failure) -> tuple[CheckpointDemoted, ...]:
    """The attempt's checkpoint, where it failed to load twice in this episode."""
    checkpoint = attempt.checkpoint
    if failure.kind is not Kind.CHECKPOINT_ERROR or checkpoint is None or attempt.progressed_at is not None:
        return ()
    before = [p.attempt for p in state.past if p.kind is Kind.CHECKPOINT_ERROR and p.loaded == checkpoint.path]
    if not before:
        return ()
    because = f"it failed to load in attempt {before[-1]} and in attempt {attempt.number}"
    return (CheckpointDemoted(path=checkpoint.path, because=because),)


def would_choose(found: Found, pointer: str | None) -> str | None:
    """What a trainer takes that chooses by itself: where its pointer file leads, else the highest number, whole or
    not (as `get_last_checkpoint` of the HF Trainer does). None: nothing."""
    if pointer is not None:
        return pointer
    numbered = [one for one in found if one.step not in (None, NO_STEP)]
    return max(numbered, key=lambda one: (one.step or 0, one.path)).path if numbered else None


def chooses_otherwise(resume: Resume | None, choice: Choice, found: Found, pointer: str | None) -> str | None:
    """For `mode: auto`: why the trainer must not choose now, and what to do; None where it would choose right."""
    if resume is None or resume.mode != "auto":
        return None
    own = choice.checkpoint if isinstance(choice, FromCheckpoint) else None
    its = would_choose(found, pointer)
    if its is None or (own is not None and its in (own.path, own.real)):
        if own is None or its is not None:
            return None
        return f"resume.mode is auto, and the trainer would begin anew; supervise would take {own.path}"
    how = "by its pointer file" if pointer is not None else "by the highest number"
    ours = own.path if own is not None else "nothing"
    away = [one for one in found if _stands_in_the_way(one, own)]
    moves = "; ".join(f"mv {shlex.quote(one.path)} {shlex.quote(_aside(one.path))}" for one in away[:4])
    fix = moves if moves and pointer is None else f"let the pointer name {posixpath.basename(ours)}"
    return f"resume.mode is auto, and the trainer would take {its} {how}; supervise would take {ours}\n  next: {fix}"


def _stands_in_the_way(one: object, own: Checkpoint | None) -> bool:
    if isinstance(one, Checkpoint):
        return own is None or is_later(one, own)
    step = getattr(one, "step", None)
    return step not in (None, NO_STEP) and (own is None or step > own.step)


def _aside(path: str) -> str:
    """A name that no trainer and no glob takes for a checkpoint."""
    return posixpath.join(posixpath.dirname(path), f".{posixpath.basename(path)}.aside")
