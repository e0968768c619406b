"""How much of the host's memory and of its disks is in use. No trend, no opinion.

Memory: where the job's memory cgroup (v2 or v1) or one above it has a limit, the tightest of them counts, without the
pages of files that the kernel would give up; else MemTotal and MemAvailable of /proc/meminfo (proc(5)).
Disks: what this user may still write, one answer for each file system.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from supervisor.edges import proc
from supervisor.edges.bounded import within

ROOT = Path("/sys/fs/cgroup")
MIB = 2**20
UNLIMITED = 2**60
"""cgroup v1 says "no limit" as the greatest multiple of a page below 2**63."""

V2 = ("memory.current", "memory.max")
V1 = ("memory.usage_in_bytes", "memory.limit_in_bytes")


def memory(pid: int, root: Path = ROOT, meminfo: str = "/proc/meminfo") -> tuple[float, float] | None:
    """(in use, limit) in MiB for this process; None where neither is to be read."""
    text = (proc.read(f"/proc/{pid}/cgroup") or b"").decode("utf-8", "replace")
    limited = [found for place in _places(text, root) if (found := _limited(place)) is not None]
    host = _host(meminfo)
    if limited:
        tightest = min(limited, key=_left)
        return tightest if host is None or _left(tightest) <= _left(host) else host
    return host


def _left(found: tuple[float, float]) -> float:
    return found[1] - found[0]


def _limited(place: Path) -> tuple[float, float] | None:
    """Of a cgroup that has a limit."""
    for used_name, limit_name in (V2, V1):
        used, limit = _number(place / used_name), _number(place / limit_name)
        if used is not None and limit is not None and limit < UNLIMITED:
            return max(0, used - _files(place)) / MIB, limit / MIB
    return None


def _files(place: Path) -> int:
    """Bytes of file pages, which go before anybody is killed. v1 counts those below it under total_."""
    found: dict[bytes, int] = {}
    for line in (proc.read(str(place / "memory.stat")) or b"").splitlines():
        word, _, number = line.partition(b" ")
        if number.isdigit():
            found[word] = int(number)
    total = b"total_" if b"total_inactive_file" in found else b""
    return found.get(total + b"inactive_file", 0) + found.get(total + b"active_file", 0)


def _number(path: Path) -> int | None:
    text = (proc.read(str(path)) or b"").strip()
    return int(text) if text.isdigit() else None


def _places(text: str, root: Path) -> list[Path]:
    """The process's memory cgroup and those above it; in a cgroup namespace the mount is our own."""
    found: list[Path] = []
    for line in text.splitlines():
        number, names, path = line.split(":", 2)
        mounts = (root, root / "unified") if number == "0" else (root / "memory",)
        if number == "0" or "memory" in names.split(","):
            for mount in mounts:
                here = mount / path.strip("/")
                found += [here, *(one for one in here.parents if one == mount or mount in one.parents)]
    return found


def _host(meminfo: str) -> tuple[float, float] | None:
    found: dict[bytes, int] = {}
    for line in (proc.read(meminfo) or b"").splitlines():
        word, _, rest = line.partition(b":")
        number = rest.split(b"k")[0].strip()
        if number.isdigit():
            found[word] = int(number)
    total, left = found.get(b"MemTotal"), found.get(b"MemAvailable")
    return None if total is None or left is None else ((total - left) / 1024, total / 1024)


def disks(paths: Iterable[str], deadline_s: float = 2.0) -> tuple[tuple[str, float, float], ...]:
    """(path, free, all) in MiB for each file system that the paths are or will be on; none for one that is dead."""
    found: dict[int, tuple[str, float, float]] = {}
    for path in paths:
        try:
            device, free, total = within(deadline_s, lambda path=path: _disk(path), f"the room at {path}")  # type: ignore[misc]
        except OSError:
            continue
        found.setdefault(device, (path, free, total))
    return tuple(found.values())


def _disk(path: str) -> tuple[int, float, float]:
    place = Path(path)
    while not place.exists() and place != place.parent:
        place = place.parent
    answer = os.statvfs(place)
    return place.stat().st_dev, answer.f_bavail * answer.f_frsize / MIB, answer.f_blocks * answer.f_frsize / MIB
