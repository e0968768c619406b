"""From the intent to end an attempt to the proof that its GPUs are empty: decisions only.

Rule 1: the job's group gets the signal and CONT; grace runs while any process of that group lives; the rest get KILL.
Rule 2: every signal is recorded with pid, start ticks, command line and proof before it is sent.
Rule 3: unreadable is not zero; a foreign holder is named and waited for, never signalled.
"""

from __future__ import annotations

from supervisor.core import events as ev
from supervisor.core.evidence import ExitRecord, Holder, Member, Owner
from supervisor.core.keeping import written_meanwhile
from supervisor.core.kinds import Kind
from supervisor.core.seen import JobSeen, MembersSeen, Seen
from supervisor.core.state import KILL, Attempt, State, send_key
from supervisor.core.verdicts import elapsed_s
from supervisor.core.watch import Watch
from supervisor.core.zero import ZeroWatch

EMPTY_LOOKS = 2
"""How many looks in a row must find nobody: a child may be born during the first."""

UNKILLABLE_AFTER_S = 15.0
"""A process in uninterruptible sleep this long after KILL will not go by being asked again."""

ASK_HOLDERS_AFTER_S = 1.0
"""Process lists are asked only once memory has not drained by then: they cost milliseconds under the driver's lock."""

FOREIGN_STEADY_S = 3.0
"""Foreign holders decide only once memory has stood still this long: what still drains may be ours."""

LOOK_AT_LEAST_S = 30.0
"""Over a reboot, or while no supervisor was there, nobody read the GPUs: one that is new looks for itself first."""

Events = tuple[ev.Event, ...]


def grace_after(state: State, watch: Watch, failure: ev.Failure | None) -> float:
    """The grace of a stop in seconds: none after an out-of-memory failure that left no progress to save, nor where
    what the trainer would save is worthless and may cost a good checkpoint."""
    assert state.spec is not None
    grace = state.spec.recovery.grace_s
    if failure is not None and saves_worthless(failure):
        return 0.0
    if failure is None or failure.kind is not Kind.GPU_OOM:
        return grace
    stepped = any(pending.steps_at < watch.steps for pending in watch.pending)
    return grace if stepped else 0.0


def saves_worthless(failure: ev.Failure | None) -> bool:
    """True where the trainer began again from nothing, or trains with numbers that are none."""
    return failure is not None and (failure.kind is Kind.LOST_PROGRESS or failure.bad_step is not None)


def stopping(state: State, watch: Watch, seen: Seen) -> Events:
    """One thought while the attempt is being ended."""
    attempt, members, job = state.attempt, seen.members, seen.job
    assert attempt is not None
    assert state.spec is not None
    if job is not None and job.exit is not None and attempt.end is None and attempt.launched_at is not None:
        return (ended_now(attempt, job.exit, watch),)
    if job is not None and job.claim == "supervisor" and not attempt.abandoned:
        return (ev.LaunchAbandoned(attempt=attempt.number, because=state.because),)
    if job is not None and job.claim == "runner" and job.runner is not None and _is_news(attempt, job):
        return (ev.Launched(attempt=attempt.number, runner=job.runner, leader=job.leader),)
    sent = _sent(attempt, seen)
    if sent:
        return sent
    if members is None or (job is not None and job.claim == "none"):
        return ()
    if members.members:
        return _next_signal(state, attempt, members, seen, watch)
    if members.empty_looks < EMPTY_LOOKS:
        return ()
    if job is not None and job.runner_alive and job.exit is None:
        return _runner_waits(state, attempt, job, seen)
    return (ev.MembersGone(attempt=attempt.number),)


def ended_now(attempt: Attempt, end: ExitRecord, watch: Watch) -> ev.JobEnded:
    """The record of the end, with what was remembered of the attempt."""
    return ev.JobEnded(
        attempt=attempt.number,
        end=end,
        first_step=watch.first_step,
        last_step=watch.last_step,
        peaks=watch.course.peaks,
    )


