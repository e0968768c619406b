"""Files that dead members leave and that the next launch stumbles over: shared memory, locks of builds.

Rule 1: a file is the run's by value only: a member was seen to have it open or mapped, or its name carries a member's
        pid, or (for kinds of file that nobody uses without having them open) it was made while the attempt lived.
Rule 2: one that any process has open or mapped is never touched. The kernel is asked for a write lease, which it grants
        only where nobody has: also nobody whom we may not look into, or who is in another container. Where a file
        system does not know (other machines may have it mounted), the file is told and left.
Rule 3: a name may be given to a new file: device and inode are compared once more, and it is removed under the lease.

Which pids are members, and when the attempt lived, is told by the caller.
"""

# thousands of links are read: pathlib would cost more than the kernel
# ruff: noqa: PTH108, PTH115, PTH116, PTH119, PTH208
from __future__ import annotations

import fcntl
import os
import re
import signal
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec import Struct

from supervisor.core.events import Leftover, LeftoversRemoved
from supervisor.edges import proc

SHM = "/dev/shm"
MIB = 2**20
F_SETSIG = 10  # asm-generic/fcntl.h; Python has no name for it
MAPS_CAP_BYTES = 64 * MIB
SLACK_S = 2.0
"""File times move in ticks of the kernel, and an attempt begins a moment before its record."""

FOLDERS_MAX = 20_000
"""Folders of a build cache that are looked into; a Triton cache has one per kernel."""

LOOK_S = 5.0
"""The most that one look into a cache may take: it may lie on a network file system."""

OF_A_PID = re.compile(r"(?:torch_|__KMP_REGISTERED_LIB_|pym-)(\d+)(?:[_-].*)?\Z")
"""Names that carry their maker's pid: torch's shared tensors, libomp's registration, multiprocessing's arenas."""

ALWAYS_HELD = re.compile(r"nccl-\w+\Z")
"""Segments that are of no use to anybody but who has them mapped. Others may wait for a process yet to come."""

JOBS_NAMES = ("psm_", "torch_", "nccl-", "cuda.shm.", "__KMP_REGISTERED_LIB_")
"""How libraries of training jobs name what they put into shared memory."""

LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "tmpfs", "ramfs", "overlay"})
"""File systems that no other machine can have mounted: this kernel knows everybody who has a file open."""

IN_USE = "somebody uses it now"
GONE = "it is gone"

FileId = tuple[int, int]
"""Device and inode."""


class Candidate(Struct, frozen=True):
    """A file that may be a leftover. `born_wall_s` is the last change of its data, or of its name and mode."""

    path: str
    what: str
    device: int
    inode: int
    mode: int
    born_wall_s: float
    mib: float

    @property
    def id(self) -> FileId:
        """Which file it is, whatever it is called."""
        return self.device, self.inode


class Of(Struct, frozen=True):
    """Whose leftovers are looked for. `pids`: members of the run, by pid; `held`: files that members were seen with,
    and who that was; the attempt lived from `from_wall_s` to `to_wall_s`."""

    pids: frozenset[int]
    held: Mapping[FileId, int]
    from_wall_s: float
    to_wall_s: float


class Found(Struct, frozen=True):
    """`ours` may be removed; `told` is what looks like a leftover and is not proven to be one, in words."""

    ours: tuple[Leftover, ...] = ()
    told: tuple[str, ...] = ()


def stamp() -> int | None:
    """Changes whenever a segment comes or goes; None where there is no shared memory."""
    try:
        return os.stat(SHM).st_mtime_ns
    except OSError:
        return None


def segments(shm: str = SHM) -> Iterator[Candidate]:
    """The segments of this user in shared memory."""
    try:
        with os.scandir(shm) as entries:
            names = [entry.path for entry in entries]
    except OSError:  # a box without it has none
        return
    for path in names:
        found = _candidate(path, "shared memory")
        if found is not None:
            yield found


