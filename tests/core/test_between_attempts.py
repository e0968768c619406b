"""From a wish to run to the record of a launch: what is refused, what is done first, what the launch says."""

from __future__ import annotations

import pytest
from changes import replace
from fake_specs import CHECKPOINTS, incident

from supervisor.core import events as ev
from supervisor.core.between import Leftover
from supervisor.core.errors import Exit
from supervisor.core.evidence import Checkpoint, ExitRecord, Incomplete, Instant, MachineId
from supervisor.core.given import Hooks, Rehearsal
from supervisor.core.kinds import Kind
from supervisor.core.launching import cleaning, preflight
from supervisor.core.lineage import Lineage
from supervisor.core.phases import Phase
from supervisor.core.placing import RoleGpus
from supervisor.core.plans import Ending, Failure, Plan
from supervisor.core.seen import PreflightSeen, Problem, ReadySeen, Seen
from supervisor.core.state import Attempt, State

HERE = MachineId("b", "m", "h")
SPEC = incident()
UP = SPEC.up_command
AT = Instant("b", 9.0, 9.0)
START = Checkpoint(path=f"{CHECKPOINTS}/step_690", step=690, real="", inode=690, mtime_ns=690)
LATER = replace(START, path=f"{CHECKPOINTS}/step_700", step=700, inode=700, mtime_ns=700)
ROLES = {
    role.name: RoleGpus(tuple(map(int, role.gpus)), tuple(map(int, role.gpus)), tuple(f"GPU-{n}" for n in role.gpus))
    for role in SPEC.topology
}
AGAIN = Plan(ending=None, because="relaunching", rungs={"token_budget": 1, "max_batch_size": 0})


def state(phase: Phase = Phase.CLEANING, **changes) -> State:
    made = State(run="r", spec=SPEC, phase=phase, rungs={"token_budget": 0, "max_batch_size": 0}, roles=ROLES)
    return replace(made, **changes)


def ready(**changes) -> ReadySeen:
    made = ReadySeen(
        roles=ROLES, found=(START,), start=START, token="r:1", run_dir="/r", attempt_dir="/r/attempts/0001"
    )
    return replace(made, **changes)


def said(of: State, look: ReadySeen | None, **what) -> tuple[ev.Event, ...]:
    return cleaning(of, Seen(at=AT, machine=HERE, ready=look, **what))


def kinds(events) -> list[str]:
    return [type(one).__name__ for one in events]


# ── the preflight ──


def checked(of: State, **found) -> tuple[ev.Event, ...]:
    look = PreflightSeen(**{"roles": ROLES, "found": (START,), "start": START, **found})
    return preflight(of, Seen(at=AT, machine=HERE, preflight=look))


def test_a_preflight_that_finds_nothing_passes_with_what_it_learned():
    (passed,) = checked(state(Phase.PREFLIGHT), warnings=("w",), floors={"GPU-0": 3.0})
    assert (passed.roles, passed.warnings, passed.floors) == (ROLES, ("w",), {"GPU-0": 3.0})
    assert preflight(state(Phase.PREFLIGHT), Seen(at=AT, machine=HERE)) == ()


def test_a_refusal_names_every_reason_and_has_the_code_of_the_first_or_of_a_conflict():
    problems = (Problem(exit=6, text="no room"), Problem(exit=8, text="GPU 0 is held"))
    (refused,) = checked(state(Phase.PREFLIGHT), problems=problems)
    assert (refused.exit, refused.text, refused.ending) == (6, "no room\nGPU 0 is held", Ending.STOPPED)
    (refused,) = checked(state(Phase.PREFLIGHT), problems=(*problems, Problem(exit=Exit.CONFLICT, text="locked")))
    assert refused.exit == Exit.CONFLICT
    (refused,) = checked(state(Phase.PREFLIGHT, was_halted=True), problems=problems)
    assert refused.ending is Ending.HALTED, "a run that was halted stays so"


