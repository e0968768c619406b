"""What is written down of a living attempt, one thought at a time: what comes first, and what is left unsaid."""

from __future__ import annotations

import pytest
from changes import replace
from fake_specs import CHECKPOINTS, incident

from supervisor.core import events as ev
from supervisor.core.aftermath import Aftermath, GpuHealth
from supervisor.core.alive import Dumped, DumpIntended
from supervisor.core.course import Course
from supervisor.core.decisions import HALF, decide
from supervisor.core.evidence import Checkpoint, ExitRecord, Hit, Instant, MachineId, ProcessId, Reading, Unreadable
from supervisor.core.given import Rehearsal
from supervisor.core.kinds import Kind
from supervisor.core.lineage import Known, Lineage, identity
from supervisor.core.numeric import Losses
from supervisor.core.pending import Pending
from supervisor.core.phases import HAS_JOB, Phase
from supervisor.core.placing import RoleGpus
from supervisor.core.plans import Ending, Failure, Plan
from supervisor.core.seen import JobSeen, Seen
from supervisor.core.spec import Do, Progress, Rule
from supervisor.core.state import Attempt, State, Waiting
from supervisor.core.watch import Watch, begun
from supervisor.core.zero import ZeroWatch

HERE = MachineId("b", "m", "h")
SPEC = incident()
RUNNER, LEADER = ProcessId(90, 1), ProcessId(100, 1)
GOES_ON = JobSeen(claim="runner", runner=RUNNER, leader=LEADER, leader_alive=True)
OOM = Failure(kind=Kind.GPU_OOM, because="GPU 0 ran out of memory", gpu=0)
AGAIN = Plan(ending=None, because="relaunching")


def at(boot_s: float) -> Instant:
    return Instant("b", boot_s, boot_s)


def attempt(**changes) -> Attempt:
    made = Attempt(number=3, token="t", argv=(), rungs={}, checkpoint=None, began=at(0.0))
    return replace(made, **{"launched_at": at(10.0), "runner": RUNNER, "leader": LEADER, **changes})


def state(phase: Phase = Phase.RUNNING, spec=SPEC, **changes) -> State:
    of = changes.pop("attempt", attempt(progressed_at=at(20.0)))
    roles = {"all": RoleGpus(ordinals=(0,), physical=(0,), uuids=("GPU-0",))}
    made = State(run="r", spec=spec, phase=phase, entered=at(10.0), attempt=of, attempts_made=3, roles=roles)
    return replace(made, **{"launched_in_episode": 1, **changes})


def watched(**changes) -> Watch:
    """Eight steps, the last at 99 s."""
    made = begun(3, at(0.0))
    return replace(made, **{"steps": 8, "first_step": 1, "last_step": 8, "progress_boot_s": 99.0, **changes})


def said(of: State, watch: Watch | None = None, boot_s: float = 100.0, **what) -> tuple[ev.Event, ...]:
    return decide(of, watch or watched(), Seen(at=at(boot_s), machine=HERE, **{"job": GOES_ON, **what}))


def kinds(events) -> list[str]:
    return [type(one).__name__ for one in events]


def saved(step: int) -> Checkpoint:
    return Checkpoint(path=f"{CHECKPOINTS}/step_{step}", step=step, real="", inode=step, mtime_ns=step)


# ── what the journal does not say yet ──


def test_a_supervisor_that_was_killed_between_verdict_and_stop_stops_for_that_verdict():
    judged = state(attempt=attempt(failure=OOM), plan=AGAIN)
    (stop,) = said(judged)
    assert (stop.because, stop.plan, stop.by) == ("relaunching", AGAIN, ev.By.POLICY)
    assert said(replace(judged, plan=None)) == ()
    assert said(state(plan=AGAIN)) == (), "a plan without a failure ends nothing"


@pytest.mark.parametrize("phase", HAS_JOB)
def test_who_leads_the_job_is_told_once_it_is_known(phase):
    (told,) = said(state(phase, attempt=attempt(leader=None)))
    assert (told.leader, told.runner) == (LEADER, RUNNER)
    assert "Launched" not in kinds(said(state(phase, attempt=attempt(leader=None)), job=replace(GOES_ON, leader=None)))
    assert "Launched" not in kinds(said(state(phase, attempt=attempt(leader=None, runner=None))))


