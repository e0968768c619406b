"""What of this box decides whether a run survives a logout, a reboot or a service's restart. Facts only.

Everything is read from files where it can be, so that each answer can be tested with files of a test's own.
"""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from supervisor.edges.bounded import within
from supervisor.edges.locks import Lock

ASK_S = 5.0
REMOTE_FS = ("nfs", "nfs4", "cifs", "smb3", "9p", "afs", "lustre", "gpfs", "ceph", "beegfs", "fuse.*", "glusterfs")
"""Mounted from elsewhere, or by a program: locks and fsync may mean less there (the names are those of mountinfo)."""
GONE_FS = {"tmpfs": "a reboot empties it", "ramfs": "a reboot empties it", "overlay": "it goes with the container"}


class Logind(Struct, frozen=True):
    """What happens to a user's processes after the last logout. None: there is no logind, or it could not be asked."""

    kills: bool | None
    excluded: bool
    linger: bool | None


class Place(Struct, frozen=True):
    """Where a folder lies: its file system's type and mount point."""

    type: str
    mount: str

    @property
    def is_remote(self) -> bool:
        """Whether another machine or a program keeps it."""
        return any(fnmatch.fnmatchcase(self.type, known) for known in REMOTE_FS)


def container(root: Path = Path("/")) -> str:
    """`docker`, `podman`, `lxc`, ...; empty on a machine of its own. By the marks that they leave."""
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    marker = root / "run/systemd/container"
    for path, pattern in ((marker, rb"(\S+)"), (root / "proc/1/environ", rb"(?:^|\0)container=([^\0]+)")):
        with suppress(OSError):
            if found := re.search(pattern, path.read_bytes()):
                return found[1].decode("ascii", "replace")[:20]
    with suppress(OSError):
        if re.search(r"kubepods|/docker/|/lxc/", (root / "proc/1/cgroup").read_text()):
            return "a container"
    return ""


def has_systemd(root: Path = Path("/")) -> bool:
    """As sd_booted(3): the folder is made by systemd when it is the init of this box or container."""
    return (root / "run/systemd/system").is_dir()


def logind(user: str, root: Path = Path("/")) -> Logind:
    """What logind does to this user's processes, from its configuration (logind.conf(5)) and linger's mark."""
    if not has_systemd(root):
        return Logind(None, False, None)
    said = _logind_conf(root)
    kills = said.get("KillUserProcesses", "no").lower() in ("yes", "true", "1", "on")
    excluded = user in said.get("KillExcludeUsers", "root").split()
    return Logind(kills, excluded, (root / "var/lib/systemd/linger" / user).exists())


def _logind_conf(root: Path) -> dict[str, str]:
    """Later files win; drop-ins are sorted by name over all folders, /etc before /run before /usr/lib."""
    parts: dict[str, Path] = {}
    for folder in ("usr/lib/systemd", "run/systemd", "etc/systemd"):
        for path in (root / folder / "logind.conf.d").glob("*.conf"):
            parts[path.name] = path
    said: dict[str, str] = {}
    for path in (root / "etc/systemd/logind.conf", *(parts[name] for name in sorted(parts))):
        with suppress(OSError, UnicodeDecodeError):
            said.update(re.findall(r"^[ \t]*(\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", path.read_text(), re.M))
    return said


def unit_of(pid: int | str, root: Path = Path("/")) -> str:
    """The service that a process is in and ends with; empty for a session, a scope or none (cgroups(7))."""
    try:
        lines = (root / f"proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        if line.startswith(("0::", "1:name=systemd:")) or ":name=systemd:" in line:
            last = line.rpartition("/")[2]
            if last.endswith(".service") and not re.fullmatch(r"user@\d+\.service", last):
                return last
    return ""


def place_of(path: Path, mountinfo: str | None = None) -> Place:
    """The file system that the path, or the nearest folder above it, lies on (proc(5), mountinfo)."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    wanted = str(path.resolve()) if mountinfo is None else str(path)
    best = Place("unknown", "")
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        mount = fields[4].replace("\\040", " ")
        inside = mount == "/" or wanted == mount or wanted.startswith(mount + "/")
        if inside and len(mount) >= len(best.mount):
            best = Place(right.split()[0], mount)
    return best


def tried(folder: Path) -> Mapping[str, str]:
    """What a state directory must be able to do, each with why it cannot; empty where it can. Leaves nothing behind.

    Raises OSError where nothing can be written at all, TimeoutError where it hangs.
    """
    return within(ASK_S * 2, lambda: _tried(folder), f"a trial in {folder}")


def _tried(folder: Path) -> dict[str, str]:
    wrong: dict[str, str] = {}
    trial = folder / f".doctor.{os.getpid()}"
    other = folder / f".doctor.{os.getpid()}.2"
    try:
        began_s = time.monotonic()
        with open(trial, "wb") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        took_s = time.monotonic() - began_s
        if took_s > 1.0:
            wrong["fsync"] = f"takes {took_s:.1f} s: every record waits for it"
        trials: dict[str, Callable[[], None]] = {
            "fsync of a folder": lambda: _sync(folder),
            "hard links": lambda: os.link(trial, other),
            "a lock": lambda: _lock(trial),
            "a FIFO": lambda: os.mkfifo(folder / f".doctor.{os.getpid()}.3"),
        }
        for what, call in trials.items():
            try:
                call()
            except OSError as error:
                wrong[what] = error.strerror or str(error)
    finally:
        for path in (trial, other, folder / f".doctor.{os.getpid()}.3"):
            path.unlink(missing_ok=True)
    return wrong


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _lock(path: Path) -> None:
    lock = Lock.try_take(path)
    if lock is None:
        raise OSError(0, "a lock of a file of our own is refused")
    lock.release()


def said_by(*argv: str) -> str | None:
    """The first line that a program says; None where it is missing, fails or hangs."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip().partition("\n")[0] if done.returncode == 0 else None
