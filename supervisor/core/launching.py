"""From the wish to run to the record that an attempt will be launched: decisions only.

Rule 1: nothing but knobs, checkpoint, ports and the attempt's own names differs between two launches of a run.
Rule 2: the checkpoint is chosen after the last process died, from what was found within seconds of the launch:
GPUs may drain for minutes, and a hook may run, between the first look and that.
"""

from __future__ import annotations

from supervisor.core import events as ev
from supervisor.core import hooks, rehearsal
from supervisor.core.codecopy import from_copy
from supervisor.core.errors import Exit
from supervisor.core.evidence import Checkpoint
from supervisor.core.guard import argv_violations
from supervisor.core.keeping import chooses_otherwise, pruned, to_prune, written_meanwhile
from supervisor.core.lineage import Asked, Choice, FromCheckpoint, NoCheckpoint, choose
from supervisor.core.render import Placement, Rendered, render
from supervisor.core.scalars import shown
from supervisor.core.seen import PreflightSeen, ReadySeen, Seen
from supervisor.core.small import small
from supervisor.core.spec import RunSpec
from supervisor.core.state import State
from supervisor.core.stepping import knob_texts

Events = tuple[ev.Event, ...]

FRESH_S = 2.0
"""What was seen of the checkpoints longer ago is looked at again before a launch is intended."""


def preflight(state: State, seen: Seen) -> Events:
    """The answer of the checks: refuse with every reason, or go on."""
    found, spec = seen.preflight, state.spec
    if found is None:
        return ()
    assert spec is not None
    problems = list(found.problems)
    choice = _chosen(state, found)
    exits = [problem.exit for problem in problems]
    texts = [problem.text for problem in problems]
    if isinstance(choice, NoCheckpoint):
        exits.append(int(choice.exit))
        texts.append(f"{choice.why}\n  next: {choice.next_command}")
    otherwise = chooses_otherwise(spec.resume, choice, found.found, found.pointer)
    if otherwise is not None:
        exits.append(int(Exit.PREFLIGHT))
        texts.append(otherwise)
    if texts:
        exit_code = int(Exit.CONFLICT) if Exit.CONFLICT in exits else exits[0]
        text = "\n".join(texts)
        ending = ev.Ending.HALTED if state.was_halted else ev.Ending.STOPPED
        return (ev.PreflightRefused(exit=exit_code, text=text, ending=ending),)
    passed = ev.PreflightPassed(
        roles=dict(found.roles), warnings=found.warnings, floors=dict(found.floors), code=found.code
    )
    return (passed,)


def _chosen(state: State, found: PreflightSeen | ReadySeen) -> Choice:
    spec = state.spec
    assert spec is not None
    first = state.launched_in_episode == 0
    asked = Asked(
        named=found.named if first else None,
        fresh=state.from_ == "none" and not state.gained_in_episode,
        start=found.start,
        older=bool(state.plan and state.plan.from_older),
        claimed=found.claimed,
        up=spec.up_command,
    )
    return choose(state.lineage, found.found, spec.resume, asked)


def cleaning(state: State, seen: Seen) -> Events:
    """Nothing runs and the GPUs are verified: end the episode, wait, clean, or launch."""
    plan, ready = state.plan, seen.ready
    hook = hooks.running(state, seen)
    if hook is not None:
        return hook
    written = written_meanwhile(state, ready)
    if written is None or written:
        return written or ()
    hook = hooks.after_stop(state, ready)
    if hook is not None:
        return hook
    if plan is not None and plan.ending is not None:
        return (_end(plan),)
    if plan is not None and plan.wait_s > 0 and not state.waited:
        return (ev.BackoffBegan(wait_s=plan.wait_s, because=plan.because),)
    if state.is_held_back:
        return (ev.BackoffBegan(wait_s=0.0, because=f"recovery is paused; next: supervise resume {state.run}"),)
    if ready is None:
        return ()
    if state.pruning is not None:
        return pruned(state.pruning, seen)
    if state.tidying is not None:
        return (seen.tidied,) if seen.tidied is not None else ()
    if ready.leftovers and not state.tidied:
        return (ev.LeftoversIntended(leftovers=ready.leftovers),)
    if state.cleaning is not None:
        done = seen.cleaned is not None and seen.cleaned_path == state.cleaning.path
        return (ev.Cleaned(did=seen.cleaned or ""),) if done else ()
    if ready.stale_how and not state.cleaned and not rehearsal.is_due(state):
        return (ev.CleanIntended(path=ready.stale_path, how=ready.stale_how, to=ready.stale_to),)
    for path, to, _why in ready.cut:
        if path not in state.set_aside:
            return (ev.CleanIntended(path=path, how=ev.ASIDE, to=to),)
    return _launch(state, ready, seen.at.boot_s)


