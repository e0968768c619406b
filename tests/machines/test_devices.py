"""What is told of a run's GPUs: once, and only what a person needs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from supervisor.core.evidence import Gpu, GpuSeen, Holder, Owner, Reading, Unreadable
from supervisor.edges.holders import HoldersSeen
from supervisor.edges.paths import Home
from supervisor.machines import devices
from supervisor.machines.devices import Devices

FIVE = "GPU-5"


class FakeGpus:
    """Answers with what the test puts into `seen`."""

    def __init__(self) -> None:
        self.seen: dict[str, GpuSeen] = {}

    def take(self) -> dict[str, GpuSeen]:
        return self.seen


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def gpus() -> FakeGpus:
    return FakeGpus()


@pytest.fixture
def made(tmp_path, told, gpus) -> Devices:
    home = Home(tmp_path)
    made = Devices(home, home.run("r1"), told.append)
    made._gpus = gpus  # in place of the helper
    made.inventory = (Gpu(uuid=FIVE, index=5, total_mib=97249.0, name="card"),)
    return made


def reading(used_mib: float) -> Reading:
    return Reading(
        gpu=FIVE, index=5, used_mib=used_mib, reserved_mib=0.0, total_mib=97249.0, util_pct=0, began_boot_s=1.0, v2=True
    )


def test_a_gpu_that_cannot_be_read_is_told_once_for_each_reason(made, told, gpus):
    for why in ("GPU is lost", "GPU is lost", "no answer in time", "GPU is lost"):
        gpus.seen = {FIVE: Unreadable(FIVE, 5, 1.0, why)}
        made.readings()
    gpus.seen = {FIVE: reading(0.0)}
    made.readings()
    assert told == ["GPU 5 cannot be read: GPU is lost", "GPU 5 cannot be read: no answer in time"]


def test_what_hides_holders_is_told_where_memory_is_held_and_nobody_is_seen(made, told, gpus, monkeypatch):
    state = SimpleNamespace(gpus=(FIVE,), spec=SimpleNamespace(topology=(1,), simulated=False))
    hidden = "unknown holder possible: processes that may not be looked into"
    holder = Holder(FIVE, 7, "eve", "python", Owner.FOREIGN)
    found = HoldersSeen((), (hidden,))
    monkeypatch.setattr(devices, "find_holders", lambda *_: found)
    gpus.seen = {FIVE: reading(3.0)}
    assert made.holders(state, 10.0) == ()
    assert told == []  # nothing is held: nobody is missing
    gpus.seen = {FIVE: reading(70_000.0)}
    for at in (20.0, 30.0):
        assert made.holders(state, at) == ()
    assert told == [hidden]
    found = HoldersSeen((holder,), (hidden, "something else"))
    assert made.holders(state, 40.0) == (holder,)
    assert told == [hidden]
