"""How often the memory killer struck in a job's memory cgroup, v2 or v1, whichever is mounted. Counts, no opinion.

v2: `oom_kill` of memory.events counts the cgroup and all below it. v1: `oom_kill` of memory.oom_control (Linux 4.13
and later) counts one cgroup; where that line is missing there is no count.
"""

from __future__ import annotations

from pathlib import Path

from supervisor.core.aftermath import CouldNotTell
from supervisor.edges import proc

ROOT = Path("/sys/fs/cgroup")
V2 = ("memory.events", "")
V1 = ("memory.oom_control", "memory")


def kills(pid: int | str = "self", root: Path = ROOT) -> tuple[str, int] | CouldNotTell:
    """The memory cgroup of a live process and its count so far."""
    text = (proc.read(f"/proc/{pid}/cgroup") or b"").decode("utf-8", "replace")
    if not text:
        return CouldNotTell(f"the cgroup of pid {pid}: it is gone, or may not be seen")
    for place in _places(text, root):
        count = count_at(str(place))
        if isinstance(count, int):
            return str(place), count
    return CouldNotTell("the memory cgroup: none with a count of kills is mounted here")


def count_at(path: str) -> int | CouldNotTell:
    """The count of the cgroup whose folder this is."""
    for name in (V2[0], V1[0]):
        for line in (proc.read(f"{path}/{name}") or b"").splitlines():
            word, _, number = line.partition(b" ")
            if word == b"oom_kill" and number.strip().isdigit():
                return int(number)
    return CouldNotTell(f"the memory cgroup {path}: no count of kills")


def _places(text: str, root: Path) -> list[Path]:
    """Where the process's memory cgroup may be seen: its own folder, then those above it.

    v2 counts only where the memory controller is on, which may be further up. In a cgroup namespace the path of v1
    may name folders that are not there; the mount then shows our own as its root.
    """
    v1: list[Path] = []
    v2: list[Path] = []
    for line in text.splitlines():
        number, names, path = line.split(":", 2)
        if number == "0":
            v2 = [one for mount in (root, root / "unified") for one in _upwards(mount, path)]
        elif V1[1] in names.split(","):
            v1 = [here for here in _upwards(root / names, path) if here.is_dir()][:1]
    return v2 + v1


def _upwards(mount: Path, path: str) -> list[Path]:
    here = mount / path.strip("/")
    above = [one for one in here.parents if one != mount and mount in one.parents]
    return [here, *above, mount]
