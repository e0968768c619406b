"""The answers to verbs: what a request changes, and when it is answered. Decides, never prints.

Rule 1: a request is answered once; an id the journal has answered is never taken up again.
Rule 2: an answer comes when what was asked for is so, or can no longer become so.
Rule 3: `Accepted` stands behind what it accepted: killed in between, the request is simply taken up once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core.errors import Exit
from supervisor.core.evidence import MachineId
from supervisor.core.guard import changed, protected_changes, protected_sha256
from supervisor.core.phases import HAS_JOB, Phase
from supervisor.core.seen import Request, Seen
from supervisor.core.spec import RunSpec
from supervisor.core.state import State, Waiting
from supervisor.core.watch import Watch

Events = tuple[ev.Event, ...]

NOT_RUNNING = "the run is not running"


def answer(state: State, watch: Watch, seen: Seen) -> Events:
    """The records for the oldest request that is not answered yet, or for a wait that is over."""
    due = _due(state)
    if due:
        return due
    taken = {w.request for w in state.waiting}
    for request in seen.requests:
        if request.id in taken or request.id in state.answered:
            continue
        return _take_up(state, watch, seen, request)
    return ()


def _due(state: State) -> Events:
    for waiting in state.waiting:
        verdict = _is_due(state, waiting)
        if verdict is not None:
            code, text = verdict
            return (ev.Answered(request=waiting.request, verb=waiting.verb, exit=int(code), text=text),)
    return ()


def _is_due(state: State, waiting: Waiting) -> tuple[Exit, str] | None:
    attempt = state.attempt
    if waiting.verb == "down":
        return _down_is_due(state)
    if state.phase.is_end and state.refused:
        return (Exit(state.refused), state.because)
    if state.phase.is_end:
        ended = Exit.HALTED if state.phase is Phase.HALTED else Exit.NOT_RUNNING
        return (Exit.OK if state.phase is Phase.FINISHED else ended, _ended_text(state))
    if state.phase in HAS_JOB and attempt is not None and attempt.launched_at is not None:
        return (Exit.OK, f"{state.run}: attempt {attempt.number} is running")
    return None


def _down_is_due(state: State) -> tuple[Exit, str] | None:
    if not state.phase.is_end:
        return None
    return (Exit.NOT_ZERO if state.held else Exit.OK, _ended_text(state))


def _ended_text(state: State) -> str:
    text = f"{state.run}: {state.phase.value}: {state.because}"
    return f"{text}\n  next: {state.next_command}" if state.next_command else text


def _take_up(state: State, watch: Watch, seen: Seen, request: Request) -> Events:
    if request.problem is not None:
        return _say(request, Exit.ERROR, request.problem)
    match request.verb:
        case "up":
            return _up(state, seen, request)
        case "down":
            return _down(state, watch, request)
        case "restart":
            return _restart(state, watch, request)
        case "pause" | "resume":
            return _pause(state, request)
        case "adopt":
            return _adopt(state, seen, request)
        case _:
            return _say(request, Exit.USAGE, f"no verb {request.verb!r} is known to this version")


def _say(request: Request, code: Exit, text: str) -> Events:
    return (ev.Answered(request=request.id, verb=request.verb, exit=int(code), text=text),)


def _up(state: State, seen: Seen, request: Request) -> Events:
    spec: RunSpec = request.args["spec"]
    rungs: Mapping[str, int] = request.args.get("rungs") or {}
    from_ = request.args.get("from")
    if not state.phase.is_end:
        return _up_while_live(state, request, spec, rungs, from_)
    if state.may_have_left:
        return _say(request, Exit.NOT_ZERO, f"{state.run}: {state.because}.\n  next: supervise down {state.run}")
    locked = _locked_changes(state, spec)
    if locked:
        return _say(request, Exit.CONFLICT, _locked(state, locked))
    opened = ev.EpisodeOpened(
        request=request.id,
        spec=spec,
        machine=seen.machine,
        rungs=_rungs(state, spec, rungs),
        protected_sha256=protected_sha256(spec),
        from_=from_,
    )
    return (*_stand_text(state, opened), opened)


def _locked_changes(state: State, spec: RunSpec) -> tuple[str, ...]:
    """What `spec` changes of all that was ever protected in this run; a run that never launched has locked nothing."""
    if state.settled is None:
        return ()
    launched = state.settled.spec
    return protected_changes(replace(launched, params=replace(launched.params, protected=state.protected)), spec)


def _locked(state: State, locked: tuple[str, ...]) -> str:
    return (
        f"{state.run}: protected params may not change within a run: {', '.join(locked)}.\n"
        "  They shape the training signal. To train with other values, give the spec another `name`."
    )


def _rungs(state: State, spec: RunSpec, asked: Mapping[str, int]) -> dict[str, int]:
    """Knobs stay where they stood unless --set or a changed knob section moves them."""
    before = {knob.name: knob for knob in state.spec.params.knobs} if state.spec else {}
    return {
        knob.name: asked.get(knob.name, state.rungs.get(knob.name, 0) if before.get(knob.name) == knob else 0)
        for knob in spec.params.knobs
    }


def _stand_text(state: State, opened: ev.EpisodeOpened) -> Events:
    """Said aloud, and before the episode is opened: knobs that start below their first rung."""
    said: list[str] = []
    for knob in opened.spec.params.knobs:
        at = opened.rungs[knob.name]
        if at and state.rungs.get(knob.name) == at:
            values = ", ".join(f"{name} {scalar.text}" for name, scalar in knob.rungs[at].items())
            by = state.lowered_in.get(knob.name)
            said.append(f"{values}, lowered in attempt {by}" if by else values)
    return (ev.Warned(text=f"knobs stay where they stood: {'; '.join(said)}"),) if said else ()


def _up_while_live(state: State, request: Request, spec: RunSpec, rungs: Mapping[str, int], from_: Any) -> Events:
    assert state.spec is not None
    down = f"  next: supervise down {state.run}"
    ending = state.plan.ending if state.plan else None
    if ending is not None:
        text = f"{state.run} is being ended ({ending.value}).\n  next: supervise wait {state.run}"
        return _say(request, Exit.CONFLICT, text)
    if rungs or from_ is not None:
        what = "--set" if rungs else "--from"
        return _say(request, Exit.CONFLICT, f"{state.run} is running: {what} needs a launch.\n{down}")
    what_changed = changed(state.spec, spec)
    locked = _locked_changes(state, spec)
    if what_changed or locked:
        text = f"{state.run} is running with another spec; changed: {', '.join(what_changed)}.\n"
        return _say(request, Exit.CONFLICT, text + (_locked(state, locked) if locked else down))
    return _say(request, Exit.OK, f"{state.run}: already running")


def _down(state: State, watch: Watch, request: Request) -> Events:
    """The user wants the run down: whatever phase it is in leads to `stopped`, and no stop is forgotten."""
    accepted = ev.Accepted(request=request.id, verb=request.verb)
    plan = ev.Plan(ending=ev.Ending.STOPPED, because="stopped by the user", next_command=_up_again(state))
    match state.phase:
        case Phase.FINISHED | Phase.STOPPED | Phase.HALTED if state.held and state.attempt is not None:
            return (_stop_by_user(state, watch, plan), accepted)
        case Phase.FINISHED | Phase.STOPPED | Phase.HALTED:
            return _say(request, Exit.OK, _ended_text(state))
        case Phase.BACKOFF if state.foreign_wait_s > 0:  # whether they still hold the GPUs is what `down` must tell
            return (ev.Planned(plan=plan), ev.BackoffOver(), accepted)
        case Phase.PREFLIGHT | Phase.BACKOFF:
            ended = ev.EpisodeEnded(ending=ev.Ending.STOPPED, because=plan.because, next_command=plan.next_command)
            return (ended, accepted)
        case Phase.STOPPING | Phase.VERIFYING | Phase.CLEANING:
            return (ev.Planned(plan=plan), accepted)
        case _:
            return (_stop_by_user(state, watch, plan), accepted)


def _up_again(state: State) -> str:
    return state.spec.up_command if state.spec else "supervise up SPEC"


def _stop_by_user(state: State, watch: Watch, plan: ev.Plan) -> ev.StopIntended:
    assert state.attempt is not None
    assert state.spec is not None
    return ev.StopIntended(
        attempt=state.attempt.number,
        by=ev.By.USER,
        grace_s=state.spec.recovery.grace_s,
        because=plan.because,
        plan=plan,
        first_step=watch.first_step,
        last_step=watch.last_step,
    )


def _restart(state: State, watch: Watch, request: Request) -> Events:
    if state.phase.is_end:
        return _say(request, Exit.NOT_RUNNING, f"{state.run}: {NOT_RUNNING}.\n  next: {_up_again(state)}")
    if state.plan is not None and state.plan.ending is ev.Ending.STOPPED:
        return _say(request, Exit.CONFLICT, f"{state.run} is being stopped.\n  next: {_up_again(state)}")
    accepted = ev.Accepted(request=request.id, verb=request.verb)
    if state.phase in HAS_JOB:
        plan = ev.Plan(ending=None, because="restarted by the user", rungs=dict(state.rungs))
        return (_stop_by_user(state, watch, plan), accepted)
    return (accepted,)


def _pause(state: State, request: Request) -> Events:
    if state.phase.is_end:
        return _say(request, Exit.NOT_RUNNING, f"{state.run}: {NOT_RUNNING}.\n  next: {_up_again(state)}")
    paused = request.verb == "pause"
    if paused:
        text = f"{state.run}: recovery is paused; next: supervise resume {state.run}"
    else:
        text = f"{state.run}: recovery is on"
    return (ev.PauseSet(paused=paused), *_say(request, Exit.OK, text))


def _adopt(state: State, seen: Seen, request: Request) -> Events:
    if not request.args.get("here"):
        return _say(request, Exit.OK, f"{state.run}: {state.phase.value}")
    machine: MachineId = request.args.get("machine") or seen.machine
    moved = ev.MachineMoved(machine=machine)
    return (moved, *_say(request, Exit.OK, f"{state.run}: belongs to {machine.host} now"))
