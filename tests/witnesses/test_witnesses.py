"""The witnesses of one attempt: asked in bounded time, compared with how things stood at its begin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_specs import small

from supervisor.core.aftermath import Aftermath, CgroupKills, CouldNotTell, GpuHealth, Orphan, Space
from supervisor.core.evidence import ProcessId
from supervisor.edges import cgroup_kills, proc
from supervisor.edges.paths import RunDir
from supervisor.machines import witnesses
from supervisor.machines.asides import Asides
from supervisor.machines.job import Job
from supervisor.machines.witnesses import Witnesses

GPU = "GPU-a"
WOKEN = threading.Event()
"""Set when a piece of work beside the loop is done."""


class Cards:
    """What the driver says, in place of the helper."""

    def __init__(self) -> None:
        self.health: dict[str, dict[str, Any]] = {}
        self.health_boot_s = float("-inf")
        self.inventory: tuple[Any, ...] = ()
        self.asked = 0

    def ask_health(self, _uuids: tuple[str, ...]) -> None:
        self.asked += 1

    def answers(self, at_s: float, errors: int) -> None:
        self.health = {GPU: {"pci": "00000000:3B:00.0", "errors": errors, "unfit": None, "xids": [79]}}
        self.health_boot_s = at_s


@pytest.fixture
def sleeper() -> Iterator[ProcessId]:
    """A live process."""
    argv = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as made:
        made.stdout.readline()
        yield ProcessId(made.pid, proc.start_ticks(made.pid) or 0)
        made.communicate(b"")


class Room:
    """A run's folder and the witnesses of its second attempt."""

    def __init__(self, root: Path, *, gpus: tuple[str, ...] = (), late: bool = False) -> None:
        self.run = RunDir("small", root)
        self.cards, self.asides = Cards(), Asides(WOKEN.set)
        spec = small()
        attempt = SimpleNamespace(number=2, began=proc.now())
        self.state = SimpleNamespace(attempt=attempt, spec=spec, gpus=gpus)
        self.record(2, ProcessId(os.getpid(), proc.start_ticks(os.getpid()) or 0))
        if late:  # work that never comes back
            self.asides.ensure = lambda name, work: None  # type: ignore[method-assign]

    def record(self, attempt: int, who: ProcessId) -> None:
        path = self.run.attempt(attempt).members
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"pid": who.pid, "start_ticks": who.start_ticks, "sid": 1}) + "\n")

    def witnesses(self) -> Witnesses:
        job = Job(self.run.attempt(2), "boot")
        return Witnesses(self.run, self.state, job, self.cards, self.asides)  # type: ignore[arg-type]


def answered(ask: Callable[[], Aftermath | None]) -> Aftermath:
    """Asked until there is an answer."""
    while (found := ask()) is None:
        WOKEN.wait(1.0)
        WOKEN.clear()
    return found


def test_without_gpus_all_of_them_answer_at_once(tmp_path: Path):
    one = Room(tmp_path).witnesses()
    one.begin(100.0)
    seen = answered(lambda: one.at_the_end(101.0))
    one.close()
    assert any(isinstance(room, Space) and room.free_mib > 0 for room in seen.space)
    assert isinstance(seen.cgroup, (CgroupKills, CouldNotTell))
    assert seen.gpus == () and seen.ranks == ()


def test_a_driver_that_does_not_answer_is_waited_for_no_longer_than_its_time(tmp_path: Path):
    room = Room(tmp_path, gpus=(GPU,))
    one = room.witnesses()
    assert one.at_the_end(100.0) is None and one.awaited
    seen = answered(lambda: one.at_the_end(100.0 + witnesses.HEALTH_WITHIN_S + 0.1))
    assert not one.awaited
    assert isinstance(seen.gpus[0], CouldNotTell) and "no answer of the driver" in seen.gpus[0].why
    one.close()


def test_witnesses_that_hang_could_not_tell(tmp_path: Path):
    one = Room(tmp_path, late=True).witnesses()
    assert one.at_the_end(100.0) is None
    seen = one.at_the_end(100.0 + witnesses.WITHIN_S + 0.1)
    assert seen is not None and "no answer within 3 s" in seen.could_not_tell[0]


def test_a_bug_in_asking_keeps_no_run_from_being_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one = Room(tmp_path).witnesses()
    monkeypatch.setattr(one, "_space", lambda: 1 / 0)
    seen = answered(lambda: one.at_the_end(100.0))
    assert "could not be asked: ZeroDivisionError" in seen.could_not_tell[0]


def test_a_later_supervisor_compares_with_how_things_stood_at_the_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cgroup_kills, "kills", lambda pid="self": ("/job", 2))
    monkeypatch.setattr(cgroup_kills, "count_at", lambda path: 3)
    room = Room(tmp_path, gpus=(GPU,))
    first = room.witnesses()
    first.begin(100.0)
    room.cards.answers(100.0, errors=7)
    first.begin(100.1)
    second = room.witnesses()
    second.begin(200.0)
    room.cards.answers(200.0, errors=9)
    second.begin(200.1)
    room.cards.answers(201.0, errors=9)
    seen = answered(lambda: second.at_the_end(201.0))
    assert seen.cgroup == CgroupKills("/job", 1)
    assert seen.gpus == (GpuHealth(GPU, 2, None, (79,)),)


def test_a_live_process_of_an_earlier_attempt_is_an_orphan(
    tmp_path: Path, sleeper: ProcessId, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(witnesses, "in_initial_pid_namespace", lambda: True)
    room = Room(tmp_path)
    room.record(1, sleeper)
    one = room.witnesses()
    seen = answered(lambda: one.live(100.0, pending=True))
    assert seen.orphans == (Orphan(sleeper.pid, 1, proc.cmdline(sleeper.pid)),)


def test_in_a_container_nobody_can_tell_whose_pids_a_text_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(witnesses, "in_initial_pid_namespace", lambda: False)
    one = Room(tmp_path).witnesses()
    seen = answered(lambda: one.live(100.0, pending=True))
    assert isinstance(seen.orphans, CouldNotTell)


def test_while_the_job_lives_they_are_asked_now_and_then_only(tmp_path: Path):
    room = Room(tmp_path)
    one = room.witnesses()
    before = answered(lambda: one.live(100.0, pending=False))
    assert one.live(110.0, pending=False) is before
    after = answered(lambda: (found := one.live(131.0, pending=False)) and (None if found is before else found))
    assert after is not before