def test_a_launch_is_made_by_the_runner_or_can_never_be_made_any_more():
    new = state(Phase.STARTING, attempt=attempt(launched_at=None, runner=None, leader=None))
    (told,) = said(new)
    assert (type(told).__name__, told.runner) == ("Launched", RUNNER)
    assert kinds(said(new, job=replace(GOES_ON, problem="protected: anchors"))) == ["Launched"], (
        "it claimed all the same"
    )
    assert said(new, job=JobSeen(claim="runner"), boot_s=30.0) == (), "it has not said who it is"
    judged, stop = said(new, job=JobSeen(claim="none", problem="protected: anchors is 512"))
    assert (judged.failure.kind, judged.failure.because) == (Kind.PROTECTED_VIOLATION, "anchors is 512")
    assert "Protected params are locked" in stop.because
    judged, stop = said(new, job=JobSeen(claim="none", problem="no such file"))
    assert (judged.failure.kind, judged.plan.ending, stop.grace_s) == (Kind.ENV_ERROR, Ending.HALTED, 0.0)
    assert (stop.because, judged.plan.next_command) == ("no such file", SPEC.up_command)
    judged, _ = said(new, job=JobSeen(claim="supervisor"))
    assert judged.failure.because == "the runner never came"
    judged, _ = said(new, job=JobSeen(claim="none"))
    assert judged.failure.because == "no runner within 60 s"
    abandoned = replace(new, attempt=replace(new.attempt, abandoned=True))
    assert said(abandoned, job=JobSeen(claim="none")) == ()
    assert said(new, job=None) == ()


def test_the_first_progress_is_the_first_step_or_to_be_alive_where_no_rule_names_steps():
    starting = state(Phase.STARTING, attempt=attempt())
    (first,) = said(starting, watched(steps=1, first_step=7))
    assert (first.step, first.startup_s) == (7, 90.0)
    none = watched(steps=0, first_step=None, last_step=None, progress_boot_s=None)
    assert said(starting, none) == ()
    bare = state(Phase.STARTING, replace(SPEC, health=replace(SPEC.health, progress=None)), attempt=attempt())
    (first,) = said(bare, none)
    assert (first.step, first.startup_s) == (None, 0.0)
    assert "FirstProgress" not in kinds(
        said(replace(bare, attempt=attempt(leader=None)), none, job=JobSeen(claim="runner"))
    )
    over = attempt(end=ExitRecord(code=1, signal=None))
    assert "FirstProgress" not in kinds(said(replace(bare, attempt=over), none))


def test_a_pattern_that_never_matched_is_told_where_checkpoints_show_that_the_job_trains():
    none = watched(steps=0, first_step=None, last_step=None, progress_boot_s=None)
    limit = SPEC.health.startup_timeout_s
    trains = state(Phase.STARTING, attempt=attempt(gained=1, dumped=((HALF, None),)))
    assert said(trains, none, boot_s=9.0 + limit) == ()
    first, warned = said(trains, none, boot_s=10.0 + limit)
    assert (first.step, first.startup_s) == (None, 0.0)
    assert "matched nothing in 2400 s though the attempt saved a checkpoint" in warned.text
    idle = state(Phase.STARTING, attempt=attempt(dumped=((HALF, None),)))
    assert kinds(said(idle, none, boot_s=10.0 + limit)) == ["DumpIntended"], "it starts too late"


def test_the_job_is_looked_into_once_at_half_of_its_time_to_start():
    none = watched(steps=0, first_step=None, last_step=None, progress_boot_s=None)
    half = 10.0 + SPEC.health.startup_timeout_s / 2
    starting = state(Phase.STARTING, attempt=attempt())
    (dump,) = said(starting, none, boot_s=half)
    assert (dump.why, dump.step) == (HALF, None)
    assert said(starting, none, boot_s=half - 1) == ()
    assert said(replace(starting, paused=True), none, boot_s=half) == ()
    assert said(replace(starting, attempt=attempt(dumped=((HALF, None),))), none, boot_s=half) == ()


