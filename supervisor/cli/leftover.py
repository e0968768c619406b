"""`down --leftovers`: what dead runs left behind, shown, then ended. By proofs of those runs, never by name.

No supervisor of such a run is there to write its journal, so whom a signal is about to reach is written to
`leftovers.jsonl` in the run's folder.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable

from supervisor.cli import common
from supervisor.core.errors import Exit
from supervisor.core.evidence import Member
from supervisor.edges import proc, processes, signals
from supervisor.edges.paths import Home
from supervisor.views.words import cut, safe

GRACE_S = 10.0
KILL_S = 10.0
LOOK_EVERY_S = 0.1

Left = tuple[tuple[str, Member], ...]


def end_all(home: Home, *, yes: bool) -> None:
    """Show them, ask, TERM, wait, KILL, look again. Exit 0 when nobody is left, 8 when somebody is."""
    found = _look(home)
    for said in processes.Owners(home).could_not_see():
        common.say(f"could not see {said}")
    if not found:
        common.say("no dead run left anything behind")
        return
    for run, member in found:
        common.say(cut(f"  {run}: pid {member.id.pid} ({member.proof.value}) {safe(member.cmdline)}", 160))
    common.confirm(f"End these {len(found)} processes of runs that are not up?", yes)
    if not _ended(home, signal.SIGTERM, GRACE_S):
        _ended(home, signal.SIGKILL, KILL_S)
    left = _look(home)
    for run, member in left:
        where = f" in {member.wchan}" if member.wchan else ""
        common.say(f"  {run}: pid {member.id.pid} is still there (state {member.state}{where})")
    common.leave(Exit.NOT_ZERO if left else Exit.OK)


def _ended(home: Home, sig: signal.Signals, within_s: float) -> bool:
    """Signal whoever is left, again for those that appear meanwhile; True once two looks in a row found nobody."""
    deadline_s = time.monotonic() + within_s
    signalled: set[tuple[int, int]] = set()
    empty = 0
    while empty < 2 and time.monotonic() < deadline_s:
        left = _look(home)
        new = [(run, each) for run, each in left if (each.id.pid, each.id.start_ticks) not in signalled]
        fresh = [each for _, each in new]
        _write_down(home, new, sig)
        signals.signal_members(fresh, sig, proc.boot_id())
        if sig is not signal.SIGKILL:
            signals.signal_members(fresh, signal.SIGCONT, proc.boot_id())  # a stopped process handles TERM after this
        signalled |= {(each.id.pid, each.id.start_ticks) for each in fresh}
        empty = 0 if left else empty + 1
        time.sleep(LOOK_EVERY_S)
    return empty >= 2


def _write_down(home: Home, whom: Iterable[tuple[str, Member]], sig: signal.Signals) -> None:
    """Before each signal: pid, start ticks, command line and proof. Raises OSError: then nobody is signalled."""
    for run, each in whom:
        line = {
            "wall_s": round(time.time(), 3),
            "signal": sig.name,
            "boot_id": proc.boot_id(),
            "pid": each.id.pid,
            "start_ticks": each.id.start_ticks,
            "cmdline": each.cmdline,
            "proof": each.proof.value,
        }
        path = home.run(run).path / "leftovers.jsonl"
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with open(fd, "ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")
            os.fsync(fd)


def _look(home: Home) -> Left:
    return tuple((run, member) for run, sweep in processes.leftovers(home) for member in sweep.members)
