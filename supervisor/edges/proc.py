"""What the kernel says of a process, read raw from /proc. No opinion on whose it is, nothing is signalled here.

Standard library only and few imports: the runner and the guardian stand on it and must start fast and stay small.
A process is named by (pid, start ticks): field 22 of /proc/PID/stat does not move when the wall clock is set, so two
equal pairs within one boot are the same process. Formats: proc(5).
"""

# pathlib costs the runner 8 ms of its start, and a sweep reads thousands of files:
# ruff: noqa: PTH115, PTH116, PTH208
from __future__ import annotations

import os
import time
from collections import namedtuple

TYPE_CHECKING = False  # type checkers take this name for true; `typing` itself costs the runner milliseconds
if TYPE_CHECKING:
    from typing import NamedTuple

    from supervisor.core.evidence import Instant, ProcessId

    class ProcStat(NamedTuple):
        """A line of /proc/PID/stat. `threads` counts the leader, also while it is a zombie with live threads."""

        pid: int
        comm: str
        state: str
        ppid: int
        pgid: int
        sid: int
        start_ticks: int
        threads: int
        flags: int
else:
    ProcStat = namedtuple("ProcStat", "pid comm state ppid pgid sid start_ticks threads flags")

DEAD = "ZXx"
KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of include/linux/sched.h, in the flags of /proc/PID/stat."""
_READ_MAX = 4 << 20
"""Nothing of /proc that is read here is larger: an environment and its arguments share a quarter of the stack limit."""


def read(path: str, most: int = _READ_MAX) -> bytes | None:
    """The file's first `most` bytes; None where it is gone or may not be read."""
    try:
        return _read(path, most)
    except OSError:
        return None


def _read(path: str, most: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, min(most, 65536))
        if len(data) < 4096:  # the kernel hands out whole pages: a short one is the last
            return data
        parts = [data]
        total = len(data)
        while total < most:
            data = os.read(fd, min(most - total, 65536))
            if not data:
                break
            parts.append(data)
            total += len(data)
        return b"".join(parts)
    finally:
        os.close(fd)


def pids() -> list[int]:
    """Every process id that /proc shows now."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def stat(pid: int) -> ProcStat | None:
    """The process's line of /proc/PID/stat; None where there is no such process (or it may not be seen)."""
    data = read(f"/proc/{pid}/stat", 4095)
    return parse_stat(data) if data else None


def parse_stat(data: bytes) -> ProcStat | None:
    """One line of /proc/PID/stat; the name may itself hold spaces and brackets, so the last bracket counts."""
    left = data.find(b"(")
    right = data.rfind(b")")
    rest = data[right + 2 :].split()
    if left < 0 or right < 0 or len(rest) < 20:
        return None
    return ProcStat(
        int(data[:left]),
        data[left + 1 : right].decode("utf-8", "replace"),
        rest[0].decode("ascii", "replace"),
        int(rest[1]),
        int(rest[2]),
        int(rest[3]),
        int(rest[19]),
        int(rest[17]),
        int(rest[6]),
    )


def all_stats() -> dict[int, ProcStat]:
    """Every process, one pass; those born during the pass are looked for until a listing shows no new one (3 times)."""
    found: dict[int, ProcStat] = {}
    for _ in range(3):
        fresh = [pid for pid in pids() if pid not in found]
        if not fresh:
            break
        for pid in fresh:
            seen = stat(pid)
            if seen is not None:
                found[pid] = seen
    return found


def children_map(stats: dict[int, ProcStat]) -> dict[int, list[int]]:
    """Parent to children, over one listing."""
    children: dict[int, list[int]] = {}
    for pid, seen in stats.items():
        children.setdefault(seen.ppid, []).append(pid)
    return children


def is_dead(seen: ProcStat) -> bool:
    """True when only the entry is left. A zombie leader whose other threads live is not dead: it holds its memory."""
    return seen.state in DEAD and seen.threads <= 1


def is_alive(process: ProcessId) -> bool:
    """True when this very process (pid and start ticks) still runs a thread."""
    seen = stat(process.pid)
    return seen is not None and seen.start_ticks == process.start_ticks and not is_dead(seen)


def start_ticks(pid: int) -> int | None:
    """Clock ticks between boot and the process's start; None where there is no such process."""
    seen = stat(pid)
    return seen.start_ticks if seen else None


