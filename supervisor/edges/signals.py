"""Signals to processes that are known by pid and start ticks, and to nobody who has such a number since.

A pidfd pins the process: it is opened, the start ticks are read, and only then the signal goes through it.
"""

from __future__ import annotations

import errno
import os
import select
import signal
from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from supervisor.core.evidence import ProcessId
from supervisor.edges import proc
from supervisor.edges.boundaries import Boundaries
from supervisor.edges.paths import Home

PIDFD_SIGNAL_PROCESS_GROUP = 1 << 2
"""Flag of pidfd_send_signal(2) from Linux 6.9 on."""
_NO_PIDFD = (errno.ENOSYS, errno.EPERM)
"""An old kernel, or a container whose seccomp profile does not know the call."""


class Named(Protocol):
    """Whatever names a process: a member, a target of the journal."""

    @property
    def id(self) -> ProcessId:
        """Pid and start ticks."""


class Signalled(Struct, frozen=True):
    """What came of one signal. `why` is empty where it was sent."""

    id: ProcessId
    sent: bool
    why: str = ""


def watch(process: ProcessId) -> int | None:
    """A pidfd of this very process, which polls readable when it has ended; None where it is gone. To be closed."""
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    if proc.start_ticks(process.pid) == process.start_ticks:
        return fd
    os.close(fd)
    return None


def has_ended(pidfd: int) -> bool:
    """Whether all threads of the watched process have ended: a zombie has."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def signal_members(members: Iterable[Named], sig: int, boot_id: str = "") -> tuple[Signalled, ...]:
    """The signal to each of them, where it is still that process. `boot_id`: the boot that the names are from."""
    named = [member.id for member in members]
    if boot_id and boot_id != proc.boot_id():
        return tuple(Signalled(id_, False, "the name is from another boot") for id_ in named)
    return tuple(_send(id_, sig) for id_ in named)


def signal_group(leader: ProcessId, members: Iterable[Named], sig: int, home: Home) -> tuple[Signalled, ...]:
    """The signal to the job's process group as Ctrl-C sends it, then CONT, so that stopped ones hear it too.

    The whole group at once where everybody in it is the run's: a child that is forked meanwhile gets it as well.
    Otherwise each of `members` that is in the group.
    """
    named = [member.id for member in members]
    group = [s for s in proc.all_stats().values() if s.pgid == leader.pid and not proc.is_dead(s)]
    there = {(s.pid, s.start_ticks) for s in group}
    ours = [id_ for id_ in named if (id_.pid, id_.start_ticks) in there]
    if not ours:
        return ()
    if _all_ours(group, ours, leader, home) and _send_to_group(leader, sig):
        done = tuple(Signalled(id_, True) for id_ in ours)
        if sig not in (signal.SIGKILL, signal.SIGCONT):
            _send_to_group(leader, signal.SIGCONT)
        return done
    done = tuple(_send(id_, sig) for id_ in ours)
    if sig not in (signal.SIGKILL, signal.SIGCONT):
        for one in done:
            if one.sent:
                _send(one.id, signal.SIGCONT)
    return done


def _all_ours(group: list[proc.ProcStat], ours: list[ProcessId], leader: ProcessId, home: Home) -> bool:
    """True when the others in the group were born into the job's session since the look, and are ordinary."""
    known = {id_.pid for id_ in ours}
    boundaries = Boundaries(home)
    newborn = [s for s in group if s.pid not in known]
    return all(s.sid == leader.pid and s.pid != os.getpid() and not boundaries.of(s.pid) for s in newborn)


def _send_to_group(leader: ProcessId, sig: int) -> bool:
    """False where the leader is gone or the kernel cannot: nobody was signalled then."""
    fd = watch(leader)
    if fd is None:
        return False
    try:
        signal.pidfd_send_signal(fd, sig, None, PIDFD_SIGNAL_PROCESS_GROUP)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _send(process: ProcessId, sig: int) -> Signalled:
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return Signalled(process, False, "it is gone")
    except OSError as error:
        if error.errno not in _NO_PIDFD:
            raise
        return _send_plainly(process, sig)
    try:
        if proc.start_ticks(process.pid) != process.start_ticks:
            return Signalled(process, False, "the number belongs to another process now")
        signal.pidfd_send_signal(fd, sig)
    except ProcessLookupError:
        return Signalled(process, False, "it is gone")
    except PermissionError:
        return Signalled(process, False, "not permitted: it belongs to another user")
    finally:
        os.close(fd)
    return Signalled(process, True)


def _send_plainly(process: ProcessId, sig: int) -> Signalled:
    """Without pidfds the number could in theory change hands between the two calls; nothing better is to be had."""
    if proc.start_ticks(process.pid) != process.start_ticks:
        return Signalled(process, False, "it is gone")
    try:
        os.kill(process.pid, sig)
    except ProcessLookupError:
        return Signalled(process, False, "it is gone")
    except PermissionError:
        return Signalled(process, False, "not permitted: it belongs to another user")
    return Signalled(process, True)
