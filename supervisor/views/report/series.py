"""Samples to curves that fit a page: thinned so that each least and each most survives. No words, no drawing.

Rule 1: what falls into one bucket is told by its least and its most, so a drop to zero of one second is still there.
Rule 2: where nothing was sampled there is nothing; a gap is no zero.
"""

from __future__ import annotations

import json
from array import array
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from supervisor.views.run import AttemptView, Plain

CELLS_MAX = 38_400
"""Buckets of all GPUs together, about 8 bytes of page each."""
BUCKETS_MAX = 4_800
POINT_BUCKETS = 1_200
GAP_S = 60.0
"""Samples come each ten seconds at most; what is farther apart than this has a hole between."""
EMPTY_U16, EMPTY_U8 = 0xFFFF, 0xFF


class Gpu(NamedTuple):
    """One GPU's curves by bucket: memory as shares of `scale_mib` (0 to 65534), utilisation in percent."""

    uuid: str
    total_mib: float | None
    scale_mib: float
    peak_mib: float | None
    low: array[int]
    high: array[int]
    util_low: bytearray
    util_high: bytearray


class Point(NamedTuple):
    """What a job said of itself. `is_lost`: a later launch began before this step."""

    wall_s: float
    step: int
    loss: float | None
    rate: float | None
    attempt: int | None = None
    is_lost: bool = False


class Series(NamedTuple):
    """Curves from `begin_s` on (Unix time), one bucket each `bucket_s`."""

    begin_s: float
    bucket_s: float
    buckets: int
    gpus: tuple[Gpu, ...] = ()
    points: tuple[Point, ...] = ()


