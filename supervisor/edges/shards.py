"""Output shards that a dead writer cut off: found by what their format says of its end. Renamed, never deleted.

Parquet ends in its footer's length and `PAR1`; each line of JSON Lines is a value and ends in a newline; a gzip member
ends in the CRC and the length of what it holds. A shard of another format is whole as far as can be told.
"""

# Paths are text here, as in `checkpoints.py`.
# ruff: noqa: PTH119, PTH104, PTH118, PTH207

from __future__ import annotations

import glob
import gzip
import json
import os
import stat
import struct
import time
import zlib
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from supervisor.edges.bounded import within
from supervisor.edges.files import fsync_dir

MATCHES_CAP = 100_000
LOOKED_AT = 64
"""The newest shards of an attempt, one for each writer; a job has seldom more writers than that on one box."""

LINE_CAP_BYTES = 16 * 2**20
BLOCK = 2**20


def cut_off(pattern: str, since_wall_s: float, deadline_s: float = 20.0) -> tuple[tuple[str, str], ...]:
    """(path, why) of the matches written since then that are cut off. What cannot be read in time is left alone."""
    found: list[tuple[str, str]] = []
    ends_at = time.monotonic() + deadline_s

    def look() -> None:
        for path in _written_since(pattern, since_wall_s):
            if time.monotonic() > ends_at:
                return
            why = fault(path, ends_at)
            if why is not None:
                found.append((path, why))

    try:
        within(deadline_s, look, f"looking at {pattern}")
    except (TimeoutError, OSError):
        return tuple(found)
    return tuple(found)


def _written_since(pattern: str, since_wall_s: float) -> list[str]:
    seen: list[tuple[float, str]] = []
    for path in islice(glob.iglob(pattern, recursive=True), MATCHES_CAP):
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode) and status.st_mtime >= since_wall_s:
            seen.append((status.st_mtime, os.path.normpath(path)))
    return [path for _, path in sorted(seen, reverse=True)[:LOOKED_AT]]


def fault(path: str, ends_at: float = float("inf")) -> str | None:
    """Why this shard is cut off; None where nothing speaks against it, or time is up. Raises OSError."""
    name = os.path.basename(path)
    with open(path, "rb") as file:
        head = file.read(4)
        size = file.seek(0, os.SEEK_END)
        if name.endswith(".parquet") or head == b"PAR1":
            return _parquet_fault(file, size, head)
        if head.startswith(b"\x1f\x8b"):
            return _gzip_fault(path, ends_at)
        if name.endswith((".jsonl", ".ndjson")):
            return _lines_fault(file, size)
    return f"{name} is empty" if size == 0 and name.endswith(".gz") else None


def _parquet_fault(file: BinaryIO, size: int, head: bytes) -> str | None:
    if size < 12 or head != b"PAR1":
        return "it is no whole parquet file: it has no head" if size else "it is empty"
    file.seek(size - 8)
    length, magic = struct.unpack("<I4s", file.read(8))
    if magic != b"PAR1":
        return "its parquet footer is missing"
    return "its parquet footer is cut off" if length + 12 > size else None


def _lines_fault(file: BinaryIO, size: int) -> str | None:
    if size == 0:
        return None
    file.seek(max(0, size - LINE_CAP_BYTES))
    last = file.read(LINE_CAP_BYTES)
    line = last.removesuffix(b"\n").rpartition(b"\n")[2]
    if len(line) >= LINE_CAP_BYTES - 1:
        return None  # longer than is read: nothing is known of it
    try:
        json.loads(line)
    except ValueError:
        return "its last line is no JSON value" if last.endswith(b"\n") else "its last line is cut off"
    return None


def _gzip_fault(path: str, ends_at: float) -> str | None:
    try:
        with gzip.open(path, "rb") as file:
            while file.read(BLOCK):
                if time.monotonic() > ends_at:
                    return None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        return f"its gzip stream is cut off: {error}"
    return None


def aside(path: str, attempt: int) -> str:
    """The name that a cut-off shard gets: hidden, so that no glob of shards takes it."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.cut-{attempt}")


def ensure_aside(path: str, to: str) -> str:
    """Renames the shard; a second call finds it done. What was done, for people. Raises OSError."""
    if not os.path.lexists(path):
        return f"renamed to {to}" if os.path.lexists(to) else ""
    why = fault(path)
    if why is None or os.path.lexists(to):
        return ""
    os.rename(path, to)
    fsync_dir(Path(path).parent)
    return f"renamed to {to}: {why}"
