"""Scalars of a TensorBoard log folder, read without TensorBoard. Event files only; no opinion on what a tag means.

An event file is a row of records: length (8 bytes, little endian), its checksum (4), the data, its checksum (4); the
data is an `Event` message of TensorFlow (event.proto, summary.proto): 1 wall_time (double),
2 step (int64), 5 summary; summary's 1 is a value with 1 tag, 2 simple_value (float), 8 tensor; tensor's 5 are floats,
6 doubles, 4 the bytes of either. Checksums are not looked at: a record that is cut off ends the file.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

FILES_CAP = 200
RECORD_CAP_BYTES = 1 << 20
"""Scalars are small; a bigger record is an image or a graph and is skipped."""
DEADLINE_S = 10.0
POINTS_CAP = 200_000


class Point(NamedTuple):
    """One value of a tag."""

    wall_s: float
    step: int
    value: float


class Scalars(NamedTuple):
    """Points by tag, in the order of time; `left_off` says what was not read, empty for nothing."""

    points: Mapping[str, list[Point]]
    left_off: str = ""


class _Torn(ValueError):
    """The message is not whole, or none; a ValueError, as what `seek` says to a length that is none."""


def read(logdir: Path, wanted: frozenset[str] | None = None, *, deadline_s: float = DEADLINE_S) -> Scalars:
    """The scalars of all event files below the folder; `wanted` None: every tag. A folder that is not there has none.

    Never raises for a file that is damaged, growing or unreadable: what comes after that place is left off.
    """
    until_s = time.monotonic() + deadline_s
    points: dict[str, list[Point]] = {}
    count = 0
    files = _files(logdir)
    left_off = f"{len(files) - FILES_CAP} older event files" if len(files) > FILES_CAP else ""
    for path in files[-FILES_CAP:]:
        for tag, point in _points(path, wanted):
            points.setdefault(tag, []).append(point)
            count += 1
            if count >= POINTS_CAP:
                return Scalars(_sorted(points), f"what comes after {POINTS_CAP} points")
        if time.monotonic() > until_s:
            return Scalars(_sorted(points), f"what was not read within {deadline_s:.0f} s")
    return Scalars(_sorted(points), left_off)


def _sorted(points: dict[str, list[Point]]) -> dict[str, list[Point]]:
    return {tag: sorted(found) for tag, found in sorted(points.items())}


def _files(logdir: Path) -> list[Path]:
    """Event files below the folder, oldest first by the time in their names, which is when they were begun."""
    found: list[Path] = []
    for folder, _, names in os.walk(logdir):
        found += [Path(folder, name) for name in names if ".tfevents." in name]
    return sorted(found, key=lambda path: (path.name.partition(".tfevents.")[2].partition(".")[0].zfill(20), str(path)))


def _points(path: Path, wanted: frozenset[str] | None) -> Iterator[tuple[str, Point]]:
    try:
        with open(path, "rb") as file:
            while len(head := file.read(12)) == 12:
                size = struct.unpack("<Q", head[:8])[0]
                if size > RECORD_CAP_BYTES:
                    file.seek(size + 4, os.SEEK_CUR)
                    continue
                data = file.read(size + 4)
                if len(data) < size + 4:
                    return  # it is being written
                yield from _of_event(data[:size], wanted)
    except (OSError, OverflowError, ValueError):  # a length that is none, or a message that is torn
        return


def _of_event(data: bytes, wanted: frozenset[str] | None) -> Iterator[tuple[str, Point]]:
    wall_s, step, summaries = 0.0, 0, []
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes) and len(value) == 8:
            wall_s = struct.unpack("<d", value)[0]
        elif number == 2 and isinstance(value, int):
            step = value if value < 1 << 63 else value - (1 << 64)
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in _fields(summary):
            if number == 1 and isinstance(value, bytes):
                tag, scalar = _of_value(value)
                if scalar is not None and (wanted is None or tag in wanted):
                    yield tag, Point(wall_s, step, scalar)


def _of_value(data: bytes) -> tuple[str, float | None]:
    tag, scalar = "", None
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            scalar = struct.unpack("<f", value)[0]
        elif number == 8 and isinstance(value, bytes):
            scalar = _of_tensor(value)
    return tag, scalar


def _of_tensor(data: bytes) -> float | None:
    """The value of a tensor that holds one number (dtype 1 is float, 2 double); None for any other."""
    kind, found = 0, []
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in (4, 5, 6) and isinstance(value, bytes):
            found.append((number, value))
    form = {1: "<f", 2: "<d"}.get(kind)
    if form is None or len(found) != 1 or len(found[0][1]) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, found[0][1])[0])


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a protobuf message: numbers of wire type 0, bytes of 1, 2 and 5."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(wire, -1)
        if size < 0 or at + size > len(data):
            raise _Torn
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise _Torn
