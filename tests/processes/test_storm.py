"""Stops of jobs that hide, ignore and fork while they die: nobody is left, nobody else is harmed."""

from __future__ import annotations

import os
import signal
import time

import pytest
from attempts import DEADLINE_S, Stage, actor, alive, until

from supervisor.core.evidence import ProcessId
from supervisor.edges import processes

pytestmark = pytest.mark.real

STOPS = int(os.environ.get("STORM_STOPS", "4"))  # benchmarks/storm.py asks for 200
PROCESSES = 40


def stop(stage: Stage, leader: ProcessId) -> int:
    """TERM to the group, then KILL to everybody, until two looks in a row are empty. How many looks it took."""
    members = processes.sweep(stage.own(), stage.home).members
    processes.signal_group(leader, members, signal.SIGTERM, stage.home)
    empty = looks = 0
    deadline_s = time.monotonic() + DEADLINE_S
    while empty < 2:
        members = processes.sweep(stage.own(), stage.home).members
        processes.signal_members(members, signal.SIGKILL)
        empty = 0 if members else empty + 1
        looks += 1
        assert time.monotonic() < deadline_s, members
    return looks


@pytest.mark.parametrize("seed", range(STOPS))
def test_a_storm_leaves_no_survivor_and_harms_no_decoy(stage: Stage, seed: int):
    fifo = stage.root / "held"
    os.mkfifo(fifo)
    held = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        argv = actor("storm", str(PROCESSES), str(seed * 1000), str(fifo))
        decoys = [stage.decoy(actor("rest")) for _ in range(3)]
        attempt = stage.launch(argv)
        said = attempt.wait_for("leader", *(f"storm{n}" for n in range(PROCESSES)))
        leader = next(m.id for m in processes.sweep(stage.own(), stage.home).members if m.id.pid == said["leader"])
        stop(stage, leader)
        assert os.read(held, 1) == b""  # nobody holds its other end
        assert all(alive(decoy.pid) for decoy in decoys)
        until("the runner has gone with the last of them", lambda: attempt.runner.poll() is not None)
    finally:
        os.close(held)
