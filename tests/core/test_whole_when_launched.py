"""A checkpoint is whole when it is launched from, not only when the last process died."""

from __future__ import annotations

from fake_specs import incident, small
from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core.decisions import GONE, decide
from supervisor.core.evidence import Checkpoint, Instant, MachineId
from supervisor.core.fold import fold
from supervisor.core.kinds import Kind
from supervisor.core.launching import FRESH_S, is_old
from supervisor.core.lineage import Lineage
from supervisor.core.phases import Phase
from supervisor.core.placing import RoleGpus
from supervisor.core.seen import JobSeen, ReadySeen, Seen
from supervisor.core.state import Attempt, State
from supervisor.core.watch import begun

HERE = MachineId("b", "m", "h")


def at(boot_s: float) -> Instant:
    return Instant("b", boot_s, boot_s)


def checkpoint(step: int) -> Checkpoint:
    return Checkpoint(f"/w/checkpoints/step_{step}", step, step, step, f"/w/checkpoints/step_{step}")


LINEAGE = Lineage().taken(checkpoint(690)).written(checkpoint(700), 1).written(checkpoint(710), 1)


def cleaning(**changes) -> State:
    ended = Attempt(number=1, token="t", argv=("x",), rungs={}, checkpoint=checkpoint(690), began=at(0.0))
    state = State(run="dflash", spec=incident(), phase=Phase.CLEANING, attempt=ended, attempts_made=1)
    return replace(state, lineage=LINEAGE, launched_in_episode=1, **changes)


ROLES = {role.name: RoleGpus(ordinals=(0,), physical=(0,), uuids=(f"GPU-{role.name}",)) for role in incident().topology}


def thought(state: State, now_s: float, looked_s: float | None, *found: Checkpoint) -> tuple[ev.Event, ...]:
    ready = ReadySeen(found=found, looked_boot_s=looked_s, roles=ROLES, token="dflash:2")
    return decide(state, begun(1, at(0.0)), Seen(at=at(now_s), machine=HERE, ready=ready))


def test_what_was_seen_of_the_checkpoints_minutes_ago_is_not_launched_by():
    old = thought(cleaning(), 300.0, 300.0 - FRESH_S - 0.1, checkpoint(700), checkpoint(710))
    assert old == ()
    (fresh,) = thought(cleaning(), 300.0, 300.0 - FRESH_S, checkpoint(700))
    assert isinstance(fresh, ev.LaunchIntended) and fresh.checkpoint == checkpoint(700)
    assert is_old(0.0, 1.5, within_s=1.0) and not is_old(None, 300.0)


def test_a_run_without_checkpoints_waits_for_no_second_look():
    state = cleaning()
    (launch,) = thought(replace(state, spec=small(resume=None), rungs={}), 300.0, 0.0)
    assert isinstance(launch, ev.LaunchIntended)


def intended(told: Checkpoint | None, **changes) -> State:
    attempt = Attempt(number=2, token="t", argv=("x",), rungs={"token_budget": 1}, checkpoint=told, began=at(0.0))
    state = State(run="dflash", spec=incident(), phase=Phase.STARTING, attempt=attempt, attempts_made=2)
    return replace(state, lineage=LINEAGE, rungs={"token_budget": 1, "max_batch_size": 0}, **changes)


def refused(state: State) -> ev.Judged:
    job = JobSeen(claim="none", problem=f"{GONE}step_710 was complete when it was chosen, and is not: gone")
    judged, stop = decide(state, begun(2, at(0.0)), Seen(at=at(9.0), machine=HERE, job=job))
    assert isinstance(judged, ev.Judged) and isinstance(stop, ev.StopIntended)
    assert judged.failure.kind is Kind.CHECKPOINT_ERROR
    assert stop.plan == judged.plan
    return judged


def test_a_launch_whose_checkpoint_is_gone_by_then_is_not_made_and_another_is_chosen():
    judged = refused(intended(checkpoint(710)))
    assert judged.plan.ending is None and judged.plan.rungs == {"token_budget": 1, "max_batch_size": 0}
    assert judged.plan.because == "step_710 was complete when it was chosen, and is not: gone; choosing anew"
    after = fold(intended(checkpoint(710)), judged, at(9.0))
    assert after.past[-1].loaded == "", "nobody has tried to load it"


def test_no_other_is_taken_in_the_place_of_the_one_that_the_user_named():
    judged = refused(intended(checkpoint(710), from_="/w/checkpoints/step_710"))
    assert judged.plan.ending is ev.Ending.HALTED
    assert judged.plan.next_command == "supervise up dflash.yaml"


def test_a_spec_without_a_resume_section_names_none():
    assert refused(replace(intended(checkpoint(710)), spec=small(resume=None))).plan.ending is None
