"""What will run full: memory of GPUs and host, room on disks. Values and estimates; nothing is decided here.

Rule 1: a trend is what rises steadily, at the top and at the bottom, over most of half an hour and more: allocators
that step up and stay, and sawteeth that come back down, have none.
Rule 2: what came down from as high before is awaited at that height.
Rule 3: nobody is told of what lies further ahead than a few times what was seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

from msgspec import Struct, field
from msgspec.structs import replace

from supervisor.core.evidence import GpuSeen, Reading, RoomSeen, Uuid
from supervisor.core.middle import median

WARM_S = 900.0
"""After its first progress an attempt gets this long to fill its caches."""

BUCKET_S = 180.0
BUCKETS_MIN, BUCKETS_MAX = 10, 40
SHORTER = (20, BUCKETS_MIN)
"""Half an hour at least, two hours at most: what began late is seen in a shorter stretch."""

RISE_SHARE, RISE_MIB = 0.01, 256.0
"""A rise of less than a hundredth of the whole, or of that many MiB, is none."""

STEADY = 0.75
"""The later half must rise at this share of the whole's slope: what levels off is not foretold."""

CONCORDANT, MOVING, JUMP_SHARE, FALL_SHARE = 0.8, 0.6, 0.4, 0.25
"""Of all pairs so many rise, of all moves so many; no single move is more than so much of the rise, and nothing falls
back by more than so much of it."""

AHEAD = 3.0
AHEAD_S = 12 * 3600.0
"""Foretold is what lies at most so many times ahead of what was seen, and not beyond the night."""

SAVES_KEPT, DROPS_MIN = 12, 4
"""A trainer that keeps a few checkpoints takes no more room once it prunes: so many must have taken room."""


class Series(Struct, frozen=True, kw_only=True):
    """What is used of something, in MiB: lowest and highest of each closed bucket, oldest first, and of the open one.

    `peak` is the highest of all closed ones ever. `full_in_s` is what the closed ones foretell, None for nothing.
    """

    began_boot_s: float
    low: float
    high: float
    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()
    peak: float = 0.0
    full_in_s: float | None = None


class Saves(Struct, frozen=True, kw_only=True):
    """Free room at each checkpoint that was gained: (boot_s, MiB)."""

    gained: int = 0
    free: tuple[tuple[float, float], ...] = ()


class Trends(Struct, frozen=True, kw_only=True):
    """All that is followed of an attempt. `disks` by the path that was looked at."""

    gpus: dict[Uuid, Series] = field(default_factory=dict)
    host: Series | None = None
    disks: dict[str, Series] = field(default_factory=dict)
    saves: dict[str, Saves] = field(default_factory=dict)


class Ahead(Struct, frozen=True):
    """What will be full, in words, and when."""

    what: str
    text: str
    full_in_s: float


def read(trends: Trends, gpus: Mapping[Uuid, GpuSeen], at_boot_s: float) -> Trends:
    """After more readings of the GPUs."""
    changed: dict[Uuid, Series] = {}
    for uuid, seen in gpus.items():
        if isinstance(seen, Reading):
            before = trends.gpus.get(uuid)
            limit = seen.total_mib - (seen.reserved_mib or 0.0)
            after = add(before, seen.used_mib, limit, at_boot_s)
            if after is not before:
                changed[uuid] = after
    return replace(trends, gpus={**trends.gpus, **changed}) if changed else trends


def roomed(trends: Trends, room: RoomSeen, gained: int) -> Trends:
    """After a look at the host's memory and the disks, when `gained` checkpoints of the attempt were complete."""
    host = trends.host
    if room.used_mib is not None and room.limit_mib is not None:
        host = add(host, room.used_mib, room.limit_mib, room.at_boot_s)
    disks, saves = dict(trends.disks), dict(trends.saves)
    for path, free, total in room.disks:
        disks[path] = add(disks.get(path), total - free, total, room.at_boot_s)
        last = saves.get(path, Saves())
        if gained > last.gained or path not in saves:
            free_at = (*last.free, (room.at_boot_s, free))[-SAVES_KEPT:]
            saves[path] = Saves(gained=gained, free=free_at if gained else ())
    return replace(trends, host=host, disks=disks, saves=saves)


