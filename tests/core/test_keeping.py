"""Which checkpoints are given up, which are demoted, and what a trainer that chooses by itself would take."""

from __future__ import annotations

from typing import Any

import pytest
from fake_specs import CHECKPOINTS, incident
from msgspec.structs import replace

from supervisor.core.events import CheckpointDemoted, Failure, Pruned, PruneIntended
from supervisor.core.evidence import Checkpoint, Incomplete, Instant, MachineId
from supervisor.core.fold import fold
from supervisor.core.keeping import (
    chooses_otherwise,
    failed_to_load,
    may_prune,
    pruned,
    to_prune,
    would_choose,
    written_meanwhile,
)
from supervisor.core.kinds import Kind
from supervisor.core.lineage import Fresh, FromCheckpoint, Lineage
from supervisor.core.seen import Seen
from supervisor.core.state import Attempt, Past, State
from supervisor.core.tried import tried

NOW = Instant("b", 10.0, 10.0)


def at(step: int, **changes: Any) -> Checkpoint:
    path = f"{CHECKPOINTS}/step_{step}"
    return replace(Checkpoint(path=path, step=step, inode=step, mtime_ns=step, real=path), **changes)


START, SAVED = at(690), tuple(at(step) for step in (700, 710, 720, 730))


def state(keep: int | None = 2, **changes: Any) -> State:
    spec = incident()
    assert spec.resume is not None
    spec = replace(spec, resume=replace(spec.resume, keep=keep))
    lineage = Lineage().launched(START, [START]).taken(START)
    for one in SAVED:
        lineage = lineage.written(one, 1)
    attempt = Attempt(number=1, token="t", argv=(), rungs={}, checkpoint=START, began=NOW)
    return replace(State(run="dflash", spec=spec, lineage=lineage, attempt=attempt), **changes)


def given_up(of: State, *more: Checkpoint | Incomplete, chosen: Checkpoint | None = None, **claimed: str) -> list[int]:
    found = to_prune(of, (START, *SAVED, *more), claimed, chosen)
    return [one.step for one in found.checkpoints] if found else []


def test_what_is_beyond_the_newest_of_its_own_is_given_up_and_the_start_never():
    assert given_up(state()) == [700, 710]
    assert given_up(state(keep=4)) == []
    assert given_up(state(keep=None)) == []


def test_incomplete_ones_and_those_of_others_are_neither_counted_nor_touched():
    assert given_up(state(), Incomplete(f"{CHECKPOINTS}/step_740", 740, "torn"), at(750)) == [700, 710]
    assert to_prune(state(), (START, *SAVED), {SAVED[0].path: "other"}, None) == PruneIntended(checkpoints=(SAVED[1],))


def test_what_the_next_launch_takes_or_somebody_named_stays():
    assert given_up(state(), chosen=SAVED[0]) == [710]
    assert given_up(state(from_=SAVED[1].path)) == [700]
    assert state().attempt is not None
    running = replace(state().attempt, checkpoint=SAVED[0])  # type: ignore[type-var]
    assert given_up(state(attempt=running)) == [710]
    assert given_up(state(attempt=None)) == [700, 710]


def test_a_rejected_branch_a_link_and_what_was_rewritten_are_left_alone():
    rejected = replace(state(), lineage=state().lineage.demoted(SAVED[0].path))
    assert given_up(rejected) == [710]
    linked = (START, replace(SAVED[0], real="/elsewhere"), *SAVED[1:])
    found = to_prune(state(), linked, {}, None)
    assert found is not None and found.checkpoints == (SAVED[1],)
    rewritten = (START, replace(SAVED[0], inode=9), *SAVED[1:])
    found = to_prune(state(), rewritten, {}, None)
    assert found is not None and found.checkpoints == (SAVED[1],)


def test_where_a_kept_link_leads_stays():
    last = Checkpoint(path=f"{CHECKPOINTS}/last", step=740, inode=1, mtime_ns=1, real=f"{CHECKPOINTS}/last")
    of = replace(state(keep=1), lineage=state().lineage.written(last, 1))
    assert given_up(of, last) == [700, 710, 720, 730]


def test_one_intent_at_a_time_and_what_cannot_be_removed_is_not_tried_again():
    first = to_prune(state(), (START, *SAVED), {}, None)
    assert first is not None
    busy = fold(state(), first, NOW)
    assert to_prune(busy, (START, *SAVED), {}, None) is None
    after = fold(busy, Pruned(removed=(SAVED[0].path,), kept=("busy",)), NOW)
    assert given_up(after) == []
    assert after.unprunable == {SAVED[1].path}
    assert fold(state(), Pruned(), NOW).pruning is None


