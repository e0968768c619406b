"""The deadlines of a stop, a launch and a look: a limit that is reached is over, one that is near is not."""

from __future__ import annotations

import pytest
from changes import replace
from fake_specs import incident

from supervisor.core.alive import DumpIntended
from supervisor.core.decisions import decide
from supervisor.core.evidence import (
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
    Step,
)
from supervisor.core.kinds import Kind
from supervisor.core.pending import Pending, is_refuted
from supervisor.core.phases import Phase
from supervisor.core.placing import RoleGpus
from supervisor.core.seen import JobSeen, MembersSeen, Seen
from supervisor.core.stall import hangs, is_half_started, is_quiet, may_conclude, starts_too_late, startup_timeout_s
from supervisor.core.state import KILL, Attempt, State, send_key
from supervisor.core.stopping import stopping, to_kill, verifying
from supervisor.core.verdicts import Wrong, judge
from supervisor.core.watch import GAP_S, Watch, begun, looked
from supervisor.core.zero import ZeroWatch

HERE = MachineId("b", "m", "h")
SPEC = incident()
GRACE_S, TIMEOUT_S = SPEC.recovery.grace_s, SPEC.recovery.verify_zero.timeout_s
LEADER, RUNNER = ProcessId(100, 1), ProcessId(90, 1)
STOP = SPEC.recovery.stop_signal
ROLES = {
    role.name: RoleGpus(
        ordinals=tuple(map(int, role.gpus)),
        physical=tuple(map(int, role.gpus)),
        uuids=tuple(f"GPU-{gpu}" for gpu in role.gpus),
    )
    for role in SPEC.topology
}


def at(boot_s: float) -> Instant:
    return Instant("b", boot_s, boot_s)


def attempt(**changes) -> Attempt:
    made = Attempt(number=1, token="t", argv=("x",), rungs={}, checkpoint=None, began=at(0.0), launched_at=at(0.0))
    return replace(made, **{"leader": LEADER, "runner": RUNNER, **changes})


def state(phase: Phase, **changes) -> State:
    of = changes.pop("attempt", attempt())
    return State(run="r", spec=SPEC, phase=phase, entered=at(0.0), attempt=of, roles=ROLES, **changes)


def seen(boot_s: float, **what) -> Seen:
    return Seen(at=at(boot_s), machine=HERE, **what)


def member(pid: int, letter: str = "S", wchan: str = "") -> Member:
    return Member(ProcessId(pid, 1), f"python {pid}", Proof.TOKEN, letter, pgid=100, wchan=wchan)


def sweep(*members: Member, empty_looks: int = 0, writing: frozenset[int] = frozenset()) -> MembersSeen:
    return MembersSeen(members=members, empty_looks=empty_looks, writing=writing)


def names(events) -> list[str]:
    return [type(one).__name__ for one in events]


# ── a stop ──

ENDING = attempt(stop_at=at(10.0), grace_s=GRACE_S, intended=frozenset({send_key(STOP, True)}))


@pytest.mark.parametrize(("after_s", "who"), [(GRACE_S - 0.1, 0), (GRACE_S, 1)])
def test_the_group_has_its_whole_grace_and_no_more(after_s, who):
    of = state(Phase.STOPPING, attempt=ENDING)
    assert len(to_kill(of, ENDING, sweep(member(101)), seen(10.0 + after_s))) == who


@pytest.mark.parametrize("after_s", [GRACE_S - 0.1, GRACE_S])
def test_a_writer_is_spared_for_one_more_grace_after_the_first_kill(after_s):
    killing = replace(ENDING, kill_at=at(100.0))
    members = sweep(member(101), member(102), writing=frozenset({101}))
    killed = to_kill(state(Phase.STOPPING, attempt=killing), killing, members, seen(100.0 + after_s))
    assert [one.id.pid for one in killed] == ([102] if after_s < GRACE_S else [101, 102])


def test_before_any_kill_the_writers_time_begins_where_the_grace_of_the_group_ends():
    members = sweep(member(101), writing=frozenset({101}))
    of = state(Phase.STOPPING, attempt=ENDING)
    assert to_kill(of, ENDING, members, seen(10.0 + 2 * GRACE_S - 0.1)) == ()
    assert len(to_kill(of, ENDING, members, seen(10.0 + 2 * GRACE_S))) == 1


