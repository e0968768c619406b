"""`supervise pause`: no automatic recovery. The job is not touched."""

from __future__ import annotations

import click

from supervisor.cli import common


@click.command("pause")
@common.run_argument
def command(run: str | None) -> None:
    """No automatic recovery until `resume`: a failure is seen and told, nothing is relaunched. The job runs on."""
    from supervisor.cli import asking, records

    where = common.find_run(run)
    records.must_be_here(where)
    asking.ask_and_leave(common.home(), where, "pause", {})