def test_a_start_that_is_not_whole_is_refused_with_the_command_that_names_another():
    torn = Incomplete(START.path, 690, "torn")
    (refused,) = checked(state(Phase.PREFLIGHT), start=torn, found=(LATER,))
    assert refused.exit == Exit.PREFLIGHT
    assert refused.text.endswith(f"\n  next: {UP} --from {LATER.path}")
    auto = replace(SPEC, resume=replace(SPEC.resume, mode="auto"))
    (refused,) = checked(state(Phase.PREFLIGHT, spec=auto), found=(START, LATER))
    assert refused.exit == Exit.PREFLIGHT
    assert "resume.mode is auto" in refused.text


# ── between two attempts: one thing after the other ──

ENDED = Attempt(number=1, token="r:1", argv=(), rungs={}, checkpoint=START, began=AT, launched_at=AT)
ENDED = replace(ENDED, end=ExitRecord(code=1, signal=None), last_step=9)
TAKEN = Lineage().launched(START, [START]).taken(START)


def after(**changes) -> State:
    """One attempt was made, from the start."""
    return state(**{"attempt": ENDED, "attempts_made": 1, "launched_in_episode": 1, "lineage": TAKEN, **changes})


def test_what_the_last_attempt_wrote_is_on_record_before_anything_else():
    assert said(after(plan=AGAIN), None) == ()
    (written,) = said(after(plan=AGAIN), ready(found=(START, LATER)))
    assert (written.checkpoint, written.attempt, written.logged_step) == (LATER, 1, 9)
    unlaunched = after(plan=AGAIN, attempt=replace(ENDED, launched_at=None))
    assert kinds(said(unlaunched, ready(found=(START, LATER)))) == ["LaunchIntended"]


def test_a_plan_that_ends_the_episode_ends_it_and_one_that_waits_waits_once():
    ending = Plan(ending=Ending.HALTED, because="no rung left", next_command="n")
    (end,) = said(after(plan=ending), ready())
    assert (end.ending, end.because, end.next_command) == (Ending.HALTED, "no rung left", "n")
    waits = replace(AGAIN, wait_s=0.5)
    (backoff,) = said(after(plan=waits), ready())
    assert (backoff.wait_s, backoff.because) == (0.5, "relaunching")
    assert kinds(said(after(plan=waits, waited=True), ready())) == ["LaunchIntended"]
    assert kinds(said(after(plan=AGAIN), ready())) == ["LaunchIntended"]


def test_a_relaunch_that_a_pause_holds_back_waits_for_resume():
    failed = replace(ENDED, failure=Failure(kind=Kind.HANG, because="b"))
    (held,) = said(after(plan=AGAIN, paused=True, attempt=failed), ready())
    assert (held.wait_s, held.because) == (0.0, "recovery is paused; next: supervise resume r")


def test_leftovers_stale_output_and_cut_shards_are_dealt_with_once_each_in_this_order():
    left = Leftover(path="/dev/shm/x", what="shared memory", proof="p", device=1, inode=1)
    stale = {"stale_how": "archive", "stale_path": "/o", "stale_to": "/p"}
    look = ready(leftovers=(left,), cut=(("/s1", "/t1", "torn"), ("/s2", "/t2", "torn")), **stale)
    (tidy,) = said(state(), look)
    assert tidy.leftovers == (left,)
    tidying = state(tidying=tidy)
    assert said(tidying, look) == ()
    removed = ev.LeftoversRemoved(removed=("/dev/shm/x",))
    assert said(tidying, look, tidied=removed) == (removed,)
    (clean,) = said(state(tidied=True), look)
    assert (clean.path, clean.how, clean.to) == ("/o", "archive", "/p")
    cleaning_ = state(tidied=True, cleaning=clean)
    assert said(cleaning_, look) == ()
    assert said(cleaning_, look, cleaned="done", cleaned_path="/elsewhere") == ()
    assert said(cleaning_, look, cleaned="done", cleaned_path="/o") == (ev.Cleaned(did="done"),)
    (aside,) = said(state(tidied=True, cleaned=True), look)
    assert (aside.path, aside.how, aside.to) == ("/s1", ev.ASIDE, "/t1")
    (aside,) = said(state(tidied=True, cleaned=True, set_aside=("/s1",)), look)
    assert aside.path == "/s2"
    assert kinds(said(state(tidied=True, cleaned=True, set_aside=("/s1", "/s2")), look)) == ["LaunchIntended"]


