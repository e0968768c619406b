"""`supervise history`: what was. Reads the journal, changes nothing."""

from __future__ import annotations

import json
import time

import click

from supervisor.cli import common, records
from supervisor.views import history
from supervisor.views.fold import fold


@click.command("history")
@common.run_argument
@common.output_option
@click.option("-v", "--verbose", is_flag=True, help="Each verdict explained, and every record.")
def command(run: str | None, output: str, verbose: bool) -> None:
    """What was: attempts with their steps and knobs, how each ended, and what was decided."""
    where = common.find_run(run)
    entries = list(records.entries(where))
    view = fold(where.name, entries)
    if output == "json":
        click.echo(json.dumps(history.document(view)))
        return
    click.echo(history.text(view, time.time(), verbose=verbose), nl=False)
    if verbose:
        click.echo()
        click.echo(history.events_text(entries), nl=False)
