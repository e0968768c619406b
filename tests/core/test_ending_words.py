"""A stop and the proof of zero: what is recorded, in which order, and what a person reads when it does not come."""

from __future__ import annotations

import pytest
from changes import replace
from fake_specs import incident

from supervisor.core.aftermath import Aftermath, RankError
from supervisor.core.evidence import (
    Checkpoint,
    ExitRecord,
    Hit,
    Holder,
    Instant,
    MachineId,
    Member,
    Owner,
    ProcessId,
    Proof,
    Reading,
)
from supervisor.core.kinds import Kind
from supervisor.core.pending import Pending
from supervisor.core.phases import Phase
from supervisor.core.placing import RoleGpus
from supervisor.core.plans import By, Ending, Failure, Plan
from supervisor.core.seen import JobSeen, MembersSeen, ReadySeen, Seen
from supervisor.core.state import KILL, Attempt, State, send_key
from supervisor.core.stopping import grace_after, saves_worthless, stopping, verifying
from supervisor.core.verdicts import Wrong, ended, from_hits, judge
from supervisor.core.watch import begun
from supervisor.core.zero import ZeroWatch

HERE = MachineId("b", "m", "h")
SPEC = replace(incident(), resume=None)
STOP = SPEC.recovery.stop_signal
RUNNER, LEADER = ProcessId(90, 1), ProcessId(100, 1)
ROLES = {"all": RoleGpus((0, 1), (0, 1), ("GPU-0", "GPU-1"))}


def at(boot_s: float) -> Instant:
    return Instant("b", boot_s, boot_s)


WATCH = replace(begun(3, at(0.0)), steps=8, first_step=1, last_step=8)
ATTEMPT = Attempt(number=3, token="t", argv=(), rungs={}, checkpoint=None, began=at(0.0), launched_at=at(1.0))
ATTEMPT = replace(ATTEMPT, runner=RUNNER, leader=LEADER, stop_at=at(10.0), grace_s=60.0)


def state(phase: Phase = Phase.STOPPING, **changes) -> State:
    made = State(run="r", spec=SPEC, phase=phase, attempt=ATTEMPT, attempts_made=3, roles=ROLES, because="so")
    return replace(made, **changes)


def member(pid: int, letter: str = "S", wchan: str = "") -> Member:
    return Member(ProcessId(pid, 1), "python " + "x" * 100, Proof.TOKEN, letter, pgid=100, wchan=wchan)


def said(of: State, boot_s: float = 20.0, watch=WATCH, members: tuple[Member, ...] | None = (), **what):
    sweep = None if members is None else MembersSeen(members=members, empty_looks=0)
    return stopping(of, watch, Seen(at=at(boot_s), machine=HERE, members=sweep, **what))


GOES_ON = JobSeen(claim="runner", runner=RUNNER, leader=LEADER)


def test_what_is_learned_while_an_attempt_is_ended_is_recorded_first():
    ended_ = replace(GOES_ON, exit=ExitRecord(code=1, signal=None))
    (end,) = said(state(), job=ended_, members=(member(101),))
    assert (end.end.code, end.first_step, end.last_step) == (1, 1, 8)
    known = state(attempt=replace(ATTEMPT, end=ended_.exit))
    assert type(said(known, job=ended_, members=(member(101),))[0]).__name__ == "SignalIntended"
    (abandoned,) = said(state(), job=JobSeen(claim="supervisor"))
    assert (type(abandoned).__name__, abandoned.because) == ("LaunchAbandoned", "so")
    assert said(state(attempt=replace(ATTEMPT, abandoned=True)), job=JobSeen(claim="supervisor")) == ()
    (came,) = said(state(attempt=replace(ATTEMPT, leader=None)), job=GOES_ON)
    assert (came.runner, came.leader) == (RUNNER, LEADER)
    unlaunched = replace(ATTEMPT, launched_at=None, leader=None)
    (came,) = said(state(attempt=unlaunched), job=replace(GOES_ON, leader=None))
    assert came.leader is None
    assert said(state(attempt=unlaunched), job=ended_)[0].runner == RUNNER, "first that it came, then how it ended"
    assert said(state(), job=replace(GOES_ON, leader=None)) == ()
    assert said(state(attempt=unlaunched), job=JobSeen(claim="runner")) == ()


def test_nobody_is_taken_for_gone_while_the_claim_is_open_or_nobody_has_looked():
    gone = {"members": None}
    assert said(state(), job=GOES_ON, **gone) == ()
    look = Seen(at=at(20.0), machine=HERE, members=MembersSeen(members=(), empty_looks=2), job=JobSeen(claim="none"))
    assert stopping(state(), WATCH, look) == ()
    assert stopping(state(), WATCH, replace(look, job=None))[0].attempt == 3


