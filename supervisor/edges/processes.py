"""Which live processes belong to a run, and signals to those and no others. Nothing is decided here.

A process is a run's by a union of proofs, each by value: descent from the runner, the run's cgroup, a session that
was recorded, the token in its environment, a recorded (pid, start ticks); and descent from a process that is proven
so. No proof holds for a process whose own token or nearest ancestor's token is another run's, for a boundary
(boundaries.py) or anything below one, for this process and its ancestors, and for PID 1.
Names and titles prove nothing. This file is the door to the room: judge.py, signals.py and open_files.py lie behind.
"""

from __future__ import annotations

from msgspec import Struct

from supervisor.core.evidence import Member, Owner, ProcessId, Proof
from supervisor.edges import proc
from supervisor.edges.boundaries import Boundaries
from supervisor.edges.census import Census
from supervisor.edges.judge import Judge, nearest_token
from supervisor.edges.open_files import Writing, open_for_writing
from supervisor.edges.ownership import Ownership, Recorded, new_token, ownership_of, ownerships, record, run_of
from supervisor.edges.paths import Home
from supervisor.edges.signals import Signalled, signal_group, signal_members, watch

__all__ = [
    "Owners",
    "Ownership",
    "Recorded",
    "Signalled",
    "Sweep",
    "Writing",
    "leftovers",
    "new_token",
    "open_for_writing",
    "owner_of",
    "ownership_of",
    "record",
    "signal_group",
    "signal_members",
    "sweep",
    "watch",
]

CMDLINE_MAX = 1000
THREADS_MAX = 4096


class Sweep(Struct, frozen=True):
    """Everybody of the run who was alive during the look, and in words what could not be looked at."""

    members: tuple[Member, ...]
    could_not_see: tuple[str, ...] = ()


def sweep(ownership: Ownership, home: Home) -> Sweep:
    """One look. One that is born during it may be missing: who must know that nobody is left looks until two are
    empty in a row."""
    return _sweep(ownership, Census.take(), Boundaries(home))


def _sweep(ownership: Ownership, census: Census, boundaries: Boundaries) -> Sweep:
    proofs = Judge(ownership, census, boundaries).proofs()
    members = tuple(_member(census, pid, proofs[pid], ownership) for pid in sorted(proofs))
    return Sweep(members, could_not_see(census))


def could_not_see(census: Census) -> tuple[str, ...]:
    """What a look by this user cannot know."""
    said = []
    if census.unreadable:
        said.append(
            f"the environment of {len(census.unreadable)} processes of other users: one that changed its user, left "
            "its session and lost its parent would not be found"
        )
    if 1 not in census.stats:
        said.append("processes of other users (/proc is mounted with hidepid)")
    return tuple(said)


def _member(census: Census, pid: int, proof: Proof, ownership: Ownership) -> Member:
    seen = census.stats[pid]
    state = thread_state(pid) or seen.state if seen.state in proc.DEAD else seen.state
    return Member(
        id=ProcessId(pid, seen.start_ticks),
        cmdline=ownership.shown(proc.cmdline(pid) or f"[{seen.comm}]")[:CMDLINE_MAX],
        proof=proof,
        state=state,
        pgid=seen.pgid,
        sid=seen.sid,
        wchan=proc.wchan(pid) if state == "D" else "",
    )


def thread_state(pid: int) -> str:
    """For a leader that has exited: D where any thread waits uninterruptibly, else that of the first live one."""
    state = ""
    for tid in proc.threads(pid)[:THREADS_MAX]:
        seen = proc.parse_stat(proc.read(f"/proc/{pid}/task/{tid}/stat", 4095) or b"")
        if seen is not None and seen.state == "D":
            return "D"
        if seen is not None and seen.state not in proc.DEAD:
            state = state or seen.state
    return state


class Owners:
    """Which run each process belongs to, over one look at everybody."""

    def __init__(self, home: Home) -> None:
        self._census = Census.take()
        self._boundaries = Boundaries(home)
        self._runs: dict[int, str] = {}
        for ownership in ownerships(home):
            for pid in Judge(ownership, self._census, self._boundaries).proofs():
                self._runs.setdefault(pid, ownership.run)

    def of(self, pid: int) -> tuple[Owner, str | None]:
        """RUN and its name for a process of this state directory; FOREIGN, with the name of the run where its token
        tells one of elsewhere; UNKNOWN where it is not to be seen."""
        if pid in self._runs:
            return Owner.RUN, self._runs[pid]
        if pid not in self._census.stats:
            return Owner.UNKNOWN, None
        token = nearest_token(self._census, self._boundaries, pid)
        if token is not None:
            return Owner.FOREIGN, run_of(token)
        return (Owner.UNKNOWN if pid in self._census.unreadable else Owner.FOREIGN), None

    def could_not_see(self) -> tuple[str, ...]:
        """What this look cannot know."""
        return could_not_see(self._census)


def owner_of(pid: int, home: Home) -> tuple[Owner, str | None]:
    """Whose one process is; for several take `Owners` once."""
    return Owners(home).of(pid)


def leftovers(home: Home) -> tuple[tuple[str, Sweep], ...]:
    """What dead runs left behind: those without an open episode. Runs that a guardian will bring back are not dead."""
    census, boundaries = Census.take(), Boundaries(home)
    found = []
    for ownership in ownerships(home):
        if not home.run(ownership.run).open.exists():
            look = _sweep(ownership, census, boundaries)
            if look.members:
                found.append((ownership.run, look))
    return tuple(found)
