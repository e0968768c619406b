"""The fold: the state of a run after one more record of its journal. No decision, no clock.

Rule 1: everything that changes the state is in `fold`.
Rule 2: `fold` never refuses a record that an older version wrote; a record with no row in this phase changes no phase.
"""

from __future__ import annotations

from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core.evidence import Instant
from supervisor.core.fold_between import AFTER_STOP, OF_THE_PLAN, fold_between, key, unlaunched
from supervisor.core.kinds import Kind
from supervisor.core.peaks import ended, failed
from supervisor.core.phases import TRANSITIONS, trigger
from supervisor.core.state import (
    ANSWERED_KEPT,
    PACES_KEPT,
    PAST_KEPT,
    TOLD_KEPT,
    Attempt,
    Past,
    Settled,
    State,
    Waiting,
    send_key,
)

DUMPS_KEPT = 16


def fold(state: State, event: ev.Event, at: Instant) -> State:
    """The state after one more record, written at `at`."""
    phase = TRANSITIONS.get((state.phase, trigger(event)))
    if phase is not None:
        state = replace(state, phase=phase, entered=at)
    if isinstance(event, _OF_THE_ATTEMPT):
        return _fold_attempt(state, event, at)
    if isinstance(event, OF_THE_PLAN):
        return fold_between(state, event, at)
    return _fold_run(state, event, at)


def _fold_run(state: State, event: ev.Event, at: Instant) -> State:
    """Requests, episodes and what the run knows for all its life."""
    match event:
        case ev.Answered(request=request):
            waiting = tuple(w for w in state.waiting if w.request != request)
            return replace(state, waiting=waiting, answered=(*state.answered, request)[-ANSWERED_KEPT:])
        case ev.Accepted(request=request, verb=verb):
            return replace(state, waiting=(*state.waiting, Waiting(request=request, verb=verb)))
        case ev.EpisodeOpened():
            return _open(state, event)
        case ev.PreflightRefused(text=text, exit=code):
            return unlaunched(replace(state, because=text, plan=None, refused=code))
        case ev.PreflightPassed(roles=roles, floors=floors, code=code):
            floors = {**state.floors, **floors}
            return replace(state, roles=dict(roles), floors=floors, code=code, because="preflight passed")
        case ev.CheckpointDemoted(path=path):
            return replace(state, lineage=state.lineage.demoted(path))
        case ev.PauseSet(paused=paused):
            attempt = state.attempt if state.attempt is None else replace(state.attempt, held_back=())
            return replace(state, paused=paused, attempt=attempt, would="")
        case ev.MachineMoved(machine=machine):
            return replace(state, machine=machine, floors={}, paces=())
        case ev.Paced(attempt=number):
            others = (one for one in state.paces if one.attempt != number)
            return replace(state, paces=(*others, event)[-PACES_KEPT:])
        case ev.Foretold(what=what):
            return replace(state, foretold=(*state.foretold, what))
        case ev.NotifyIntended(key=key, held_back=held_back):
            untold = state.untold if held_back else (*state.untold, event)
            return replace(state, told=(*state.told, (key, at.wall_s))[-TOLD_KEPT:], untold=untold)
        case ev.Notified(key=key):
            return replace(state, untold=tuple(one for one in state.untold if one.key != key))
        case _:
            return state


def _open(state: State, event: ev.EpisodeOpened) -> State:
    stay = {knob: n for knob, n in state.lowered_in.items() if state.rungs.get(knob) == event.rungs.get(knob)}
    return replace(
        state,
        spec=event.spec,
        paces=state.paces if event.spec == state.spec else (),
        peaks=state.peaks if state.spec is not None and event.spec.params == state.spec.params else (),
        machine=event.machine,
        protected_sha256=event.protected_sha256,
        rungs=dict(event.rungs),
        from_=event.from_,
        tracking_id=state.tracking_id or event.request,
        episodes=state.episodes + 1,
        refused=0,
        lowered_in=stay,
        gained_in_episode=False,
        launched_in_episode=0,
        rehearsed=False,
        episode_first=state.attempts_made + 1,
        hook=None,
        hook_end=None,
        hooked=(key(AFTER_STOP, state.attempts_made),),
        past=(),
        plan=None,
        waited=False,
        cleaned=False,
        set_aside=(),
        cleaning=None,
        tidying=None,
        tidied=False,
        lineage=state.lineage.episode_opened(),
        waiting=(*state.waiting, Waiting(request=event.request, verb="up")),
        because="checking before the launch",
        next_command="",
    )


