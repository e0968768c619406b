"""What this box has left for a job: disk, shared memory, limits, ports, and what the user's own checks say.

Each function answers with what is so now; what follows from it is decided elsewhere. Nothing is changed.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from supervisor.edges import proc
from supervisor.edges.bounded import within

MIB = 2**20
SHM = "/dev/shm"
PORTS_FROM = 20_000
"""`free_port` picks from here up to where the kernel's own picks for outgoing connections begin: a port from that
range may be gone between the pick and its use."""

PORT_TRIES = 64
EVERYWHERE = ("0.0.0.0", "::")
CMDLINE_CAP = 200
RECORDS_CAP_BYTES = 16 * MIB


def disk_free_mib(path: str, deadline_s: float = 5.0) -> float:
    """What this user may still write where `path` is or will be. Raises OSError (TimeoutError: a dead mount)."""

    def ask() -> float:
        place = Path(path)
        while not place.exists() and place != place.parent:
            place = place.parent
        answer = os.statvfs(place)
        return answer.f_bavail * answer.f_frsize / MIB

    return within(deadline_s, ask, f"the free space at {path}")


def room_left(path: str, deadline_s: float = 2.0) -> tuple[float, int | None]:
    """Free MiB and free inodes for this user at a path that is there; None: this file system does not count inodes.

    Raises OSError (TimeoutError: a dead mount).
    """
    answer = within(deadline_s, lambda: os.statvfs(path), f"the room left at {path}")
    return answer.f_bavail * answer.f_frsize / MIB, answer.f_favail if answer.f_files else None


def shm_free_mib(path: str = SHM) -> float | None:
    """Free space in /dev/shm; None where there is none."""
    try:
        answer = os.statvfs(path)
    except FileNotFoundError:
        return None
    return answer.f_bavail * answer.f_frsize / MIB


class Segment(Struct, frozen=True):
    """A file in /dev/shm that no process of this user has mapped or open."""

    path: str
    mib: float
    written_wall_s: float


def shm_leftovers(before_wall_s: float, path: str = SHM) -> tuple[Segment, ...]:
    """Segments of this user, last written before that time, that nobody uses: a killed job leaves them behind."""
    try:
        with os.scandir(path) as entries:
            candidates = {entry.path: entry.stat(follow_symlinks=False) for entry in entries}
    except FileNotFoundError:
        return ()
    mine = {
        name: status
        for name, status in candidates.items()
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_mtime < before_wall_s
    }
    used = _inodes_in_use(path) if mine else set()
    return tuple(
        Segment(name, status.st_blocks * 512 / MIB, status.st_mtime)
        for name, status in sorted(mine.items())
        if status.st_ino not in used
    )


def _inodes_in_use(folder: str) -> set[int]:
    """Inodes below `folder` that some process has mapped (field 5 of /proc/PID/maps) or open."""
    used: set[int] = set()
    pattern = re.compile(rb"^(?:\S+ +){4}(\d+) +" + re.escape(os.fsencode(folder)) + rb"/", re.M)
    for pid in proc.pids():
        maps = _read_records(f"/proc/{pid}/maps")
        used.update(int(inode) for inode in pattern.findall(maps))
        for descriptor, target in _descriptors(pid):
            if target.startswith(f"{folder}/"):
                with suppress(OSError):  # closed since: not in use
                    used.add(os.stat(descriptor).st_ino)  # noqa: PTH116 - a magic link, not a path
    return used


def _descriptors(pid: int) -> Iterator[tuple[str, str]]:
    """Each open descriptor of a process and what it is; nothing for a process that may not be looked at."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            paths = [entry.path for entry in entries]
    except OSError:  # gone, or another user's
        return
    for path in paths:
        with suppress(OSError):  # closed since
            yield path, os.readlink(path)  # noqa: PTH115 - the target is text such as socket:[123]


