"""Records of how well a living attempt does: its pace, and what will run full. Part of `core/events.py`."""

from __future__ import annotations

from msgspec import Struct, field


class Paced(Struct, frozen=True, kw_only=True):
    """How fast the attempt goes on knobs that stand on `rungs`. `stride`: how far one reported step is from the next.

    `rate` is as printed, None where nothing is. `settled` False: from its first few steps only, so no measure for
    others. Told again when the attempt has become much faster.
    """

    attempt: int
    steps_per_s: float
    stride: int
    rate: float | None = None
    settled: bool = False
    rungs: dict[str, int] = field(default_factory=dict)


class Regained(Struct, frozen=True, kw_only=True):
    """An attempt that had become slow is as fast again as it was."""

    attempt: int
    because: str


class Foretold(Struct, frozen=True, kw_only=True):
    """At the present trend `what` will be full in `full_in_s`; told once for each attempt."""

    attempt: int
    what: str
    text: str
    full_in_s: float