def test_a_rehearsal_leaves_the_output_as_it_is():
    look = ready(stale_how="archive", stale_path="/o", stale_to="/p")
    rehearses = replace(SPEC, rehearsal=Rehearsal(steps=5))
    (launch,) = said(state(spec=rehearses), look)
    assert (launch.rehearsal, launch.output_there) == (True, True)
    assert launch.because == "a rehearsal first: resume.start"
    for past in ({"rehearsed": True}, {"launched_in_episode": 1}):
        assert kinds(said(state(spec=rehearses, **past), look)) == ["CleanIntended"]


def test_what_stands_against_a_launch_halts_with_every_reason():
    problems = (Problem(exit=6, text="no room"), Problem(exit=6, text="no port"))
    (end,) = said(state(), ready(problems=problems))
    assert (end.ending, end.because, end.next_command) == (Ending.HALTED, "no room\nno port", UP)
    (end,) = said(after(plan=AGAIN), ready(found=(Incomplete(START.path, 690, "torn"),)))
    assert end.ending is Ending.HALTED
    assert end.next_command == f"{UP} --from none"
    auto = replace(SPEC, resume=replace(SPEC.resume, mode="auto"))
    (end,) = said(state(spec=auto), ready(found=(START, LATER)))
    assert (end.ending, end.next_command) == (Ending.HALTED, UP)
    assert "the trainer would take" in end.because


# ── the launch ──


def test_a_launch_says_all_that_it_is_made_with():
    look = ready(found=(START, Incomplete("/c/x", 1, "torn")), ports={"master": 29500}, output_there=False)
    (launch,) = said(after(plan=AGAIN), look)
    assert (launch.attempt, launch.token, launch.because) == (2, "r:1", "relaunching")
    assert launch.rungs == AGAIN.rungs
    assert launch.knobs == {"token_budget": "45056", "max_batch_size": "64"}
    assert launch.protected == {"anchors": "1024", "block_size": "32"}
    assert (launch.checkpoint, launch.present, launch.ports) == (START, (START,), {"master": 29500})
    assert (launch.roles, launch.output_there, launch.rehearsal) == (ROLES, False, False)
    assert launch.argv[:2] == ("scripts/start_training.sh", "--drafter-gpus=5,6,7")
    (first,) = said(state(), look)
    assert (first.attempt, first.because, first.rungs) == (1, "resume.start", {"token_budget": 0, "max_batch_size": 0})


@pytest.mark.parametrize(("there", "how", "after_"), [(True, "", True), (True, "remove", False), (False, "", False)])
def test_the_output_was_there_unless_it_was_cleaned_away(there, how, after_):
    (launch,) = said(state(cleaned=True), ready(output_there=there, stale_how=how, stale_path="/o"))
    assert launch.output_there is after_


def test_from_holds_for_the_first_launch_of_the_episode_and_none_until_a_checkpoint_is_gained():
    named = ready(named=LATER, found=(START, LATER))
    (launch,) = said(state(from_=LATER.path), named)
    assert launch.checkpoint == LATER
    (launch,) = said(after(plan=AGAIN, from_=LATER.path), ready(named=LATER, found=(START,)))
    assert launch.checkpoint == START
    (launch,) = said(state(from_="none"), ready())
    assert launch.checkpoint is None
    (launch,) = said(after(plan=AGAIN, from_="none", gained_in_episode=True), ready())
    assert launch.checkpoint == START
    written = TAKEN.written(LATER, 1)
    older = after(plan=replace(AGAIN, from_older=True), lineage=written)
    (launch,) = said(older, ready(found=(START, LATER)))
    assert launch.checkpoint == START
    (launch,) = said(replace(older, plan=AGAIN), ready(found=(START, LATER)))
    assert launch.checkpoint == LATER


