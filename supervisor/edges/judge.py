"""Whose a process is, over one census: the proofs of a run, and what overrules them. Reads /proc, signals nobody."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from supervisor.core.evidence import ProcessId, Proof
from supervisor.edges import cgroups, proc
from supervisor.edges.boundaries import Bound, Boundaries
from supervisor.edges.census import Census
from supervisor.edges.ownership import Ownership


class Judge:
    """The proofs of one run. The same census and boundaries may serve the judges of several runs."""

    def __init__(self, ownership: Ownership, census: Census, boundaries: Boundaries) -> None:
        self._own = ownership
        self._census = census
        self._boundaries = boundaries
        self._runners = _same_boot(ownership, census)
        recorded = ownership.recorded if self._is_this_boot() else ()
        self._recorded = {r.id.pid for r in recorded if census.is_there(r.id.pid, r.id.start_ticks)}
        self._sids = {r.sid for r in recorded}
        self._never = {0, 1, os.getpid(), *census.ancestors(os.getpid())}
        self._children = proc.children_map(census.stats)
        self._sessions: dict[int, list[int]] = {}
        for pid, seen in census.stats.items():
            self._sessions.setdefault(seen.sid, []).append(pid)

    def proofs(self) -> dict[int, Proof]:
        """Every live process of the run, with the first proof of it that was found."""
        found: dict[int, Proof] = {}
        for runner in self._runners:
            self._take(self._children.get(runner, ()), Proof.DESCENDANT, found)
        if self._own.cgroup:
            self._take(cgroups.pids(self._own.cgroup), Proof.CGROUP, found)
        self._take(self._tokened(), Proof.TOKEN, found)
        self._take(self._recorded, Proof.RECORDED, found)
        return found

    def _tokened(self) -> Iterator[int]:
        tokens = self._own.tokens
        return (pid for pid, token in self._census.tokens.items() if token in tokens)

    def _take(self, pids: Iterable[int], proof: Proof, found: dict[int, Proof]) -> None:
        """These, where nothing overrules it, with their sessions and their descendants."""
        queue = [(pid, proof) for pid in pids]
        while queue:
            pid, why = queue.pop()
            if pid in found or not self._may_be_ours(pid):
                continue
            found[pid] = why
            queue += [(child, Proof.DESCENDANT) for child in self._children.get(pid, ())]
            sid = self._census.stats[pid].sid
            if sid == pid or sid in self._sids:
                queue += [(mate, Proof.SESSION) for mate in self._sessions.get(sid, ())]

    def _may_be_ours(self, pid: int) -> bool:
        """False where the process is not alive, or where a proof would be overruled."""
        seen = self._census.stats.get(pid)
        if seen is None or proc.is_dead(seen) or seen.flags & proc.KERNEL_THREAD or pid in self._never:
            return False
        own = self._census.tokens.get(pid)
        if own is not None and own not in self._own.tokens:
            return False
        if pid in self._runners or self._boundaries.of(pid) is not None:
            return False
        token, bound = self._above(pid)
        nearest = own or token
        if nearest is not None and nearest not in self._own.tokens:
            return False
        if bound is Bound.RUNNER:  # another run's: what has our token or record was adopted by it, ours being dead
            return own is not None or pid in self._recorded
        if bound is Bound.LOGIN:  # somebody logged in from inside the job, unless it says itself that it is the job's
            return own is not None
        return bound is None

    def _above(self, pid: int) -> tuple[str | None, Bound | None]:
        """The nearest token above the process and the first boundary; none of either beyond our own runner."""
        token = None
        for above in self._census.ancestors(pid):
            if above in self._runners:
                return token, None
            bound = self._boundaries.of(above) if above > 1 else None
            if bound is not None:
                return token, bound
            token = token or self._census.tokens.get(above)
        return token, None

    def _is_this_boot(self) -> bool:
        return self._own.boot_id in ("", proc.boot_id())


def _same_boot(ownership: Ownership, census: Census) -> tuple[int, ...]:
    """The pids of this run's runners that live; numbers of another boot mean nothing."""
    if ownership.boot_id not in ("", proc.boot_id()):
        return ()
    return tuple(r.pid for r in ownership.runners if census.is_there(r.pid, r.start_ticks))


def nearest_token(census: Census, boundaries: Boundaries, pid: int) -> str | None:
    """The token of the process, or of the nearest ancestor that has one with no boundary in between."""
    if boundaries.of(pid) is not None:
        return None
    token = census.tokens.get(pid)
    if token is not None:
        return token
    for above in census.ancestors(pid):
        if above <= 1 or boundaries.of(above) is not None:
            return None
        if above in census.tokens:
            return census.tokens[above]
    return None


def process_id(census: Census, pid: int) -> ProcessId:
    """The process as the census saw it."""
    return ProcessId(pid, census.stats[pid].start_ticks)
