"""What one entry of the catalogue is, and how a size is read. No entries and no matching here."""

from __future__ import annotations

import re

from msgspec import Struct

from supervisor.core.evidence import Weight
from supervisor.core.kinds import Kind

#: A size with its unit in squeezed text (all white space removed).
SIZE = r"[\d.,]+(?:bytes|B|[KMGT]i?B|[KMGT])"

_UNITS_MIB = {
    "": 1 / 2**20, "b": 1 / 2**20, "byte": 1 / 2**20, "bytes": 1 / 2**20,
    "k": 1 / 2**10, "kb": 1 / 2**10, "kib": 1 / 2**10,
    "m": 1.0, "mb": 1.0, "mib": 1.0,
    "g": 2.0**10, "gb": 2.0**10, "gib": 2.0**10,
    "t": 2.0**20, "tb": 2.0**20, "tib": 2.0**20,
}  # fmt: skip  # XLA, TensorFlow and Paddle print binary sizes under decimal names

#: No machine has a petabyte of memory in one piece: such a figure is an underflow, not a size.
_BELIEVABLE_MIB = 2.0**30

_NUMBER = re.compile(r"\s*([\d,]*\.?\d+)\s*([A-Za-z]*)")


def mib(text: str, unit: str = "") -> float | None:
    """The size in MiB, to two decimals; `unit` is used where the text has none (bytes if that is empty too).

    None where it is no size or not believable (underflow, "17179869184.00 GiB").
    """
    found = _NUMBER.match(text)
    if found is None:
        return None
    factor = _UNITS_MIB.get((found.group(2) or unit).lower())
    if factor is None:
        return None
    size = float(found.group(1).replace(",", "")) * factor
    return round(size, 2) if size < _BELIEVABLE_MIB else None


class Refine(Struct, frozen=True):
    """A text that changes what the message means: looked for in the squeezed window."""

    pattern: str
    kind: Kind | None
    weight: Weight = Weight.CAUSE


class After(Struct, frozen=True):
    """A note that changes what a later message means, if seen at most `lines` lines before it.

    `kind` None: the message is nothing. `fields` are taken from the note where the message has none.
    """

    note: str
    lines: int
    kind: Kind | None
    weight: Weight = Weight.CAUSE


class Text(Struct, frozen=True):
    """One failure text. Patterns are re2, linear in time, on bytes as Latin-1.

    `pattern` finds the line (escape codes and NULs removed) and may have the groups `rank gpu pid` and sizes
    `tried free total in_use reserved`, the latter with an optional unit suffix (`tried_gib`: no unit in the text).
    `details` are looked for in the squeezed window: the line and up to `lines` more, prefixes and all white space
    removed, until `until` is found in it. `refine`: the first that matches decides kind and weight.
    `note`: not a failure, only remembered for `after` of another text.
    `repeats`: how often it must stand in a log to mean anything. `own_rank` False: the rank that prints it is not
    the one it is about. `raised`: only as the last line of a traceback.
    """

    name: str
    kind: Kind
    pattern: str
    example: str
    other: str
    source: str
    weight: Weight = Weight.CAUSE
    details: tuple[str, ...] = ()
    lines: int = 0
    until: str = ""
    refine: tuple[Refine, ...] = ()
    after: tuple[After, ...] = ()
    note: bool = False
    repeats: int = 1
    own_rank: bool = True
    raised: bool = False
