"""What the box's witnesses make of a verdict: an end without a reason gets one, an innocent knob stays.

Rule 1: a witness only sharpens kinds that its finding explains; a reason found in the log stands.
Rule 2: what the run went on after explains nothing.
Rule 3: "could not tell" changes nothing; it is told, so that nobody takes it for "nothing found".
"""

from __future__ import annotations

import signal as signals

from msgspec.structs import replace

from supervisor.core.aftermath import (
    HARDWARE_XIDS,
    SHM,
    Aftermath,
    CgroupKills,
    GpuHealth,
    KernelSaid,
    OomKill,
    Orphan,
    Space,
    Xid,
)
from supervisor.core.events import Failure
from supervisor.core.kinds import Kind
from supervisor.core.rootcause import EXPLAINS, Confidence

FULL_MIB = 8.0
"""A file system with less than this left could not take a checkpoint's next block."""

FULL_SHM_MIB = 1.0
EVIDENCE_KEPT = 16
SLACK_S = 60.0
"""A step that was under way may still be reported this long after the blow."""

LOST_PROCESS = frozenset({Kind.KILLED, Kind.COLLECTIVE_ERROR, Kind.COLLECTIVE_TIMEOUT})
"""What is seen where a worker was killed: the others miss it."""


def sharpened(failure: Failure, seen: Aftermath | None, numbers: dict[str, int], progress_boot_s: float) -> Failure:
    """The failure with what the witnesses add. `numbers`: the run's GPUs by UUID; `progress_boot_s`: its last step."""
    if seen is None or failure.kind is Kind.PROTECTED_VIOLATION:
        return failure
    failure = replace(failure, evidence=_said(seen)[:EVIDENCE_KEPT])
    late = _late(seen, progress_boot_s - SLACK_S)
    found = _host_oom(failure, late) or _gpu_fault(failure, late, numbers) or _full(failure, late) or failure
    return _held_by_ours(found, seen)


def _late(seen: Aftermath, since_boot_s: float) -> Aftermath:
    """Without what the kernel said before that time."""
    if not isinstance(seen.kernel, KernelSaid):
        return seen
    kills, xids = seen.kernel.oom_kills, seen.kernel.xids
    said = KernelSaid(
        oom_kills=tuple(one for one in kills if one.at_boot_s is None or one.at_boot_s >= since_boot_s),
        xids=tuple(one for one in xids if one.at_boot_s is None or one.at_boot_s >= since_boot_s),
    )
    return replace(seen, kernel=said)


def _as(failure: Failure, kind: Kind, text: str, confidence: Confidence, **fields: object) -> Failure:
    """The failure with this reason; what it was taken for before is told."""
    was = f"{failure.kind.value}: {failure.because}"
    changed = replace(failure, kind=kind, because=f"{text} ({failure.because})", confidence=confidence.value)
    lost = (f"{was}: {kind.value} explains it", *failure.lost)
    return replace(changed, lost=lost, **fields)


# ── memory of the host ───────────────────────────────────────────────────────────────────────────────────────────────


def _host_oom(failure: Failure, seen: Aftermath) -> Failure | None:
    explains = EXPLAINS[Kind.HOST_OOM]
    if failure.kind not in explains:
        return None
    kill = _our_kill(seen)
    if kill is not None and kill.ours:
        text = f"the kernel's memory killer ended pid {kill.pid} ({kill.name})"
        return _as(failure, Kind.HOST_OOM, text, Confidence.HIGH)
    if not _died_of_kill(failure):
        return None
    grown = seen.cgroup
    if isinstance(grown, CgroupKills) and grown.kills > 0:
        text = f"the memory killer ended {grown.kills} of the job's cgroup {grown.path}"
        return _as(failure, Kind.HOST_OOM, text, Confidence.HIGH)
    if kill is not None:
        text = f"the kernel's memory killer ended a process {kill.name} (pid {kill.pid} as the host counts) meanwhile"
        return _as(failure, Kind.HOST_OOM, text, Confidence.MEDIUM)
    return None


def _our_kill(seen: Aftermath) -> OomKill | None:
    """A kill of a process of ours; else one that may have been."""
    kills = seen.kernel.oom_kills if isinstance(seen.kernel, KernelSaid) else ()
    sure = next((kill for kill in kills if kill.ours), None)
    return sure or next((kill for kill in kills if kill.ours is None), None)


def _died_of_kill(failure: Failure) -> bool:
    """True where SIGKILL ended the job (a signal, a shell's 137, a launcher's report), or one worker is missed."""
    number = signals.SIGKILL
    return failure.kind in LOST_PROCESS or failure.signal == number or failure.code == 128 + number


# ── GPUs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _gpu_fault(failure: Failure, seen: Aftermath, numbers: dict[str, int]) -> Failure | None:
    if failure.kind not in EXPLAINS[Kind.GPU_FAULT] and failure.kind is not Kind.HANG:
        return None
    for xid in _xids(seen):
        if xid.code in HARDWARE_XIDS and (xid.gpu in numbers or (xid.gpu is None and xid.ours)):
            where = "a GPU" if xid.gpu is None else f"GPU {numbers[xid.gpu]}"
            text = f"{where} reported Xid {xid.code}: {xid.text.strip()[:160]}"
            return _on(failure, xid.gpu, numbers, text)
    for one in seen.gpus:
        if isinstance(one, GpuHealth) and one.new_errors and one.gpu in numbers:
            text = f"GPU {numbers[one.gpu]} counted {one.new_errors} uncorrectable memory errors"
            return _on(failure, one.gpu, numbers, text)
    return None


