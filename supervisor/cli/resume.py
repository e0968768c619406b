"""`supervise resume`: automatic recovery on again, after `pause`."""

from __future__ import annotations

import click

from supervisor.cli import common


@click.command("resume")
@common.run_argument
def command(run: str | None) -> None:
    """Automatic recovery on again. What waited for it happens now."""
    from supervisor.cli import asking, records

    where = common.find_run(run)
    records.must_be_here(where)
    asking.ask_and_leave(common.home(), where, "resume", {})
