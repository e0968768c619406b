"""How much of a run's past checkpoints is remembered: the newest of them. Not what they are used for.

A run may go on for months and write one each few minutes. What is let go is older than a decision looks back.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")

KEPT_MAX, HALF = 1000, 500
"""One each ten minutes for a week. Beyond it half of that is kept, so that it is sorted seldom."""
BEFORE_ALL = -1
"""No file is as old."""


def newest_contents(contents: frozenset[tuple[str, int, int]]) -> tuple[frozenset[tuple[str, int, int]], int]:
    """Of contents (path, inode, mtime) those that stay, and the newest mtime of those let go: BEFORE_ALL for none."""
    if len(contents) <= KEPT_MAX:
        return contents, BEFORE_ALL
    ordered = sorted(contents, key=lambda one: one[2])
    return frozenset(ordered[-HALF:]), ordered[-HALF - 1][2]


def newest_known(known: tuple[T, ...]) -> tuple[T, ...]:
    """Beside the newest the oldest stays: as a rule the one that the run began from."""
    return known if len(known) <= KEPT_MAX else (known[0], *known[-KEPT_MAX + 1 :])


def highest_steps(told: frozenset[tuple[str, int]]) -> frozenset[tuple[str, int]]:
    """Of (path, step) those that stay."""
    if len(told) <= KEPT_MAX:
        return told
    return frozenset(sorted(told, key=lambda one: one[1])[-HALF:])
