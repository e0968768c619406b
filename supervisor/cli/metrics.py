"""`supervise metrics`: the runs as figures for Prometheus, once or again and again into a file. No port, no network."""

from __future__ import annotations

import time
from pathlib import Path

import click

from supervisor.cli import common, records
from supervisor.edges.files import write_atomic
from supervisor.edges.paths import Home, RunDir
from supervisor.views import metrics

READABLE_BY_ALL = 0o644
"""The textfile collector runs as another user; nothing in the file is secret."""


@click.command("metrics")
@common.run_argument
@click.option(
    "--textfile", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Replace FILE (name it *.prom, in node_exporter's textfile folder) instead of printing.",
)  # fmt: skip
@click.option("--every", type=common.Duration(), help="Again and again, until Ctrl-C, as in 15s; with --textfile.")
def command(run: str | None, textfile: Path | None, every: float | None) -> None:
    """Figures of all runs, or of RUN, in Prometheus' text format.

    For a scrape over HTTP see: supervise serve.
    """
    if every is not None and textfile is None:
        raise click.UsageError("--every replaces a file: name it with --textfile FILE")
    named = None if run is None else common.find_run(run)
    at = common.home()
    if textfile is None:
        click.echo(told(at, named), nl=False)
        return
    while True:
        write_atomic(textfile, told(at, named).encode(), mode=READABLE_BY_ALL, sync=False)
        if every is None:
            return
        time.sleep(max(1.0, every))


def told(home: Home, named: RunDir | None = None) -> str:
    """The metrics of this run, or of all."""
    runs = [named] if named is not None else [home.run(name) for name in home.names()]
    return metrics.text(records.look(each) for each in runs)
