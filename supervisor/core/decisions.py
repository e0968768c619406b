"""Decisions: which records to write now, from the state, what is remembered and one look. READ AFTER `state.py`.

Rule 1: `decide` never acts. It is asked again after its records were folded, until it has nothing to say.
Rule 2: each call says one thought: records that belong together, in their order.
Rule 3: no launch without a verified zero since the last process died; see `_verifying`.
What is to be done in each state is `core/orders.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core.answers import answer
from supervisor.core.course import logged_at, notes
from supervisor.core.evidence import Reading
from supervisor.core.fold import held_key
from supervisor.core.keeping import failed_to_load, pruned, to_prune
from supervisor.core.kinds import Kind
from supervisor.core.launching import cleaning, preflight
from supervisor.core.lineage import gained
from supervisor.core.numeric import mended
from supervisor.core.phases import Phase
from supervisor.core.policy import Tell, plan_after, since_gain
from supervisor.core.rehearsal import falls_short, has_passed, steps_made
from supervisor.core.seen import Seen
from supervisor.core.stall import is_half_started, starts_too_late, with_dump
from supervisor.core.state import Attempt, State
from supervisor.core.stopping import ended_now, grace_after, stopping, verifying
from supervisor.core.verdicts import Done, Verdict, Wrong, elapsed_s, judge
from supervisor.core.watch import Watch

GONE = "checkpoint: "
"""How the problem of a launch begins whose checkpoint is not whole any more."""

CLAIM_WITHIN_S = 60.0
"""A runner that has not claimed its attempt by then will not: the claim is taken from it."""

HALF = "late start"
"""Why the processes of a job are looked at when half of its time to the first progress is over."""

DUMPED = frozenset({Kind.HANG, Kind.STARTUP_TIMEOUT})
"""Before an attempt is ended for these, it is written down what its processes were doing."""

DUMP_WITHIN_S = 30.0

Events = tuple[ev.Event, ...]


def decide(state: State, watch: Watch, seen: Seen) -> Events:
    """The records to write now; empty when there is nothing to say."""
    return answer(state, watch, seen) or _of_phase(state, watch, seen)


def _of_phase(state: State, watch: Watch, seen: Seen) -> Events:
    match state.phase:
        case Phase.PREFLIGHT:
            return preflight(state, seen)
        case Phase.CLEANING:
            return cleaning(state, seen)
        case Phase.STARTING | Phase.RUNNING | Phase.DEGRADED:
            return _with_job(state, watch, seen)
        case Phase.STOPPING:
            return stopping(state, watch, seen)
        case Phase.VERIFYING:
            return verifying(state, watch, seen)
        case Phase.BACKOFF:
            return _backoff(state, watch, seen)
        case _:
            return ()


def _with_job(state: State, watch: Watch, seen: Seen) -> Events:
    """Starting, running or degraded: notice what happened to the job, then judge it."""
    attempt = state.attempt
    assert attempt is not None
    if attempt.failure is not None and state.plan is not None:  # judged, and killed before the next record
        return (_stop(watch, attempt, ev.By.POLICY, state, state.plan, attempt.failure),)
    noticed = _noticed(state, attempt, watch, seen)
    if noticed or attempt.launched_at is None:
        return noticed
    if attempt.end is not None and seen.awaiting:  # its end is known; what it died of is still being asked
        return ()
    if attempt.rehearsal and (state.rehearsed or has_passed(state, watch, seen)):
        return _rehearsed(state, attempt, watch, seen)
    for verdict in _verdicts(state, watch, seen):
        if isinstance(verdict, Done) and attempt.rehearsal:
            return _rehearsed(state, attempt, watch, seen)
        if isinstance(verdict, Done):
            plan = ev.Plan(ending=ev.Ending.FINISHED, because=verdict.because)
            return (_stop(watch, attempt, ev.By.ITSELF, state, plan),)
        said = _wrong(state, attempt, watch, seen, verdict.failure)
        if said is None:
            return ()
        if said:
            return said
    return ()


def _verdicts(state: State, watch: Watch, seen: Seen) -> Iterator[Verdict]:
    """Those of any attempt; a rehearsal that will not pass is told last, and before its end is taken for a good one."""
    short = falls_short(state, watch, seen)
    for verdict in judge(state, watch, seen):
        yield Wrong(short) if isinstance(verdict, Done) and short is not None else verdict
    if short is not None:
        yield Wrong(short)


def _rehearsed(state: State, attempt: Attempt, watch: Watch, seen: Seen) -> Events:
    """It has passed: it is ended, and the full run follows as any relaunch does."""
    assert attempt.launched_at is not None
    made, took = steps_made(attempt, watch), elapsed_s(seen.at, attempt.launched_at)
    because = f"the rehearsal passed: {made} steps in {took:.0f} s; now the full run"
    plan = ev.Plan(ending=None, because=because, rungs=dict(state.rungs))
    said = () if state.rehearsed else (ev.Rehearsed(attempt=attempt.number, steps=made, took_s=round(took, 1)),)
    return (*said, _stop(watch, attempt, ev.By.POLICY, state, plan))


def _noticed(state: State, attempt: Attempt, watch: Watch, seen: Seen) -> Events:
    """Facts about the attempt that the journal does not say yet."""
    job = seen.job
    if job is None:
        return ()
    if attempt.launched_at is None:
        return _claimed(state, attempt, watch, seen)
    if attempt.leader is None and job.leader is not None and attempt.runner is not None:
        return (ev.Launched(attempt=attempt.number, runner=attempt.runner, leader=job.leader),)
    new = gained(state.lineage, seen.found, seen.claimed) if seen.found is not None else ()
    if new:
        logged = [logged_at(watch.course, one, seen.at) for one in new]
        return tuple(
            ev.CheckpointWritten(attempt=attempt.number, checkpoint=one, logged_step=step)
            for one, step in zip(new, logged, strict=True)
        )
    if state.phase is Phase.STARTING:
        first = _first_progress(state, attempt, watch, seen)
        if first:
            return first
    if attempt.end is None:
        dump = _dump(state, attempt, seen)
        if dump:
            return dump
    if attempt.end is None and job.exit is not None:
        return (ended_now(attempt, job.exit, watch),)
    if seen.drift is not None and attempt.drift is None and seen.drift.attempt == attempt.number:
        return (seen.drift,)
    if attempt.rehearsal:  # nothing is learned from it, and it has nothing to give up
        return ()
    return _pruning(state, attempt, seen) or notes(state, watch.course)


def _pruning(state: State, attempt: Attempt, seen: Seen) -> Events:
    """Checkpoints given up while the job trains: beside it, and before the disk is full."""
    if state.pruning is not None:
        return pruned(state.pruning, seen)
    if state.phase is Phase.STARTING or attempt.end is not None or seen.found is None:
        return ()
    over = to_prune(state, seen.found, seen.claimed, None)
    return (over,) if over is not None else ()


def _claimed(state: State, attempt: Attempt, watch: Watch, seen: Seen) -> Events:
    job = seen.job
    assert job is not None
    if job.problem is not None and job.claim != "runner":
        return _never_started(state, attempt, job.problem)
    if job.claim == "runner" and job.runner is not None:
        return (ev.Launched(attempt=attempt.number, runner=job.runner, leader=job.leader),)
    if job.claim == "supervisor":
        return _never_started(state, attempt, "the runner never came")
    # Over a reboot, or while no supervisor was there, nobody could have started a runner.
    waited = min(elapsed_s(seen.at, attempt.began), seen.at.boot_s - watch.began_boot_s)
    if waited > CLAIM_WITHIN_S and not attempt.abandoned:
        return _never_started(state, attempt, f"no runner within {CLAIM_WITHIN_S:.0f} s")
    return ()


def _never_started(state: State, attempt: Attempt, problem: str) -> Events:
    """The launch could not be made. The stop that follows takes the claim, so that it never will be."""
    assert state.spec is not None
    ending: ev.Ending | None = ev.Ending.HALTED
    if problem.startswith("protected: "):
        failure = ev.Failure(kind=Kind.PROTECTED_VIOLATION, because=problem.removeprefix("protected: "))
        text = f"{failure.because}. Protected params are locked: they shape the training signal"
    elif problem.startswith(GONE):
        failure = ev.Failure(kind=Kind.CHECKPOINT_ERROR, because=problem.removeprefix(GONE))
        text = failure.because
        if not _was_named(state, attempt):
            ending, text = None, f"{text}; choosing anew"
    else:
        failure = ev.Failure(kind=Kind.ENV_ERROR, because=problem)
        text = problem
    again = state.spec.up_command if ending else ""
    plan = ev.Plan(ending=ending, because=text, rungs=dict(state.rungs), next_command=again)
    return (
        ev.Judged(attempt=attempt.number, failure=failure, plan=plan),
        ev.StopIntended(attempt=attempt.number, by=ev.By.POLICY, grace_s=0.0, because=text, plan=plan),
    )


def _was_named(state: State, attempt: Attempt) -> bool:
    """True where the user said which checkpoint it is to be: no other is taken in its place."""
    resume = state.spec.resume if state.spec else None
    named = {state.from_, resume.start if resume else None}
    return attempt.checkpoint is not None and bool(named & {attempt.checkpoint.path, attempt.checkpoint.real})


def _first_progress(state: State, attempt: Attempt, watch: Watch, seen: Seen) -> Events:
    assert state.spec is not None
    launched = attempt.launched_at
    assert launched is not None
    took = elapsed_s(seen.at, launched)
    if watch.steps > 0:
        return (ev.FirstProgress(attempt=attempt.number, step=watch.first_step, startup_s=took),)
    if state.spec.health.progress is None and attempt.leader is not None and attempt.end is None:
        return (ev.FirstProgress(attempt=attempt.number, step=None, startup_s=0.0),)
    if attempt.gained and starts_too_late(state.spec, state, attempt, seen.at) is not None:
        text = f"health.progress matched nothing in {took:.0f} s though the attempt saved a checkpoint"
        warned = ev.Warned(text=f"{text}: mend the pattern. The run goes on; a hang would not be noticed")
        return (ev.FirstProgress(attempt=attempt.number, step=None, startup_s=0.0), warned)
    return ()


def _dump(state: State, attempt: Attempt, seen: Seen) -> Events:
    """The answer to the dump that was asked for; or that one is due, at half of the time to the first progress."""
    assert state.spec is not None
    if attempt.dumping is not None:
        return _dumped(attempt, attempt.dumping, seen)
    if state.paused or (HALF, None) in attempt.dumped or not is_half_started(state.spec, state, attempt, seen.at):
        return ()
    return (ev.DumpIntended(attempt=attempt.number, why=HALF),)


def _dumped(attempt: Attempt, dumping: ev.DumpIntended, seen: Seen) -> Events:
    """The answer to the dump, or that there is none; empty while it is waited for."""
    found = seen.dumped
    if found is not None and (found.why, found.step) == (dumping.why, dumping.step):
        return (found,)
    assert attempt.dumping_at is not None
    if elapsed_s(seen.at, attempt.dumping_at) < DUMP_WITHIN_S:
        return ()
    problem = f"no answer within {DUMP_WITHIN_S:.0f} s"
    return (ev.Dumped(attempt=attempt.number, why=dumping.why, step=dumping.step, problem=problem),)


def _wrong(state: State, attempt: Attempt, watch: Watch, seen: Seen, failure: ev.Failure) -> Events | None:
    """What is said about this failure; None while a dump is waited for, empty where nothing more is to be said."""
    if attempt.drift is not None:
        failure = replace(failure, evidence=(*failure.evidence, attempt.drift.words))
    unfit = seen.aftermath is not None and seen.aftermath.unfit is not None
    healthy = not unfit and all(isinstance(watch.readings.get(uuid), Reading) for uuid in state.gpus)
    plan = _with_drift(state, attempt, plan_after(state, failure, seen.at, gpus_healthy=healthy))
    if isinstance(plan, Tell):
        if attempt.end is not None:
            ended = ev.Plan(
                ending=ev.Ending.HALTED,
                because=f"{failure.because}; the rule at {plan.rule} only tells, and the job is gone",
                rule=plan.rule,
                next_command=state.spec.up_command if state.spec else "",
            )
            return _end_attempt(state, attempt, watch, failure, ended)
        if state.phase is Phase.STARTING or held_key(failure) in attempt.told:
            return ()
        return (ev.Degraded(attempt=attempt.number, failure=failure),)
    if state.paused and failure.kind is not Kind.PROTECTED_VIOLATION:
        if held_key(failure) in attempt.held_back:
            return ()
        return (ev.HeldBack(attempt=attempt.number, failure=failure, plan=plan),)
    if failure.kind in DUMPED and attempt.end is None:
        if attempt.dumping is not None:
            return None
        if (failure.kind.value, watch.last_step) not in attempt.dumped:
            return (ev.DumpIntended(attempt=attempt.number, why=failure.kind.value, step=watch.last_step),)
        failure, plan = with_dump(failure, plan, attempt.dump)
    return _end_attempt(state, attempt, watch, failure, plan)


def _with_drift(state: State, attempt: Attempt, plan: ev.Plan | Tell) -> ev.Plan | Tell:
    """A halt says what changed since it last went well. Attempts that failed after it are alike, though some of them
    made progress: what the first of them told stands."""
    if isinstance(plan, Tell) or plan.ending is None:
        return plan
    earlier = [past.drift for past in since_gain(state.past) if past.drift] if not attempt.gained else []
    own = [attempt.drift.words] if attempt.drift is not None else []
    words = dict.fromkeys((*own, *earlier[-1:]))
    return replace(plan, because="; ".join((plan.because, *words)))


def _end_attempt(state: State, attempt: Attempt, watch: Watch, failure: ev.Failure, plan: ev.Plan) -> Events:
    plan, demoted = mended(state, failure, plan)
    unloadable = failed_to_load(state, attempt, failure)
    if unloadable and plan.ending is None:  # the one before it is then the newest in play
        plan, demoted = replace(plan, from_older=False), (*demoted, *unloadable)
    judged = ev.Judged(
        attempt=attempt.number,
        failure=failure,
        plan=plan,
        first_step=watch.first_step,
        last_step=watch.last_step,
    )
    return (judged, *demoted, _stop(watch, attempt, ev.By.POLICY, state, plan, failure))


def _stop(
    watch: Watch, attempt: Attempt, by: ev.By, state: State, plan: ev.Plan, failure: ev.Failure | None = None
) -> ev.StopIntended:
    return ev.StopIntended(
        attempt=attempt.number,
        by=by,
        grace_s=grace_after(state, watch, failure),
        because=plan.because,
        plan=plan,
        first_step=watch.first_step,
        last_step=watch.last_step,
    )


def _backoff(state: State, watch: Watch, seen: Seen) -> Events:
    assert state.entered is not None
    if state.is_held_back:
        return ()
    over = elapsed_s(seen.at, state.entered) >= state.backoff_s
    waits_for_others = state.foreign_wait_s > 0.0
    early = watch.is_zero(seen.at.boot_s, 0.0) if waits_for_others else state.asked_to_restart
    return (ev.BackoffOver(),) if over or early else ()