def _fold_attempt(state: State, event: ev.Event, at: Instant) -> State:
    """What happens to the current attempt. A record of another attempt changes nothing."""
    if isinstance(event, ev.LaunchIntended):
        return _intend_launch(state, event, at)
    attempt = state.attempt
    if attempt is None or attempt.number != getattr(event, "attempt", None):
        return state
    match event:
        case ev.Launched(runner=runner, leader=leader):
            began = attempt.launched_at or at
            attempt = replace(attempt, runner=runner, leader=leader or attempt.leader, launched_at=began)
            if not attempt.rehearsal:
                state = replace(state, lineage=state.lineage.taken(attempt.checkpoint))
        case ev.LaunchAbandoned():
            attempt = replace(attempt, abandoned=True)
        case ev.FirstProgress(step=step, startup_s=startup_s):
            attempt = replace(attempt, progressed_at=at, first_step=step)
            state = replace(state, because="making progress")
            if attempt.rehearsal:
                return replace(state, attempt=attempt)
            state = replace(state, lineage=state.lineage.began_at(attempt.number - state.rehearsals, step))
            longest = max(state.longest_start_s, startup_s)
            took = startup_s or state.last_start_s
            state = replace(state, longest_start_s=longest, last_start_s=took)
        case ev.CheckpointWritten(checkpoint=checkpoint) if attempt.rehearsal:
            state = replace(state, lineage=state.lineage.rejected(checkpoint))
        case ev.CheckpointWritten(checkpoint=checkpoint, logged_step=logged):
            attempt = replace(attempt, gained=attempt.gained + 1)
            past = tuple(replace(p, gained=True) if p.attempt == attempt.number else p for p in state.past)
            lineage = state.lineage.written(checkpoint, attempt.number, logged)
            state = replace(state, lineage=lineage, past=past, gained_in_episode=True)
        case ev.JobEnded(end=end, peaks=mib):
            progressed = attempt.progressed_at is not None
            mib = {} if attempt.rehearsal else mib
            peaks = ended(state.peaks, attempt.number, attempt.rungs, mib, progressed=progressed)
            state = replace(state, peaks=peaks)
            attempt = replace(_stepped(attempt, event), end=end)
        case ev.Judged():
            return _judge(state, _stepped(attempt, event), event, at)
        case ev.Degraded(failure=failure):
            attempt = replace(attempt, told=attempt.told | {held_key(failure)})
            state = replace(state, because=failure.because, last_failure=failure)
        case ev.Regained(because=because):
            attempt = replace(attempt, told=frozenset())
            state = replace(state, because=because)
        case ev.StopIntended():
            return _intend_stop(state, _stepped(attempt, event), event, at)
        case ev.SignalIntended():
            attempt = _signal(attempt, event, at)
        case ev.SignalSent(signal=signal, group=group):
            attempt = replace(attempt, sent=attempt.sent | {send_key(signal, group)})
        case ev.DumpIntended():
            attempt = replace(attempt, dumping=event, dumping_at=at)
        case ev.Dumped(why=why, step=step):
            dumped = (*attempt.dumped, (why, step))[-DUMPS_KEPT:]
            attempt = replace(attempt, dumping=None, dumping_at=None, dump=event, dumped=dumped)
        case ev.HeldBack():
            attempt = replace(attempt, held_back=(*attempt.held_back, held_key(event.failure)))
            state = replace(state, would=f"would {_deed(event.plan)}: {event.plan.because}")
        case ev.Rehearsed(steps=steps, took_s=took):
            state = replace(state, rehearsed=True, because=f"the rehearsal passed: {steps} steps in {took:.0f} s")
        case ev.Drifted():
            attempt = replace(attempt, drift=event)
        case ev.MembersGone():  # pragma: no branch - the last of _OF_THE_ATTEMPT
            attempt = replace(attempt, gone_at=at)
            state = replace(state, verify_from=at)
    return replace(state, attempt=attempt)


def held_key(failure: ev.Failure) -> str:
    """What is told once while recovery is paused."""
    return f"{failure.kind.value}:{failure.gpu}"


def _deed(plan: ev.Plan) -> str:
    return "relaunch" if plan.ending is None else "halt"


def _stepped(attempt: Attempt, event: ev.JobEnded | ev.Judged | ev.StopIntended) -> Attempt:
    first = attempt.first_step if attempt.first_step is not None else event.first_step
    last = event.last_step if event.last_step is not None else attempt.last_step
    return replace(attempt, first_step=first, last_step=last)


