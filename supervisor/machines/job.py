"""The processes of the current attempt, as known without a sweep: claim, runner, leader, end. Decides nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from supervisor.core.codecopy import from_copy
from supervisor.core.evidence import ExitRecord, ProcessId
from supervisor.core.given import CodeCopy
from supervisor.core.guard import argv_violations, carries_all_flags, environ_violations, in_both, runs_command
from supervisor.core.seen import JobSeen
from supervisor.core.spec import RunSpec
from supervisor.edges import claim, proc, signals
from supervisor.edges.files import read_json
from supervisor.edges.ownership import Recorded, read_members
from supervisor.edges.paths import AttemptDir

CHECK_EVERY_S = 5.0
"""Arguments of known members are read again this often; those of new members at once."""

DIFFERENCES_TOLD = 5
"""So many warnings an attempt: a member that names a param may have thousands of children."""


class Job:
    """One attempt's processes. Their deaths are waited for by pidfd; `exit.json` says how the leader ended."""

    def __init__(self, attempt: AttemptDir, boot_id: str) -> None:
        self.attempt = attempt
        self._members_jsonl, self._exit_json = str(attempt.members), str(attempt.exit_json)  # at each look, twice
        self._boot_id = boot_id
        self._fds: dict[ProcessId, int] = {}
        self._members: tuple[Recorded, ...] = ()
        self._checked: set[tuple[ProcessId, tuple[str, ...]]] = set()
        self._claim: claim.Claim | None = None
        self._exit: ExitRecord | None = None
        self._checked_s = float("-inf")
        self._checked_of: tuple[Recorded, ...] = ()
        self.problem: str | None = None
        self.ending = False  # the leader is dead, and its runner is just writing how it ended
        self._told = 0
        self.differences: list[str] = []
        """Other members that name a protected param with another value: to be warned of, no violation."""
        self.told_orphaned = False

    def fds(self) -> list[int]:
        """Readable when the runner or the leader has died."""
        return list(self._fds.values())

    def close(self) -> None:
        """Give the descriptors back."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def members(self) -> tuple[Recorded, ...]:
        """Whom the runner has recorded so far, the leader first."""
        self._members = read_members(self._members_jsonl)
        return self._members

    @property
    def known(self) -> tuple[Recorded, ...]:
        """Members as they were last read."""
        return self._members

    def look(self, drained: bool) -> JobSeen:
        """What is known now. An end is told only when `drained`: the output was read to its end."""
        found = self._claim = self._claim or claim.read(self.attempt)
        if found is None:
            return JobSeen(claim="none", problem=self.problem)
        if found.by is claim.By.SUPERVISOR:
            return JobSeen(claim="supervisor", problem=self.problem)
        runner = found.claimer
        same_boot = found.boot_id == self._boot_id
        recorded = self.members() if same_boot else ()
        leader = recorded[0].id if recorded else None
        seen = JobSeen(
            claim="runner",
            runner=runner or ProcessId(0, 0),
            runner_alive=same_boot and runner is not None and self._is_alive(runner),
            leader=leader,
            leader_alive=leader is not None and self._is_alive(leader),
            exit=self._exit if drained and self.has_ended() else None,
            problem=self.problem,
        )
        self.ending = leader is not None and not seen.leader_alive and seen.runner_alive and seen.exit is None
        return seen

    def has_ended(self) -> bool:
        """True when `exit.json` is there. One that a power cut left empty says nothing, and is none."""
        if self._exit is None and os.access(self._exit_json, os.F_OK):
            with suppress(ValueError, KeyError, TypeError):
                self._exit = exit_record(read_json(self.attempt.exit_json) or {})
        return self._exit is not None

    def _is_alive(self, process: ProcessId) -> bool:
        if process not in self._fds:
            fd = signals.watch(process)
            if fd is None:
                return False
            self._fds[process] = fd
        if not signals.has_ended(self._fds[process]):
            return True
        os.close(self._fds.pop(process))
        return False

    def violations(self, spec: RunSpec, code: CodeCopy | None = None) -> Iterator[str]:
        """Protected params with another value on a live member that was not checked yet; each member is read once,
        and again when its arguments have changed (a launcher that became the trainer)."""
        now = time.monotonic()
        if not spec.params.protected or (self._checked_of is self._members and now - self._checked_s < CHECK_EVERY_S):
            return
        self._checked_s, self._checked_of = now, self._members
        before, self._checked = self._checked, set()  # of those that live: loader processes come and go every epoch
        for number, one in enumerate(self._members):
            argv = proc.argv(one.id.pid)
            if argv and (one.id, argv) in before:
                self._checked.add((one.id, argv))
                continue
            if not argv or not proc.is_alive(one.id):
                continue
            self._checked.add((one.id, argv))
            environ = proc.environ(one.id.pid) or {}
            found = (*argv_violations(spec, argv), *environ_violations(spec, environ))
            if found and code is not None:  # it may name a file of the copy
                moved = from_copy(spec, code)
                found = in_both(found, (*argv_violations(moved, argv), *environ_violations(moved, environ)))
            if number == 0 or runs_command(spec, argv) or carries_all_flags(spec, argv):
                yield from (f"pid {one.id.pid}: {violation}" for violation in found)
            elif found and self._told < DIFFERENCES_TOLD:
                self._told += 1
                self.differences.append(f"pid {one.id.pid} ({' '.join(argv)[:80]}): {found[0]}; it is no trainer")


def exit_record(plain: dict[str, Any]) -> ExitRecord:
    """How the leader ended, from the runner's record of its raw wait status."""
    status = int(plain["status"])
    ended = plain.get("ended_boot_s")
    if os.WIFSIGNALED(status):
        return ExitRecord(code=None, signal=os.WTERMSIG(status), ended_boot_s=ended)
    return ExitRecord(code=os.WEXITSTATUS(status), signal=None, ended_boot_s=ended)


def number_of(name: str) -> int:
    """The number of a signal by its name."""
    return int(signal.Signals[name])
