"""Which GPUs a role has, and how the job sees them."""

from __future__ import annotations

from msgspec.structs import replace

from supervisor.core.evidence import Gpu
from supervisor.core.placing import NotPlaced, RoleGpus, all_gpus, lay_out, visible_conflict, visible_env
from supervisor.core.spec import Role, RunSpec, Visible

BOX = tuple(Gpu(index, f"GPU-{index:04d}", "H200", 144384.0) for index in range(8))


def spec_of(*roles, visible=Visible.INDEX):
    topology = tuple(Role(name=name, gpus=tuple(map(str, gpus))) for name, gpus in roles)
    return RunSpec(name="run", command=("t",), file="/s.yaml", workdir="/w", topology=topology, visible=visible)


def test_ordinals_are_those_the_job_sees_not_those_of_the_box():
    spec = spec_of(("target", [4, 6]), ("drafter", [5]))
    assert lay_out(spec, BOX) == {
        "target": RoleGpus((0, 2), (4, 6), ("GPU-0004", "GPU-0006")),
        "drafter": RoleGpus((1,), (5,), ("GPU-0005",)),
    }


def test_a_job_that_sees_the_whole_box_counts_as_the_box_does():
    spec = spec_of(("target", [4, 6]), visible=Visible.NONE)
    assert lay_out(spec, BOX) == {"target": RoleGpus((4, 6), (4, 6), ("GPU-0004", "GPU-0006"))}
    assert visible_env(spec, lay_out(spec, BOX)) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    chosen = replace(spec, env={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    assert visible_env(chosen, lay_out(spec, BOX)) == {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    assert visible_conflict(spec, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, lay_out(spec, BOX)) is None


def test_the_visible_devices_ascend_whatever_the_order_of_the_roles():
    spec = spec_of(("drafter", ["GPU-0007", 5]), ("target", [1]))
    env = visible_env(spec, lay_out(spec, BOX))
    assert env == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,5,7"}
    by_uuid = spec_of(("drafter", [7, 5]), visible=Visible.UUID)
    assert visible_env(by_uuid, lay_out(by_uuid, BOX))["CUDA_VISIBLE_DEVICES"] == "GPU-0005,GPU-0007"


def test_a_run_without_gpus_leaves_the_variables_alone():
    assert visible_env(spec_of(), {}) == {}
    assert visible_conflict(spec_of(), {"CUDA_VISIBLE_DEVICES": "3"}, {}) is None


def test_an_unknown_gpu_is_named_with_what_there_is():
    placed = lay_out(spec_of(("a", [7, 8, "GPU-dead"])), BOX)
    assert placed == NotPlaced("GPU 8, GPU-dead is not on this machine (it has: 0, 1, 2, 3, 4, 5, 6, 7)")
    assert lay_out(spec_of(("a", [0])), ()) == NotPlaced("GPU 0 is not on this machine (it has: none)")


def test_one_gpu_named_by_index_and_by_uuid_is_seen_to_be_one():
    placed = lay_out(spec_of(("a", [5]), ("b", ["GPU-0005"])), BOX)
    assert placed == NotPlaced("GPU 5 is named twice, by index and by UUID")


def test_an_inherited_variable_that_disagrees_is_refused_and_one_that_agrees_is_not():
    spec = spec_of(("a", [4, 5]))
    gpus = lay_out(spec, BOX)
    assert visible_conflict(spec, {}, gpus) is None
    assert visible_conflict(spec, {"CUDA_VISIBLE_DEVICES": "4,5"}, gpus) is None
    assert visible_conflict(spec, {"CUDA_VISIBLE_DEVICES": "GPU-0004, 5"}, gpus) is None
    assert "5,4, and the topology asks for 4,5" in visible_conflict(spec, {"CUDA_VISIBLE_DEVICES": "5,4"}, gpus)
    assert "is empty" in visible_conflict(spec, {"CUDA_VISIBLE_DEVICES": ""}, gpus)
    assert "FASTEST_FIRST" in visible_conflict(spec, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, gpus)


def test_every_gpu_of_the_run_has_one_place():
    gpus = lay_out(spec_of(("a", [6]), ("b", [2])), BOX)
    assert [(place.ordinal, place.physical, place.uuid) for place in all_gpus(gpus)] == [
        (0, 2, "GPU-0002"),
        (1, 6, "GPU-0006"),
    ]