def build_roots(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Where torch and Triton of a job with this environment build: absolute paths, whether they are there or not."""
    home = environ.get("HOME", "")
    cache = environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    triton_home = environ.get("TRITON_HOME") or home
    wanted = (
        environ.get("TORCH_EXTENSIONS_DIR") or (f"{cache}/torch_extensions" if cache else ""),
        environ.get("TRITON_CACHE_DIR") or (f"{triton_home}/.triton/cache" if triton_home else ""),
    )
    return tuple(dict.fromkeys(os.path.realpath(path) for path in wanted if path.startswith("/")))


def build_locks(roots: Iterable[str], since_wall_s: float) -> Iterator[Candidate]:
    """Files named `lock` one or two folders below the roots, where something was made since that time."""
    until = time.monotonic() + LOOK_S
    left = FOLDERS_MAX
    folders = [(root, 0) for root in roots]
    while folders and left > 0 and time.monotonic() < until:
        folder, depth = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    left -= 1
                    if entry.is_dir(follow_symlinks=False):
                        if depth < 1 or entry.stat(follow_symlinks=False).st_mtime >= since_wall_s - SLACK_S:
                            folders += [(entry.path, depth + 1)] if depth < 2 else []
                    elif entry.name == "lock" and depth > 0:
                        found = _candidate(entry.path, "build lock")
                        if found is not None:
                            yield found
        except OSError:  # not there, or not ours to read: nothing of ours is in it
            continue


def _candidate(path: str, what: str) -> Candidate | None:
    """A plain file of this user; None for anything else."""
    try:
        seen = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    if not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.geteuid():
        return None
    born = min(seen.st_mtime, seen.st_ctime)
    return Candidate(path, what, seen.st_dev, seen.st_ino, seen.st_mode, born, seen.st_blocks * 512 / MIB)


# ── while the members live ───────────────────────────────────────────────────────────────────────────────────────────


def seen_with(pid: int, roots: Sequence[str], fresh: Collection[FileId]) -> set[FileId]:
    """Segments and build locks that the process has open, and those of `fresh` that it has mapped; none where it is
    gone or another user's."""
    where = proc.folder(pid)
    try:
        found = set(_opened(where, (f"{SHM}/", *(f"{root}/" for root in roots))))
        return found | _mapped(where, fresh) if fresh else found
    except OSError:
        return set()


def _opened(where: str, below: tuple[str, ...]) -> Iterator[FileId]:
    for fd in os.listdir(f"{where}/fd"):
        try:
            if os.readlink(f"{where}/fd/{fd}").startswith(below):
                seen = os.stat(f"{where}/fd/{fd}")
                yield seen.st_dev, seen.st_ino
        except OSError:  # closed meanwhile
            continue


def _mapped(where: str, wanted: Collection[FileId]) -> set[FileId]:
    """By inode alone: the device of a mapping is not that of `stat` on every file system, and more is safe here."""
    with open(f"{where}/maps", "rb") as file:
        text = file.read(MAPS_CAP_BYTES)
    return {each for each in wanted if b" %d " % each[1] in text}


# ── after their death ────────────────────────────────────────────────────────────────────────────────────────────────


def find(candidates: Iterable[Candidate], of: Of) -> Found:
    """Which of these the run's dead members left."""
    ours, told = [], []
    for one in candidates:
        proof = _proof(one, of)
        if not proof and not _is_worth_telling(one, of):
            continue
        with _leased(one.path, one.id) as why_not:
            if why_not is IN_USE:
                continue
            if proof and not why_not:
                ours.append(_leftover(one, proof))
            else:
                told.append(_told(one, why_not or "no member was seen with it"))
    return Found(tuple(ours), tuple(told))


def _leftover(one: Candidate, proof: str) -> Leftover:
    return Leftover(
        path=one.path, what=one.what, proof=proof, device=one.device, inode=one.inode, mib=round(one.mib, 3)
    )


def _proof(one: Candidate, of: Of) -> str:
    """Why the file is the run's; empty where nothing says so."""
    if one.id in of.held:
        return f"pid {of.held[one.id]} of the run was seen with it"
    if not _is_of_the_time(one, of):
        return ""
    name = os.path.basename(one.path)
    carries = OF_A_PID.match(name) if one.what == "shared memory" else None
    if carries and int(carries[1]) in of.pids:
        return f"made by pid {carries[1]} of the run"
    if one.what == "build lock" or ALWAYS_HELD.match(name):
        return "made while the attempt lived"
    return ""


def _is_of_the_time(one: Candidate, of: Of) -> bool:
    return of.from_wall_s - SLACK_S <= one.born_wall_s <= of.to_wall_s + SLACK_S


def _is_worth_telling(one: Candidate, of: Of) -> bool:
    """True for what libraries of training jobs made meanwhile; of data that somebody put there by hand nothing is
    said."""
    name = os.path.basename(one.path)
    return _is_of_the_time(one, of) and (one.what == "build lock" or name.startswith(JOBS_NAMES))


def _told(one: Candidate, why: str) -> str:
    size = f" ({one.mib:.0f} MiB)" if one.mib >= 1 else ""
    return f"left alone: {one.what} {one.path}{size}: {why}. Where nobody needs it: rm {one.path}"


def remove(leftovers: Iterable[Leftover]) -> LeftoversRemoved:
    """Takes these files away where they still are what the journal names and nobody uses them. May be given again."""
    removed, kept = [], []
    for one in leftovers:
        why_not = _removed(one)
        if why_not:
            kept.append(f"{one.path}: {why_not}")
        else:
            removed.append(one.path)
    return LeftoversRemoved(removed=tuple(removed), kept=tuple(kept))


def _removed(one: Leftover) -> str:
    """Why it was not removed; empty where it is gone."""
    with _leased(one.path, (one.device, one.inode)) as why_not:
        if why_not:
            return "" if why_not is GONE else why_not
        try:
            os.unlink(one.path)
        except OSError as error:
            return str(error.strerror)
    return ""


@contextmanager
def _leased(path: str, file_id: FileId) -> Iterator[str]:
    """Within it nobody else has this file open or mapped, nor comes to; or why that is not so."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        yield GONE
        return
    except OSError as error:
        yield f"it cannot be opened: {error.strerror}"
        return
    try:
        seen = os.fstat(fd)
        if (seen.st_dev, seen.st_ino) != file_id:
            yield "another file has its name now"
        else:
            yield _lease(fd, seen.st_dev)
    finally:
        os.close(fd)  # gives the lease back, too


def _lease(fd: int, device: int) -> str:
    """Takes a write lease; why not where it cannot be had."""
    kind = _file_system(device)
    if kind not in LOCAL:
        return f"it lies on {kind}, where a process of another machine may use it"
    try:
        fcntl.fcntl(fd, F_SETSIG, signal.SIGURG)  # whoever opens it meanwhile waits; what tells us of it is ignored
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return IN_USE
    except OSError as error:
        return f"whether anybody uses it cannot be known: {error.strerror}"
    return ""


def _file_system(device: int) -> str:
    """The kind of file system that a device number belongs to, by field 3 of /proc/self/mountinfo; `?` for unknown."""
    number = f"{os.major(device)}:{os.minor(device)}"
    text = (proc.read("/proc/self/mountinfo", 8 * MIB) or b"").decode("utf-8", "replace")
    for line in text.splitlines():
        fields = line.split()
        if len(fields) > 2 and fields[2] == number and "-" in fields:
            return fields[fields.index("-") + 1]
    return "?"
