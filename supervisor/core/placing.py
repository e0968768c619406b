"""Which GPU each role has, and how the job sees them. Asks no driver: the inventory is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec import Struct

from supervisor.core.evidence import Gpu
from supervisor.core.spec import RunSpec, Visible

DEVICES = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
BY_BUS = "PCI_BUS_ID"


class RoleGpus(Struct, frozen=True):
    """A role's GPUs, as written in the spec: `ordinals` as the job sees them, `physical` NVML's indices."""

    ordinals: tuple[int, ...]
    physical: tuple[int, ...]
    uuids: tuple[str, ...]


class GpuPlace(Struct, frozen=True):
    """One GPU of the run."""

    ordinal: int
    physical: int
    uuid: str


class NotPlaced(Struct, frozen=True):
    """The roles cannot be laid out on this box, and why."""

    why: str


def lay_out(spec: RunSpec, inventory: Iterable[Gpu]) -> dict[str, RoleGpus] | NotPlaced:
    """Each role's GPUs on this box. With `visible: none` the job sees all of the box, so ordinals are indices."""
    box = tuple(inventory)
    by_name = {gpu.uuid: gpu for gpu in box} | {str(gpu.index): gpu for gpu in box}
    missing = [name for name in spec.gpus if name not in by_name]
    if missing:
        there = ", ".join(str(gpu.index) for gpu in sorted(box, key=lambda gpu: gpu.index)) or "none"
        return NotPlaced(f"GPU {', '.join(missing)} is not on this machine (it has: {there})")
    chosen = [by_name[name] for name in spec.gpus]
    twice = sorted({gpu.index for gpu in chosen if chosen.count(gpu) > 1})
    if twice:
        return NotPlaced(f"GPU {', '.join(map(str, twice))} is named twice, by index and by UUID")
    seen = sorted(gpu.index for gpu in (box if spec.visible is Visible.NONE else chosen))
    ordinals = {index: index if spec.visible is Visible.NONE else n for n, index in enumerate(seen)}
    return {
        role.name: RoleGpus(
            ordinals=tuple(ordinals[by_name[name].index] for name in role.gpus),
            physical=tuple(by_name[name].index for name in role.gpus),
            uuids=tuple(by_name[name].uuid for name in role.gpus),
        )
        for role in spec.topology
    }


def all_gpus(gpus: Mapping[str, RoleGpus]) -> tuple[GpuPlace, ...]:
    """All GPUs of the run, in ascending order of their index."""
    return _in_order(tuple(gpus.values()))


@lru_cache(maxsize=8)
def _in_order(roles: tuple[RoleGpus, ...]) -> tuple[GpuPlace, ...]:
    """Asked for several times in each look, and the same for the life of a run."""
    places = (
        GpuPlace(*place) for role in roles for place in zip(role.ordinals, role.physical, role.uuids, strict=True)
    )
    return tuple(sorted(places, key=lambda place: place.physical))


def visible_env(spec: RunSpec, gpus: Mapping[str, RoleGpus]) -> dict[str, str]:
    """CUDA_DEVICE_ORDER and CUDA_VISIBLE_DEVICES for the job; nothing for a run without GPUs.

    `visible: none` leaves the devices alone and still sets the order, by which alone its ordinals are true; another
    order in the spec's `env` stands there.
    """
    places = all_gpus(gpus)
    if not places:
        return {}
    if spec.visible is Visible.NONE:
        return {ORDER: spec.env.get(ORDER, BY_BUS)}
    by_uuid = spec.visible is Visible.UUID
    devices = ",".join(place.uuid if by_uuid else str(place.physical) for place in places)
    return {ORDER: BY_BUS, DEVICES: devices}


def visible_conflict(spec: RunSpec, environ: Mapping[str, str], gpus: Mapping[str, RoleGpus]) -> str | None:
    """Why a variable that the job would have from `env` or by inheritance disagrees with the topology, or None.

    The same GPUs in the same order agree, whether named by index or by UUID.
    """
    wanted = visible_env(spec, gpus)
    if DEVICES not in wanted:
        return None
    order = environ.get(ORDER, BY_BUS)
    if order != BY_BUS:
        return (
            f"{ORDER} is {order}, and the run's GPUs are numbered by {BY_BUS}: with another order the job would run "
            f"on other cards. Unset it, or write `visible: none` and choose the GPUs yourself."
        )
    found = environ.get(DEVICES)
    if found is None:
        return None
    index_of = {place.uuid: str(place.physical) for place in all_gpus(gpus)}
    devices = [index_of.get(item.strip(), item.strip()) for item in found.split(",")]
    if devices == [str(place.physical) for place in all_gpus(gpus)]:
        return None
    return (
        f"{DEVICES} is {found or 'empty'}, and the topology asks for {wanted[DEVICES]}. Unset it, name the same GPUs "
        f"in `topology`, or write `visible: none` to leave it alone."
    )
