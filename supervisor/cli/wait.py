"""`supervise wait`: until a run is running or done. Reads records only."""

from __future__ import annotations

import time

import click

from supervisor.cli import common
from supervisor.core.errors import Exit

LOOK_EVERY_S = 0.05
_ENDS = {"finished": Exit.OK, "stopped": Exit.NOT_RUNNING, "halted": Exit.HALTED}


@click.command("wait")
@common.run_argument
@click.option("--for", "until", type=click.Choice(["running", "done"]), default="done", show_default=True)
@click.option("--timeout", type=common.Duration(), help="Such as 30s or 12h; exit 124 when it has passed.")
def command(run: str | None, until: str, timeout: float | None) -> None:
    """Wait until a run is done: exit 0 finished, 3 stopped by the user, 9 halted.

    With --for running: 0 at its first progress, 10 when it is degraded, and as above when it ends before that.
    """
    from supervisor.cli import records
    from supervisor.edges import requests
    from supervisor.edges.journal_tail import Tail
    from supervisor.views.run import Entry, next_phase, trigger

    where = common.find_run(run)
    records.must_be_here(where)
    deadline_s = None if timeout is None else time.monotonic() + timeout
    tail, phase = Tail(where.journal), "stopped"
    while True:
        for record in tail.poll():
            phase = next_phase(phase, trigger(Entry(record.type, record.at.wall_s, record.data)))
        code = None if phase in _ENDS and requests.is_waiting(where) else _code(phase, until)
        if code is not None:
            common.say(f"{where.name} is {phase}")
            common.leave(code)
        if deadline_s is not None and time.monotonic() >= deadline_s:
            common.say(f"{where.name} is {phase}; the time is over")
            common.leave(Exit.TIMEOUT)
        time.sleep(LOOK_EVERY_S)


def _code(phase: str, until: str) -> Exit | None:
    """The exit code that this phase means; None: wait on."""
    if phase in _ENDS:
        return _ENDS[phase]
    if until == "running" and phase in ("running", "degraded"):
        return Exit.OK if phase == "running" else Exit.DEGRADED
    return None