def test_only_the_answer_to_the_dump_that_was_asked_for_is_one():
    of = state(attempt=attempt(progressed_at=at(20.0), dumping=DumpIntended(attempt=3, why="hang", step=8)))
    of = replace(of, attempt=replace(of.attempt, dumping_at=at(95.0)))
    answer = Dumped(attempt=3, why="hang", step=8, path="/d")
    assert said(of, dumped=answer) == (answer,)
    assert said(of, dumped=replace(answer, step=7)) == ()
    assert said(of, dumped=replace(answer, why=HALF)) == ()
    assert said(of) == ()


def test_an_end_is_told_once_with_the_steps_that_were_seen():
    ended = replace(GOES_ON, exit=ExitRecord(code=1, signal=None))
    (told,) = said(state(), job=ended)
    assert (told.end.code, told.first_step, told.last_step) == (1, 1, 8)
    known = state(attempt=attempt(progressed_at=at(20.0), end=ended.exit))
    assert "JobEnded" not in kinds(said(known, job=ended))
    assert said(known, job=ended, awaiting=True) == (), "what it died of is still being asked"


def test_what_changed_since_the_last_good_attempt_is_told_once_and_of_this_attempt():
    drift = ev.Drifted(attempt=3, since=1, changes=("driver 1 -> 2",), suspects="driver")
    assert said(state(), drift=drift) == (drift,)
    assert said(state(), drift=replace(drift, attempt=2)) == ()
    assert said(state(attempt=attempt(progressed_at=at(20.0), drift=drift)), drift=drift) == ()


# ── checkpoints ──

KEEPS = replace(SPEC, resume=replace(SPEC.resume, keep=1))
OURS = tuple(saved(step) for step in (700, 710))
KNOWN = replace(
    Lineage(),
    begun=True,
    known=tuple(Known(path=one.path, real=one.path, step=one.step, attempt=3) for one in OURS),
    own=frozenset(map(identity, OURS)),
)


def test_a_checkpoint_that_appeared_is_told_with_the_step_that_was_logged_then():
    course = replace(Course(), last_step=8, marks=((90.0, 7), (99.0, 8)))
    fresh = replace(saved(720), mtime_ns=int(95e9))
    (told,) = said(state(lineage=KNOWN), watched(course=course), found=(*OURS, fresh))
    assert (told.checkpoint.step, told.logged_step) == (720, 7)


def test_what_is_kept_no_longer_is_given_up_while_the_job_trains():
    trains = state(spec=KEEPS, lineage=KNOWN)
    (prune,) = said(trains, found=OURS)
    assert prune.checkpoints == OURS[:1]
    assert said(trains) == (), "nobody has looked"
    assert (
        said(replace(trains, phase=Phase.STARTING, attempt=attempt(leader=LEADER)), watched(steps=0), found=OURS) == ()
    )
    ended = attempt(progressed_at=at(20.0), end=ExitRecord(code=1, signal=None))
    assert "PruneIntended" not in kinds(said(replace(trains, attempt=ended), found=OURS))
    assert said(replace(trains, attempt=attempt(progressed_at=at(20.0), rehearsal=True)), found=OURS) == ()
    pruning = replace(trains, pruning=prune)
    assert said(pruning, found=OURS) == ()
    gone = ev.Pruned(removed=(OURS[0].path,))
    assert said(pruning, found=OURS, pruned=(prune, gone)) == (gone,)
    assert said(pruning, pruned=(replace(prune, checkpoints=OURS), gone)) == ()


# ── a verdict ──


def wrong(of: State, **what) -> tuple[ev.Event, ...]:
    """A numeric failure, which needs no dump."""
    course = replace(Course(), losses=Losses(reported=8, bad=3, first_bad=6, last_good=5, said="nan"))
    return said(of, watched(course=course), **what)


def test_a_verdict_is_followed_by_the_stop_it_asks_for():
    judged, stop = wrong(state())
    assert (judged.failure.kind, judged.first_step, judged.last_step) == (Kind.NUMERIC, 1, 8)
    assert (judged.plan.ending, stop.plan, stop.grace_s) == (Ending.HALTED, judged.plan, 0.0)
    assert (stop.first_step, stop.last_step) == (1, 8)


