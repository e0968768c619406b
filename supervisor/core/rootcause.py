"""The root cause among failure texts, and which of them later lines refute. Pure: hits in, one cause out.

Rule 1: what names a reason wins over an exception without a known text, that over what the others printed once
one had failed, that over exit codes. Within the same weight the first wins.
Rule 2: a reason from further down (a broken GPU, the kernel's memory killer) wins over what it explains, also
where it was printed later.
Rule 3: a text that was followed by further steps of the process that printed it was no failure of the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from supervisor.core.evidence import Hit, Weight
from supervisor.core.kinds import Kind

T = TypeVar("T")

#: Further steps that refute a text; one may have been under way already.
STEPS_TO_REFUTE = 2

#: Lost texts that are told: beyond that a log repeats itself.
LOST_CAP = 20

HALF_A_DAY_S = 12 * 3600.0
CLOCK_WITHIN = 80
"""Where in a line a logger writes the time."""

_CLOCK = re.compile(r"(?<![\d:])([01]\d|2[0-3]):([0-5]\d):([0-5]\d(?:[.,]\d{1,9})?)(?![\d:])")

_RANKING = {
    Weight.CAUSE: 0, Weight.GENERIC: 1, Weight.AFTERMATH: 1, Weight.WARNED: 2, Weight.SUMMARY: 3, Weight.WRAPPER: 4,
    Weight.NOISE: 5,
}  # fmt: skip

#: What never wins over another text, and why.
POINTS = {Weight.WRAPPER: "it only points at another text", Weight.NOISE: "it is printed at any end"}

#: What a reason from further down explains.
EXPLAINS: dict[Kind, frozenset[Kind]] = {
    Kind.GPU_FAULT: frozenset(
        {Kind.CUDA_ERROR, Kind.COLLECTIVE_ERROR, Kind.COLLECTIVE_TIMEOUT, Kind.KILLED, Kind.SEGFAULT, Kind.EXIT}
    ),
    Kind.HOST_OOM: frozenset(
        {Kind.KILLED, Kind.SEGFAULT, Kind.EXIT, Kind.DATA_ERROR, Kind.COLLECTIVE_ERROR, Kind.COLLECTIVE_TIMEOUT}
    ),
    Kind.ENV_ERROR: frozenset({Kind.CODE_ERROR, Kind.CUDA_ERROR}),
    Kind.SHM_FULL: frozenset({Kind.DATA_ERROR, Kind.SEGFAULT}),
}

#: An exception of one rank explains that the others lost their connection to it; a timeout it does not explain.
_LOST_CONNECTION = frozenset({Kind.COLLECTIVE_ERROR})


class Confidence(str, Enum):
    """How sure a cause is."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


_CONFIDENCE = {
    Weight.CAUSE: Confidence.HIGH,
    Weight.GENERIC: Confidence.MEDIUM,
    Weight.AFTERMATH: Confidence.MEDIUM,
    Weight.WARNED: Confidence.LOW,
    Weight.SUMMARY: Confidence.LOW,
    Weight.WRAPPER: Confidence.LOW,
}


class Cause(Struct, frozen=True):
    """The failure text that decides, completed from others of the same failure; `lost` says why not those."""

    hit: Hit
    confidence: Confidence
    lost: tuple[tuple[Hit, str], ...] = ()


class Mark(Struct, frozen=True):
    """A line that says the run went on: a step, its good end (`done`), or a new start (`restart`).

    `source` as in `Hit`; `step` None where the line names none. `caught` marks a line that says the failure was
    dealt with (retried, skipped).
    """

    offset: int
    source: str = ""
    step: int | None = None
    done: bool = False
    restart: bool = False
    caught: bool = False


