"""A run that goes on for months: what its state remembers has a cap, and what is let go changes no decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from fake_specs import CHECKPOINTS, incident
from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core import newest
from supervisor.core.evidence import Checkpoint, ExitRecord, Instant, MachineId, ProcessId, Proof
from supervisor.core.fold import fold
from supervisor.core.kinds import Kind
from supervisor.core.lineage import Asked, FromCheckpoint, Lineage, choose, gained
from supervisor.core.newest import KEPT_MAX
from supervisor.core.state import ANSWERED_KEPT, PAST_KEPT, TOLD_KEPT, State

MACHINE = MachineId("b", "m", "box")
OOM = ev.Failure(kind=Kind.GPU_OOM, because="GPU 5 ran out of memory", gpu=5)
AGAIN = ev.Plan(ending=None, because="again", rule="oom")
SECOND_NS = 10**9


def at(step: int, **changes: Any) -> Checkpoint:
    path = f"{CHECKPOINTS}/step_{step}"
    made = Checkpoint(path=path, step=step, inode=step, mtime_ns=step * SECOND_NS, real=path)
    return replace(made, **changes)


def things(value: object) -> int:
    """How many values this one is made of."""
    if isinstance(value, msgspec.Struct):
        return 1 + sum(things(getattr(value, one.name)) for one in msgspec.structs.fields(value))
    if isinstance(value, Mapping):
        return 1 + sum(things(key) + things(one) for key, one in value.items())
    if isinstance(value, (tuple, frozenset)):
        return 1 + sum(map(things, value))
    return 1


def an_attempt(n: int, saves: int) -> list[ev.Event]:
    """All that is recorded of one attempt that saves, is slow, is feared to hang, and runs out of memory."""
    first = n * saves
    start = at(first)
    target = ev.Target(id=ProcessId(n, n), cmdline="train", proof=Proof.TOKEN)
    asked = ev.NotifyIntended(key=f"failed:{n}", on="failure", title="t", text="x")
    launch = ev.LaunchIntended(
        attempt=n,
        argv=("train",),
        rungs={"batch": 0},
        knobs={},
        protected={},
        checkpoint=start,
        token=f"t{n}",
        because="again",
        present=(start, at(first + 1, path=f"{CHECKPOINTS}/rejected_{n}", real=f"{CHECKPOINTS}/rejected_{n}")),
    )
    written: list[ev.Event] = []
    for step in range(first + 1, first + saves + 1):
        written.append(ev.CheckpointWritten(attempt=n, checkpoint=at(step), logged_step=step))
        intended = ev.PruneIntended(checkpoints=(at(step - 3),))
        kept = step % 10 == 0  # one that could not be removed
        written += [intended, ev.Pruned(removed=() if kept else (at(step - 3).path,))]
    return [
        ev.SupervisorStarted(pid=n, version="1"),
        ev.Accepted(request=f"r{n}", verb="restart"),
        launch,
        ev.Launched(attempt=n, runner=ProcessId(n, n), leader=ProcessId(n + 1, n)),
        ev.FirstProgress(attempt=n, step=first, startup_s=9.0),
        ev.Answered(request=f"r{n}", verb="restart", exit=0, text="done"),
        *written,
        ev.Paced(attempt=n, steps_per_s=1.0, stride=1, settled=True, rungs={"batch": 0}),
        ev.Foretold(attempt=n, what="host memory", text="full in 3 h", full_in_s=1e4),
        ev.DumpIntended(attempt=n, why="hang", step=first),
        ev.Dumped(attempt=n, why="hang", step=first, path="/s/dump.txt", summary="8 stacks"),
        ev.Degraded(attempt=n, failure=OOM),
        ev.HitSeen(attempt=n, kind=Kind.GPU_OOM, where="output.log:3", text="out of memory"),
        ev.JobEnded(
            attempt=n, end=ExitRecord(1, None), first_step=first, last_step=first + saves, peaks={"GPU-5": 1.0}
        ),
        ev.Judged(attempt=n, failure=OOM, plan=AGAIN),
        ev.StopIntended(attempt=n, by=ev.By.POLICY, grace_s=1.0, because="oom"),
        ev.SignalIntended(attempt=n, signal="SIGKILL", group=False, targets=(target,)),
        ev.SignalSent(attempt=n, signal="SIGKILL", group=False),
        ev.MembersGone(attempt=n),
        ev.HookIntended(attempt=n, hook="after_stop", argv=("true",), token="h"),
        ev.HookEnded(attempt=n, hook="after_stop", code=0),
        ev.VerifiedZero(attempt=n, waited_s=1.0, floors={"GPU-5": 3.0}),
        asked,
        ev.Notified(key=asked.key, why=""),
    ]


def lived(attempts: int, saves: int, state: State | None = None) -> State:
    opened = ev.EpisodeOpened(request="r0", spec=incident(), protected_sha256="", rungs={"batch": 0}, machine=MACHINE)
    state = state or fold(State(run="dflash"), opened, Instant("b", 0.0, 0.0))
    for n in range(state.attempts_made + 1, state.attempts_made + attempts + 1):
        for event in an_attempt(n, saves):
            state = fold(state, event, Instant("b", float(n), float(n)))
    return state


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """So few are kept that a short life has more."""
    monkeypatch.setattr(newest, "KEPT_MAX", 40)
    monkeypatch.setattr(newest, "HALF", 20)
    return 40


def test_after_so_many_attempts_the_state_grows_no_more(few: int):
    states = [lived(max(few, PAST_KEPT, TOLD_KEPT, ANSWERED_KEPT) + 1, saves=1)]
    for _ in range(4):
        states.append(lived(few // 4, saves=1, state=states[-1]))
    sizes = [things(one) for one in states]
    spread = 4 * (4 * few)  # the contents that come and go between two times that they are sorted
    assert max(sizes) - min(sizes) <= spread
    assert max(sizes) <= 12_000


def test_after_so_many_checkpoints_of_one_attempt_the_state_grows_no_more(few: int):
    state = lived(1, saves=10 * few)
    assert len(state.lineage.own) <= few + 1
    assert len(state.lineage.gained) <= few
    assert len(state.lineage.known) <= few
    assert len(state.unprunable) <= few


def test_of_checkpoints_that_are_never_given_up_the_newest_and_the_oldest_are_known():
    lineage = Lineage().launched(at(0), [at(0)]).taken(at(0))
    for step in range(1, KEPT_MAX + 100):
        lineage = lineage.written(at(step), 1)
    assert len(lineage.known) == KEPT_MAX
    assert lineage.is_known(at(0))
    assert lineage.is_known(at(KEPT_MAX + 99))
    assert not lineage.is_known(at(50))


def test_a_checkpoint_that_was_let_go_is_not_told_as_new():
    lineage = Lineage().launched(None, []).taken(None)
    everything = [at(step) for step in range(1, KEPT_MAX + 100)]
    for one in everything:
        lineage = lineage.written(one, 1)
    assert gained(lineage, everything, {}, final=True) == ()
    newer = at(KEPT_MAX + 500)
    again = at(5, inode=9, mtime_ns=newer.mtime_ns + 1)
    assert gained(lineage, [*everything, newer, again], {}) == (again, newer)


def test_a_rejected_branch_that_was_let_go_stays_rejected():
    resume = incident().resume
    lineage = Lineage().launched(at(1), [at(1)]).taken(at(1))
    branch = [at(step) for step in range(2, KEPT_MAX + 100)]
    for one in branch:
        lineage = lineage.written(one, 1)
    everything = [at(1), *branch]
    lineage = lineage.launched(at(1), everything).taken(at(1))  # rolled back by a person: all that came after is out
    assert len(lineage.out) <= KEPT_MAX
    chosen = choose(lineage, everything, resume, Asked())
    assert isinstance(chosen, FromCheckpoint)
    assert chosen.checkpoint == at(1)


def test_what_could_not_be_removed_is_remembered_while_it_is_known():
    state = lived(1, saves=40)
    assert state.unprunable == {at(step - 3).path for step in (50, 60, 70, 80)}
