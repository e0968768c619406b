"""What is ordered in each phase, and what now.json says to scripts."""

from __future__ import annotations

import pytest
from changes import replace
from fake_specs import incident

from supervisor.core import events as ev
from supervisor.core import seen as see
from supervisor.core.alive import Dumped, DumpIntended
from supervisor.core.evidence import (
    Checkpoint,
    Hit,
    Instant,
    MachineId,
    Member,
    ProcessId,
    Proof,
    Reading,
    Sign,
    Unreadable,
)
from supervisor.core.given import Hooks
from supervisor.core.hooks import order as hook_order
from supervisor.core.kinds import Kind
from supervisor.core.now import now_document
from supervisor.core.orders import order
from supervisor.core.pending import Pending
from supervisor.core.phases import HAS_JOB, Phase
from supervisor.core.placing import RoleGpus
from supervisor.core.plans import Ending, Failure, Plan
from supervisor.core.seen import MembersSeen, Seen
from supervisor.core.state import KILL, Attempt, State, send_key
from supervisor.core.watch import Watch, begun

HERE = MachineId("b", "m", "here")
SPEC = incident(hooks=Hooks(before_launch=("sync",), timeout_s=60.0))
STOP = SPEC.recovery.stop_signal
AGAIN = Plan(ending=None, because="relaunching")
STOPPED = Plan(ending=Ending.STOPPED, because="stopped by the user")
CHECKPOINT = Checkpoint(path="/c/step_7", step=7, real="", inode=1, mtime_ns=1)


def at(boot_s: float) -> Instant:
    return Instant("b", boot_s, 1_000.0 + boot_s)


WATCH = begun(3, at(0.0))


def attempt(**changes) -> Attempt:
    made = Attempt(number=3, token="t", argv=(), rungs={}, checkpoint=None, began=at(0.0), launched_at=at(1.0))
    return replace(made, leader=ProcessId(100, 1), **changes)


def state(phase: Phase, **changes) -> State:
    made = State(run="r", spec=SPEC, phase=phase, attempt=attempt(), attempts_made=3, because="so")
    return replace(made, **changes)


def seen(boot_s: float = 9.0, **what) -> Seen:
    return Seen(at=at(boot_s), machine=HERE, **what)


def ordered(of: State, watch: Watch = WATCH, look: Seen | None = None) -> see.Order:
    return order(of, watch, look or seen())


# ── orders ──


def test_a_preflight_checks_the_spec_with_the_knobs_and_the_checkpoint_that_were_asked_for():
    checks = ordered(state(Phase.PREFLIGHT, rungs={"token_budget": 1}, from_="none"))
    assert checks == see.CheckFit(spec=SPEC, from_="none", rungs={"token_budget": 1})


@pytest.mark.parametrize("phase", HAS_JOB)
def test_an_attempt_is_launched_until_its_runner_came_and_followed_from_then_on(phase):
    assert ordered(state(phase, attempt=attempt(launched_at=None))) == see.Launch(attempt=3)
    dumping = DumpIntended(attempt=3, why="hang")
    follow = ordered(state(phase, attempt=attempt(dumping=dumping)), replace(WATCH, progress_boot_s=5.0))
    assert follow == see.Follow(attempt=3, dump=dumping)
    quiet = ordered(state(phase), replace(WATCH, progress_boot_s=5.0, suspects=True), seen(25.0))
    assert quiet == see.Follow(attempt=3, quiet=True, processes=True)


def test_who_holds_the_gpus_is_asked_for_once_a_second_of_verifying_is_over():
    of = state(Phase.VERIFYING, verify_from=at(10.0))
    assert ordered(of, look=seen(10.9)) == see.Verify(attempt=3)
    assert ordered(of, look=seen(11.0)) == see.Verify(attempt=3, holders=True)
    assert ordered(of, look=Seen.nothing()) == see.Verify(attempt=3), "before the first look no time has passed"