def add(series: Series | None, used: float, limit: float, at_boot_s: float) -> Series:
    """One more value; the estimate is made when a bucket closes."""
    if series is None or at_boot_s - series.began_boot_s > 2 * BUCKET_S:
        return Series(began_boot_s=at_boot_s, low=used, high=used)
    if at_boot_s - series.began_boot_s < BUCKET_S:
        if series.low <= used <= series.high:
            return series
        return replace(series, low=min(series.low, used), high=max(series.high, used))
    lows = (*series.lows, series.low)[-BUCKETS_MAX:]
    highs = (*series.highs, series.high)[-BUCKETS_MAX:]
    began = series.began_boot_s + BUCKET_S
    full = full_in_s(lows, highs, limit) if series.high >= series.peak else None
    peak = max(series.peak, series.high)
    return Series(began_boot_s=began, low=used, high=used, lows=lows, highs=highs, peak=peak, full_in_s=full)


def full_in_s(lows: Sequence[float], highs: Sequence[float], limit: float) -> float | None:
    """Seconds until the limit is reached at the trend of the longest stretch that has one; None where none has, or it
    leads too far ahead."""
    for count in (len(highs), *SHORTER):
        if BUCKETS_MIN <= count <= len(highs):
            ahead_s = _ahead_s(lows[-count:], highs[-count:], limit)
            if ahead_s is not None:
                return ahead_s
    return None


def _ahead_s(lows: Sequence[float], highs: Sequence[float], limit: float) -> float | None:
    least = max(RISE_SHARE * limit, RISE_MIB)
    if not (_rises(highs, least) and _rises(lows, least)):
        return None
    whole, later = slope(highs), slope(highs[len(highs) // 2 :])
    if later < STEADY * whole:
        return None
    ahead_s = max(0.0, (limit - highs[-1]) / max(later, whole) * BUCKET_S)
    return ahead_s if ahead_s <= min(AHEAD_S, AHEAD * len(highs) * BUCKET_S) else None


def _rises(values: Sequence[float], least: float) -> bool:
    rise = median(values[-3:]) - median(values[:3])
    if rise < least:
        return False
    pairs = list(combinations(values, 2))
    moves = [after - before for before, after in pairwise(values)]
    concordant = sum(1 for before, after in pairs if after > before) >= CONCORDANT * len(pairs)
    moving = sum(1 for move in moves if move > 0) >= MOVING * len(moves)
    top, fall = values[0], 0.0
    for value in values:
        top = max(top, value)
        fall = max(fall, top - value)
    return concordant and moving and max(moves) <= JUMP_SHARE * rise and fall <= FALL_SHARE * rise


def slope(values: Sequence[float]) -> float:
    """The median slope of all pairs (Theil and Sen), in units a bucket: a few outliers do not move it."""
    return median((values[b] - values[a]) / (b - a) for a, b in combinations(range(len(values)), 2))


def ahead(trends: Trends, indices: Mapping[Uuid, int]) -> tuple[Ahead, ...]:
    """All that will be full, the soonest first. `indices`: the run's GPUs."""
    found = [
        Ahead(f"GPU {indices[uuid]}", f"GPU {indices[uuid]} full in {span(full)} at this rate", full)
        for uuid, one in trends.gpus.items()
        if (full := one.full_in_s) is not None and uuid in indices
    ]
    if trends.host is not None and (full := trends.host.full_in_s) is not None:
        found.append(Ahead("host memory", f"host memory full in {span(full)} at this rate", full))
    for path, saves in trends.saves.items():
        by_saves = _by_saves(saves)
        series = trends.disks[path]
        if by_saves is not None:
            full, each = by_saves
            text = f"disk full in {span(full)} at {each / 1024.0:.3g} GiB per checkpoint ({path})"
            found.append(Ahead(f"disk {path}", text, full))
        elif (full := series.full_in_s) is not None:
            found.append(Ahead(f"disk {path}", f"disk full in {span(full)} at this rate ({path})", full))
    return tuple(sorted(found, key=_when))


def _when(one: Ahead) -> float:
    return one.full_in_s


def _by_saves(saves: Saves) -> tuple[float, float] | None:
    """(seconds until full, MiB for each checkpoint), where each of the last ones took about as much room."""
    free = saves.free[-DROPS_MIN - 1 :]
    if len(free) <= DROPS_MIN:
        return None
    drops = [before[1] - after[1] for before, after in pairwise(free)]
    usual = median(drops)
    if usual < RISE_MIB or min(drops) < 0.5 * usual:
        return None
    every_s = median(after[0] - before[0] for before, after in pairwise(free))
    full = free[-1][1] / usual * every_s
    return (full, usual) if full <= min(AHEAD_S, AHEAD * DROPS_MIN * every_s) else None


def span(seconds: float) -> str:
    """`40 min`, `3 h 10 m`."""
    minutes = max(1, round(seconds / 60.0))
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} m"
