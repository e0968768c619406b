"""Who decides about an attempt: its runner, or the supervisor that abandons the launch. First come, once only.

The claim is written aside, made durable, and then linked to its name: linking fails where the name is there, so
exactly one wins, and a claim that can be seen is whole. Where the file system has no hard links, the file is created
with O_EXCL and filled afterwards; then a claimer that dies between the two leaves a claim that says nothing.

Such a torn claim counts as that of a runner nobody knows (`Claim(by=RUNNER, runner=None)`). The other reading would be
wrong: it might be a runner that is only slow and starts the job in a moment. So the attempt counts as launched, is
ended as an attempt whose runner died without a word, and the next one gets a new number: one number is lost, nothing
is launched twice. A runner must start nothing when `take` raises.
"""

from __future__ import annotations

import errno
import os
from enum import Enum
from pathlib import Path

from msgspec import Struct

from supervisor.core.evidence import ProcessId
from supervisor.edges.files import fsync_dir, read_json, to_json, write_all
from supervisor.edges.paths import AttemptDir

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class By(str, Enum):
    """Who can claim an attempt."""

    RUNNER = "runner"
    SUPERVISOR = "supervisor"


class Claim(Struct, frozen=True):
    """The claim of an attempt. `claimer` None: its writer died before it could say who it was."""

    by: By
    claimer: ProcessId | None
    boot_id: str = ""


def take(attempt: AttemptDir, by: By, claimer: ProcessId, boot_id: str) -> bool:
    """True when the attempt is ours from now on, durably; False when it was claimed before. Raises OSError.

    After an OSError ask `read`: the claim may stand.
    """
    text = to_json({"by": by.value, "pid": claimer.pid, "start_ticks": claimer.start_ticks, "boot_id": boot_id})
    tmp = attempt.path / f".claim.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    try:
        _write_new(tmp, text)
        try:
            os.link(tmp, attempt.claim, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _write_new(attempt.claim, text)
    except FileExistsError:
        return False
    finally:
        tmp.unlink(missing_ok=True)
    fsync_dir(attempt.path)
    return True


def read(attempt: AttemptDir) -> Claim | None:
    """The claim, or None when nobody has claimed the attempt. A torn one is that of an unknown runner."""
    try:
        plain = read_json(attempt.claim)
    except ValueError:
        return Claim(By.RUNNER, None)
    if plain is None:
        return None
    try:
        return Claim(By(plain["by"]), ProcessId(int(plain["pid"]), int(plain["start_ticks"])), str(plain["boot_id"]))
    except (KeyError, TypeError, ValueError):
        return Claim(By.RUNNER, None)


def _write_new(path: Path, text: bytes) -> None:
    fd = os.open(path, _CREATE, 0o600)
    try:
        write_all(fd, text)
        os.fsync(fd)
    finally:
        os.close(fd)