def root_cause(hits: Sequence[Hit], *, refuted: Sequence[tuple[Hit, str]] = ()) -> Cause | None:
    """The cause among hits in the order in which they were seen; None where none of them is one.

    `refuted` are hits that were dropped already, with the reason; they are only told.
    """
    candidates = _meaningful(_in_time(hits))
    if not candidates:
        return None
    first = min(candidates, key=lambda hit: _RANKING[hit.weight])
    chosen = _deeper(first, candidates)
    lost = [(hit, _why_lost(hit, chosen, first)) for hit in candidates if hit is not chosen]
    lost += [(hit, POINTS[hit.weight]) for hit in hits if hit is not chosen and hit.weight in POINTS]
    return Cause(_completed(chosen, candidates), _CONFIDENCE[chosen.weight], _told((*lost, *refuted)))


def refuted(hits: Sequence[Hit], marks: Sequence[Mark]) -> tuple[tuple[Hit, ...], tuple[tuple[Hit, str], ...]]:
    """The hits that stand, and those that later marks of the same file refute, each with the reason."""
    stands: list[Hit] = []
    fell: list[tuple[Hit, str]] = []
    for hit in hits:
        why = _refutation(hit, [mark for mark in marks if mark.offset > hit.offset], hits)
        if why is None:
            stands.append(hit)
        else:
            fell.append((hit, why))
    return tuple(stands), tuple(fell)


def _in_time(hits: Sequence[Hit]) -> Sequence[Hit]:
    """Hits of several files in the order of the times that they print, where all do; a file's own order stays.

    Files that were read in one go came in the order of their names.
    """
    if len({hit.file for hit in hits}) < 2:
        return hits
    clocks = [_clock_s(hit.text) for hit in hits]
    known = [clock for clock in clocks if clock is not None]
    if len(known) < len(hits) or max(known) - min(known) > HALF_A_DAY_S:  # over midnight clocks tell nothing
        return hits
    latest: dict[str, float] = {}
    order: list[tuple[float, int]] = []
    for number, (hit, clock) in enumerate(zip(hits, known, strict=True)):
        latest[hit.file] = max(clock, latest.get(hit.file, clock))
        order.append((latest[hit.file], number))
    return [hits[number] for _, number in sorted(order)]


def _clock_s(text: str) -> float | None:
    """The time of day that a line begins with, in seconds; None where it prints none."""
    found = _CLOCK.search(text[:CLOCK_WITHIN])
    if found is None:
        return None
    hours, minutes, seconds = found.groups()
    return int(hours) * 3600.0 + int(minutes) * 60.0 + float(seconds.replace(",", "."))


def _meaningful(hits: Sequence[Hit]) -> list[Hit]:
    """Without wrappers and texts that mean something only when repeated; one hit for each line.

    Where nothing is left, a wrapper tells of a failure whose reason stands elsewhere.
    A line that was looked at before it was finished may have been taken for something else first.
    """
    lines: dict[tuple[str, int], Hit] = {}
    for hit in hits:
        before = lines.get((hit.file, hit.offset))
        if before is None or _RANKING[hit.weight] <= _RANKING[before.weight]:
            lines[hit.file, hit.offset] = hit
    hits = list(lines.values())
    counts: dict[str, int] = {}
    for hit in hits:
        counts[hit.signature] = counts.get(hit.signature, 0) + 1
    meant = [hit for hit in hits if hit.weight not in POINTS and counts[hit.signature] >= hit.repeats]
    wrappers = [hit for hit in hits if hit.weight is Weight.WRAPPER][:1]
    if not wrappers and all(hit.weight is Weight.WARNED for hit in meant):
        return []
    return meant or wrappers


def _deeper(first: Hit, candidates: Iterable[Hit]) -> Hit:
    """The first reason that explains `first`, or `first` itself."""
    for hit in candidates:
        if hit.weight is Weight.CAUSE and first.kind in EXPLAINS.get(hit.kind, ()):
            return hit
        if (
            first.weight is Weight.AFTERMATH
            and first.kind in _LOST_CONNECTION
            and hit.weight is Weight.GENERIC
            and hit.source != first.source
        ):
            return hit
    return first


