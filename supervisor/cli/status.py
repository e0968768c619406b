"""`supervise status`: what is. Asks the files of the runs, never the GPUs, and changes nothing."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

import click

from supervisor.cli import common, records
from supervisor.edges.paths import Home
from supervisor.views import status

RECENT_S = 24 * 3600.0
NONE = "no run is open and none ended in the last 24 h"


@click.command("status")
@common.run_argument
@common.output_option
@click.option("--all", "all_", is_flag=True, help="Also runs that ended more than 24 h ago.")
@click.option("--exit-code", is_flag=True, help="Exit 9 halted, 10 degraded, 3 stopped, else 0 (the worst of several).")
@click.option("-w", "--watch", is_flag=True, help="Live, until Ctrl-C.")
def command(run: str | None, output: str, all_: bool, exit_code: bool, watch: bool) -> None:
    """What is: phase, step, GPUs by role, what happens next and how to stop it.

    Without RUN: open runs and those that ended in the last 24 h.
    """
    if watch and output == "json":
        raise click.UsageError("-w is for people; for programs: supervise status -o json, or supervise serve")

    def looked() -> list[status.Look]:
        return [records.look(common.find_run(run))] if run is not None else _recent(common.home(), everything=all_)

    looks = looked()
    if watch:
        from supervisor.cli import live

        live.watch(lambda: _picture(looked))
        looks = looked()
    elif output == "json":
        click.echo(json.dumps(status.document(looks)))
    elif looks:
        click.echo(status.text(looks, detailed=len(looks) == 1), nl=False)
    else:
        common.say(f"{NONE} (--all shows the rest). Start one: supervise up SPEC")
    common.leave(status.exit_code(looks) if exit_code else 0)


def _picture(looked: Callable[[], list[status.Look]]) -> str:
    looks = looked()
    return status.text(looks, detailed=len(looks) == 1) if looks else f"{NONE}\n"


def _recent(home: Home, *, everything: bool) -> list[status.Look]:
    """The runs to show, open ones first. A journal that rests for longer than a day is not even read."""
    since_s, runs = time.time() - RECENT_S, str(home.runs)
    looks = [records.look(home.run(name)) for name in home.names() if everything or _stirs(f"{runs}/{name}", since_s)]
    shown = [
        each
        for each in looks
        if everything or each.damage or each.asked or each.view.is_open or (each.view.last_s or 0) >= since_s
    ]
    return sorted(shown, key=lambda each: (not each.view.is_open, each.view.name))


def _stirs(at: str, since_s: float) -> bool:
    """Open, asked for something, or written to since then. Of a thousand runs, so without pathlib."""
    try:
        if os.stat(f"{at}/journal.jsonl").st_mtime >= since_s:  # noqa: PTH116
            return True
    except FileNotFoundError:
        pass  # asked for its first launch, perhaps
    return os.path.exists(f"{at}/open") or records.is_asked(f"{at}/requests")  # noqa: PTH110
