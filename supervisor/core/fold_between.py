"""The fold of what lies between two attempts, and of the end of an episode. The rest is `core/fold.py`."""

from __future__ import annotations

from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core.errors import Exit
from supervisor.core.evidence import Instant
from supervisor.core.state import State

AFTER_STOP, BEFORE_LAUNCH = "after_stop", "before_launch"
"""The hooks."""


def fold_between(state: State, event: ev.Event, at: Instant) -> State:
    """What lies between an attempt's end and the next launch, or the end of the episode."""
    match event:
        case ev.VerifiedZero(floors=floors):
            floors = {**state.floors, **floors}
            return replace(state, verify_from=None, foreign_wait_s=0.0, floors=floors)
        case ev.ForeignHolders(wait_s=wait_s):
            return replace(state, foreign_wait_s=wait_s, backoff_s=wait_s, because="waiting for foreign holders")
        case ev.NotZero(why=why):
            return replace(state, because=why)
        case ev.CleanIntended():
            return replace(state, cleaning=event)
        case ev.Cleaned():
            return _cleaned(state)
        case ev.PruneIntended():
            return replace(state, pruning=event)
        case ev.Pruned():
            return _pruned(state, event)
        case ev.LeftoversIntended():
            return replace(state, tidying=event)
        case ev.LeftoversRemoved():
            return replace(state, tidying=None, tidied=True)
        case ev.HookIntended():
            return replace(state, hook=event)
        case ev.HookEnded():
            return _hooked(state, event)
        case ev.BackoffBegan(wait_s=wait_s, because=because):
            return replace(state, waited=True, backoff_s=wait_s, foreign_wait_s=0.0, because=because)
        case ev.BackoffOver():
            return replace(state, verify_from=at)
        case ev.Planned(plan=plan):
            return replace(state, plan=plan, because=plan.because)
        case ev.EpisodeEnded():
            return _end(state, event)
        case _:  # pragma: no cover - `fold` hands over only the classes named in OF_THE_PLAN
            return state


def _cleaned(state: State) -> State:
    """A shard that was set aside says nothing about the output directory, nor about the other shards."""
    cleaning = state.cleaning
    if cleaning is not None and cleaning.how == ev.ASIDE:
        return replace(state, cleaning=None, set_aside=(*state.set_aside, cleaning.path))
    return replace(state, cleaning=None, cleaned=True)


def key(hook: str, attempt: int) -> str:
    """How a hook of an attempt is named among those that ran."""
    return f"{hook}:{attempt}"


def _hooked(state: State, event: ev.HookEnded) -> State:
    """A hook that refuses an episode's first launch answers its `up` as a preflight would."""
    said_no = event.hook == BEFORE_LAUNCH and event.code != 0
    wanted = state.plan is None or state.plan.ending is None
    refused = said_no and wanted and not state.launched_in_episode and not state.rehearsed
    return replace(
        state,
        hook=None,
        hook_end=event,
        hooked=(*state.hooked, key(event.hook, event.attempt)),
        refused=int(Exit.PREFLIGHT) if refused else state.refused,
    )


def _pruned(state: State, event: ev.Pruned) -> State:
    """What could not be removed is not tried again for as long as it is known."""
    intended = frozenset(one.path for one in state.pruning.checkpoints) if state.pruning else frozenset()
    lineage = state.lineage.pruned(event.removed)
    kept = (state.unprunable | intended) & {one.path for one in lineage.known}
    return replace(state, pruning=None, unprunable=kept, lineage=lineage)


def _end(state: State, event: ev.EpisodeEnded) -> State:
    finished = event.ending is ev.Ending.FINISHED
    return replace(
        unlaunched(state),
        plan=None,
        paused=False,
        because=event.because,
        next_command=event.next_command,
        held=event.held,
        was_halted=event.ending is ev.Ending.HALTED,
        last_failure=None if finished else state.last_failure,
    )


def unlaunched(state: State) -> State:
    """An episode that launched nothing leaves nothing to keep to: knobs and params stand as at the last launch."""
    if state.launched_in_episode:
        return state
    last = state.settled
    if last is None:
        return replace(state, rungs={})
    return replace(state, spec=last.spec, rungs=dict(last.rungs), protected_sha256=last.protected_sha256)


OF_THE_PLAN = (
    ev.PruneIntended,
    ev.Pruned,
    ev.VerifiedZero,
    ev.ForeignHolders,
    ev.NotZero,
    ev.CleanIntended,
    ev.Cleaned,
    ev.LeftoversIntended,
    ev.LeftoversRemoved,
    ev.HookIntended,
    ev.HookEnded,
    ev.BackoffBegan,
    ev.BackoffOver,
    ev.Planned,
    ev.EpisodeEnded,
)