def _completed(chosen: Hit, candidates: Sequence[Hit]) -> Hit:
    """The chosen hit, with what other texts of the same failure know: sizes, GPU, rank, pid."""
    hit = chosen
    for other in candidates:
        if other.kind is hit.kind and other.weight is not Weight.SUMMARY and _same_event(hit, other):
            hit = replace(
                hit,
                rank=_either(hit.rank, other.rank),
                gpu=_either(hit.gpu, other.gpu),
                tried_mib=_either(hit.tried_mib, other.tried_mib),
                free_mib=_either(hit.free_mib, other.free_mib),
                total_mib=_either(hit.total_mib, other.total_mib),
                in_use_mib=_either(hit.in_use_mib, other.in_use_mib),
                reserved_mib=_either(hit.reserved_mib, other.reserved_mib),
                others=hit.others or other.others,
                pid=_either(hit.pid, other.pid),
            )
    if hit.rank is None:
        for other in candidates:
            if other.weight is Weight.SUMMARY and other.rank is not None and hit.pid in (None, other.pid):
                return replace(hit, rank=other.rank)
    return hit


def _same_event(hit: Hit, other: Hit) -> bool:
    """True where no field that both know differs."""
    pairs = (
        (hit.rank, other.rank),
        (hit.gpu, other.gpu),
        (hit.tried_mib, other.tried_mib),
        (hit.free_mib, other.free_mib),
        (hit.total_mib, other.total_mib),
        (hit.pid, other.pid),
    )
    return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)


def _either(mine: T | None, theirs: T | None) -> T | None:
    return mine if mine is not None else theirs


def _why_lost(hit: Hit, chosen: Hit, first: Hit) -> str:
    if hit is first:
        return f"{chosen.kind} explains it"
    if hit.weight is Weight.SUMMARY:
        return "an exit code or signal, no reason"
    if hit.weight is Weight.AFTERMATH and chosen.weight is not Weight.AFTERMATH:
        return f"what others print after a {chosen.kind}"
    if hit.kind is chosen.kind:
        return "the same kind, printed later"
    if _RANKING[hit.weight] > _RANKING[chosen.weight]:
        return "names no known reason"
    return "printed later"


def _told(lost: Iterable[tuple[Hit, str]]) -> tuple[tuple[Hit, str], ...]:
    """One of each signature and rank, at most `LOST_CAP`."""
    seen: dict[tuple[str, int | None], tuple[Hit, str]] = {}
    for hit, why in lost:
        seen.setdefault((hit.signature, hit.rank), (hit, why))
    return tuple(seen.values())[:LOST_CAP]


def _refutation(hit: Hit, later: Sequence[Mark], hits: Sequence[Hit]) -> str | None:
    """Why the hit was no failure of the run, or None."""
    died = hit.raised and bool(hit.source)
    restarted = next((mark.offset for mark in later if mark.restart), None)
    own = [
        mark
        for mark in later
        if not died or mark.source == hit.source or (restarted is not None and mark.offset > restarted)
    ]
    if any(mark.done for mark in own):
        return "the run ended well after it"
    steps = {mark.offset if mark.step is None else mark.step for mark in own if not (mark.restart or mark.caught)}
    if len(steps) < STEPS_TO_REFUTE:
        return None
    if _several_died(hit, hits, later) and restarted is None:
        return None
    return f"training went on, {len(steps)} further steps"


def _several_died(hit: Hit, hits: Sequence[Hit], later: Sequence[Mark]) -> bool:
    """True where the same failure ended several processes: the steps after it may be those of the others."""
    if not hit.raised or any(mark.caught for mark in later):
        return False
    same = [other for other in hits if other.kind is hit.kind and other.raised and other.gpu is not None]
    return len({(other.gpu, other.source) for other in same}) >= STEPS_TO_REFUTE
