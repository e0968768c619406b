"""Hooks: the spec's own commands before a launch and after a stop. Decides when one runs and what follows from it.

Rule 1: they run where nothing else of the run does: after the GPUs were verified, before a launch or the end.
Rule 2: one that was begun is ended before anything else is decided. One whose supervisor was killed is ended and run
again: a hook must bear to be run twice.
"""

from __future__ import annotations

from supervisor.core import events as ev
from supervisor.core.fold_between import AFTER_STOP, BEFORE_LAUNCH, key
from supervisor.core.render import Placement, placed, placement_of, render
from supervisor.core.seen import Hook, ReadySeen, Seen
from supervisor.core.spec import RunSpec
from supervisor.core.state import State

Events = tuple[ev.Event, ...]


def running(state: State, seen: Seen) -> Events | None:
    """The end of the hook that runs; empty while it is waited for; None where none runs."""
    if state.hook is None:
        return None
    end = seen.hook
    if end is None or key(end.hook, end.attempt) != key(state.hook.hook, state.hook.attempt):
        return ()
    return (end, ev.Warned(text=f"{end.words}; what was to follow goes on")) if _only_told(end) else (end,)


def _only_told(end: ev.HookEnded) -> bool:
    return end.code != 0 and end.hook == AFTER_STOP


def after_stop(state: State, ready: ReadySeen | None) -> Events | None:
    """The hook after the attempt that has just ended; empty while nobody has looked; None where none is due."""
    attempt, spec = state.attempt, state.spec
    assert spec is not None
    if spec.hooks is None or not spec.hooks.after_stop:
        return None
    if attempt is None or attempt.launched_at is None or key(AFTER_STOP, attempt.number) in state.hooked:
        return None
    if ready is None:
        return ()
    folder = f"{ready.attempt_dir.rpartition('/')[0]}/{attempt.number:04}"
    place = placement_of(state, attempt, folder, ready.run_dir)
    return (_intended(spec, AFTER_STOP, place, attempt.token),)


def before_launch(state: State, place: Placement, token: str) -> Events:
    """The hook before the launch that is about to be made; empty where none is due."""
    spec = state.spec
    assert spec is not None
    if spec.hooks is None or not spec.hooks.before_launch or key(BEFORE_LAUNCH, place.attempt) in state.hooked:
        return ()
    return (_intended(spec, BEFORE_LAUNCH, place, token),)


def refused(state: State, attempt: int) -> str:
    """Why the launch may not be made, as its hook says; empty where it may."""
    end = state.hook_end
    if end is None or end.code == 0 or key(end.hook, end.attempt) != key(BEFORE_LAUNCH, attempt):
        return ""
    return f"{end.words}; nothing was launched"


def order(state: State) -> Hook:
    """What the hook that is to run asks for: it, or its end where the user does not want what it prepares."""
    assert state.hook is not None
    assert state.spec is not None
    timeout_s = state.spec.hooks.timeout_s if state.spec.hooks is not None else 0.0
    ending = state.plan is not None and state.plan.ending is not None
    return Hook(hook=state.hook, timeout_s=timeout_s, stop=ending and state.hook.hook == BEFORE_LAUNCH)


def _intended(spec: RunSpec, hook: str, place: Placement, token: str) -> ev.HookIntended:
    filled = placed(spec, place).hooks
    assert filled is not None
    argv = filled.after_stop if hook == AFTER_STOP else filled.before_launch
    return ev.HookIntended(attempt=place.attempt, hook=hook, argv=argv, token=token, env=render(spec, place).env)
