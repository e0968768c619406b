"""Whether a night breaks a promise, and the least of it that still does."""

from __future__ import annotations

import re

from lives import Life
from plots import Plot


def first_broken(plot: Plot, life: Life | None = None) -> str | None:
    """What broke, or None. A fault of the code under test breaks a promise too."""
    try:
        (life or Life(plot)).lived()
    except Exception as error:  # noqa: BLE001 - whatever ends a supervisor for good is told with its seed
        return f"{type(error).__name__}: {error}"
    return None


def minimised(plot: Plot) -> Plot:
    """The night less every deed that it breaks without, in the same way."""
    way = _way(first_broken(plot))
    changed = True
    while changed:
        changed = False
        for index in reversed(range(len(plot.deeds))):
            shorter = plot.without(index)
            if shorter.deeds and _way(first_broken(shorter)) == way:
                plot, changed = shorter, True
    return plot


def _way(why: str | None) -> str | None:
    """The same for all attempts, GPUs and paths."""
    return None if why is None else re.sub(r"[0-9]+", "", why.partition(" starts from ")[0])[:60]