def series(lines: Sequence[bytes], begin_s: float, end_s: float) -> Series:
    """The curves of these lines of samples within the time given; lines that are no samples are passed over."""
    span_s = max(1.0, end_s - begin_s)
    known = list(_samples(lines, begin_s, end_s))
    uuids = list(dict.fromkeys(uuid for each in known for uuid in each["gpus"]))
    limit = max(200, min(BUCKETS_MAX, CELLS_MAX // max(1, len(uuids))))
    bucket_s = max(1.0, span_s / limit)
    buckets = min(limit, int(span_s / bucket_s)) + 1
    spread = list(_spread(known, begin_s, bucket_s))
    gpus = tuple(_gpu(uuid, spread, buckets) for uuid in uuids)
    points = [
        Point(each["wall_s"], each["step"], each.get("loss"), each.get("rate"))
        for each in known
        if each.get("step") is not None
    ]
    return Series(begin_s, bucket_s, buckets, gpus, tuple(points))


def _samples(lines: Iterable[bytes], begin_s: float, end_s: float) -> Iterator[Plain]:
    for line in lines:
        try:
            plain = json.loads(line)
        except ValueError:  # torn by a crash: the next line is whole
            continue
        if isinstance(plain, dict) and isinstance(plain.get("gpus"), dict):
            at_s = plain.get("wall_s")
            if isinstance(at_s, (int, float)) and begin_s <= at_s <= end_s:
                yield plain


def _spread(known: Iterable[Plain], begin_s: float, bucket_s: float) -> Iterator[tuple[range, Plain]]:
    """Each sample with its buckets: it speaks of all the time since the one before, unless that is a gap."""
    before_s = float("-inf")
    for each in known:
        last = int((each["wall_s"] - begin_s) / bucket_s)
        is_near = 0.0 < each["wall_s"] - before_s <= GAP_S + (each.get("span_s") or 0.0)
        first = min(last, int((before_s - begin_s) / bucket_s) + 1) if is_near else last
        before_s = each["wall_s"]
        yield range(first, last + 1), each["gpus"]


def _gpu(uuid: str, spread: Iterable[tuple[range, Plain]], count: int) -> Gpu:
    rows = [(buckets, row) for buckets, gpus in spread if (row := gpus.get(uuid))]
    totals = [row[5] for _, row in rows if len(row) > 5 and row[5]]
    peak = max((row[1] for _, row in rows if row[1] is not None), default=None)
    scale = float(max(peak or 1.0, totals[-1] if totals else 1.0))
    low, high = array("H", [EMPTY_U16]) * count, array("H", [EMPTY_U16]) * count
    util_low, util_high = bytearray([EMPTY_U8]) * count, bytearray([EMPTY_U8]) * count
    for at, row in ((at, row) for buckets, row in rows for at in buckets):
        if row[0] is not None and row[1] is not None:
            least, most = round(row[0] / scale * 65534), round(row[1] / scale * 65534)
            low[at] = min(low[at], least)
            high[at] = most if high[at] == EMPTY_U16 else max(high[at], most)
        utils = [value for value in row[2:5] if value is not None]
        if utils:
            util_low[at] = min(util_low[at], int(max(0, min(utils))))
            most = min(100, int(max(utils)))
            util_high[at] = most if util_high[at] == EMPTY_U8 else max(util_high[at], most)
    return Gpu(uuid, totals[-1] if totals else None, scale, peak, low, high, util_low, util_high)


def attributed(points: Iterable[Point], attempts: Sequence[AttemptView]) -> tuple[Point, ...]:
    """Each point with its attempt, and whether what it tells of was thrown away by a later launch."""
    ahead: float = float("inf")
    kept: dict[int, float] = {}
    for attempt in reversed(attempts):
        kept[attempt.number] = ahead
        if attempt.abandoned is None:
            step = (attempt.checkpoint or {}).get("step", -1) if attempt.checkpoint else 0
            ahead = min(ahead, step) if step >= 0 else ahead
    found = []
    at = 0
    for point in sorted(points, key=lambda each: each.wall_s):
        while at + 1 < len(attempts) and point.wall_s >= attempts[at + 1].intended_s:
            at += 1
        of = attempts[at] if attempts and point.wall_s >= attempts[at].intended_s else None
        lost = of is not None and point.step > kept[of.number]
        found.append(point._replace(attempt=of.number if of else None, is_lost=lost))
    return tuple(found)


def thinned(points: Sequence[Point]) -> tuple[Point, ...]:
    """At most four points of each stretch of time: the least and the most loss and rate, in their order."""
    if len(points) <= POINT_BUCKETS * 2:
        return tuple(points)
    begin_s, end_s = points[0].wall_s, points[-1].wall_s
    bucket_s = max(1e-9, (end_s - begin_s) / POINT_BUCKETS)
    buckets: dict[tuple[int, int | None, bool], list[Point]] = {}
    for point in points:
        place = (int((point.wall_s - begin_s) / bucket_s), point.attempt, point.is_lost)
        buckets.setdefault(place, []).append(point)
    kept = {point for bucket in buckets.values() for point in _extremes(bucket)}
    return tuple(sorted(kept, key=lambda each: (each.wall_s, each.step)))


def _extremes(bucket: Sequence[Point]) -> Iterator[Point]:
    yield bucket[0]
    for key in ("loss", "rate"):
        told = [point for point in bucket if getattr(point, key) is not None]
        if told:
            yield min(told, key=lambda each: getattr(each, key))
            yield max(told, key=lambda each: getattr(each, key))


def drawn(of: Series, points: Sequence[Point], gpus: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    """For the page: curves as base64 (little endian), points as rows."""
    rows = [
        {
            "index": gpus.get(each.uuid, (None, ""))[0],
            "role": gpus.get(each.uuid, (None, ""))[1],
            "uuid": each.uuid,
            "scale_mib": each.scale_mib,
            "total_mib": each.total_mib,
            **{name: _text(getattr(each, name)) for name in ("low", "high", "util_low", "util_high")},
        }
        for each in of.gpus
    ]
    rows.sort(key=lambda each: (each["index"] is None, each["index"] or 0))
    told = [
        [round(each.wall_s - of.begin_s, 1), each.step, each.loss, each.rate, int(each.is_lost), each.attempt]
        for each in points
    ]
    return {"begin_s": of.begin_s, "bucket_s": of.bucket_s, "count": of.buckets, "gpus": rows, "points": told}


def _text(values: array[int] | bytearray) -> str:
    if isinstance(values, array) and values.itemsize == 2:
        import sys

        if sys.byteorder == "big":
            values = values[:]
            values.byteswap()
    return b64encode(bytes(values)).decode()