def test_what_was_sent_is_recorded_one_by_one():
    asked = replace(ATTEMPT, intended=frozenset({send_key(STOP, True), KILL}))
    (first,) = said(state(attempt=asked), sent=frozenset({KILL, send_key(STOP, True)}))
    assert (first.signal, first.group) == (KILL, False)
    (second,) = said(state(attempt=replace(asked, sent=frozenset({KILL}))), sent=frozenset({send_key(STOP, True)}))
    assert (second.signal, second.group) == (STOP, True)
    assert said(state(), sent=frozenset({KILL})) == (), "nobody intended it"


def test_the_group_is_asked_before_anybody_is_killed_but_not_without_grace():
    (asks,) = said(state(), members=(member(101), replace(member(102), pgid=7)))
    assert (asks.signal, asks.group, [one.id.pid for one in asks.targets]) == (STOP, True, [101])
    (kills,) = said(state(attempt=replace(ATTEMPT, grace_s=0.0)), members=(member(101),))
    assert (kills.signal, kills.group) == (KILL, False)
    half = replace(ATTEMPT, grace_s=0.5)
    assert said(state(attempt=half), boot_s=10.4, members=(member(101),))[0].signal == STOP
    (others,) = said(state(), members=(replace(member(102), pgid=7),))
    assert (others.signal, [one.id.pid for one in others.targets]) == (KILL, [102]), "nobody of the group is left"


def test_who_cannot_be_killed_is_named_with_what_it_hangs_on():
    told = replace(ATTEMPT, signalled=frozenset({(101, 1, KILL), (102, 1, KILL)}), kill_at=at(80.0))
    told = replace(told, intended=frozenset({send_key(STOP, True), KILL}))
    watch = replace(WATCH, kill_began_boot_s=100.0)
    members = (member(101, "D", "nvidia_close"), member(102, "D"))
    one, two, end = said(state(attempt=told), 115.0, watch, members=members)
    assert (one.id.pid, two.id.pid, one.wchan) == (101, 102, "nvidia_close")
    command = ("python " + "x" * 100)[:80]
    assert end.because == (
        f"pid 101 ({command}) survives KILL in uninterruptible sleep at nvidia_close (2 such processes);"
        " only the kernel or a reboot can end it"
    )
    assert (end.ending, end.held, end.next_command) == (Ending.HALTED, True, "supervise down r")
    _, end = said(state(attempt=told), 115.0, watch, members=members[1:])
    assert "in uninterruptible sleep at unknown; only" in end.because
    _, end = said(state(attempt=told), 400.0, watch, members=(member(101, "Z"),))
    assert "survives KILL in state Z" in end.because


def test_a_writer_beside_the_checkpoints_is_not_spared_where_what_it_saves_is_worthless():
    bad = Failure(kind=Kind.NUMERIC, because="nan", bad_step=0)
    of = replace(ATTEMPT, failure=bad, intended=frozenset({send_key(STOP, True)}))
    sweep = MembersSeen(members=(member(101),), empty_looks=0, writing=frozenset({101}))
    look = Seen(at=at(80.0), machine=HERE, members=sweep)
    assert len(stopping(state(attempt=of), WATCH, look)) == 1
    assert stopping(state(attempt=replace(of, failure=None)), WATCH, look) == ()
    assert saves_worthless(bad)
    assert saves_worthless(Failure(kind=Kind.LOST_PROGRESS, because="b"))
    assert not saves_worthless(Failure(kind=Kind.NUMERIC, because="b"))
    assert not saves_worthless(None)


def test_the_grace_is_for_progress_that_can_be_saved():
    hit = Hit(signature="s", kind=Kind.GPU_OOM, file="/o", line=1, offset=0, text="oom")
    oom = Failure(kind=Kind.GPU_OOM, because="oom")
    at_8 = replace(WATCH, pending=(Pending(hit=hit, seen_boot_s=1.0, uuid=None, steps_at=8),))
    at_7 = replace(WATCH, pending=(Pending(hit=hit, seen_boot_s=1.0, uuid=None, steps_at=7),))
    assert grace_after(state(), at_8, oom) == 0.0
    assert grace_after(state(), at_7, oom) == 60.0
    assert grace_after(state(), WATCH, oom) == 0.0
    assert grace_after(state(), at_8, Failure(kind=Kind.HANG, because="b")) == 60.0
    assert grace_after(state(), at_8, None) == 60.0
    assert grace_after(state(), at_7, replace(oom, bad_step=3)) == 0.0


# ── the proof ──


