"""`supervise report`: the night on one page. Reads the run's files, changes nothing, sends nothing."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor.cli import common, reporting
from supervisor.edges.files import write_atomic


@click.command("report")
@common.run_argument
@click.option("--html", "form", flag_value="html", help="A page for a browser, all in one file (the default).")
@click.option("--text", "form", flag_value="text", help="Plain text, for a mail.")
@click.option("--md", "form", flag_value="md", help="Markdown, for a chat or a ticket.")
@click.option("-o", "--to", "to", type=click.Path(dir_okay=False, path_type=Path), help="The file; `-` is stdout.")
@click.option("--since", type=common.Duration(), help="Only what happened in so long, as in 12h.")
def command(run: str | None, form: str | None, to: Path | None, since: float | None) -> None:
    """What happened: verdict, where the time went, a lane for each GPU, loss, and each attempt's cause and decision.

    The page goes to RUN.html in this folder; text goes to standard output.
    """
    from supervisor.views.report import page, text

    where = common.find_run(run)
    facts = reporting.facts(where, since_s=since)
    form = form or "html"
    made = {"html": page.page, "text": text.text, "md": text.markdown}[form](facts)
    to = to or (Path(f"{where.name}.html") if form == "html" else Path("-"))
    if str(to) == "-":
        click.echo(made, nl=False)
        return
    write_atomic(to, made.encode(), sync=False)
    click.echo(to.resolve())
