"""The median. Not `statistics`: it brings fractions, random and OpenSSL into every supervisor, 4 ms of a launch."""

from __future__ import annotations

from collections.abc import Iterable


def median(values: Iterable[float]) -> float:
    """The middle one; of an even number the mean of the two in the middle. There must be one at least."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