def test_between_two_attempts_one_thing_is_done_after_the_other():
    hook = ev.HookIntended(attempt=4, hook="before_launch", argv=("sync",), token="t")
    prune = ev.PruneIntended(checkpoints=(CHECKPOINT,))
    tidy = ev.LeftoversIntended(leftovers=())
    clean = ev.CleanIntended(path="/o", how="archive", to="/p")
    everything = {"hook": hook, "pruning": prune, "tidying": tidy, "cleaning": clean}
    wanted = [
        see.Hook(hook=hook, timeout_s=60.0),
        see.Prune(prune=prune),
        see.Tidy(leftovers=()),
        see.Clean(path="/o", how="archive", to="/p"),
        see.GetReady(attempt=4),
    ]
    for n, order_ in enumerate(wanted):
        assert ordered(state(Phase.CLEANING, **dict(list(everything.items())[n:]))) == order_
    ending = state(Phase.CLEANING, pruning=prune, plan=STOPPED)
    assert ordered(ending) == see.GetReady(attempt=4), "no checkpoint is given up for a launch that is not to come"


def test_a_hook_that_prepares_a_launch_is_ended_where_none_is_wanted_any_more():
    before = ev.HookIntended(attempt=4, hook="before_launch", argv=("sync",), token="t")
    after = replace(before, hook="after_stop")
    assert hook_order(state(Phase.CLEANING, hook=before, plan=STOPPED)).stop
    assert not hook_order(state(Phase.CLEANING, hook=after, plan=STOPPED)).stop
    assert not hook_order(state(Phase.CLEANING, hook=before, plan=AGAIN)).stop
    assert not hook_order(state(Phase.CLEANING, hook=before)).stop
    gone = state(Phase.CLEANING, hook=before)
    assert hook_order(replace(gone, spec=replace(SPEC, hooks=None))).timeout_s == 0.0, "the spec names none any more"


def test_a_backoff_reads_the_gpus_only_where_others_are_waited_for():
    assert ordered(state(Phase.BACKOFF, foreign_wait_s=0.5)) == see.Wait(readings=True)
    assert ordered(state(Phase.BACKOFF)) == see.Wait()
    for phase in (Phase.FINISHED, Phase.STOPPED, Phase.HALTED):
        assert ordered(state(phase)) == see.Rest()


def member(pid: int, pgid: int = 100) -> Member:
    return Member(ProcessId(pid, 1), f"python {pid}", Proof.TOKEN, "S", pgid=pgid)


def test_only_those_are_signalled_whom_the_journal_names():
    ending = attempt(stop_at=at(5.0), grace_s=60.0, intended=frozenset({send_key(STOP, True)}))
    ending = replace(ending, signalled=frozenset({(101, 1, STOP), (103, 1, STOP)}))
    look = seen(members=MembersSeen(members=(member(101), member(102), member(103, pgid=7)), empty_looks=0))
    asks = ordered(state(Phase.STOPPING, attempt=ending), look=look)
    assert (asks.send, asks.group, [one.id.pid for one in asks.targets], asks.abandon) == (STOP, True, [101], False)
    sent = replace(ending, sent=frozenset({send_key(STOP, True)}))
    assert ordered(state(Phase.STOPPING, attempt=sent), look=look) == see.Stop(attempt=3), "the group has its grace"
    killing = replace(sent, signalled=frozenset({(101, 1, KILL), (102, 2, KILL)}))
    late = replace(look, at=at(65.0))
    kills = ordered(state(Phase.STOPPING, attempt=killing), look=late)
    assert (kills.send, kills.group, [one.id.pid for one in kills.targets]) == (KILL, False, [101])
    unlaunched = state(Phase.STOPPING, attempt=replace(sent, launched_at=None))
    assert ordered(unlaunched, look=seen()) == see.Stop(attempt=3, abandon=True)
    assert ordered(unlaunched, look=look) == see.Stop(attempt=3, abandon=True)


# ── now.json ──


def roles() -> dict[str, RoleGpus]:
    return {
        "target": RoleGpus(ordinals=(0,), physical=(4,), uuids=("GPU-a",)),
        "drafter": RoleGpus(ordinals=(1, 2), physical=(5, 6), uuids=("GPU-b", "GPU-c")),
    }