def test_nobody_is_gone_before_two_looks_in_a_row_found_nobody():
    of = state(Phase.STOPPING, attempt=ENDING)
    for looks, said in ((1, []), (2, ["MembersGone"])):
        job = JobSeen(claim="runner", runner=RUNNER, leader=LEADER)
        look = seen(20.0, job=job, members=sweep(empty_looks=looks))
        assert names(stopping(of, begun(1, at(0.0)), look)) == said


def test_a_living_runner_that_neither_starts_nor_ends_is_waited_for_by_grace_and_timeout():
    of = state(Phase.STOPPING, attempt=ENDING)
    job = JobSeen(claim="runner", runner=RUNNER, leader=LEADER, runner_alive=True)
    for waited_s, said in ((GRACE_S + TIMEOUT_S - 0.1, []), (GRACE_S + TIMEOUT_S, ["EpisodeEnded"])):
        look = seen(10.0 + waited_s, job=job, members=sweep(empty_looks=2))
        assert names(stopping(of, begun(1, at(0.0)), look)) == said
    ended = replace(job, exit=ExitRecord(code=0, signal=None))
    of = state(Phase.STOPPING, attempt=replace(ENDING, end=ended.exit))
    look = seen(20.0, job=ended, members=sweep(empty_looks=2))
    assert names(stopping(of, begun(1, at(0.0)), look)) == ["MembersGone"], "its end is known: it starts nothing more"


def killed(of: Attempt, since_s: float, *members: Member) -> list[str]:
    """What is said so long after this supervisor sent KILL."""
    watch = replace(begun(1, at(0.0)), kill_began_boot_s=1000.0)
    look = seen(1000.0 + since_s, members=sweep(*members))
    return names(stopping(state(Phase.STOPPING, attempt=of), watch, look))


def test_who_survives_kill_is_given_up_on_after_15_s_asleep_in_the_kernel_or_after_the_timeout():
    told = replace(ENDING, signalled=frozenset({(101, 1, KILL), (102, 1, KILL)}), kill_at=at(10.0 + GRACE_S))
    assert killed(told, 14.9, member(101, "D")) == []
    assert killed(told, 15.0, member(101, "D")) == ["Unkillable", "EpisodeEnded"]
    assert killed(told, 15.0, member(101, "D"), member(102)) == ["Unkillable", "EpisodeEnded"]
    assert killed(told, TIMEOUT_S - 0.1, member(101)) == []
    assert killed(told, TIMEOUT_S, member(101), member(102)) == ["Unkillable", "Unkillable", "EpisodeEnded"]


def test_those_who_are_born_later_are_killed_too_until_the_timeout():
    told = replace(ENDING, signalled=frozenset({(101, 1, KILL)}), kill_at=at(10.0 + GRACE_S))
    assert killed(told, TIMEOUT_S - 0.1, member(101), member(102)) == ["SignalIntended"]
    assert killed(told, TIMEOUT_S, member(101), member(102)) == ["Unkillable", "Unkillable", "EpisodeEnded"]


# ── verify-zero ──


def reading(gpu: str, boot_s: float, used_mib: float = 0.0, **more) -> Reading:
    return Reading(gpu, int(gpu[-1]), boot_s, used_mib, 90_000.0, None, more.pop("util_pct", None), **more)


def watched(*used: tuple[float, float]) -> ZeroWatch:
    """One GPU, read at these times with so much in use."""
    zero = ZeroWatch(of=("GPU-0",))
    for boot_s, used_mib in used:
        zero = zero.seen((reading("GPU-0", boot_s, used_mib),), False)
    return zero


def test_a_reading_is_of_now_for_five_seconds():
    assert watched((10.0, 0.0)).verified(15.0, 0.0)
    assert not watched((10.0, 0.0)).verified(15.1, 0.0)


def test_memory_stands_still_while_it_moves_by_no_more_than_16_mib():
    assert watched((10.0, 500.0), (11.0, 516.0)).steady_for_s(12.0) == 2.0
    assert watched((10.0, 500.0), (11.0, 517.0)).steady_for_s(12.0) == 1.0
    assert watched((10.0, 500.0), (11.0, 484.0)).steady_for_s(12.0) == 2.0


def test_a_floor_is_learned_from_what_has_stood_still_for_three_seconds():
    assert watched((10.0, 500.0)).learned(12.9, (), sees_all=True).floors == {}
    assert watched((10.0, 500.0)).learned(13.0, (), sees_all=True).floors == {"GPU-0": 500.0}