def ruled(do: Do) -> State:
    rule = Rule(on=(Kind.NUMERIC,), do=do, where="r.yaml:9")
    return state(spec=replace(SPEC, recovery=replace(SPEC.recovery, rules=(rule,))))


def test_a_rule_that_only_tells_lets_the_job_go_on_and_is_told_once():
    tells = ruled(Do.NOTIFY)
    (told,) = wrong(tells)
    assert (type(told).__name__, told.failure.kind) == ("Degraded", Kind.NUMERIC)
    again = replace(tells, attempt=replace(tells.attempt, told=frozenset({"numeric:None"})))
    assert wrong(again) == ()
    assert "Degraded" not in kinds(wrong(replace(tells, phase=Phase.STARTING)))


def test_while_recovery_is_paused_a_verdict_is_held_back_and_told_once():
    (held,) = wrong(state(paused=True))
    assert (held.failure.kind, held.plan.ending) == (Kind.NUMERIC, Ending.HALTED)
    known = attempt(progressed_at=at(20.0), held_back=("numeric:None",))
    assert wrong(state(paused=True, attempt=known)) == ()
    violation, _ = said(state(paused=True), violations=("anchors is 512",))
    assert violation.failure.kind is Kind.PROTECTED_VIOLATION, "that is not let go on"


def test_what_changed_stands_in_the_evidence_and_in_the_words_of_a_halt_only():
    drift = ev.Drifted(attempt=3, since=1, changes=("driver 1 -> 2",), suspects="driver")
    drifted = attempt(progressed_at=at(20.0), drift=drift)
    judged, _ = wrong(state(attempt=drifted))
    assert judged.failure.evidence == (drift.words,)
    assert judged.plan.because.endswith(drift.words)
    relaunches = replace(ruled(Do.RELAUNCH), attempt=drifted)
    judged, *_ = wrong(relaunches)
    assert (judged.plan.ending, judged.failure.evidence) == (None, (drift.words,))
    assert drift.words not in judged.plan.because


def test_a_sick_gpu_is_gone_on_with_only_where_each_was_read_and_none_is_known_to_be_unfit():
    hit = Hit(signature="xid", kind=Kind.GPU_FAULT, file="/o", line=1, offset=0, text="Xid 79", gpu=0)
    pending = (Pending(hit=hit, seen_boot_s=80.0, uuid="GPU-0", steps_at=8, gone_since_boot_s=90.0),)
    ok = {"GPU-0": Reading("GPU-0", 0, 99.0, 1.0, 90.0, None, None)}

    def ending(readings, **what):
        judged, *_ = said(state(), watched(pending=pending, readings=readings), **what)
        return judged.plan.ending

    assert ending(ok) is None
    assert ending({}) is Ending.HALTED
    assert ending({"GPU-0": Unreadable("GPU-0", 0, 99.0, "lost")}) is Ending.HALTED
    assert ending(ok, aftermath=Aftermath()) is None
    unfit = Aftermath(gpus=(GpuHealth("GPU-0", unfit="a row could not be remapped"),))
    assert ending(ok, aftermath=unfit) is Ending.HALTED


def test_before_a_hang_is_ended_its_processes_are_looked_into_at_that_step():
    silent = replace(SPEC, health=replace(SPEC.health, progress=Progress(log="x", stall_s=60.0)))
    hangs = state(spec=silent)
    (dump,) = said(hangs, boot_s=200.0)
    assert (dump.why, dump.step) == ("hang", 8)
    dumped = attempt(progressed_at=at(20.0), dumped=(("hang", 8),), dump=Dumped(attempt=3, why="hang", ranks=(1,)))
    judged, stop = said(state(spec=silent, attempt=dumped), boot_s=200.0)
    assert judged.failure.because.endswith("rank 1 did not report")
    assert stop.grace_s == 60.0
    earlier = replace(dumped, dumped=(("hang", 7),))
    assert kinds(said(state(spec=silent, attempt=earlier), boot_s=200.0)) == ["DumpIntended"]


