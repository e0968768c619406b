"""Who holds memory of the GPUs: by open and mapped device files, and by NVML's lists where those mean something.

Rule 1: a holder has nvidia-uvm open or mapped, or stands in NVML's lists; an open nvidiaN alone makes a client.
Rule 2: NVML tells pids of the initial PID namespace. Elsewhere its number is never taken for a process of ours, unless
        that process exists here and holds the device.
Rule 3: what could not be looked into is said. An empty answer is never proof that nobody is there.

Nothing is signalled here, and whose a process is, is asked of the caller's `owner_of`.
"""

# thousands of links are read: pathlib would cost more than the kernel
# ruff: noqa: PTH115, PTH208
from __future__ import annotations

import os
import pwd
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from supervisor.core.evidence import Gpu, Holder, Owner, Uuid
from supervisor.edges import proc

DEV = "/dev"
INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO of linux/proc_ns.h: the same on every kernel
MAPS_CAP_BYTES = 64 * 1024 * 1024  # a trainer with many libraries has 1 MiB
UNKNOWN = "?"
OwnerOf = Callable[[int], tuple[Owner, str | None]]


class HoldersSeen(Struct, frozen=True):
    """Holders of the GPUs asked for, one for each pair of process and GPU; and what may hide more of them."""

    holders: tuple[Holder, ...]
    could_not_see: tuple[str, ...]

    @property
    def sees_all(self) -> bool:
        """True when no holder could have hidden from this look."""
        return not self.could_not_see


class _Found(Struct, frozen=True):
    """One process with nvidia-uvm: the minors of the GPU nodes that it has open or mapped besides."""

    pid: int
    minors: frozenset[int]


def in_initial_pid_namespace() -> bool:
    """True where pids that the driver tells are pids here."""
    return proc.pid_namespace_inode() == INITIAL_PID_NAMESPACE


def find_holders(
    gpus: Sequence[Gpu],
    nvml_pids: Mapping[Uuid, tuple[int, ...]],
    owner_of: OwnerOf,
    *,
    dev: str | None = None,
    initial: bool | None = None,
) -> HoldersSeen:
    """Everybody who holds one of these GPUs. `nvml_pids` are NVML's lists, where they were asked for.

    `dev`: where device nodes are, default `SUPERVISE_DEV` or /dev. `initial`: whether NVML's pids are pids here,
    by default as the kernel says.
    """
    trusted = in_initial_pid_namespace() if initial is None else initial
    found, hidden = _scan(dev or os.environ.get("SUPERVISE_DEV") or DEV)
    listed = {pid for pids in nvml_pids.values() for pid in pids}
    holders: list[Holder] = []
    for gpu in gpus:
        by_nvml = nvml_pids.get(gpu.uuid, ())
        here = _here(gpu, found, listed if trusted else set())
        here |= {pid for pid in by_nvml if trusted or pid in {each.pid for each in found}}
        holders += [_holder(gpu.uuid, pid, owner_of) for pid in sorted(here)]
        if not trusted:
            elsewhere = [pid for pid in by_nvml if pid not in here]
            unmatched = len(elsewhere) - len(here - {*by_nvml})  # ours have numbers there, too
            holders += [_elsewhere(gpu.uuid, pid) for pid in elsewhere[: max(0, unmatched)]]
    return HoldersSeen(tuple(holders), _could_not_see(gpus, nvml_pids, hidden, trusted))


def _here(gpu: Gpu, found: Sequence[_Found], listed: set[int]) -> set[int]:
    """Processes that hold this GPU by their device files.

    CUDA opens the nodes of all GPUs it sees, so for a process that NVML lists somewhere the lists decide where. One
    with nvidia-uvm and no node at all may hold any GPU.
    """
    minor = gpu.index if gpu.minor is None else gpu.minor
    return {each.pid for each in found if each.pid not in listed and (minor in each.minors or not each.minors)}


def _holder(uuid: Uuid, pid: int, owner_of: OwnerOf) -> Holder:
    cmdline = proc.cmdline(pid)
    if not cmdline:
        return Holder(uuid, pid, UNKNOWN, "gone from /proc, but NVML lists it", Owner.UNKNOWN)
    owner, run = owner_of(pid)
    return Holder(uuid, pid, user_of(pid), cmdline, owner, run)


def _elsewhere(uuid: Uuid, pid: int) -> Holder:
    return Holder(uuid, 0, UNKNOWN, f"pid {pid} in the host's PID namespace, not to be seen from here", Owner.UNKNOWN)


def user_of(pid: int) -> str:
    """The name of the user that a process runs as; its number where there is no name, `?` where it is gone."""
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return UNKNOWN
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _could_not_see(
    gpus: Sequence[Gpu], nvml_pids: Mapping[Uuid, tuple[int, ...]], hidden: Sequence[int], trusted: bool
) -> tuple[str, ...]:
    said = []
    if hidden:
        users = ", ".join(f"{count} of {user}" for user, count in sorted(Counter(map(user_of, hidden)).items()))
        more = "; root sees more" if os.geteuid() else ""
        said.append(f"unknown holder possible: processes that may not be looked into ({users}){more}")
    if not trusted:
        said.append("unknown holder possible: this is a PID namespace of its own, and processes outside are not seen")
    unlisted = [str(gpu.index) for gpu in gpus if gpu.uuid not in nvml_pids]
    if unlisted and trusted:
        said.append(f"NVML's process list was not to be had for GPU {', '.join(unlisted)}")
    return tuple(said)


# ── /proc ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _scan(dev: str) -> tuple[list[_Found], list[int]]:
    """All processes with nvidia-uvm, and those that may not be looked into."""
    uvm = f"{dev}/nvidia-uvm"
    node = re.compile(re.escape(f"{dev}/nvidia") + r"(\d+)\Z")
    found, hidden = [], []
    for pid in proc.pids():
        seen = proc.stat(pid)
        if seen is None or seen.flags & proc.KERNEL_THREAD or proc.is_dead(seen):
            continue
        where = proc.folder(pid)
        try:
            paths = _opened(where)
            if uvm not in paths or not any(map(node.match, paths)):
                paths |= _mapped(where, dev)
        except PermissionError:
            hidden.append(pid)
            continue
        except OSError:
            continue  # it ended while it was looked at
        if uvm in paths:
            minors = frozenset(int(match[1]) for match in map(node.match, paths) if match)
            found.append(_Found(pid, minors))
    return found, hidden


def _opened(where: str) -> set[str]:
    """What the process has open. Its live threads share one table; a leader that has exited shows an empty one."""
    paths = set()
    for name in os.listdir(f"{where}/fd"):
        try:
            paths.add(os.readlink(f"{where}/fd/{name}"))
        except FileNotFoundError:
            continue  # closed meanwhile
    return paths


def _mapped(where: str, dev: str) -> set[str]:
    """Device files that are mapped, also those no longer open."""
    with open(f"{where}/maps", "rb") as file:
        text = file.read(MAPS_CAP_BYTES)
    prefix = f" {dev}/nvidia".encode()
    if prefix not in text:
        return set()
    lines = (line for line in text.split(b"\n") if prefix in line)
    return {os.fsdecode(line[line.index(prefix) + 1 :]).removesuffix(" (deleted)") for line in lines}