def is_old(looked_boot_s: float | None, now_boot_s: float, *, within_s: float = FRESH_S) -> bool:
    """True where the checkpoints may be others by now than those that were seen."""
    return looked_boot_s is not None and now_boot_s - looked_boot_s > within_s


def _end(plan: ev.Plan) -> ev.EpisodeEnded:
    assert plan.ending is not None
    return ev.EpisodeEnded(ending=plan.ending, because=plan.because, next_command=plan.next_command)


def _launch(state: State, ready: ReadySeen, now_boot_s: float) -> Events:
    spec = state.spec
    assert spec is not None
    if spec.resume is not None and is_old(ready.looked_boot_s, now_boot_s):
        return ()
    if ready.problems:
        text = "\n".join(problem.text for problem in ready.problems)
        return (_halt(text, spec),)
    choice = _chosen(state, ready)
    if isinstance(choice, NoCheckpoint):
        return (ev.EpisodeEnded(ending=ev.Ending.HALTED, because=choice.why, next_command=choice.next_command),)
    otherwise = chooses_otherwise(spec.resume, choice, ready.found, ready.pointer)
    if otherwise is not None:
        return (_halt(otherwise, spec),)
    checkpoint = choice.checkpoint if isinstance(choice, FromCheckpoint) else None
    over = to_prune(state, ready.found, ready.claimed, checkpoint)
    if over is not None:
        return (over,)
    rungs = dict(state.plan.rungs) if state.plan and state.plan.rungs else dict(state.rungs)
    number = state.attempts_made + 1
    place = Placement(
        attempt=number,
        attempt_dir=ready.attempt_dir,
        run_dir=ready.run_dir,
        rungs=rungs,
        checkpoint=checkpoint,
        gpus=ready.roles,
        ports=ready.ports,
        tracking_id=state.tracking_id,
        rehearsal=rehearsal.is_due(state),
        code=state.code,
    )
    refused = hooks.refused(state, number)
    if refused:
        return (_halt(refused, spec),)
    hook = hooks.before_launch(state, place, ready.token)
    if hook:
        return hook
    rendered = render(spec, place)
    violations = argv_violations(from_copy(spec, state.code), rendered.argv)
    if violations:
        return (_halt(str(violations[0]), spec),)
    return (_intended(state, ready, place, rendered, choice.because),)


def _intended(state: State, ready: ReadySeen, place: Placement, rendered: Rendered, because: str) -> ev.LaunchIntended:
    spec = state.spec
    assert spec is not None
    shape = small(spec, place.attempt_dir) if place.rehearsal else spec
    said = f"a rehearsal first: {because}" if place.rehearsal else because
    return ev.LaunchIntended(
        attempt=place.attempt,
        argv=rendered.argv,
        rungs=dict(place.rungs),
        knobs=knob_texts(shape, dict(place.rungs)),
        protected={name: shown(value) for name, value in spec.params.protected.items()},
        checkpoint=place.checkpoint,
        token=ready.token,
        because=state.plan.because if state.plan else said,
        env=dict(rendered.env),
        present=tuple(one for one in ready.found if isinstance(one, Checkpoint)),
        ports=dict(place.ports),
        roles=dict(place.gpus),
        output_there=place.rehearsal or (ready.output_there and not ready.stale_how),
        rehearsal=place.rehearsal,
    )


def _halt(text: str, spec: RunSpec) -> ev.EpisodeEnded:
    return ev.EpisodeEnded(ending=ev.Ending.HALTED, because=text, next_command=spec.up_command)