def verify(boot_s: float = 20.0, of: State | None = None, used: tuple[float | None, ...] = (9_000.0, 0.0), **what):
    """What is said then; the last process was gone at 10 s, each GPU's newest reading began half a second ago."""
    zero = ZeroWatch(of=("GPU-0", "GPU-1"))
    for n, mib in enumerate(used):
        if mib is not None:
            for began in (what.pop("began", 10.0), boot_s - 0.5):
                zero = zero.seen((Reading(f"GPU-{n}", n, began, mib, 90_000.0, None, None),), False)
    watch = replace(WATCH, zero=zero, zero_began_boot_s=10.0, holders=what.get("holders") or ())
    of = of or state(Phase.VERIFYING, verify_from=at(10.0))
    return verifying(of, watch, Seen(at=at(boot_s), machine=HERE, **what))


def holder(owner: Owner = Owner.FOREIGN, pid: int = 7) -> Holder:
    return Holder("GPU-0", pid, "bob", "vllm " + "x" * 100, owner)


def test_zero_is_verified_with_the_time_it_took_and_what_was_in_use():
    (zero,) = verify(12.8466, used=(3.0, 5.0))
    assert (zero.attempt, zero.waited_s, zero.used_mib) == (3, 2.847, (3.0, 5.0))


def test_foreign_holders_are_named_and_waited_for_as_long_as_the_spec_says():
    rules = SPEC.recovery.verify_zero
    waits = replace(rules, foreign=replace(rules.foreign, wait_s=0.5))
    spec = replace(SPEC, recovery=replace(SPEC.recovery, verify_zero=waits))
    of = state(Phase.VERIFYING, verify_from=at(10.0), spec=spec)
    (told,) = verify(of=of, holders=(holder(),))
    assert (told.holders, told.wait_s, told.attempt) == ((holder(),), 0.5, 3)
    once = replace(of, foreign_wait_s=0.5)
    not_zero, end = verify(of=once, holders=(holder(),))
    assert not_zero.why == "foreign processes hold the run's GPUs"
    assert (not_zero.used_mib, not_zero.waited_s) == ((9_000.0, 0.0), 10.0)
    command = ("vllm " + "x" * 100)[:60]
    assert end.because == (
        f"verify-zero failed after 10 s: foreign processes hold the run's GPUs: pid 7 (bob) {command}"
    )
    assert (end.ending, end.held, end.next_command) == (Ending.HALTED, True, "supervise gpus")
    stopped = replace(of, plan=Plan(ending=Ending.STOPPED, because="by the user"))
    assert len(verify(of=stopped, holders=(holder(),))) == 2, "who typed `down` waits for an answer"
    assert verify(of=of, holders=(holder(), holder(Owner.UNKNOWN, 8))) == ()
    assert verify(of=of, holders=()) == ()
    _, end = verify(of=once, holders=tuple(holder(pid=pid) for pid in range(1, 7)))
    assert "pid 4 (bob)" in end.because
    assert "pid 5 (bob)" not in end.because


def test_what_stands_against_zero_is_said_when_time_is_up():
    assert verify(309.9) == ()
    not_zero, end = verify(310.0)
    assert not_zero.why == "GPU 0: 9000 MiB in use, its floor is 0 MiB"
    assert end.because == f"verify-zero failed after 300 s: {not_zero.why}"
    not_zero, _ = verify(310.0, used=(None, 0.0))
    assert (not_zero.why, not_zero.used_mib) == ("GPU GPU-0 has not been read yet", (-1.0, 0.0))
    moving = verify(310.0, used=(0.0, 0.0), began=309.0)
    assert moving[0].why == "not stable for long enough"


def test_a_process_that_appears_again_is_ended_again():
    sweep = MembersSeen(members=(member(101),), empty_looks=0)
    plan = Plan(ending=None, because="relaunching")
    of = state(Phase.VERIFYING, verify_from=at(10.0), plan=plan)
    (again,) = verify(of=of, members=sweep)
    assert (again.by, again.grace_s, again.plan) == (By.POLICY, 0.0, plan)
    assert again.because == "a process of the run appeared while the GPUs were being verified"
    assert verify(of=replace(of, attempt=None), members=sweep) == ()


def test_what_the_attempt_wrote_is_on_record_before_its_run_comes_to_rest():
    of = state(Phase.VERIFYING, verify_from=at(10.0), spec=incident())
    saved = Checkpoint(path="/c/step_9", step=9, real="", inode=1, mtime_ns=1)
    (written,) = verify(310.0, of=of, early=ReadySeen(found=(saved,)))
    assert written.checkpoint == saved
    assert verify(310.0, of=of) == (), "nobody has looked yet"
    assert verify(339.9, of=of) == ()
    assert len(verify(340.0, of=of)) == 2, "a disk that does not answer keeps nobody from an end"
    assert verify(20.0, of=of, early=ReadySeen(found=(saved,))) == (), "nothing is at its end yet"


# ── the words of a verdict ──


def hit(kind: Kind = Kind.GPU_OOM, **more) -> Hit:
    made = Hit(signature="cuda_oom", kind=kind, file="/w/logs/out.log", line=7, offset=99, text="the text")
    return replace(made, **more)


