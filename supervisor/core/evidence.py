"""What was seen: values that the edges hand to the core. No opinion here on what any of it means.

Units: memory in MiB (1 MiB = 2**20 bytes), time in seconds, utilisation in percent.
What can be absent is a type of its own (`Unreadable`), not a zero.
"""

from __future__ import annotations

from enum import Enum
from typing import Union

from msgspec import Struct

from supervisor.core.kinds import Kind

Uuid = str


class Instant(Struct, frozen=True):
    """One moment: `boot_s` (CLOCK_BOOTTIME) is for deadlines, `wall_s` (Unix time) is for people only.

    Two instants may be subtracted only when their `boot_id` is equal.
    """

    boot_id: str
    boot_s: float
    wall_s: float


class MachineId(Struct, frozen=True):
    """Which box a run belongs to: boot id changes at a reboot, the machine id does not."""

    boot_id: str
    machine_id: str
    host: str


class ProcessId(Struct, frozen=True):
    """A process that cannot be confused with a later one: pid and field 22 of /proc/PID/stat (clock ticks)."""

    pid: int
    start_ticks: int


class Proof(str, Enum):
    """Why a process is ours. Each one is by value; see design, "Ownership"."""

    DESCENDANT = "descendant"
    CGROUP = "cgroup"
    SESSION = "session"
    TOKEN = "token"
    RECORDED = "recorded"


class Member(Struct, frozen=True):
    """A live process proven to belong to the run. `state` is the letter of /proc/PID/stat; `wchan` is for state D."""

    id: ProcessId
    cmdline: str
    proof: Proof
    state: str
    pgid: int = 0
    sid: int = 0
    wchan: str = ""


class Owner(str, Enum):
    """Whose a holder is, as far as proofs go."""

    RUN = "run"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"


class Holder(Struct, frozen=True):
    """A process that holds memory of a GPU. `pid` 0: seen by NVML in another PID namespace only."""

    gpu: Uuid
    pid: int
    user: str
    cmdline: str
    owner: Owner
    run: str | None = None
    used_mib: float | None = None


class Gpu(Struct, frozen=True):
    """A GPU of this box. `index` is NVML's, for display; the UUID is its identity.

    `minor` is the N of /dev/nvidiaN, None where the driver does not tell; `mig`: it is cut into MIG instances.
    """

    index: int
    uuid: Uuid
    name: str
    total_mib: float
    minor: int | None = None
    mig: bool = False


class Reading(Struct, frozen=True):
    """One answer of NVML for one GPU. `began_boot_s` is when the reading began; `v2` False decides nothing about zero
    unless v2 is not to be had from this driver (`v1_only`), and then within the floor only.

    `pids` are NVML's process ids if they were asked for, else None; they mean something only on bare metal.
    """

    gpu: Uuid
    index: int
    began_boot_s: float
    used_mib: float
    total_mib: float
    reserved_mib: float | None
    util_pct: float | None
    v2: bool = True
    temperature_c: float | None = None
    power_w: float | None = None
    pids: tuple[int, ...] | None = None


class Unreadable(Struct, frozen=True):
    """A GPU that could not be read. Never zero, never busy: unknown. `index` is the last known one."""

    gpu: Uuid
    index: int | None
    began_boot_s: float
    why: str


GpuSeen = Union[Reading, Unreadable]  # noqa: UP007


class Weight(str, Enum):
    """How much a failure text says about why, strongest first.

    `CAUSE` names the reason; `GENERIC` is an exception or warning without a known text; `AFTERMATH` is what other
    processes print once one has failed (it is the cause only where nothing else is found); `WARNED` is a known text
    as advice of Python's, a cause only where something else tells of a failure; `SUMMARY` reports an end (exit
    codes, signals); `WRAPPER` only points at another text: where that is missing, it tells of an end without a
    reason; `NOISE` is printed at any end, good or bad.
    """

    CAUSE = "cause"
    GENERIC = "generic"
    AFTERMATH = "aftermath"
    WARNED = "warned"
    SUMMARY = "summary"
    WRAPPER = "wrapper"
    NOISE = "noise"


class Hit(Struct, frozen=True):
    """A failure text in a log. A hit is not a verdict.

    `line` counts `\\n` lines from 1; `offset` is the byte where the line begins. `gpu` and `rank` are as printed.
    Sizes in MiB, None where the text does not say or is not believable.
    `others` are (pid, MiB) of other processes named as holders. `source` is the line's own prefix where it tells
    one process from another ("rank5"); `raised` is True for the last line of a traceback that nobody caught;
    `pid` is the process that the text says was killed; `repeats` is how often the text must stand to mean anything.
    """

    signature: str
    kind: Kind
    file: str
    line: int
    offset: int
    text: str
    rank: int | None = None
    gpu: int | None = None
    tried_mib: float | None = None
    free_mib: float | None = None
    total_mib: float | None = None
    in_use_mib: float | None = None
    reserved_mib: float | None = None
    others: tuple[tuple[int, float], ...] = ()
    weight: Weight = Weight.CAUSE
    source: str = ""
    raised: bool = False
    pid: int | None = None
    repeats: int = 1

    @property
    def short_by_mib(self) -> float | None:
        """How much was missing, where both sizes are known and the shortfall is positive."""
        if self.tried_mib is None or self.free_mib is None or self.tried_mib <= self.free_mib:
            return None
        return self.tried_mib - self.free_mib


class WatchHit(Struct, frozen=True):
    """A line that one of the run's own patterns matched (progress, done, phases).

    `groups` are the pattern's named groups that took part; `line` and `offset` as in `Hit`.
    """

    name: str
    file: str
    line: int
    offset: int
    groups: dict[str, str]
    text: str


class Step(Struct, frozen=True):
    """One progress report. `seen_boot_s` is when it was read. `life` True: a sign of life without a step."""

    step: int
    seen_boot_s: float
    rate: float | None = None
    loss: float | None = None
    total: int | None = None


class RoomSeen(Struct, frozen=True):
    """Memory of the host (of the job's cgroup, where that is limited) and (path, free, all) of each disk, in MiB.

    None: it could not be read.
    """

    at_boot_s: float
    used_mib: float | None = None
    limit_mib: float | None = None
    disks: tuple[tuple[str, float, float], ...] = ()


class Sign(Struct, frozen=True):
    """A count that grows and is no step: a bar, a load ("loading shard", 13 of 47). `seen_boot_s`: when it grew."""

    what: str
    n: int
    total: int
    seen_boot_s: float


class Checkpoint(Struct, frozen=True):
    """A complete checkpoint. `real` is where the path leads, `inode` is that of `real`, and `mtime_ns` the newest of
    it and of what is inside, so that one rewritten in place is another. `step` -1: it has none."""

    path: str
    step: int
    inode: int
    mtime_ns: int
    real: str = ""


class Incomplete(Struct, frozen=True):
    """A match of `resume.from` that is not a checkpoint, and why."""

    path: str
    step: int | None
    why: str


class ExitRecord(Struct, frozen=True):
    """How the leader ended: raw wait status taken apart. Exactly one of `code` and `signal` is set, or neither
    where the runner was killed and nobody could know ("exit status unknown")."""

    code: int | None
    signal: int | None
    ended_boot_s: float | None = None
