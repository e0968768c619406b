"""A simulated box with GPUs: a directory in which live processes write what they hold. No NVML calls here.

    world.json         {"gpus": [{"index", "uuid", "name", "total_mib", "idle_mib", "error"}], "drain_s",
                        "reserved_mib", "init_error"}; `error` and `init_error` are NVML codes, 0 for none
    procs/PID.json     {"pid", "start_ticks", "gpus": {"5": {"mib", "util"}}}: what a live process holds
    procs/PID.TICKS.dead   since when (CLOCK_BOOTTIME) somebody saw that process dead

Rule 1: memory is tied to a live process (pid and start ticks). A zombie with no thread left is dead.
Rule 2: after a death the memory drains linearly over `drain_s`, counted from the first look that saw it.
"""

# a helper reads this eight times a second for each GPU:
# ruff: noqa: PTH116, PTH208
from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

TOTAL_MIB = 97249.28  # 94.97 GiB, as the incident's GPUs showed


class SimulatedGpu(Struct, frozen=True):
    """One GPU of the world. `error` is the NVML code that every call on it answers with; 0: healthy."""

    index: int
    uuid: str
    name: str
    total_mib: float
    idle_mib: float = 0.0
    error: int = 0


class Held(Struct, frozen=True):
    """Memory that one process holds on one GPU; `left` is 1 while it lives and falls to 0 while it drains."""

    pid: int
    mib: float
    util: float
    left: float


class World:
    """A simulated box with GPUs. Reading changes nothing but the marks of who was seen dead."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._files: dict[str, tuple[tuple[int, int, int], dict[str, Any]]] = {}
        self._cards: tuple[dict[str, Any], tuple[SimulatedGpu, ...]] = ({}, ())

    @classmethod
    def create(
        cls,
        directory: Path,
        gpus: int = 8,
        total_mib: float = TOTAL_MIB,
        *,
        idle_mib: float = 0.0,
        reserved_mib: float = 600.0,
        drain_s: float = 1.0,
        name: str = "Simulated GPU",
    ) -> World:
        """A world with `gpus` empty GPUs. UUIDs follow from the directory: the same place, the same GPUs."""
        (directory / "procs").mkdir(parents=True, exist_ok=True)
        where = str(directory.resolve())
        cards = [
            {
                "index": index,
                "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_URL, f'{where}#{index}')}",
                "name": name,
                "total_mib": total_mib,
                "idle_mib": idle_mib,
                "error": 0,
            }
            for index in range(gpus)
        ]
        world = cls(directory)
        plain = {"gpus": cards, "drain_s": drain_s, "reserved_mib": reserved_mib, "init_error": 0}
        world._write(directory / "world.json", plain)
        return world

    def hold(self, mib: Mapping[int, float], util: float | Mapping[int, float] = 0.0) -> None:
        """From now on this process holds so much memory (MiB by GPU index) at that utilisation (percent)."""
        pid = os.getpid()
        utils = util if isinstance(util, Mapping) else dict.fromkeys(mib, util)
        gpus = {str(index): {"mib": size, "util": utils.get(index, 0.0)} for index, size in mib.items()}
        plain = {"pid": pid, "start_ticks": _start_ticks_if_alive(pid), "gpus": gpus}
        self._write(self.directory / "procs" / f"{pid}.json", plain)

    def release(self) -> None:
        """This process holds nothing any more; its memory is free at once."""
        (self.directory / "procs" / f"{os.getpid()}.json").unlink(missing_ok=True)

    def gpus(self) -> tuple[SimulatedGpu, ...]:
        """All GPUs, in the order of their indices."""
        plain = self.read()
        if self._cards[0] is not plain:
            cards = (SimulatedGpu(**card) for card in plain["gpus"])
            self._cards = plain, tuple(sorted(cards, key=lambda card: card.index))
        return self._cards[1]

    def used_mib(self, index: int) -> float:
        """Used now: idle, held by the living, not yet drained from the dead; at most the GPU's total."""
        card = next(card for card in self.gpus() if card.index == index)
        held = sum(each.mib * each.left for each in self.held(index))
        return min(card.total_mib, card.idle_mib + held)

    def free_mib(self, index: int) -> float:
        """What a process could still take on a GPU."""
        card = next(card for card in self.gpus() if card.index == index)
        return card.total_mib - self.used_mib(index)

    def util_pct(self, index: int) -> float:
        """The highest utilisation that a living process has on a GPU."""
        return max((each.util for each in self.held(index) if each.left == 1.0), default=0.0)

    def pids(self, index: int) -> tuple[int, ...]:
        """The living processes that hold memory of a GPU."""
        return tuple(each.pid for each in self.held(index) if each.left == 1.0)

    def fail(self, index: int, error: int) -> None:
        """Every call on this GPU answers with that NVML code from now on; 0 mends it."""
        plain = json.loads((self.directory / "world.json").read_bytes())
        for card in plain["gpus"]:
            if card["index"] == index:
                card["error"] = error
        self._write(self.directory / "world.json", plain)

    def held(self, index: int) -> list[Held]:
        """Who holds memory of a GPU, the dead that still drain among them."""
        drain_s = float(self.read()["drain_s"])
        held = []
        procs = self.directory / "procs"
        for name in sorted(os.listdir(procs)):
            if not name.endswith(".json"):
                continue
            try:
                plain = self._load(f"{procs}/{name}")
            except FileNotFoundError:
                continue  # released between the listing and the reading
            share = plain["gpus"].get(str(index))
            if share is None:
                continue
            left = self._left(int(plain["pid"]), int(plain["start_ticks"]), drain_s)
            if left > 0:
                held.append(Held(int(plain["pid"]), float(share["mib"]), float(share["util"]), left))
        return held

    def _left(self, pid: int, start_ticks: int, drain_s: float) -> float:
        """1 while that process lives, then falling to 0 over `drain_s`."""
        if _start_ticks_if_alive(pid) == start_ticks:
            return 1.0
        now = _boot_s()
        mark = self.directory / "procs" / f"{pid}.{start_ticks}.dead"
        try:
            died = float(mark.read_text() or now)
        except FileNotFoundError:
            mark.write_text(repr(now))
            died = now
        return max(0.0, 1.0 - (now - died) / drain_s) if drain_s > 0 else 0.0

    def read(self) -> dict[str, Any]:
        """world.json as it stands."""
        return self._load(f"{self.directory}/world.json")

    def _load(self, path: str) -> dict[str, Any]:
        """A file's content, parsed once: every change comes by rename, so as another inode or at another time."""
        at = os.stat(path)
        key = (at.st_ino, at.st_mtime_ns, at.st_size)
        known = self._files.get(path)
        if known is not None and known[0] == key:
            return known[1]
        plain: dict[str, Any] = json.loads(Path(path).read_bytes())
        self._files[path] = key, plain
        return plain

    def _write(self, path: Path, plain: dict[str, Any]) -> None:
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.write_text(json.dumps(plain))
        fresh.replace(path)


def _boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _start_ticks_if_alive(pid: int) -> int:
    """Field 22 of /proc/PID/stat; 0 where there is no such process or it is dead but not yet reaped."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read(4096).rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    threads = int(fields[17])
    if fields[0] == b"X" or (fields[0] == b"Z" and threads <= 1):
        return 0
    return int(fields[19])
