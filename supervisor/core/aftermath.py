"""What the box knows of an attempt's death beside its log: values only. What they make of a verdict: `sharpen.py`.

Each witness answers with what it found or with `CouldNotTell`, which is never the same as nothing found.
"""

from __future__ import annotations

from typing import Union

from msgspec import Struct

from supervisor.core.evidence import Hit, Uuid

HARDWARE_XIDS = frozenset({48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, *range(140, 151)})
"""NVIDIA's catalogue of Xid errors: memory, row remapping, NVLink, bus, GSP, chip to chip link. Others tell of a
kernel that went wrong (13, 31, 43) or of what follows a kill (45)."""


SHM = "shared memory"
"""`Space.what` of /dev/shm."""


class CouldNotTell(Struct, frozen=True):
    """This witness was asked and had no answer."""

    why: str


class OomKill(Struct, frozen=True):
    """The kernel's memory killer ended a process. `ours` None: its process ids are not those seen from here."""

    pid: int
    name: str
    text: str
    ours: bool | None
    at_boot_s: float | None = None


class Xid(Struct, frozen=True):
    """The driver reported an error. `gpu` None: of which GPU could not be told; `ours`: the process it names is."""

    code: int
    text: str
    gpu: Uuid | None = None
    ours: bool = False
    at_boot_s: float | None = None


class KernelSaid(Struct, frozen=True):
    """The kernel's messages since the attempt began."""

    oom_kills: tuple[OomKill, ...] = ()
    xids: tuple[Xid, ...] = ()


class CgroupKills(Struct, frozen=True):
    """How many processes the job's memory cgroup lost to the memory killer during the attempt."""

    path: str
    kills: int


class GpuHealth(Struct, frozen=True):
    """What the driver says of one GPU. `new_errors`: uncorrectable memory errors since the attempt began.

    `unfit` says why it must not be used before a reset; `xids` are events of the driver, where it tells them.
    """

    gpu: Uuid
    new_errors: int | None = None
    unfit: str | None = None
    xids: tuple[int, ...] = ()


class Space(Struct, frozen=True):
    """What was left where the attempt writes. `files` None: this file system does not count them."""

    what: str
    path: str
    free_mib: float
    files: int | None = None


class RankError(Struct, frozen=True):
    """What one worker wrote into its error file as it died. `hits`: the failure texts in it, with file and rank."""

    rank: int | None
    at_wall_s: float
    path: str
    text: str
    hits: tuple[Hit, ...] = ()


class Orphan(Struct, frozen=True):
    """A live process of an earlier attempt of this run."""

    pid: int
    attempt: int
    cmdline: str


class Printer(Struct, frozen=True):
    """A process of the attempt that may print: its rank, and the GPUs that its environment lets it see."""

    pid: int
    rank: int | None
    visible: tuple[str, ...] | None


Kernel = Union[KernelSaid, CouldNotTell]  # noqa: UP007
Cgroup = Union[CgroupKills, CouldNotTell]  # noqa: UP007
Health = Union[GpuHealth, CouldNotTell]  # noqa: UP007
Room = Union[Space, CouldNotTell]  # noqa: UP007
NOT_ASKED = CouldNotTell("not asked")


class Aftermath(Struct, frozen=True, kw_only=True):
    """The witnesses' answers. `ranks` are in the order in which the workers died; `own` are the pids of all members
    that the attempt ever had, None where pids of a text cannot be compared with them."""

    kernel: Kernel = NOT_ASKED
    cgroup: Cgroup = NOT_ASKED
    gpus: tuple[Health, ...] = ()
    space: tuple[Room, ...] = ()
    ranks: tuple[RankError, ...] = ()
    orphans: tuple[Orphan, ...] | CouldNotTell = ()
    own: frozenset[int] | None = None

    @property
    def could_not_tell(self) -> tuple[str, ...]:
        """Each witness that was asked and had no answer, and why."""
        asked = (self.kernel, self.cgroup, *self.gpus, *self.space, self.orphans)
        said = (one.why for one in asked if isinstance(one, CouldNotTell) and one is not NOT_ASKED)
        return tuple(dict.fromkeys(said))

    @property
    def unfit(self) -> str | None:
        """Why a GPU of the run must not be used now; None where none is known to be so."""
        return next((one.unfit for one in self.gpus if isinstance(one, GpuHealth) and one.unfit), None)
