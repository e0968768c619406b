"""`supervise restart`: end the attempt and launch anew from the newest checkpoint, with the same values."""

from __future__ import annotations

import click

from supervisor.cli import common


@click.command("restart")
@common.run_argument
@common.yes_option
def command(run: str | None, yes: bool) -> None:
    """End the attempt, verify the GPUs, launch anew from the newest complete checkpoint. No knob moves."""
    from supervisor.cli import asking, records

    where = common.find_run(run)
    records.must_be_here(where)
    common.confirm(f"Restart {where.name}: end this attempt and launch anew from its newest checkpoint?", yes)
    asking.ask_and_leave(common.home(), where, "restart", {})