def failure(*hits: Hit, uuid: str | None = "GPU-1", why: str = "why", end: ExitRecord | None = None, **watched):
    pending = tuple(Pending(hit=one, seen_boot_s=1.0, uuid=uuid, steps_at=8) for one in hits)
    return from_hits(state(), replace(WATCH, pending=pending, **watched), why, end)


def test_a_failure_says_which_gpu_ran_out_by_how_much_and_where_that_stands():
    found = failure(hit(gpu=5, rank=2, tried_mib=100.0, free_mib=60.0), end=ExitRecord(code=1, signal=None))
    assert found.because == "GPU 1 ran out of memory, short by 40 MiB (out.log:7)"
    assert (found.gpu, found.uuid, found.printed_gpu, found.rank, found.code) == (1, "GPU-1", 5, 2, 1)
    assert (found.log_line, found.where, found.signature) == ("the text", "/w/logs/out.log:7", "cuda_oom")
    assert (found.short_by_mib, found.confidence) == (40.0, "high")
    assert failure(hit(gpu=5), uuid=None).because == "GPU 5 ran out of memory (out.log:7)"
    assert failure(hit(), uuid=None).because == "a GPU ran out of memory (out.log:7)"
    other = failure(hit(Kind.CUDA_ERROR, rank=0))
    assert other.because == "cuda_error on rank 0: the text (out.log:7; why)"
    assert failure(hit(Kind.CUDA_ERROR)).because == "cuda_error: the text (out.log:7; why)"
    assert (other.code, other.signal) == (None, None)


def test_what_lost_is_told_with_its_place():
    found = failure(hit(), hit(Kind.EXIT, offset=200, line=9, signature="exit"))
    assert found.lost == ("exit at out.log:9 (exit): printed later",)


def test_exit_code_0_straight_after_a_failure_text_is_no_finish():
    pending = (Pending(hit=hit(), seen_boot_s=1.0, uuid=None, steps_at=8),)
    end = ExitRecord(code=0, signal=None)
    text = replace(WATCH, pending=pending, failure_text_at=8)
    found = ended(SPEC, state(), text, end)
    assert isinstance(found, Wrong)
    assert found.failure.kind is Kind.GPU_OOM
    assert not isinstance(ended(SPEC, state(), replace(text, failure_text_at=7), end), Wrong), "it went on"
    assert not isinstance(ended(SPEC, state(), replace(text, pending=()), end), Wrong)
    killed = ended(SPEC, state(), text, ExitRecord(code=None, signal=9))
    assert isinstance(killed, Wrong)
    assert (killed.failure.kind, killed.failure.signal) == (Kind.GPU_OOM, 9)


def test_what_a_worker_wrote_as_it_died_comes_before_what_was_printed():
    of = state(Phase.RUNNING, attempt=replace(ATTEMPT, end=ExitRecord(code=1, signal=None)))
    wrote = hit(Kind.CODE_ERROR, file="/w/error.json", line=1, offset=0, rank=3, signature="ValueError")
    ranks = (RankError(3, 5.0, "/w/error.json", "ValueError", (wrote,)),)
    printed = replace(WATCH, pending=(Pending(hit=hit(Kind.CUDA_ERROR), seen_boot_s=1.0, uuid=None, steps_at=8),))
    look = Seen(at=at(20.0), machine=HERE, aftermath=Aftermath(ranks=ranks))
    (found,) = judge(of, printed, look)
    assert isinstance(found, Wrong)
    assert (found.failure.kind, found.failure.rank) == (Kind.CODE_ERROR, 3)
    inside = replace(printed, inside="eval")
    (found,) = judge(of, inside, look)
    assert isinstance(found, Wrong)
    assert found.failure.phase == "eval"


def test_a_changed_protected_param_comes_before_all_else():
    of = state(Phase.RUNNING, attempt=replace(ATTEMPT, end=ExitRecord(code=0, signal=None)))
    look = Seen(at=at(20.0), machine=HERE, violations=("anchors is 512", "block_size is 16"))
    (found,) = judge(of, WATCH, look)
    assert isinstance(found, Wrong)
    failure_ = found.failure
    assert (failure_.kind, failure_.because, failure_.lost) == (
        Kind.PROTECTED_VIOLATION,
        "anchors is 512",
        ("block_size is 16",),
    )
    assert failure_.confidence == "high"


@pytest.mark.parametrize(("tried", "free", "short"), [(10.0, 4.0, 6.0), (10.0, 10.0, None), (10.0, 11.0, None)])
def test_a_text_is_short_by_what_was_missing_where_anything_was(tried, free, short):
    assert hit(tried_mib=tried, free_mib=free).short_by_mib == short
    assert hit(tried_mib=tried).short_by_mib is None
    assert hit(free_mib=free).short_by_mib is None
