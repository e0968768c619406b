"""`supervise down`: end a run. What is ended is proven to be the run's; the supervisor does it, not this."""

from __future__ import annotations

import click

from supervisor.cli import common


@click.command("down")
@common.run_argument
@common.yes_option
@click.option("--leftovers", is_flag=True, help="End what dead runs left behind, after showing it.")
def command(run: str | None, yes: bool, leftovers: bool) -> None:
    """End a run: stop its processes, verify that its GPUs are empty. Returns when that is so.

    Exit 8: memory is still held, by whom is said.
    """
    from supervisor.cli import asking, records

    home = common.home()
    if leftovers:
        from supervisor.cli import leftover

        leftover.end_all(home, yes=yes)
        return
    where = common.find_run(run)
    records.must_be_here(where)
    common.confirm(f"End {where.name}: stop its processes, verify its GPUs?", yes)
    asking.ask_and_leave(home, where, "down", {})
