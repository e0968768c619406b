"""What a report is made of: sections of a few kinds of block. No opinion on how they look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Union

from supervisor.views.report.series import Series
from supervisor.views.run import AttemptView, Plain, RunView


class Words(NamedTuple):
    """A paragraph."""

    text: str


class Pairs(NamedTuple):
    """Labels and what they say."""

    rows: tuple[tuple[str, str], ...]


class Table(NamedTuple):
    """`right` are the columns of numbers."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()


class Lines(NamedTuple):
    """Lines as they stand: of a log, or drawn with characters. `drawn` True: a page draws the same by itself."""

    lines: tuple[str, ...]
    drawn: bool = False


Block = Union[Words, Pairs, Table, Lines]  # noqa: UP007 - evaluated on 3.10


class Section(NamedTuple):
    """`attempt` is its number where the section is that of one; `bad`: it tells of a failure."""

    id: str
    title: str
    blocks: tuple[Block, ...] = ()
    attempt: int | None = None
    bad: bool = False


class Span(NamedTuple):
    """A stretch of the run's time in one phase (Unix times). `kind` as in `views/accounting.py`."""

    kind: str
    begin_s: float
    end_s: float
    attempt: int | None = None


class Mark(NamedTuple):
    """A failure as it was noticed. `gpus` are physical indices; empty: it names none."""

    at_s: float
    kind: str
    text: str
    attempt: int | None = None
    gpus: tuple[int, ...] = ()


class Locked(NamedTuple):
    """The locked params as the record of a launch has them, and the digest over them of its episode."""

    values: Mapping[str, str]
    sha256: str


class Given(NamedTuple):
    """What was found beside the journal. `next_oom`: what an out-of-memory failure of GPU `next_gpu` would do now, a
    plan of the core as plain values; `environments`: attempt -> what changed since the attempt before it."""

    lines: Sequence[bytes] = ()
    now: Plain = MappingProxyType({})
    next_oom: Plain | None = None
    environments: Mapping[int, Sequence[str]] = MappingProxyType({})
    scalars: Mapping[str, Iterable[tuple[float, int, float]]] = MappingProxyType({})


class Facts(NamedTuple):
    """All that a report tells of, up to `at_s`."""

    view: RunView
    at_s: float
    begin_s: float
    end_s: float
    spent: Plain
    spans: tuple[Span, ...]
    marks: tuple[Mark, ...]
    hits: Mapping[int, tuple[Plain, ...]]
    drifts: Mapping[int, Plain]
    locked: Mapping[int, Locked]
    series: Series
    shown: tuple[AttemptView, ...]
    given: Given
