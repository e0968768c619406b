"""What the helper may rely on, shown for the real nvidia-ml-py over a driver's library and for the simulation alike."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest
from gpu_reads import read
from nvml_stub import StubState

from supervisor.core.evidence import Reading, Unreadable
from supervisor.edges.gpus import Gpus
from supervisor.simulation import nvml as simulated
from supervisor.simulation import world as simulated_world
from supervisor.simulation.nvml import World

SURFACE = sorted(name for name in dir(simulated) if name.startswith(("nvml", "NVML")))


class Box:
    """A box with 8 GPUs, real edge or simulated: something to hold memory, and something that fails."""

    def __init__(self, gpus: Gpus, hold: Callable[[int, float, float], int], fail: Callable[[int, int], None]) -> None:
        self.gpus, self.hold, self.fail = gpus, hold, fail


HOLDER = """
import sys
from pathlib import Path
from supervisor.simulation.nvml import World
World(Path(sys.argv[1])).hold({int(sys.argv[2]): float(sys.argv[3])}, util=float(sys.argv[4]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.create(tmp_path / "world", drain_s=0.2)


@pytest.fixture
def holders(world: World) -> Iterator[list[subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for each in made:
        each.kill()
        each.communicate()


def hold(world: World, holders: list[subprocess.Popen[bytes]], index: int, mib: float, util: float) -> int:
    argv = [sys.executable, "-c", HOLDER, str(world.directory), str(index), str(mib), str(util)]
    holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    holders.append(holder)
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    return holder.pid


@pytest.fixture(params=["driver", "simulation"])
def box(
    request: pytest.FixtureRequest,
    state: StubState,
    world: World,
    holders: list[subprocess.Popen[bytes]],
    opened: Callable[..., Gpus],
    driver: Path,
) -> Box:
    if request.param == "simulation":
        gpus = opened(driver, world=world.directory)
        return Box(gpus, lambda i, mib, util: hold(world, holders, i, mib, util), world.fail)

    def stub_hold(index: int, mib: float, util: float) -> int:
        card = state.cards[index]
        card.used_mib, card.util, card.pids = mib, round(util), (4711,)
        state.write()
        return 4711

    def stub_fail(index: int, code: int) -> None:
        state.cards[index].rc = code
        state.write()

    return Box(opened(driver), stub_hold, stub_fail)


def test_eight_gpus_are_listed_by_index_with_their_own_uuid(box: Box) -> None:
    there = box.gpus.list()
    assert [gpu.index for gpu in there] == [*range(8)]
    assert [gpu.minor for gpu in there] == [*range(8)]
    assert len({gpu.uuid for gpu in there}) == 8
    assert all(gpu.uuid.startswith("GPU-") and gpu.total_mib > 97000 and not gpu.mig for gpu in there)
    assert box.gpus.driver


def test_an_idle_gpu_uses_nothing_and_its_reserved_memory_stands_apart(box: Box) -> None:
    uuid = box.gpus.list()[0].uuid
    seen = read(box.gpus, [uuid])[uuid]
    assert isinstance(seen, Reading)
    assert (seen.used_mib, seen.reserved_mib, seen.util_pct, seen.v2) == (0, 600, 0, True)


def test_held_memory_is_seen_with_its_utilisation_and_holder(box: Box) -> None:
    uuid = box.gpus.list()[5].uuid
    pid = box.hold(5, 70000.0, 94.0)
    seen = read(box.gpus, [uuid], processes=True)[uuid]
    assert isinstance(seen, Reading)
    assert (seen.used_mib, seen.util_pct, seen.pids) == (70000, 94, (pid,))


def test_a_lost_gpu_is_unreadable_until_it_answers_again(box: Box) -> None:
    uuids = [gpu.uuid for gpu in box.gpus.list()]
    box.fail(6, 15)
    seen = read(box.gpus, uuids)
    lost = seen[uuids[6]]
    assert isinstance(lost, Unreadable) and lost.why == "GPU is lost (NVML 15)"
    assert isinstance(seen[uuids[5]], Reading)
    box.fail(6, 0)
    assert isinstance(read(box.gpus, [uuids[6]])[uuids[6]], Reading)


def test_a_uuid_that_is_not_there_is_unreadable(box: Box) -> None:
    seen = read(box.gpus, ["GPU-none"])["GPU-none"]
    assert isinstance(seen, Unreadable) and "Not Found" in seen.why


@pytest.mark.parametrize("name", [name for name in SURFACE if not hasattr(simulated.World, name)])
def test_every_simulated_name_is_a_name_of_pynvml(name: str) -> None:
    ours, theirs = getattr(simulated, name), getattr(pynvml, name)
    if isinstance(theirs, int):
        assert ours == theirs
    elif isinstance(theirs, type) and name.startswith("NVMLError_"):
        assert ours().value == theirs().value and ours.__name__ == theirs.__name__


@pytest.mark.parametrize("code", [1, 2, 3, 6, 9, 12, 13, 15, 18, 25, 999])
def test_a_code_raises_the_same_class_with_the_same_words(code: int) -> None:
    made: tuple[Any, Any] = simulated.NVMLError(code), pynvml.NVMLError(code)
    assert {type(each).__name__ for each in made} == {type(made[0]).__name__}
    if code != 25:  # pynvml asks the driver's library for this one's words
        assert str(made[0]) == str(made[1])


def test_memory_of_the_dead_drains_and_a_zombie_is_dead(
    world: World, holders: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(world, holders, 5, 1000.0, 50.0)
    assert world.used_mib(5) == 1000.0 and world.free_mib(5) == simulated.TOTAL_MIB - 1000.0
    holders[0].kill()
    os.waitid(os.P_PID, holders[0].pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    seen = []
    for now_s in (100.0, 100.05, 100.15, 100.2):
        monkeypatch.setattr(simulated_world, "_boot_s", lambda now_s=now_s: now_s)
        seen.append(world.used_mib(5))
    assert seen == pytest.approx([1000.0, 750.0, 250.0, 0.0], abs=0.001), "it drains, it does not vanish"
    assert world.util_pct(5) == 0.0 and world.pids(5) == ()


def test_released_memory_is_free_at_once(world: World) -> None:
    world.hold({1: 100.0, 2: 200.0}, util={1: 10.0})
    assert (world.used_mib(1), world.used_mib(2), world.util_pct(1)) == (100.0, 200.0, 10.0)
    world.release()
    assert world.used_mib(1) == world.used_mib(2) == 0.0


def test_a_world_without_a_file_is_a_box_without_a_driver(tmp_path: Path) -> None:
    simulated.use(tmp_path)
    with pytest.raises(simulated.NVMLError_LibraryNotFound):
        simulated.nvmlInit()
    with pytest.raises(simulated.NVMLError_Uninitialized):
        simulated.nvmlDeviceGetCount()
