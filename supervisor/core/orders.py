"""Orders: what the state asks to be done. A restarted supervisor orders the same thing: there is no recovery code."""

from __future__ import annotations

from supervisor.core import seen as see
from supervisor.core.events import Target
from supervisor.core.evidence import Member
from supervisor.core.hooks import order as hook_order
from supervisor.core.phases import Phase
from supervisor.core.seen import Seen
from supervisor.core.stall import is_quiet
from supervisor.core.state import KILL, State, send_key
from supervisor.core.stopping import ASK_HOLDERS_AFTER_S, group_of, to_kill
from supervisor.core.verdicts import elapsed_s
from supervisor.core.watch import Watch


def order(state: State, watch: Watch, seen: Seen) -> see.Order:
    """What is to be so now. Every order may be given again."""
    match state.phase:
        case Phase.PREFLIGHT:
            assert state.spec is not None
            return see.CheckFit(spec=state.spec, from_=state.from_, rungs=state.rungs)
        case Phase.STARTING | Phase.RUNNING | Phase.DEGRADED:
            assert state.attempt is not None
            if state.attempt.launched_at is None:
                return see.Launch(attempt=state.attempt.number)
            return see.Follow(
                attempt=state.attempt.number,
                processes=watch.asks_processes,
                dump=state.attempt.dumping,
                quiet=is_quiet(state, watch, seen),
                prune=state.pruning,
            )
        case Phase.STOPPING:
            return _stop(state, seen)
        case Phase.VERIFYING:
            return _verify(state, seen)
        case Phase.CLEANING:
            if state.hook is not None:
                return hook_order(state)
            if state.pruning is not None and not state.is_ending:
                return see.Prune(prune=state.pruning)
            if state.tidying is not None:
                return see.Tidy(leftovers=state.tidying.leftovers)
            if state.cleaning is not None:
                return see.Clean(path=state.cleaning.path, how=state.cleaning.how, to=state.cleaning.to)
            return see.GetReady(attempt=state.attempts_made + 1)
        case Phase.BACKOFF:
            return see.Wait(readings=state.foreign_wait_s > 0)
        case _:
            return see.Rest()


def _verify(state: State, seen: Seen) -> see.Verify:
    assert state.verify_from is not None
    waited = elapsed_s(seen.at, state.verify_from) if seen.at.boot_id else 0.0
    return see.Verify(attempt=state.attempts_made, holders=waited >= ASK_HOLDERS_AFTER_S)


def _stop(state: State, seen: Seen) -> see.Stop:
    """Send what was intended and is not known to be sent; KILL as long as anyone is left to get it."""
    attempt, members, spec = state.attempt, seen.members, state.spec
    assert attempt is not None
    assert spec is not None
    abandon = attempt.launched_at is None
    if members is None:
        return see.Stop(attempt=attempt.number, abandon=abandon)
    stop_signal = spec.recovery.stop_signal
    key = send_key(stop_signal, True)
    if key in attempt.intended and key not in attempt.sent:
        targets = _targets(group_of(attempt, members), attempt.signalled, stop_signal)
        return see.Stop(attempt=attempt.number, send=stop_signal, group=True, targets=targets, abandon=abandon)
    targets = _targets(to_kill(state, attempt, members, seen), attempt.signalled, KILL)
    send = KILL if targets else None
    return see.Stop(attempt=attempt.number, send=send, targets=targets, abandon=abandon)


def _targets(
    members: tuple[Member, ...], signalled: frozenset[tuple[int, int, str]], signal: str
) -> tuple[Target, ...]:
    """Only those that the journal names for this signal."""
    return tuple(
        Target(id=m.id, cmdline=m.cmdline, proof=m.proof, state=m.state)
        for m in members
        if (m.id.pid, m.id.start_ticks, signal) in signalled
    )
