"""`supervise attach`: the run's terminal, by exec of tmux. Read-only unless asked otherwise."""

from __future__ import annotations

import os
import sys

import click

from supervisor.cli import common
from supervisor.core.errors import Exit, Refusal


@click.command("attach")
@common.run_argument
@click.option("--rw", is_flag=True, help="Keys go to the terminal. Ctrl-C there does not reach the job.")
def command(run: str | None, rw: bool) -> None:
    """Look at the run's terminal. Leave it with Ctrl-B d; the run goes on."""
    from supervisor.cli import logs, records
    from supervisor.edges.tmux import There, Tmux

    home = common.home()
    where = common.find_run(run)
    seen = records.must_be_here(where)
    if seen.spec.get("launch", {}).get("terminal") == "none":
        raise Refusal(
            Exit.NOT_RUNNING,
            f"{where.name} runs without a terminal (launch.terminal: none). supervise logs -f {where.name}",
        )
    if not seen.is_open:
        raise Refusal(Exit.NOT_RUNNING, f"{where.name} is {seen.phase}: no terminal. supervise logs {where.name}")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("attach needs a terminal; over ssh that is: ssh -t HOST supervise attach")
    tmux = Tmux(home)
    if tmux.is_there(where.name) is not There.YES:
        output = logs.output_of(where)
        if output is None:
            raise Refusal(Exit.NOT_RUNNING, f"{where.name} has no terminal yet. supervise status {where.name}")
        tmux.ensure_view(where.name, output)
    argv = tmux.attach_argv(where.name, read_only=not rw)
    os.execvp(argv[0], argv)
