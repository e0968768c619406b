"""A cgroup v2 folder for a job, where one may be made: it then holds all of the job's processes, whatever they do.

A convenience, never required. The folder is made below the cgroup that we are in, so that limits which were set for
us go on to hold for the job; no controller is switched on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path

from supervisor.edges import proc

MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
"""Where v2 is mounted: alone, or beside v1."""
DEPTH_MAX = 8
LOOK_S = 0.002


def probe() -> Path | None:
    """The folder below which cgroups can be made, tried by making one; None where that is not to be had."""
    here = _own_path()
    for mount in MOUNTS:
        if here is None or not (mount / "cgroup.procs").is_file():
            continue
        parent = mount / here.lstrip("/")
        trial = parent / f"supervise-probe-{os.getpid()}"
        try:
            trial.mkdir()
            usable = (trial / "cgroup.procs").is_file()
            trial.rmdir()
        except OSError:
            continue
        if usable:
            return parent
    return None


def create(parent: Path, name: str) -> Path | None:
    """The folder for one attempt, made if it is not there; None where it cannot be."""
    path = parent / f"supervise-{name}"
    try:
        path.mkdir(exist_ok=True)
    except OSError:
        return None
    return path


def pids(path: str) -> list[int]:
    """The processes in the cgroup and in those that the job made below it; empty where it is gone."""
    found: list[int] = []
    for folder, below, _ in os.walk(path):
        data = proc.read(f"{folder}/cgroup.procs")
        if data is not None:
            found += [int(word) for word in data.split()]
        if folder.count("/") - path.count("/") >= DEPTH_MAX:
            below.clear()
    return found


def kill(path: str, only: Collection[int]) -> bool:
    """SIGKILL to everybody in the cgroup at once, the newborn too. True when it was asked of the kernel.

    Refused where somebody else is in it than `only`: a supervisor that was started there must live.
    """
    if not set(pids(path)) <= set(only):
        return False
    try:
        (Path(path) / "cgroup.kill").write_text("1")  # Linux 5.14 and later
    except OSError:
        return False
    return True


def remove(path: str, deadline_s: float = 0.5) -> bool:
    """Takes the folder and those below it away, once they are empty. True when it is gone."""
    until = time.monotonic() + deadline_s
    while True:
        for folder, _, _ in os.walk(path, topdown=False):
            try:
                Path(folder).rmdir()
            except OSError:
                break
        if not Path(path).exists():
            return True
        if time.monotonic() > until or pids(path):
            return False
        time.sleep(LOOK_S)  # a member that has died leaves its cgroup a moment later


def _own_path() -> str | None:
    for line in (proc.read("/proc/self/cgroup") or b"").decode("utf-8", "replace").splitlines():
        if line.startswith("0::"):
            return line[3:]
    return None