def _is_news(attempt: Attempt, job: JobSeen) -> bool:
    """True where the journal does not say yet that the runner came, or who the leader is."""
    return attempt.launched_at is None or (attempt.leader is None and job.leader is not None)


def _runner_waits(state: State, attempt: Attempt, job: JobSeen, seen: Seen) -> Events:
    """A living runner that has told no end may start the job any moment: nobody to be seen is not nobody there."""
    assert state.spec is not None
    assert attempt.stop_at is not None
    if elapsed_s(seen.at, attempt.stop_at) < attempt.grace_s + state.spec.recovery.verify_zero.timeout_s:
        return ()
    pid = job.runner.pid if job.runner else 0
    text = f"the runner (pid {pid}) holds the claim of attempt {attempt.number} and neither starts the job nor ends"
    return (_give_up(state, text),)


def _give_up(state: State, text: str) -> ev.EpisodeEnded:
    return ev.EpisodeEnded(ending=ev.Ending.HALTED, because=text, next_command=f"supervise down {state.run}", held=True)


def _sent(attempt: Attempt, seen: Seen) -> Events:
    for key in sorted((attempt.intended & seen.sent) - attempt.sent):
        name, _, group = key.partition(":")
        return (ev.SignalSent(attempt=attempt.number, signal=name, group=bool(group)),)
    return ()


def group_of(attempt: Attempt, members: MembersSeen) -> tuple[Member, ...]:
    """The live processes of the job's own process group."""
    if attempt.leader is None:
        return ()
    return tuple(m for m in members.members if m.pgid == attempt.leader.pid)


def to_kill(state: State, attempt: Attempt, members: MembersSeen, seen: Seen) -> tuple[Member, ...]:
    """Who gets KILL now: nobody while the group has grace; writers beside the checkpoints while their file grows."""
    assert state.spec is not None
    assert attempt.stop_at is not None
    grace = elapsed_s(seen.at, attempt.stop_at)
    if group_of(attempt, members) and grace < attempt.grace_s:
        return ()
    begun = grace - attempt.grace_s if attempt.kill_at is None else elapsed_s(seen.at, attempt.kill_at)
    spares = begun < state.spec.recovery.grace_s and not saves_worthless(attempt.failure)
    spared = members.writing if spares else frozenset()
    return tuple(m for m in members.members if m.id.pid not in spared)


def _next_signal(state: State, attempt: Attempt, members: MembersSeen, seen: Seen, watch: Watch) -> Events:
    assert state.spec is not None
    stop_signal = state.spec.recovery.stop_signal
    group = group_of(attempt, members)
    if group and attempt.grace_s > 0 and send_key(stop_signal, True) not in attempt.intended:
        return (_intend(attempt, stop_signal, group, group=True),)
    killed = to_kill(state, attempt, members, seen)
    fresh = tuple(m for m in killed if (m.id.pid, m.id.start_ticks, KILL) not in attempt.signalled)
    since = 0.0 if watch.kill_began_boot_s is None else seen.at.boot_s - watch.kill_began_boot_s
    if fresh and since < state.spec.recovery.verify_zero.timeout_s:
        return (_intend(attempt, KILL, fresh, group=False),)
    return _unkillable(state, attempt, killed, since)


def _intend(attempt: Attempt, signal: str, members: tuple[Member, ...], *, group: bool) -> ev.SignalIntended:
    targets = tuple(ev.Target(id=m.id, cmdline=m.cmdline, proof=m.proof, state=m.state) for m in members)
    return ev.SignalIntended(attempt=attempt.number, signal=signal, group=group, targets=targets)


