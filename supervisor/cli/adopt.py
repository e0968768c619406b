"""`supervise adopt`: a supervisor for every open run; a run of another machine moved to this one."""

from __future__ import annotations

import os
import sys
import time

import click

from supervisor.cli import common
from supervisor.core.errors import Exit, Refusal
from supervisor.edges.paths import Home, RunDir

WITHIN_S = 10.0
LOOK_EVERY_S = 0.02


@click.command("adopt")
@common.run_argument
@click.option("--all", "all_", is_flag=True, help="Every open run of this machine.")
@click.option("--watch", is_flag=True, help="Stay, and see to it that it remains so (for a service manager).")
@click.option("--here", is_flag=True, help="The run belongs to this machine from now on; for when its own is gone.")
def command(run: str | None, all_: bool, watch: bool, here: bool) -> None:
    """See that every open run has a supervisor, as after a reboot: adopt --all. Or move one: adopt RUN --here."""
    home = common.home()
    if watch and not all_:
        raise click.UsageError("--watch goes with --all")
    if here and (all_ or run is None):
        raise click.UsageError("--here moves one run: supervise adopt RUN --here")
    if here:
        _move(home, common.find_run(run))
    elif watch:
        _become_guardian(home)
    elif all_:
        _adopt(home, [home.run(name) for name in home.names()])
    elif run is not None:
        _adopt(home, [common.find_run(run)])
    else:
        raise click.UsageError("say which: adopt --all, or adopt RUN")


def _become_guardian(home: Home) -> None:
    """By exec: the guardian stays for days and needs nothing of what the command line imported."""
    from supervisor.edges.files import make_private_dir

    make_private_dir(home.root)
    os.chdir(home.root)
    os.execv(sys.executable, [sys.executable, "-m", "supervisor.guardian", "--watch", "--home", str(home.root)])


def _adopt(home: Home, runs: list[RunDir]) -> None:
    from supervisor.cli import records
    from supervisor.edges.detached import ensure_guardian
    from supervisor.edges.locks import is_held

    for theirs in [run for run in runs if run.stranger is not None]:
        common.say(f"{theirs.name} belongs to another user: it is left alone")
    opened = [run for run in runs if run.stranger is None and run.open.exists()]
    ours = [run for run in opened if records.is_here(records.look(run).view)]
    for run in opened:
        if run not in ours:
            common.say(f"{run.name} belongs to another machine; to move it here: supervise adopt {run.name} --here")
    if not ours:
        common.say("no run of this machine is open")
        return
    ensure_guardian(home)
    deadline_s = time.monotonic() + WITHIN_S
    waiting = list(ours)
    while waiting and time.monotonic() < deadline_s:
        waiting = [run for run in waiting if run.open.exists() and not is_held(run.lock)]
        time.sleep(LOOK_EVERY_S)
    for run in ours:
        why = f"no supervisor stays up; see {run.supervisor_log}" if run in waiting else "supervised"
        common.say(f"{run.name}: {why}")
    common.leave(Exit.ERROR if waiting else Exit.OK)


def _move(home: Home, run: RunDir) -> None:
    """The supervisor that is asked writes the move down; processes recorded on the other machine are void."""
    from supervisor.cli import asking, records
    from supervisor.edges import proc

    seen = records.look(run)
    if seen.alive:
        raise Refusal(Exit.CONFLICT, f"{run.name} is supervised at this moment: it cannot be moved")
    here = {"boot_id": proc.boot_id(), "machine_id": proc.machine_id(), "host": os.uname().nodename}
    asking.ask_and_leave(home, run, "adopt", {"here": True, "machine": here})