def _on(failure: Failure, gpu: str | None, numbers: dict[str, int], text: str) -> Failure:
    index = failure.gpu if gpu is None else numbers[gpu]
    return _as(failure, Kind.GPU_FAULT, text, Confidence.HIGH, gpu=index, uuid=gpu or failure.uuid)


def _xids(seen: Aftermath) -> tuple[Xid, ...]:
    """Those of the kernel's log, then those that only the driver told of."""
    logged = seen.kernel.xids if isinstance(seen.kernel, KernelSaid) else ()
    told = [
        Xid(code, "told by the driver", one.gpu) for one in seen.gpus if isinstance(one, GpuHealth) for code in one.xids
    ]
    return (*logged, *told)


# ── room to write ────────────────────────────────────────────────────────────────────────────────────────────────────


def _full(failure: Failure, seen: Aftermath) -> Failure | None:
    """An end that names no reason while there was no room to write: that is the reason."""
    bus = failure.kind is Kind.SEGFAULT and signals.SIGBUS in (failure.signal, (failure.code or 0) - 128)
    if failure.log_line is not None or not (bus or failure.kind is Kind.EXIT):
        return None
    for one in seen.space:
        if isinstance(one, Space) and one.what == SHM and one.free_mib < FULL_SHM_MIB:
            return _as(failure, Kind.SHM_FULL, f"{one.path} was full", Confidence.MEDIUM)
        if isinstance(one, Space) and one.what != SHM and not bus and _is_full(one):
            left = "no inode" if one.files == 0 else f"{one.free_mib:.1f} MiB"
            text = f"{left} was left at {one.path} ({one.what})"
            return _as(failure, Kind.DISK_FULL, text, Confidence.MEDIUM)
    return None


def _is_full(one: Space) -> bool:
    return one.free_mib < FULL_MIB or one.files == 0


# ── who else held the GPU ────────────────────────────────────────────────────────────────────────────────────────────


def _held_by_ours(failure: Failure, seen: Aftermath) -> Failure:
    """An out-of-memory text that names a process which an earlier attempt left behind: no knob is to blame."""
    if failure.kind is not Kind.GPU_OOM or not isinstance(seen.orphans, tuple):
        return failure
    left = {one.pid: one for one in seen.orphans}
    held = [(left[pid], mib) for pid, mib in failure.others if pid in left]
    if not held:
        return _held_by_strangers(failure, seen, left)
    orphan, mib = max(held, key=_size)
    text = f"an orphan of attempt {orphan.attempt} (pid {orphan.pid}) holds {_gib(mib)}"
    because = f"{failure.because}; {text}: lowering would not have helped"
    return replace(failure, leftover=text, because=because)


def _held_by_strangers(failure: Failure, seen: Aftermath, orphans: dict[int, Orphan]) -> Failure:
    """One that names processes which are not of this run, and which hold more than was missing."""
    if not seen.own or failure.short_by_mib is None:
        return failure
    strangers = [(pid, mib) for pid, mib in failure.others if pid not in seen.own and pid not in orphans]
    if sum(mib for _, mib in strangers) < failure.short_by_mib:
        return failure
    pid, mib = max(strangers, key=lambda one: one[1])
    text = f"pid {pid}, which is not of this run, holds {_gib(mib)}"
    because = f"{failure.because}; {text}: no knob is to blame"
    return replace(failure, leftover=text, because=because)


def _size(held: tuple[Orphan, float]) -> float:
    return held[1]


def _gib(mib: float) -> str:
    return f"{mib / 1024:.1f} GiB" if mib >= 1024 else f"{mib:.0f} MiB"


# ── all that was said ────────────────────────────────────────────────────────────────────────────────────────────────


def _said(seen: Aftermath) -> tuple[str, ...]:
    """Every finding in words, then what could not be told."""
    said: list[str] = []
    if isinstance(seen.kernel, KernelSaid):
        whose = {True: "of this run", False: "not of this run", None: "whose it was could not be told"}
        said += [f"kernel log: {kill.text.strip()[:200]} ({whose[kill.ours]})" for kill in seen.kernel.oom_kills]
        said += [f"kernel log: {xid.text.strip()[:200]}" for xid in seen.kernel.xids]
    if isinstance(seen.cgroup, CgroupKills) and seen.cgroup.kills:
        said.append(f"cgroup {seen.cgroup.path}: {seen.cgroup.kills} processes lost to the memory killer")
    for one in seen.gpus:
        if isinstance(one, GpuHealth):
            said += [f"driver: {one.gpu} reported Xid {code}" for code in one.xids]
            said += [f"driver: {one.gpu} counted {one.new_errors} new uncorrectable errors"] * bool(one.new_errors)
            said += [f"driver: {one.unfit}"] * bool(one.unfit)
    for room in seen.space:
        if isinstance(room, Space) and _is_full(room):
            files = "" if room.files is None else f", {room.files} inodes"
            said.append(f"room: {room.free_mib:.1f} MiB{files} left at {room.path} ({room.what})")
    said += [f"rank {one.rank}: {one.text.strip()[:200]} ({one.path})" for one in seen.ranks]
    return (*said, *(f"could not tell: {why}" for why in seen.could_not_tell))
