"""How much room a living attempt has left, looked at beside the loop every half minute. No trend here."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from supervisor.core.evidence import RoomSeen
from supervisor.core.spec import RunSpec
from supervisor.edges import room
from supervisor.machines.asides import Asides

EVERY_S = 30.0
NAME = "room"


class Rooms:
    """One look at a time; each answer is told once."""

    def __init__(self, asides: Asides) -> None:
        self._asides = asides
        self._asked_s = float("-inf")
        self._told_s = float("-inf")

    def look(self, spec: RunSpec, pid: int | None, at_boot_s: float) -> RoomSeen | None:
        """What the newest look found, if nobody was told yet. `pid`: the job's leader."""
        if pid is None or spec.simulated:
            return None
        if at_boot_s - self._asked_s >= EVERY_S:
            self._asked_s = at_boot_s
            self._asides.forget(NAME)
            self._asides.ensure(NAME, lambda: _seen(spec, pid, at_boot_s))
        with suppress(OSError):  # not to be read now: the next look tries again
            found: RoomSeen | None = self._asides.answer(NAME)
            if found is not None and found.at_boot_s > self._told_s:
                self._told_s = found.at_boot_s
                return found
        return None


def _seen(spec: RunSpec, pid: int, at_boot_s: float) -> RoomSeen:
    used, limit = room.memory(pid) or (None, None)
    return RoomSeen(at_boot_s=at_boot_s, used_mib=used, limit_mib=limit, disks=room.disks(places(spec)))


def places(spec: RunSpec) -> list[str]:
    """Where an attempt writes much: checkpoints first, then output."""
    found = [] if spec.resume is None else [_folder(spec.resume.from_)]
    return found + ([] if spec.output.dir is None else [spec.output.dir])


def _folder(pattern: str) -> str:
    """The deepest folder above the first wildcard."""
    path = Path(pattern)
    for part in (path, *path.parents):
        if not any(sign in str(part) for sign in "*?["):
            return str(part)
    return "/"