def threads(pid: int) -> list[int]:
    """The live thread ids, the leader's first; empty where the process is gone."""
    try:
        tids = sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return []
    return sorted(tids, key=lambda tid: tid != pid)


def _of_memory(pid: int, name: str) -> bytes | None:
    """A file of /proc that shows the process's memory; the leader's where it lives, else that of a live thread."""
    data = read(f"/proc/{pid}/{name}")
    if data:
        return data
    where = folder(pid)
    return read(f"{where}/{name}") if where != f"/proc/{pid}" else data


def folder(pid: int) -> str:
    """The folder of /proc that answers for the process's memory and files.

    `/proc/PID`, or that of a live thread where the leader has exited: the leader's own then looks empty.
    """
    seen = stat(pid)
    if seen is not None and seen.state in DEAD and seen.threads > 1:
        for tid in threads(pid):
            if tid != pid:
                return f"/proc/{pid}/task/{tid}"
    return f"/proc/{pid}"


def argv(pid: int) -> tuple[str, ...]:
    """The arguments as they stand in the process's memory now; empty for kernel threads, zombies and the gone."""
    data = _of_memory(pid, "cmdline")
    if not data:
        return ()
    return tuple(part.decode("utf-8", "replace") for part in data.rstrip(b"\0").split(b"\0"))


def cmdline(pid: int) -> str:
    """The arguments joined by spaces, for people; the name in square brackets where there are none; "" when gone."""
    words = argv(pid)
    if words:
        return " ".join(words)
    seen = stat(pid)
    return f"[{seen.comm}]" if seen else ""


def environ(pid: int) -> dict[str, str] | None:
    """The environment that the process was given at exec; None where it may not be read or the process is gone.

    Not what it set later, and empty or torn where it wrote its title over it. The first of equal names counts.
    """
    data = _of_memory(pid, "environ")
    if data is None:
        return None
    found: dict[str, str] = {}
    for entry in data.split(b"\0"):
        name, is_set, value = entry.partition(b"=")
        if is_set and name:
            found.setdefault(os.fsdecode(name), os.fsdecode(value))
    return found


def wchan(pid: int) -> str:
    """The kernel function that the process waits in, of the first thread in state D; "" where that is not shown."""
    for tid in threads(pid):
        seen = parse_stat(read(f"/proc/{pid}/task/{tid}/stat", 4095) or b"")
        if seen is not None and seen.state == "D":
            return _wchan_of(f"/proc/{pid}/task/{tid}")
    return _wchan_of(f"/proc/{pid}")


def _wchan_of(where: str) -> str:
    text = (read(f"{where}/wchan", 4095) or b"").decode("ascii", "replace").strip()
    return "" if text == "0" else text


def exe(pid: int) -> str:
    """The path of the program that runs, without the kernel's " (deleted)"; "" where it may not be seen."""
    for where in (f"/proc/{pid}", None):
        try:
            return os.readlink(f"{where or folder(pid)}/exe").removesuffix(" (deleted)")
        except OSError:
            continue
    return ""


def uid(pid: int) -> int | None:
    """The user that the process belongs to; None when it is gone."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def boot_id() -> str:
    """The kernel's name for this boot; start ticks and boot time mean something only within it."""
    return (read("/proc/sys/kernel/random/boot_id", 4095) or b"").decode("ascii").strip()


def machine_id() -> str:
    """The box's own name, kept over reboots; "" where it has none (some containers)."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        data = read(path, 4095)
        if data and data.strip():
            return data.decode("ascii", "replace").strip()
    return ""


def pid_namespace_inode() -> int:
    """Which PID namespace we are in; equal numbers mean that process ids of the one can be used in the other."""
    return os.stat("/proc/self/ns/pid").st_ino


def pid1_start_ticks() -> int | None:
    """When this PID namespace's first process started: changes when a container restarts, though the boot id stays."""
    return start_ticks(1)


def now() -> Instant:
    """This moment: boot id, CLOCK_BOOTTIME and wall time."""
    from supervisor.core.evidence import Instant  # here, because the runner and the guardian never need it

    return Instant(boot_id=boot_id(), boot_s=time.clock_gettime(time.CLOCK_BOOTTIME), wall_s=time.time())
