"""The verbs that end an attempt: sweep, signal, tell writers apart. Each may be given again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from supervisor.core.evidence import ProcessId
from supervisor.core.seen import MembersSeen, Stop
from supervisor.core.spec import RunSpec
from supervisor.core.state import send_key
from supervisor.edges import cgroups, claim, proc
from supervisor.edges.open_files import open_for_writing
from supervisor.edges.ownership import Ownership, ownership_of, record
from supervisor.edges.paths import AttemptDir, Home, RunDir
from supervisor.edges.processes import sweep
from supervisor.edges.signals import signal_group, signal_members
from supervisor.machines.job import Job, number_of

GROWING_FOR_S = 2.0
"""A writer is spared while its file grew within this time: a save writes in bursts."""


class Ender:
    """Ends what is left of a run. Remembers, for this process's life only, which signals it has sent."""

    def __init__(self, home: Home, run: RunDir, boot_id: str) -> None:
        self._home = home
        self._run = run
        self._boot_id = boot_id
        self._stop: tuple[int, float] | None = None
        self.sent: frozenset[str] = frozenset()
        self._empty_looks = 0
        self._sizes: dict[tuple[ProcessId, str, int], int] = {}
        self._grew_s: dict[ProcessId, float] = {}

    def do(self, order: Stop, job: Job, since_boot_s: float) -> None:
        """Take the claim where nothing may start any more; send what is due. `since_boot_s`: when this stop began."""
        if self._stop != (order.attempt, since_boot_s):
            self._stop = (order.attempt, since_boot_s)
            self._forget()
        if order.abandon and claim.read(job.attempt) is None:
            self._abandon(job.attempt)
        if order.send is None:
            return
        number = number_of(order.send)
        if order.group:
            leader = job.members()[0].id if job.members() else None
            if leader is not None:
                signal_group(leader, order.targets, number, self._home)
        else:
            cgroup = self.ownership().cgroup
            if cgroup is not None and number == signal.SIGKILL:
                cgroups.kill(cgroup, [target.id.pid for target in order.targets])
            signal_members(order.targets, number, self._boot_id)
        self.sent |= {send_key(order.send, order.group)}

    def _forget(self) -> None:
        """A new stop begins: nothing was sent for it yet."""
        self.sent = frozenset()
        self._empty_looks = 0
        self._sizes.clear()
        self._grew_s.clear()

    def look(self, spec: RunSpec, now_boot_s: float, job: Job | None = None) -> MembersSeen:
        """One sweep. `job`: the attempt whose members are to be remembered, where its runner no longer does it."""
        ownership = self.ownership()
        found = sweep(ownership, self._home)
        if not ownership.runner_alive and found.members and job is not None:
            record(job.attempt.members, found.members, ownership.recorded)  # what this look proved is not lost
        self._empty_looks = 0 if found.members else self._empty_looks + 1
        folders = _checkpoint_folders(spec)
        writing: set[int] = set()
        for member in found.members:
            for one in open_for_writing(member, folders):
                key = (one.id, one.path, one.inode)
                before = self._sizes.get(key)
                self._sizes[key] = one.size_bytes
                if before is None or one.size_bytes > before:
                    self._grew_s[member.id] = now_boot_s
            if now_boot_s - self._grew_s.get(member.id, float("-inf")) < GROWING_FOR_S:
                writing.add(member.id.pid)
        return MembersSeen(
            members=found.members,
            empty_looks=self._empty_looks,
            writing=frozenset(writing),
            could_not_see=found.could_not_see,
        )

    def tidy(self) -> None:
        """Take the attempt's cgroup away, where it has one: nobody is in it any more."""
        cgroup = self.ownership().cgroup
        if cgroup is not None:
            cgroups.remove(cgroup)

    def ownership(self) -> Ownership:
        """The proofs in the run's folder."""
        return ownership_of(self._run) or Ownership(run=self._run.name, token="")

    def _abandon(self, attempt: AttemptDir) -> None:
        me = ProcessId(os.getpid(), proc.start_ticks(os.getpid()) or 0)
        claim.take(attempt, claim.By.SUPERVISOR, me, self._boot_id)


def _checkpoint_folders(spec: RunSpec) -> tuple[Path, ...]:
    """The folders that checkpoints stand in: above the first wildcard of `resume.from`."""
    if spec.resume is None:
        return ()
    parts = Path(spec.resume.from_).parts
    fixed = [part for n, part in enumerate(parts) if not any("*" in p or "?" in p or "[" in p for p in parts[: n + 1])]
    folder = Path(*fixed) if len(fixed) < len(parts) else Path(spec.resume.from_).parent
    return (folder,)
