"""Will it fit? From the memory that attempts with these knobs in this environment took, against what is free now.

Rule 1: only attempts that came to their first step count; what a load takes says nothing about training.
Rule 2: one that ran out of memory needed at least what its text tells: that is warned about and refuses nothing, for
        whoever starts it again may know better (another sample, memory that lay unused).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from supervisor.core.drift import Change, Suspicion
from supervisor.core.evidence import GpuSeen, Reading, Uuid
from supervisor.core.peaks import Peaks

HEADROOM_MIB = 1024.0
OTHER_MEMORY = frozenset({Suspicion.TORCH, Suspicion.CUDA_LIBRARY, Suspicion.DRIVER, Suspicion.IMPORTS_CUDA})


class Fits(Struct, frozen=True):
    """What was found: reasons not to launch, and what to know. `known` False: there is no history to go by."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    known: bool = True


def takes_other_memory(changes: Iterable[Change]) -> bool:
    """True where old peaks are no measure any more: another torch, CUDA, driver, card or allocator."""
    return any(one.suspicion in OTHER_MEMORY or one.group in ("gpus", "variables") for one in changes)


def comparable(peaks: Iterable[Peaks], rungs: Mapping[str, int]) -> tuple[Peaks, ...]:
    """Those of attempts that trained, or ran out of memory, with the knobs on these rungs."""
    told = (one for one in peaks if (one.progressed and one.mib) or one.wanted)
    return tuple(one for one in told if _placed(one.rungs) == _placed(rungs))


def _placed(rungs: Mapping[str, int]) -> dict[str, int]:
    return {name: rung for name, rung in rungs.items() if rung}


def fits(known: Collection[Peaks], gpus: Mapping[Uuid, GpuSeen], floors: Mapping[Uuid, float]) -> Fits:
    """Whether the most that these attempts took is free on each GPU now. A peak includes the GPU's floor."""
    problems: list[str] = []
    warnings: list[str] = []
    for uuid, seen in gpus.items():
        if not isinstance(seen, Reading):
            continue
        free = seen.total_mib - max(0.0, seen.used_mib - floors.get(uuid, 0.0))
        warnings += _failed(known, uuid, seen.index, free)
        found = [(one.mib[uuid], one.attempt) for one in known if one.progressed and uuid in one.mib]
        if not found:
            continue
        peak, attempt = max(found)
        text = f"GPU {seen.index}: attempt {attempt} took {peak:.0f} MiB with these knobs, {free:.0f} MiB are free"
        if peak > free:
            problems.append(f"{text}: short by {peak - free:.0f} MiB")
        elif free - peak < HEADROOM_MIB:
            warnings.append(f"{text}: {free - peak:.0f} MiB of headroom")
    return Fits(tuple(problems), tuple(warnings), known=any(one.progressed and one.mib for one in known))


def _failed(known: Collection[Peaks], uuid: Uuid, index: int, free: float) -> Iterator[str]:
    """That one ran out of memory with these knobs, and what it needed, where that is not free now either."""
    needs = [(one.wanted[uuid], one.attempt) for one in known if uuid in one.wanted]
    need, attempt = max(needs, default=(0.0, 0))
    if need > free:
        text = f"GPU {index}: attempt {attempt} ran out of memory with these knobs, it needed at least {need:.0f} MiB"
        yield f"{text}, {free:.0f} MiB are free"
