"""Whether a failure text is refuted by who holds its GPU, while the memory of the dead drains."""

from __future__ import annotations

import pytest

from supervisor.core.evidence import Hit, Instant, MachineId, Reading, Step
from supervisor.core.kinds import Kind
from supervisor.core.placing import RoleGpus
from supervisor.core.seen import Seen
from supervisor.core.state import State
from supervisor.core.verdicts import GONE_FOR_S
from supervisor.core.watch import DRAIN_S, Watch, begun, looked

HERE = MachineId("boot", "machine", "host")
STATE = State(run="r", roles={"all": RoleGpus(ordinals=(0,), physical=(0,), uuids=("GPU-a",))})


def at(boot_s: float) -> Instant:
    return Instant("boot", boot_s, 1000.0 + boot_s)


def reading(began_s: float, used_mib: float, *pids: int) -> dict[str, Reading]:
    return {"GPU-a": Reading("GPU-a", 0, began_s, used_mib, 90_000, None, 90.0, pids=pids)}


def hit() -> Hit:
    return Hit("torch", Kind.GPU_OOM, "output.log", 1, 0, "CUDA out of memory", gpu=0)


def see(watch: Watch, boot_s: float, **what) -> Watch:
    return looked(watch, Seen(at=at(boot_s), machine=HERE, **what), STATE)


def after_two_steps(*holders: int) -> Watch:
    """A hit at 10 s on a GPU that these hold, then two steps at 11 s and 12 s."""
    watch = see(begun(1, at(0)), 9, gpus=reading(9, 70_000, *holders), steps=(Step(1, 9),))
    watch = see(watch, 10, hits=(hit(),))
    return see(watch, 12, steps=(Step(2, 11), Step(3, 12)))


def test_a_gpu_with_the_holder_it_had_refutes_the_text():
    watch = see(after_two_steps(7), 13, gpus=reading(12.5, 70_000, 7))
    assert watch.pending == ()


@pytest.mark.parametrize("used_mib", [70_000, 300, 0])
def test_a_holder_that_is_no_longer_listed_is_gone_while_its_memory_drains(used_mib):
    watch = see(after_two_steps(7), 13, gpus=reading(12.5, used_mib))
    assert watch.pending[0].gone_since_boot_s == 12.5


def test_without_a_list_memory_that_may_be_draining_refutes_nothing():
    watch = see(after_two_steps(), 13, gpus=reading(12.5, 70_000))
    assert len(watch.pending) == 1
    assert watch.pending[0].gone_since_boot_s is None
    emptied = see(watch, 14, gpus=reading(13.5, 0))
    assert emptied.pending[0].gone_since_boot_s == 13.5
    assert see(watch, 14 + GONE_FOR_S, gpus=reading(13.5 + DRAIN_S, 70_000)).pending == ()
