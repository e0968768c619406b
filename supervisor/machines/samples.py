"""Thinned samples of a run for reports: a line each ten seconds, old files bounded. Never read by the loop."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

from supervisor.core.evidence import GpuSeen, Instant, Reading, Step, Uuid

EVERY_S = 10.0
EARLY_S, EARLY_EVERY_S = 600.0, 1.0
"""A supervisor's first minutes are kept finer: a start is where most goes on, and most that goes wrong goes wrong."""
COARSE_EVERY_S = 300.0
FILE_BYTES_MAX = 8 << 20
"""About two days of eight GPUs, of the coarse lines two months; then the file before is replaced. So at most four times
this is kept."""


class Samples:
    """Appends to `samples/current.jsonl`; a full file becomes `before.jsonl`.

    Coarse lines, one each five minutes, go to `coarse.jsonl` and `coarse-before.jsonl`: what is left of days long ago.

    A GPU's row: least and most MiB since the line before, utilisation now, least and most of it, MiB in all; None for
    what could not be read. `step`, `rate` and `loss` are those last reported since the line before.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begun_s: float | None = None
        self._fine = _Span("current.jsonl", "before.jsonl")
        self._coarse = _Span("coarse.jsonl", "coarse-before.jsonl")

    def keep(self, at: Instant, gpus: Mapping[Uuid, GpuSeen], steps: tuple[Step, ...]) -> None:
        """Take note of a look; when it is time a line goes out, with the least and the most since the one before."""
        if self._begun_s is None:
            self._begun_s = self._coarse.since_s = at.boot_s  # its first line tells of the first five minutes
        self._fine.take(gpus, steps)
        every_s = EARLY_EVERY_S if at.boot_s - self._begun_s < EARLY_S else EVERY_S
        if at.boot_s - self._fine.since_s < every_s or (not gpus and self._fine.is_empty):
            return
        line = self._fine.line(at, gpus)
        self._coarse.widen(line)
        with suppress(OSError):  # samples are a view: a full disk must not touch the run
            self._append(self._fine, line)
            if at.boot_s - self._coarse.since_s >= COARSE_EVERY_S:
                self._append(self._coarse, {**self._coarse.line(at, gpus), "span_s": COARSE_EVERY_S})

    def _append(self, to: _Span, line: Mapping[str, Any]) -> None:
        current = self._folder / to.file
        try:
            with open(current, "ab", buffering=0, opener=_private) as file:
                if file.tell() <= FILE_BYTES_MAX:
                    file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
                    return
            current.replace(self._folder / to.before)
        except FileNotFoundError:
            self._folder.mkdir(mode=0o700)
        self._append(to, line)


class _Span:
    """What was seen since a line went out, and the files for such lines."""

    def __init__(self, file: str, before: str) -> None:
        self.file, self.before = file, before
        self.since_s = float("-inf")
        self._ranges: dict[Uuid, list[float | None]] = {}
        self._step: dict[str, float | None] = {}

    @property
    def is_empty(self) -> bool:
        """True where a line would tell nothing."""
        return not self._ranges and not self._step

    def take(self, gpus: Mapping[Uuid, GpuSeen], steps: tuple[Step, ...]) -> None:
        """One look."""
        for uuid, seen in gpus.items():
            if isinstance(seen, Reading):
                self._widen(uuid, seen.used_mib, seen.used_mib, seen.util_pct, seen.util_pct)
        if steps:
            last = steps[-1]
            self._step = {"step": last.step, "rate": _finite(last.rate), "loss": _finite(last.loss)}

    def widen(self, line: Mapping[str, Any]) -> None:
        """One finer line."""
        for uuid, row in line["gpus"].items():
            if row[0] is not None:
                self._widen(uuid, row[0], row[1], row[3], row[4])
        if line["step"] is not None:
            self._step = {name: line[name] for name in ("step", "rate", "loss")}

    def line(self, at: Instant, gpus: Mapping[Uuid, GpuSeen]) -> dict[str, Any]:
        """All of it; the next one begins here."""
        made = {
            "wall_s": round(at.wall_s, 1),
            "gpus": {uuid: self._row(uuid, seen) for uuid, seen in gpus.items()},
            **{name: self._step.get(name) for name in ("step", "rate", "loss")},
        }
        self._ranges.clear()
        self._step = {}
        self.since_s = at.boot_s
        return made

    def _widen(self, uuid: Uuid, low: float, high: float, util_low: float | None, util_high: float | None) -> None:
        known = self._ranges.get(uuid)
        if known is None:
            self._ranges[uuid] = [low, high, util_low, util_high]
            return
        known[0], known[1] = _least(known[0], low), _most(known[1], high)
        known[2], known[3] = _least(known[2], util_low), _most(known[3], util_high)

    def _row(self, uuid: Uuid, seen: GpuSeen) -> list[float | None]:
        known = self._ranges.get(uuid)
        if known is None:
            return [None, None, None]
        util, total = (seen.util_pct, round(seen.total_mib)) if isinstance(seen, Reading) else (None, None)
        return [_whole(known[0]), _whole(known[1]), _whole(util), _whole(known[2]), _whole(known[3]), total]


def _finite(value: float | None) -> float | None:
    return value if value is None or isfinite(value) else None


def _least(known: float | None, new: float | None) -> float | None:
    return new if known is None else known if new is None else min(known, new)


def _most(known: float | None, new: float | None) -> float | None:
    return new if known is None else known if new is None else max(known, new)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