def test_a_finish_is_a_stop_by_the_job_itself():
    (stop,) = said(state(attempt=attempt(progressed_at=at(20.0), end=ExitRecord(code=0, signal=None))))
    assert (stop.by, stop.plan.ending, stop.because) == (
        ev.By.ITSELF,
        Ending.FINISHED,
        "the job ended with exit code 0",
    )


# ── a rehearsal ──

REHEARSES = replace(SPEC, rehearsal=Rehearsal(steps=8, within_s=300.0))


def rehearsing(**changes) -> State:
    of = attempt(progressed_at=at(20.0), rehearsal=True, **changes)
    return state(spec=REHEARSES, attempt=of, launched_in_episode=0, rungs={"token_budget": 1})


def test_a_rehearsal_has_passed_after_its_steps_and_the_full_run_follows():
    told, stop = said(rehearsing(), boot_s=70.06)
    assert (told.steps, told.took_s) == (8, 60.1)
    assert (stop.plan.ending, stop.plan.rungs) == (None, {"token_budget": 1})
    assert stop.because == "the rehearsal passed: 8 steps in 60 s; now the full run"
    assert kinds(said(replace(rehearsing(), rehearsed=True))) == ["StopIntended"], "told already"
    assert said(rehearsing(), watched(steps=7, last_step=7)) == ()
    over = said(rehearsing(end=ExitRecord(code=0, signal=None)))
    assert kinds(over) == ["Rehearsed", "StopIntended"]
    assert kinds(said(rehearsing(end=ExitRecord(code=1, signal=None))))[0] == "Judged"


def test_the_steps_of_a_rehearsal_are_counted_from_its_checkpoint():
    begun_at = rehearsing(checkpoint=saved(100))
    assert said(begun_at, watched(steps=2, last_step=107)) == ()
    assert kinds(said(begun_at, watched(steps=2, last_step=108)))[0] == "Rehearsed"
    nameless = rehearsing(checkpoint=replace(saved(100), step=-1))
    assert said(nameless, watched(steps=2, last_step=7)) == ()
    assert kinds(said(nameless, watched(steps=2, last_step=8)))[0] == "Rehearsed", "one without a number counts from 0"


def test_a_rehearsal_that_takes_too_long_or_ends_too_soon_will_not_pass():
    few = watched(steps=7, last_step=7, progress_boot_s=305.0)
    assert said(rehearsing(), few, boot_s=309.9) == ()
    judged, *_ = said(rehearsing(dumped=(("startup_timeout", 7),)), few, boot_s=310.0)
    assert judged.failure.because.startswith("the rehearsal made 7 of 8 steps in 300 s")
    assert (judged.failure.kind, judged.failure.confidence) == (Kind.STARTUP_TIMEOUT, "high")
    judged, *_ = said(rehearsing(end=ExitRecord(code=0, signal=None)), few)
    assert judged.failure.because.startswith("the rehearsal ended after 7 of 8 steps")
    assert (judged.failure.kind, judged.failure.code) == (Kind.EXIT, 0)


# ── a backoff ──


def test_a_backoff_is_cut_short_by_a_restart_or_by_gpus_that_others_have_left():
    waits = state(Phase.BACKOFF, backoff_s=600.0, attempt=attempt(stop_at=at(10.0)))
    assert said(waits) == ()
    assert kinds(said(replace(waits, waiting=(Waiting(request="1", verb="restart"),)))) == ["BackoffOver"]
    empty = ZeroWatch(of=("GPU-0",)).seen((Reading("GPU-0", 0, 99.0, 0.0, 90.0, None, None),), False)
    free = watched(zero=empty)
    others = replace(waits, foreign_wait_s=0.5)
    assert kinds(said(others, free)) == ["BackoffOver"]
    assert said(others) == ()
    assert said(waits, free) == (), "nobody was waited for"
    held = replace(waits, paused=True, plan=AGAIN, attempt=attempt(stop_at=at(10.0), failure=OOM))
    assert said(held, boot_s=10_000.0) == ()