def test_now_json_says_all_that_status_shows_beside_the_journal():
    """Its keys are read by scripts of people: `docs/` names them."""
    hit = Hit(signature="s", kind=Kind.CUDA_ERROR, file="/o", line=1, offset=0, text="x" * 300)
    pending = tuple(Pending(hit=hit, seen_boot_s=1.0, uuid=None, steps_at=0) for _ in range(4))
    reading = Reading("GPU-a", 4, 8.0, 70.0, 90.0, None, 55.0, temperature_c=61.0, power_w=300.0)
    watch = replace(
        WATCH,
        last_step=9,
        rate=1.5,
        loss=2.5,
        total=100,
        pending=pending,
        readings={"GPU-a": reading, "GPU-b": Unreadable("GPU-b", 5, 8.0, "lost")},
        course=replace(WATCH.course, peaks={"GPU-a": 80.0}),
    )
    of = attempt(checkpoint=CHECKPOINT, dump=Dumped(attempt=3, why="hang", path="/d"))
    of_run = state(Phase.RUNNING, attempt=of, roles=roles(), paused=True, would="would halt", next_command="n")
    unread = {"used_mib": None, "total_mib": None, "util_pct": None, "state": "unreadable"}
    assert now_document(of_run, watch, seen(last_line="step 9")) == {
        "schema": "supervise.now/v1",
        "as_of": {"boot_id": "b", "boot_s": 9.0, "wall_s": 1_009.0},
        "phase": "running",
        "paused": True,
        "attempt": 3,
        "step": 9,
        "rate": 1.5,
        "loss": 2.5,
        "total": 100,
        "pending": ["x" * 200] * 3,
        "checkpoint": {"path": "/c/step_7", "step": 7},
        "because": "so",
        "next": "n",
        "load": "",
        "would": "would halt",
        "ahead": [],
        "less": "",
        "dump": "/d",
        "gpus": [
            {
                "index": 4,
                "uuid": "GPU-a",
                "role": "target",
                "used_mib": 70.0,
                "total_mib": 90.0,
                "util_pct": 55.0,
                "peak_mib": 80.0,
                "temperature_c": 61.0,
                "power_w": 300.0,
                "state": "ok",
            },
            {"index": 5, "uuid": "GPU-b", "role": "drafter", **unread, "why": "lost"},
            {"index": 6, "uuid": "GPU-c", "role": "drafter", **unread, "why": "not read yet"},
        ],
        "last_line": "step 9",
    }


def test_before_the_first_attempt_there_is_none_to_tell_of():
    said = now_document(state(Phase.PREFLIGHT, attempt=None, next_command="n"), WATCH, seen())
    assert (said["attempt"], said["checkpoint"], said["dump"], said["next"]) == (None, None, "", "n")
    assert now_document(state(Phase.RUNNING), WATCH, seen())["dump"] == ""


def test_a_loss_that_json_cannot_say_is_none():
    for loss in (float("nan"), float("inf")):
        assert now_document(state(Phase.RUNNING), replace(WATCH, loss=loss), seen())["loss"] is None


def test_now_json_says_what_comes_next():
    def next_(phase: Phase, **changes) -> str:
        return now_document(state(phase, **changes), WATCH, seen())["next"]

    assert next_(Phase.BACKOFF, backoff_s=20.4) == "relaunch after 20 s"
    failed = attempt(failure=Failure(kind=Kind.HANG, because="b"))
    held = next_(Phase.BACKOFF, paused=True, plan=AGAIN, attempt=failed)
    assert held == "relaunch once resumed: supervise resume r"
    for phase in (Phase.STOPPING, Phase.VERIFYING, Phase.CLEANING):
        assert next_(phase, plan=AGAIN) == AGAIN.do
        assert next_(phase, plan=STOPPED) == STOPPED.do
        assert next_(phase) == "launch"


def test_now_json_tells_of_a_load_while_an_attempt_starts():
    def load(phase: Phase = Phase.STARTING, sign: Sign | None = None, last_s: float = 0.0) -> str:
        return now_document(state(phase, last_start_s=last_s), replace(WATCH, load=sign), seen())["load"]

    shard = Sign("loading shard", 13, 47, 8.0)
    assert load(sign=shard, last_s=1324.0) == "loading shard 13 of 47, last time 22m04s"
    assert load(sign=shard) == "loading shard 13 of 47"
    assert load(last_s=0.5) == "last time 0.5s"
    assert load(sign=Sign("", 13, 47, 8.0)) == "13 of 47"
    assert load() == ""
    assert load(Phase.RUNNING, shard, 1324.0) == ""