class Limits(Struct, frozen=True):
    """Limits that a job started here inherits; None: none. Locked memory matters to NCCL over InfiniBand."""

    open_files: int | None
    processes: int | None
    locked_mib: float | None
    address_space_mib: float | None


def limits() -> Limits:
    """The soft limits of this process."""

    def soft(which: int) -> int | None:
        value = resource.getrlimit(which)[0]
        return None if value == resource.RLIM_INFINITY else value

    locked, space = soft(resource.RLIMIT_MEMLOCK), soft(resource.RLIMIT_AS)
    return Limits(
        open_files=soft(resource.RLIMIT_NOFILE),
        processes=soft(resource.RLIMIT_NPROC),
        locked_mib=None if locked is None else locked / MIB,
        address_space_mib=None if space is None else space / MIB,
    )


def find_command(name: str, workdir: str, environ: Mapping[str, str]) -> str | None:
    """The file that `name` runs from workdir with this PATH; None where there is none that may be executed."""
    if "/" in name:
        path = Path(workdir) / name
        return str(path) if path.is_file() and os.access(path, os.X_OK) else None
    import shutil

    return shutil.which(name, path=environ.get("PATH", os.defpath))


def port_holder(port: int) -> str | None:
    """Who keeps a server from listening on this TCP port; None where nothing does.

    A port whose old connections are only waiting out (TIME_WAIT) is free: servers of rendezvous reuse addresses.
    """
    for host in EVERYWHERE:
        why = _bind_fault(host, port)
        if why is not None:
            return why
    return None


def _bind_fault(host: str, port: int) -> str | None:
    import socket  # here and below: what only jobs with ports need is not imported before every launch

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        test = socket.socket(family, socket.SOCK_STREAM)
    except OSError:  # no IPv6 on this box: nobody holds a port of it
        return None
    with test:
        test.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            test.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            test.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return _who_holds(port)
            return None if error.errno == errno.EADDRNOTAVAIL else f"not allowed: {error.strerror}"
    return None


def _who_holds(port: int) -> str:
    inodes = {f"socket:[{inode}]" for inode in _socket_inodes(port)}
    for pid in proc.pids():
        if any(target in inodes for _path, target in _descriptors(pid)):
            return f"pid {pid}: {proc.cmdline(pid)[:CMDLINE_CAP]}"
    return "a process that cannot be seen from here (another user's, or in another container)"


def _socket_inodes(port: int) -> list[str]:
    """Sockets bound to the port, listening ones first. Columns of /proc/net/tcp: 1 local, 3 state, 9 inode."""
    found: list[tuple[bool, str]] = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in _read_records(table).decode("ascii", "replace").splitlines()[1:]:
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == port and fields[3] != "06":  # 06: TIME_WAIT
                found.append((fields[3] != "0A", fields[9]))  # 0A: LISTEN
    return [inode for _listens_not, inode in sorted(found)]


def free_port(not_in: Collection[int] = ()) -> int:
    """A TCP port that a server could listen on now. Raises OSError where none is found."""
    import random

    ports = range(PORTS_FROM, max(_outgoing_from(), PORTS_FROM + PORT_TRIES))
    for port in random.sample(ports, k=min(len(ports), PORT_TRIES + len(not_in))):
        if port not in not_in and all(_bind_fault(host, port) is None for host in EVERYWHERE):
            return port
    raise OSError(errno.EADDRINUSE, f"no free port among {PORT_TRIES} tried from {ports.start} on")


def _outgoing_from() -> int:
    text = _read_records("/proc/sys/net/ipv4/ip_local_port_range") or b"32768"
    return int(text.split()[0])


def _read_records(path: str) -> bytes:
    """All of a file of /proc that is made of records, empty where it may not be read. Such a file hands out whole
    records, less than a page at a time: a short answer is not its end."""
    try:
        with open(path, "rb") as file:
            return file.read(RECORDS_CAP_BYTES)
    except OSError:
        return b""
