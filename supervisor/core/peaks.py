"""The most memory that each GPU of an attempt was seen with: facts for sizing a step and for judging a launch.

Rule: a peak is what NVML showed in use while the job lived, so it includes what the allocator only keeps at hand.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from supervisor.core.evidence import GpuSeen, Reading, Uuid
from supervisor.core.kinds import Kind
from supervisor.core.plans import Failure

PEAKS_KEPT = 20


class Peaks(Struct, frozen=True, kw_only=True):
    """What attempt `attempt` took with knobs on `rungs`, by GPU, in MiB.

    `mib`: the most in use. `wanted`: of a GPU that ran out of memory, what was in use then and what was asked for
    beside: it needed no less. `progressed` False: it never came to its first step, so the peaks are those of a load.
    """

    attempt: int
    rungs: dict[str, int]
    mib: dict[Uuid, float] = field(default_factory=dict)
    wanted: dict[Uuid, float] = field(default_factory=dict)
    progressed: bool = False


def risen(known: Mapping[Uuid, float], gpus: Mapping[Uuid, GpuSeen]) -> dict[Uuid, float] | None:
    """The peaks after these readings; None where none of them rose by a MiB."""
    higher = {
        uuid: float(int(seen.used_mib))
        for uuid, seen in gpus.items()
        if isinstance(seen, Reading) and seen.used_mib >= known.get(uuid, 0.0) + 1.0
    }
    return {**known, **higher} if higher else None


def loaded(
    known: Mapping[Uuid, float], gpus: Mapping[Uuid, GpuSeen], idle: Collection[Uuid]
) -> dict[Uuid, float] | None:
    """What a load brought, after these readings of before the first step: the most in use on a GPU that idles.

    What a GPU computes with while it loads comes and goes; what it idles with stays. None where none rose by a MiB.
    """
    return risen(known, {uuid: seen for uuid, seen in gpus.items() if uuid in idle})


def ended(
    known: tuple[Peaks, ...], attempt: int, rungs: Mapping[str, int], mib: Mapping[Uuid, float], *, progressed: bool
) -> tuple[Peaks, ...]:
    """With the peaks that the record of an attempt's end tells."""
    if not mib:
        return known
    return _with(known, replace(_of(known, attempt, rungs), mib=dict(mib), progressed=progressed))


def failed(known: tuple[Peaks, ...], attempt: int, rungs: Mapping[str, int], failure: Failure) -> tuple[Peaks, ...]:
    """With what a GPU that ran out of memory needed at least, as its text tells."""
    wanted = wanted_mib(failure)
    if wanted is None or failure.uuid is None:
        return known
    return _with(known, replace(_of(known, attempt, rungs), wanted={failure.uuid: wanted}))


def wanted_mib(failure: Failure) -> float | None:
    """What a GPU needed at least that ran out of memory by its own doing."""
    if failure.kind is not Kind.GPU_OOM or failure.leftover is not None:
        return None
    if failure.total_mib is None or failure.free_mib is None or failure.tried_mib is None:
        return None
    return failure.total_mib - failure.free_mib + failure.tried_mib


def _of(known: tuple[Peaks, ...], attempt: int, rungs: Mapping[str, int]) -> Peaks:
    found = next((one for one in known if one.attempt == attempt), None)
    return found or Peaks(attempt=attempt, rungs=dict(rungs))


def _with(known: tuple[Peaks, ...], new: Peaks) -> tuple[Peaks, ...]:
    return (*(one for one in known if one.attempt != new.attempt), new)[-PEAKS_KEPT:]
