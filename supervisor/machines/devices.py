"""The GPUs of a run: the one NVML helper, the locks, the inventory, who holds what. Nothing is decided here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from supervisor.core.evidence import Gpu, GpuSeen, Holder, Reading, Unreadable, Uuid
from supervisor.core.state import State
from supervisor.core.zero import SLACK_MIB
from supervisor.edges.gpulocks import Conflict, GpuLocks, take
from supervisor.edges.gpus import Gpus, GpusUnavailable
from supervisor.edges.holders import find_holders
from supervisor.edges.paths import Home, RunDir
from supervisor.edges.processes import Owners

HOLDERS_EVERY_S = 3.0
LIST_WITHIN_S = 2.0
SIMULATED_WORLD = "world"


class Devices:
    """What one supervisor knows of its run's GPUs."""

    def __init__(self, home: Home, run: RunDir, warn: Callable[[str], None]) -> None:
        self._home = home
        self._run = run
        self._warn = warn
        self._gpus: Gpus | None = None
        self._locks: GpuLocks | None = None
        self._asked_s = self._holders_s = float("-inf")
        self._told: set[tuple[Uuid, str]] = set()
        self.inventory: tuple[Gpu, ...] = ()

    def helper(self, state: State) -> Gpus | None:
        """The NVML helper, started; None for a run without GPUs."""
        if state.spec is None or not state.spec.topology:
            return None
        if self._gpus is None:
            world: Path | None = self._run.path / SIMULATED_WORLD if state.spec.simulated else None
            self._gpus = Gpus(world=world)
            self._gpus.start()
        return self._gpus

    def fds(self) -> list[int]:
        """Readable when a reading is there."""
        return [] if self._gpus is None else [self._gpus.fileno()]

    def ask(self, state: State, every_s: float, *, processes: bool = False) -> None:
        """Ask for readings, if the last were asked for that long ago."""
        gpus = self.helper(state)
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        if gpus is None or not state.gpus or now - self._asked_s < every_s * 0.95:
            return
        self._asked_s = now
        gpus.ask(state.gpus, processes=processes)

    def ask_health(self, uuids: tuple[Uuid, ...]) -> None:
        """Ask how well these GPUs are; the answer comes with the readings."""
        if self._gpus is not None and uuids:
            self._gpus.ask_health(uuids)

    @property
    def health(self) -> dict[Uuid, dict[str, Any]]:
        """The newest answer; empty before there is one."""
        return {} if self._gpus is None else self._gpus.health

    @property
    def health_boot_s(self) -> float:
        """When that was asked for."""
        return float("-inf") if self._gpus is None else self._gpus.health_boot_s

    def readings(self) -> dict[Uuid, GpuSeen]:
        """The newest of each GPU."""
        if self._gpus is None:
            return {}
        seen = self._gpus.take()
        self._tell_unreadable(seen.values())
        return seen

    def _tell_unreadable(self, seen: Iterable[GpuSeen]) -> None:
        """Once for each GPU and reason: it changes nothing for what runs, and is to be known before it does."""
        fresh: dict[str, list[str]] = {}
        for each in seen:
            if isinstance(each, Unreadable) and (each.gpu, each.why) not in self._told:
                self._told.add((each.gpu, each.why))
                fresh.setdefault(each.why, []).append(each.gpu if each.index is None else str(each.index))
        for why, gpus in fresh.items():
            self._warn(f"GPU {', '.join(gpus)} cannot be read: {why}")

    def holders(self, state: State, now_boot_s: float) -> tuple[Holder, ...] | None:
        """Who holds the run's GPUs; None where that was looked at a moment ago."""
        if now_boot_s - self._holders_s < HOLDERS_EVERY_S:
            return None
        self._holders_s = now_boot_s
        gpus = [gpu for gpu in self._known(state) if gpu.uuid in state.gpus]
        pids = {uuid: reading.pids or () for uuid, reading in self.readings().items() if isinstance(reading, Reading)}
        found = find_holders(gpus, pids, Owners(self._home).of)
        if not found.holders and any(
            isinstance(r, Reading) and r.used_mib > SLACK_MIB for r in self.readings().values()
        ):
            for text in found.could_not_see:  # memory is held, and nobody is seen to hold it: that is why
                self._tell_once(text)
        return found.holders

    def _tell_once(self, text: str) -> None:
        if ("", text) not in self._told:
            self._told.add(("", text))
            self._warn(text)

    def _known(self, state: State) -> tuple[Gpu, ...]:
        """The inventory; after a restart it is asked for once more."""
        gpus = self.helper(state)
        if not self.inventory and gpus is not None:
            with suppress(GpusUnavailable):  # unknown now: holders cannot be named, and nothing counts as empty
                self.inventory = gpus.list(timeout_s=LIST_WITHIN_S)
        return self.inventory

    def lock(self, uuids: tuple[Uuid, ...]) -> Conflict | None:
        """All of these GPUs, or who has one of them."""
        taken = take(uuids, self._run.name, held=self._locks)
        if isinstance(taken, Conflict):
            return taken
        self._locks = taken
        return None

    def has_locks(self, state: State) -> bool:
        """True when every GPU of the run is locked by this supervisor."""
        return not state.gpus or (self._locks is not None and self._locks.uuids >= set(state.gpus))

    def ensure_locks(self, state: State) -> None:
        """Take what is missing: after a supervisor's death its locks were free for a moment."""
        if not self.has_locks(state):
            conflict = self.lock(state.gpus)
            if conflict is not None:
                self._warn(str(conflict))

    def close(self) -> None:
        """End the helper, give the locks back."""
        if self._gpus is not None:
            self._gpus.close()
        if self._locks is not None:
            self._locks.release()
        self._gpus = self._locks = None
