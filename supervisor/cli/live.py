"""`supervise status -w`: the status again and again until Ctrl-C. Draws with rich on a terminal that can be drawn on.

Rule 1: each picture is read anew from the files: a supervisor that was replaced, or none, is just another picture.
Rule 2: where nothing can be drawn (a pipe, a dumb terminal) a picture is written when it says something new, plain.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from supervisor.views import words

if TYPE_CHECKING:
    from rich.text import Text

EVERY_S = 1.0
STYLES = {
    "running": "green", "finished": "green", "halted": "bold red", "unreadable": "bold red", "damaged": "bold red",
    "degraded": "yellow", "starting": "yellow", "stopping": "yellow", "verifying": "yellow", "backoff": "yellow",
    "stale": "dim", "stopped": "dim",
}  # fmt: skip
"""Words of the status that carry a colour; what they say does not depend on it."""
_STYLED = re.compile(rf"\b({'|'.join(STYLES)})\b")


def watch(picture: Callable[[], str]) -> None:
    """Show `picture()` until Ctrl-C, each second; the last one stays on the terminal."""
    can_draw = sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    try:
        (_drawn if can_draw else _written)(picture)
    except KeyboardInterrupt:
        return


def _written(picture: Callable[[], str]) -> None:
    """One picture below the other, whenever more than the numbers of seconds ago has changed."""
    before = ""
    while True:
        shown = picture()
        if _steady(shown) != before:
            click.echo(f"{words.clock(time.time())}\n{shown}")
            sys.stdout.flush()
            before = _steady(shown)
        time.sleep(EVERY_S)


def _steady(shown: str) -> str:
    """Without what changes every second while nothing happens."""
    return re.sub(r"[\d.]+ ?(s|m|h|d)\b|\d+%|[\d.?]+ / [\d.?]+|[\d.]+ % productive", "#", shown)


def _drawn(picture: Callable[[], str]) -> None:
    """In the alternate screen, as large as the terminal is at that moment."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, markup=False, emoji=False)
    shown = picture()
    try:
        with Live(_text(shown, console), console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(_text(shown, console), refresh=True)
                time.sleep(EVERY_S)
                shown = picture()
    finally:
        click.echo(shown, nl=False)


def _text(shown: str, console: object) -> Text:
    """What fits: the first lines, with one that counts those that have no room."""
    from rich.text import Text

    height = int(getattr(console, "height", 24))
    text = Text("\n".join(fitted(f"{shown}\nCtrl-C ends this view; the run goes on", height)), no_wrap=True)
    text.overflow = "crop"
    for found in _STYLED.finditer(text.plain):
        text.stylize(STYLES[found[0]], found.start(), found.end())
    return text


def fitted(shown: str, height: int) -> Iterable[str]:
    """The lines that have room in so many rows; where some have not, the last one says how many."""
    lines = shown.splitlines()
    if len(lines) <= height:
        return lines
    kept = lines[: max(0, height - 1)]
    return [*kept, f"... {len(lines) - len(kept)} more lines: a taller window shows them"]