def test_a_checkpoint_of_another_run_is_none_of_ours():
    bare = replace(SPEC, resume=replace(SPEC.resume, start=None))
    (end,) = said(state(spec=bare), ready(start=None, claimed={START.path: "other"}))
    assert "belongs to run other" in end.because


def test_checkpoints_are_given_up_before_a_launch_but_the_one_it_takes():
    keeps = replace(SPEC, resume=replace(SPEC.resume, keep=1))
    third = replace(START, path=f"{CHECKPOINTS}/step_710", step=710, inode=710, mtime_ns=710)
    of = after(plan=AGAIN, spec=keeps, lineage=TAKEN.written(LATER, 1).written(third, 1))
    (prune,) = said(of, ready(found=(START, LATER, third)))
    assert prune.checkpoints == (LATER,)
    pruning = replace(of, pruning=prune)
    assert said(pruning, ready(found=(START, LATER, third))) == ()
    gone = ev.Pruned(removed=(LATER.path,))
    assert said(pruning, ready(found=(START, third)), pruned=(prune, gone)) == (gone,)


# ── hooks ──

HOOKED = replace(SPEC, hooks=Hooks(before_launch=("sync",), after_stop=("upload",)))


def test_each_hook_runs_once_and_a_launch_that_its_hook_refuses_is_not_made():
    (hook,) = said(after(plan=AGAIN, spec=HOOKED), ready())
    assert (hook.hook, hook.attempt, hook.argv, hook.token) == ("after_stop", 1, ("upload",), "r:1")
    stopped = after(plan=AGAIN, spec=HOOKED, hooked=("after_stop:1",))
    (hook,) = said(stopped, ready(token="r:2"))
    assert (hook.hook, hook.attempt, hook.argv, hook.token) == ("before_launch", 2, ("sync",), "r:2")
    done = replace(stopped, hooked=("after_stop:1", "before_launch:2"))
    assert kinds(said(done, ready())) == ["LaunchIntended"]
    refused = replace(done, hook_end=ev.HookEnded(attempt=2, hook="before_launch", code=3))
    (end,) = said(refused, ready())
    assert (end.ending, end.next_command) == (Ending.HALTED, UP)
    assert end.because.endswith("nothing was launched")
    for other in ({"code": 0}, {"code": 3, "attempt": 1}, {"code": 3, "hook": "after_stop"}):
        fine = replace(done, hook_end=replace(refused.hook_end, **other))
        assert kinds(said(fine, ready())) == ["LaunchIntended"]
    unlaunched = after(plan=AGAIN, spec=HOOKED, attempt=replace(ENDED, launched_at=None))
    assert said(unlaunched, ready())[0].hook == "before_launch", "what never ran has nothing to upload"


def test_a_hook_that_runs_is_waited_for_and_one_after_a_stop_that_fails_is_only_told():
    running = ev.HookIntended(attempt=1, hook="after_stop", argv=("upload",), token="r:1")
    waits = after(plan=AGAIN, spec=HOOKED, hook=running)
    assert said(waits, ready()) == ()
    end = ev.HookEnded(attempt=1, hook="after_stop", code=0)
    assert said(waits, ready(), hook=end) == (end,)
    failed = replace(end, code=3)
    told, warned = said(waits, ready(), hook=failed)
    assert told == failed
    assert warned.text.endswith("what was to follow goes on")
    before = replace(running, hook="before_launch")
    said_no = replace(failed, hook="before_launch")
    assert said(replace(waits, hook=before), ready(), hook=said_no) == (said_no,)