def _unkillable(state: State, attempt: Attempt, killed: tuple[Member, ...], since_s: float) -> Events:
    """Given up on: who is in uninterruptible sleep after 15 s, whoever is left when verify-zero would give up too."""
    assert state.spec is not None
    stuck = [m for m in killed if m.state == "D"] if since_s >= UNKILLABLE_AFTER_S else []
    if since_s >= state.spec.recovery.verify_zero.timeout_s:
        stuck = stuck or list(killed)
    if not stuck:
        return ()
    one = stuck[0]
    how = f"in uninterruptible sleep at {one.wchan or 'unknown'}" if one.state == "D" else f"in state {one.state}"
    text = f"pid {one.id.pid} ({one.cmdline[:80]}) survives KILL {how}"
    more = f" ({len(stuck)} such processes)" if len(stuck) > 1 else ""
    return (
        *(ev.Unkillable(attempt=attempt.number, id=m.id, cmdline=m.cmdline, wchan=m.wchan) for m in stuck),
        _give_up(state, f"{text}{more}; only the kernel or a reboot can end it"),
    )


def verifying(state: State, watch: Watch, seen: Seen) -> Events:
    """One thought while the GPUs are read."""
    attempt, spec = state.attempt, state.spec
    assert spec is not None
    assert state.verify_from is not None
    number = attempt.number if attempt else 0
    if seen.members is not None and seen.members.members and attempt is not None:
        return (_stop_again(attempt, state),)
    rules = spec.recovery.verify_zero
    waited = elapsed_s(seen.at, state.verify_from)
    zero = watch.zero
    if zero is None:
        return ()
    if zero.verified(seen.at.boot_s, rules.stable_for_s):
        return (ev.VerifiedZero(attempt=number, waited_s=round(waited, 3), used_mib=_used(zero)),)
    held = _held_by_others(watch, seen)
    if held or waited >= rules.timeout_s:
        written = written_meanwhile(state, seen.early)  # the run may come to rest without another look
        late = waited >= rules.timeout_s + LOOK_AT_LEAST_S  # a disk that does not answer keeps nobody from an end
        if written or (written is None and not late):
            return written or ()
    given_up = state.plan is not None and state.plan.ending is ev.Ending.STOPPED  # the user waits for an answer
    if held and not given_up and not state.foreign_wait_s and rules.foreign.wait_s > 0:
        return (ev.ForeignHolders(attempt=number, holders=held, wait_s=rules.foreign.wait_s),)
    if held:
        return _not_zero(zero, number, waited, "foreign processes hold the run's GPUs", held)
    looked = seen.at.boot_s - watch.zero_began_boot_s
    if waited >= rules.timeout_s and looked >= min(rules.timeout_s, LOOK_AT_LEAST_S):
        return _not_zero(zero, number, waited, zero.why_not() or "not stable for long enough", watch.holders)
    return ()


def _used(zero: ZeroWatch) -> tuple[float, ...]:
    """Memory in use per GPU of the run; -1 for one that was not read."""
    return tuple(-1.0 if used is None else used for used in zero.used_mib())


def _stop_again(attempt: Attempt, state: State) -> ev.StopIntended:
    """A process of the run appeared after the last one was gone: it is ended too."""
    because = "a process of the run appeared while the GPUs were being verified"
    return ev.StopIntended(attempt=attempt.number, by=ev.By.POLICY, grace_s=0.0, because=because, plan=state.plan)


def _held_by_others(watch: Watch, seen: Seen) -> tuple[Holder, ...]:
    """The holders, where all of them are foreign and nothing drains any more."""
    holders = seen.holders
    if not holders or any(h.owner is not Owner.FOREIGN for h in holders):
        return ()
    steady = watch.zero.steady_for_s(seen.at.boot_s) if watch.zero else 0.0
    return holders if steady >= FOREIGN_STEADY_S else ()


def _not_zero(zero: ZeroWatch, number: int, waited: float, why: str, holders: tuple[Holder, ...]) -> Events:
    named = "; ".join(f"pid {h.pid} ({h.user}) {h.cmdline[:60]}" for h in holders[:4])
    text = f"verify-zero failed after {waited:.0f} s: {why}" + (f": {named}" if named else "")
    return (
        ev.NotZero(
            attempt=number,
            waited_s=round(waited, 3),
            why=why,
            used_mib=_used(zero),
            holders=holders,
        ),
        ev.EpisodeEnded(
            ending=ev.Ending.HALTED,
            because=text,
            next_command="supervise gpus",
            held=True,
        ),
    )