def test_a_removed_one_that_a_late_look_still_shows_is_nothing_new():
    after = fold(state(), Pruned(removed=(SAVED[0].path,)), NOW)
    assert not after.lineage.is_known(SAVED[0])
    assert written_meanwhile(after, None) == ()


def test_the_answer_to_another_intent_is_none():
    one, other = PruneIntended(checkpoints=SAVED[:1]), PruneIntended(checkpoints=SAVED[1:2])
    seen = replace(Seen(at=NOW, machine=MachineId("", "", "")), pruned=(one, Pruned()))
    assert pruned(one, seen) == (Pruned(),)
    assert pruned(other, seen) == ()


def test_a_full_disk_can_be_answered_where_there_is_something_to_give_up():
    assert may_prune(state())
    assert may_prune(state(attempt=None))
    assert not may_prune(state(keep=4))
    assert not may_prune(state(keep=None))


BAD = Failure(kind=Kind.CHECKPOINT_ERROR, because="torn")


def test_a_checkpoint_is_demoted_when_it_failed_to_load_twice():
    of = state()
    attempt = of.attempt
    assert attempt is not None
    assert failed_to_load(of, attempt, BAD) == ()
    past = Past(
        attempt=1, kind=BAD.kind, at=NOW, gained=False, rule="", did="relaunch", lowered=False, loaded=START.path
    )
    again = replace(of, past=(past,))
    two = replace(attempt, number=2)
    because = "it failed to load in attempt 1 and in attempt 2"
    assert failed_to_load(again, two, BAD) == (CheckpointDemoted(path=START.path, because=because),)
    assert failed_to_load(again, replace(two, progressed_at=NOW), BAD) == ()
    assert failed_to_load(again, replace(two, checkpoint=None), BAD) == ()
    assert failed_to_load(again, two, replace(BAD, kind=Kind.EXIT)) == ()


# ── mode: auto ───────────────────────────────────────────────────────────────────────────────────────────────────────


def otherwise(own: Checkpoint | None, *found: Checkpoint | Incomplete, pointer: str | None = None) -> str | None:
    resume = state().spec.resume  # type: ignore[union-attr]
    assert resume is not None
    choice = FromCheckpoint(own, "") if own else Fresh("")
    return chooses_otherwise(replace(resume, mode="auto"), choice, found, pointer)


def test_a_trainer_that_would_choose_the_same_may_choose():
    assert otherwise(SAVED[1], *SAVED[:2]) is None
    assert otherwise(None) is None
    assert otherwise(SAVED[0], *SAVED, pointer=SAVED[0].path) is None
    assert chooses_otherwise(state().spec.resume, Fresh(""), SAVED, None) is None  # type: ignore[union-attr]
    assert chooses_otherwise(None, Fresh(""), SAVED, None) is None


def test_what_stands_in_its_way_is_named_with_the_command_that_moves_it():
    torn = Incomplete(f"{CHECKPOINTS}/step_740", 740, "torn")
    nameless = Incomplete(f"{CHECKPOINTS}/step_x", None, "no step")
    text = otherwise(SAVED[0], nameless, SAVED[0], SAVED[1], torn)
    assert text is not None
    assert "would take /w/checkpoints/step_740 by the highest number" in text
    assert text.endswith(
        "next: mv /w/checkpoints/step_710 /w/checkpoints/.step_710.aside; "
        "mv /w/checkpoints/step_740 /w/checkpoints/.step_740.aside"
    )


def test_a_trainer_that_would_begin_anew_is_not_launched():
    assert otherwise(SAVED[0]) is not None


def test_without_numbers_and_pointer_a_trainer_takes_nothing():
    assert would_choose((Incomplete("/x", None, "no step"),), None) is None
    assert would_choose((), "/w/latest") == "/w/latest"


# ── what was tried ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        ((5, 5), ". Every time it was GPU 5: look at that GPU first"),
        ((5, 6), ""),
        ((None, None), ""),
    ],
)
def test_the_gpu_that_fails_each_time_is_suspected(gpus: tuple[Any, Any], said: str):
    past = tuple(
        Past(attempt=n, kind=Kind.HANG, at=NOW, gained=False, rule="", did="relaunch", lowered=False, gpu=gpu)
        for n, gpu in enumerate(gpus, 1)
    )
    from supervisor.core.placing import RoleGpus

    roles = {"r": RoleGpus(ordinals=(5, 6), physical=(5, 6), uuids=("a", "b"))}
    of = state(past=past, roles=roles)
    assert tried(of, Failure(kind=Kind.HANG, because="", gpu=gpus[0])) == said
