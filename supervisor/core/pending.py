"""Failure texts that are neither a verdict yet nor dropped: which GPU each speaks of, and what refutes it.

Values and pure functions. How they are remembered is `core/watch.py`, when they are a verdict `core/verdicts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from supervisor.core.aftermath import Printer
from supervisor.core.evidence import GpuSeen, Hit, Reading, Uuid
from supervisor.core.state import State

GONE_FLOOR_MIB = 64.0
"""A GPU with less than this in use has lost its holder, where NVML's process lists say nothing."""


DRAIN_S = 5.0
"""How long the memory of a dead process may still be seen; only then it tells of a live one."""


class Pending(Struct, frozen=True, kw_only=True):
    """A hit that is neither a verdict yet nor dropped.

    `uuid` is the GPU it speaks of (None: names none). `steps_at` is the count of progress steps when it was read,
    `second_step_boot_s` when the second step after it was read. `gone_since_boot_s`: since when its GPU's holder,
    or for a hit that names no GPU any holder of the run, has been gone.
    """

    hit: Hit
    seen_boot_s: float
    uuid: Uuid | None
    steps_at: int
    second_step_boot_s: float | None = None
    gone_since_boot_s: float | None = None
    holders: dict[Uuid, tuple[int, ...]] = field(default_factory=dict)


def physical(hit: Hit, state: State, printers: Sequence[Printer], holders: Mapping[Uuid, Sequence[int]]) -> Uuid | None:
    """The GPU a printed ordinal means: it counts along the GPUs that the printing process sees.

    A process whose environment names none sees the run's. None where processes that may have printed it differ and
    `holders` does not tell which of them holds the GPU that it would mean.
    """
    if hit.gpu is None or hit.gpu < 0:
        return None
    if not printers:
        return _place(hit.gpu, None, state)
    known = [one for one in printers if hit.pid is not None and one.pid == hit.pid]
    known = known or [one for one in printers if hit.rank is not None and one.rank == hit.rank]
    meant = [(one.pid, _place(hit.gpu, one.visible, state)) for one in known or printers]
    held = {uuid for pid, uuid in meant if uuid is not None and pid in holders.get(uuid, ())}
    places = held or {uuid for _, uuid in meant if uuid is not None}
    return places.pop() if len(places) == 1 else None


def _place(ordinal: int, visible: Sequence[str] | None, state: State) -> Uuid | None:
    """The GPU at this place of CUDA_VISIBLE_DEVICES (indices or UUIDs, which may be cut short)."""
    gpus = state.gpus
    if visible is None:
        return gpus[ordinal] if ordinal < len(gpus) else None
    if ordinal >= len(visible):
        return None
    name = visible[ordinal]
    by_index = {str(index): uuid for index, uuid in zip(state.indices, gpus, strict=True)}
    return by_index.get(name) or next((uuid for uuid in gpus if name and uuid.startswith(name)), None)


def _concerned(pending: Pending, gpus: tuple[Uuid, ...]) -> tuple[Uuid, ...]:
    return gpus if pending.uuid is None else (pending.uuid,)


def held(pending: Pending, readings: Mapping[Uuid, GpuSeen], gpus: tuple[Uuid, ...]) -> Pending:
    holders = dict(pending.holders)
    gone = False
    since: float | None = None
    for uuid in _concerned(pending, gpus):
        reading = readings.get(uuid)
        if not isinstance(reading, Reading) or reading.began_boot_s < pending.seen_boot_s or reading.pids is None:
            continue
        if uuid not in holders and reading.pids:
            holders[uuid] = reading.pids
        if not _holds(holders.get(uuid, ()), reading):
            gone = True
            since = reading.began_boot_s
    if not gone:
        return replace(pending, holders=holders, gone_since_boot_s=None)
    return replace(pending, holders=holders, gone_since_boot_s=pending.gone_since_boot_s or since)


def _holds(holders: tuple[int, ...], reading: Reading) -> bool:
    """Whether the GPU still has the holder it had. Where none was ever listed the memory must tell.

    The memory of a dead holder drains for seconds: a list that had a name and is empty now is the better witness.
    """
    if holders:
        return not set(holders).isdisjoint(reading.pids or ())
    return reading.used_mib > GONE_FLOOR_MIB


def is_refuted(pending: Pending, readings: Mapping[Uuid, GpuSeen], gpus: tuple[Uuid, ...]) -> bool:
    second = pending.second_step_boot_s
    if second is None:
        return False
    for uuid in _concerned(pending, gpus):
        reading = readings.get(uuid)
        if not isinstance(reading, Reading) or reading.pids is None or reading.began_boot_s <= second:
            return False
        holders = pending.holders.get(uuid, ())
        if not holders and reading.began_boot_s < second + DRAIN_S:
            return False  # it may be the memory of a holder that has just died
        if not _holds(holders, reading):
            return False
    return True