def test_others_decide_only_once_memory_has_stood_still_for_three_seconds():
    holders = (Holder("GPU-0", 7, "root", "vllm", Owner.FOREIGN),)
    of = replace(state(Phase.VERIFYING, attempt=attempt(stop_at=at(1.0))), verify_from=at(2.0))
    of = replace(of, spec=replace(SPEC, resume=None), roles={"all": RoleGpus((0,), (0,), ("GPU-0",))})
    watch = replace(begun(1, at(0.0)), zero=watched((10.0, 9000.0)), holders=holders)
    for boot_s, said in ((12.9, []), (13.0, ["NotZero", "EpisodeEnded"])):
        assert names(verifying(of, watch, seen(boot_s, holders=holders))) == said
    ours = (*holders, Holder("GPU-0", 8, "root", "python", Owner.RUN))
    assert verifying(of, watch, seen(13.0, holders=ours)) == (), "one of ours among them: it may go yet"


# ── a launch ──


def claimed(waited_s: float) -> list[str]:
    of = state(Phase.STARTING, attempt=attempt(launched_at=None, runner=None, leader=None, began=at(100.0)))
    return names(decide(of, begun(1, at(0.0)), seen(100.0 + waited_s, job=JobSeen(claim="none"))))


def test_a_runner_has_a_minute_to_claim_its_attempt():
    assert claimed(60.0) == []
    assert claimed(60.1) == ["Judged", "StopIntended"]


def test_a_dump_has_thirty_seconds():
    dumping = attempt(dumping=DumpIntended(attempt=1, why="hang", step=7), dumping_at=at(100.0))
    of = state(Phase.RUNNING, attempt=dumping)
    watch = replace(begun(1, at(0.0)), progress_boot_s=100.0, steps=1)
    assert decide(of, watch, seen(129.9, job=JobSeen(claim="runner"))) == ()
    (said,) = decide(of, watch, seen(130.0, job=JobSeen(claim="runner")))
    assert (said.why, said.step, said.problem) == ("hang", 7, "no answer within 30 s")


def test_a_backoff_is_over_when_its_time_is():
    of = state(Phase.BACKOFF, backoff_s=5.0, attempt=None)
    assert decide(of, begun(0, at(0.0)), seen(4.9)) == ()
    assert names(decide(of, begun(0, at(0.0)), seen(5.0))) == ["BackoffOver"]


def test_a_start_has_its_limit_and_is_looked_into_at_half_of_it():
    of, began = state(Phase.STARTING), attempt()
    limit = SPEC.health.startup_timeout_s
    assert starts_too_late(SPEC, of, began, at(limit - 1)) is None
    assert starts_too_late(SPEC, of, began, at(limit)) == "no progress 40m00s after the launch (limit 40m00s)"
    assert not is_half_started(SPEC, of, began, at(limit / 2 - 1))
    assert is_half_started(SPEC, of, began, at(limit / 2))
    assert not is_half_started(SPEC, state(Phase.RUNNING), began, at(limit))
    assert not is_half_started(SPEC, of, attempt(launched_at=None), at(limit))


def test_a_start_without_a_limit_of_the_specs_has_two_hours_then_three_times_the_longest_but_an_hour_at_least():
    auto = replace(SPEC, health=replace(SPEC.health, startup_timeout_s=None))
    for longest_s, limit_s in ((0.0, 7200.0), (0.5, 3600.0), (1200.0, 3600.0), (1201.0, 3603.0)):
        assert startup_timeout_s(auto, state(Phase.STARTING, longest_start_s=longest_s)) == limit_s
    assert startup_timeout_s(SPEC, state(Phase.STARTING, longest_start_s=5000.0)) == 2400.0


# ── a look ──


def stepped(*times_s: float, until_s: float = 0.0) -> Watch:
    """Steps at these times, and a look each minute."""
    watch, steps = begun(1, at(0.0)), dict(enumerate(times_s, start=1))
    due = sorted({*times_s, *range(0, int(until_s), 60)})
    for boot_s in due:
        now = tuple(Step(n, boot_s) for n, when in steps.items() if when == boot_s)
        watch = looked(watch, seen(boot_s, steps=now), state(Phase.RUNNING))
    return watch


def test_a_hang_is_one_when_the_limit_is_reached():
    watch = stepped(10.0, 12.0, until_s=1800)
    assert hangs(SPEC, state(Phase.RUNNING), watch, seen(1811.9)) is None
    assert hangs(SPEC, state(Phase.RUNNING), watch, seen(1812.0)) is not None