def _intend_launch(state: State, event: ev.LaunchIntended, at: Instant) -> State:
    attempt = Attempt(
        number=event.attempt,
        token=event.token,
        argv=event.argv,
        rungs=dict(event.rungs),
        checkpoint=event.checkpoint,
        began=at,
        ports=dict(event.ports),
        rehearsal=event.rehearsal,
    )
    spec = state.spec
    if spec is not None:
        settled = Settled(spec=spec, rungs=dict(event.rungs), protected_sha256=state.protected_sha256)
        state = replace(state, settled=settled, protected={**state.protected, **spec.params.protected})
    if event.rehearsal:
        lineage = state.lineage.rehearsing(event.present)
    else:
        lineage = state.lineage.launched(event.checkpoint, event.present)
    return replace(
        state,
        attempt=attempt,
        good=state.last_good,
        hooked=(),
        hook_end=None,
        rehearsals=state.rehearsals + event.rehearsal,
        roles=dict(event.roles) or state.roles,
        attempts_made=event.attempt,
        launched_in_episode=state.launched_in_episode + (not event.rehearsal),
        rungs=dict(event.rungs),
        lineage=lineage,
        plan=None,
        waited=False,
        cleaned=False,
        set_aside=(),
        cleaning=None,
        tidying=None,
        tidied=False,
        made_output=state.made_output or not event.output_there,
        because=event.because,
        would="",
        foretold=(),
    )


def _judge(state: State, attempt: Attempt, event: ev.Judged, at: Instant) -> State:
    loaded = attempt.checkpoint
    past = Past(
        attempt=attempt.number,
        kind=event.failure.kind,
        at=at,
        gained=attempt.gained > 0,
        rule=event.plan.rule,
        did=event.plan.do,
        lowered=bool(event.plan.lowered),
        rungs=attempt.rungs,
        gpu=event.failure.gpu,
        moved=tuple(f"{name} {old} -> {new}" for name, (old, new) in event.plan.lowered.items()),
        loaded=loaded.path if loaded and attempt.launched_at and attempt.progressed_at is None else "",
        drift=attempt.drift.words if attempt.drift is not None else "",
    )
    moved = {knob: attempt.number for knob, rung in event.plan.rungs.items() if rung != state.rungs.get(knob)}
    return replace(
        state,
        lowered_in={**state.lowered_in, **moved},
        peaks=state.peaks if attempt.rehearsal else failed(state.peaks, attempt.number, attempt.rungs, event.failure),
        attempt=replace(attempt, failure=event.failure),
        plan=event.plan,
        past=(*state.past, past)[-PAST_KEPT:] if event.failure.kind is not Kind.NONE else state.past,
        last_failure=event.failure if event.failure.kind is not Kind.NONE else state.last_failure,
        because=event.plan.because,
    )


def _intend_stop(state: State, attempt: Attempt, event: ev.StopIntended, at: Instant) -> State:
    attempt = replace(
        attempt,
        stop_at=at,
        stopped_by=attempt.stopped_by or event.by,
        grace_s=event.grace_s,
        intended=frozenset(),
        sent=frozenset(),
        signalled=frozenset(),
        kill_at=None,
        gone_at=None,
    )
    because = event.plan.because if event.plan else state.because
    return replace(state, attempt=attempt, plan=event.plan or state.plan, because=because)


def _signal(attempt: Attempt, event: ev.SignalIntended, at: Instant) -> Attempt:
    named = {(t.id.pid, t.id.start_ticks, event.signal) for t in event.targets}
    return replace(
        attempt,
        intended=attempt.intended | {send_key(event.signal, event.group)},
        signalled=attempt.signalled | named,
        kill_at=attempt.kill_at or (None if event.group else at),
    )


_OF_THE_ATTEMPT = (
    ev.LaunchIntended,
    ev.Launched,
    ev.LaunchAbandoned,
    ev.FirstProgress,
    ev.CheckpointWritten,
    ev.JobEnded,
    ev.Judged,
    ev.Degraded,
    ev.Regained,
    ev.StopIntended,
    ev.SignalIntended,
    ev.SignalSent,
    ev.MembersGone,
    ev.DumpIntended,
    ev.Dumped,
    ev.HeldBack,
    ev.Rehearsed,
    ev.Drifted,
)