def test_a_supervisor_concludes_from_silence_after_ten_seconds_or_a_shorter_limit():
    watch = replace(begun(1, at(0.0)), looking_since_boot_s=100.0)
    assert not may_conclude(watch, seen(109.9), 120.0)
    assert may_conclude(watch, seen(110.0), 120.0)
    assert may_conclude(watch, seen(105.0), 5.0)
    assert not may_conclude(watch, seen(110.0, lagging=True), 120.0)


def test_a_bar_is_looked_for_twenty_seconds_after_the_last_step():
    watch = stepped(10.0)
    assert not is_quiet(state(Phase.RUNNING), watch, seen(29.9))
    assert is_quiet(state(Phase.RUNNING), watch, seen(30.0))


def test_a_supervisor_that_looked_within_ninety_seconds_has_slept_through_nothing():
    watch = looked(begun(1, at(0.0)), seen(10.0), state(Phase.RUNNING))
    assert looked(watch, seen(10.0 + GAP_S), state(Phase.RUNNING)).looking_since_boot_s == 10.0
    later = 10.1 + GAP_S
    assert looked(watch, seen(later), state(Phase.RUNNING)).looking_since_boot_s == later


# ── a failure text ──

TEXT = Hit(kind=Kind.CUDA_ERROR, text="CUDA error", file="/o", offset=1, line=1, signature="s", gpu=5, rank=None)


def verdict(boot_s: float, watch: Watch) -> bool:
    found = list(judge(state(Phase.RUNNING), watch, seen(boot_s)))
    return bool(found) and isinstance(found[0], Wrong) and found[0].failure.kind is Kind.CUDA_ERROR


def pending(**changes) -> Pending:
    return Pending(**{"hit": TEXT, "seen_boot_s": 100.0, "uuid": "GPU-5", "steps_at": 3, **changes})


def test_a_text_counts_once_its_process_has_been_gone_for_five_seconds():
    watch = replace(begun(1, at(0.0)), progress_boot_s=99.0, pending=(pending(gone_since_boot_s=101.0),))
    assert not verdict(105.9, watch)
    assert verdict(106.0, watch)


@pytest.mark.parametrize(("interval_s", "limit_s"), [(1.0, 30.0), (10.0, 30.0), (20.0, 60.0)])
def test_a_text_of_an_idle_gpu_counts_after_thirty_seconds_or_three_intervals_without_a_step(interval_s, limit_s):
    watch = replace(begun(1, at(0.0)), progress_boot_s=100.0, intervals=(interval_s, 0.5), low_since={"GPU-5": 90.0})
    watch = replace(watch, pending=(pending(),))
    assert not verdict(100.0 + limit_s - 0.1, watch)
    assert verdict(100.0 + limit_s, watch)
    later = replace(watch, pending=(pending(seen_boot_s=110.0),))
    assert not verdict(100.0 + limit_s, later), "the text is not as old"
    assert verdict(110.0 + limit_s, later)
    stepping = replace(watch, progress_boot_s=120.0)
    assert not verdict(100.0 + limit_s, stepping), "the run went on meanwhile"
    other = replace(watch, low_since={"GPU-4": 90.0})
    assert not verdict(1000.0, other), "it is another GPU that idles"


def test_a_text_is_refuted_by_its_gpus_holder_after_the_second_step_not_by_memory_that_may_yet_drain():
    after = pending(second_step_boot_s=110.0, holders={"GPU-5": (7,)})
    holds = {"GPU-5": reading("GPU-5", 110.1, 9000.0, pids=(7,))}
    assert is_refuted(after, holds, ("GPU-5",))
    assert not is_refuted(after, {"GPU-5": reading("GPU-5", 110.0, 9000.0, pids=(7,))}, ("GPU-5",))
    assert not is_refuted(after, {"GPU-5": reading("GPU-5", 110.1, 9000.0, pids=(8,))}, ("GPU-5",))
    unknown = replace(after, holders={})
    for boot_s, used_mib, is_so in ((114.9, 65.0, False), (115.0, 65.0, True), (115.0, 64.0, False)):
        there = {"GPU-5": reading("GPU-5", boot_s, used_mib, pids=())}
        assert is_refuted(unknown, there, ("GPU-5",)) is is_so


def test_a_failure_that_the_job_says_itself_about_a_gpu_keeps_what_it_printed():
    watch = replace(begun(1, at(0.0)), progress_boot_s=99.0, pending=(pending(gone_since_boot_s=100.0),))
    (found, *_) = judge(state(Phase.RUNNING), watch, seen(106.0))
    assert isinstance(found, Wrong)
    assert (found.failure.gpu, found.failure.printed_gpu, found.failure.where) == (5, 5, "/o:1")
