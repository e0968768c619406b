"""From a line that matched to a hit: sizes, GPU, rank, what it really is. Pure; knows no single message."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from supervisor.core.evidence import Hit, Weight
from supervisor.core.kinds import Kind
from supervisor.signatures import lines
from supervisor.signatures.model import Text, mib

_SIZES = ("tried", "free", "total", "in_use", "reserved")
_SPACE = re.compile(r"\s+")
_WEIGHTS = list(Weight)

#: How far back a "Traceback" line still belongs to an exception: deep stacks of compiled models.
_TRACEBACK_LINES = 400
_LOGGED_LINES = 60

Search = Callable[[str, str], list[dict[str, str]]]


class Place(Struct, frozen=True):
    """Where a line stands: `line` counts from 1, `offset` is where it begins."""

    file: str
    line: int
    offset: int


class Note(NamedTuple):
    """`margin`: how far its line was indented; a traceback ends where it began."""

    line: int
    free_mib: float | None = None
    margin: int = 0


class Notes(Struct):
    """What was seen lately that changes what a later line means, by (note, source)."""

    seen: dict[tuple[str, str], Note] = field(default_factory=dict)

    def add(self, note: str, source: str, seen: Note) -> None:
        """Remember; the oldest is forgotten beyond 256."""
        self.seen.pop((note, source), None)
        self.seen[note, source] = seen
        if len(self.seen) > 256:
            del self.seen[next(iter(self.seen))]

    def source(self, note: str, line: int, lines: int) -> str:
        """Who made the latest note of this name, if it is at most `lines` lines old."""
        recent = (
            (seen.line, source)
            for (name, source), seen in self.seen.items()
            if name == note and line - seen.line <= lines
        )
        return max(recent, default=(0, ""))[1]

    def forget(self, note: str, source: str, line: int) -> None:
        """What was announced before this line has come."""
        key = (note, source) if (note, source) in self.seen else (note, "")
        if self.seen.get(key, Note(line)).line < line:
            del self.seen[key]

    def within(self, note: str, source: str, line: int, lines: int) -> Note | None:
        """The note of this source, if at most `lines` lines old."""
        seen = self.seen.get((note, source)) or self.seen.get((note, ""))
        return seen if seen is not None and 0 <= line - seen.line <= lines else None


def margin(line: str) -> int:
    """How far it is indented. Inside a traceback only its first and last line begin at its margin."""
    text = lines.bare(line)
    return len(text) - len(text.lstrip())


def squeezed(window: Sequence[str]) -> str:
    """The lines as one text without prefixes and white space: wrapped messages read like whole ones."""
    label = lines.label(window[0])
    text = "\n".join(lines.bare(line.removeprefix(label)) for line in window).replace("\\n", "\n").replace("\\t", "")
    return _SPACE.sub("", text)


def heaviest(found: Sequence[tuple[Text, int]]) -> tuple[Text, int]:
    """The text that names the line: known ones before "some exception", the heaviest, the first of the catalogue."""
    return min(found, key=lambda pair: (pair[0].raised, _WEIGHTS.index(pair[0].weight)))


def to_hit(
    text: Text,
    groups: Mapping[str, str],
    line: str,
    start: int,
    window: Sequence[str],
    at: Place,
    notes: Notes,
    search: Search,
) -> Hit | None:
    """The hit of this line, or None where the line is no failure after all."""
    left = line[:start]
    if lines.is_mention(left):
        return None
    source = lines.source_of(line)
    source = source or notes.source("traceback", at.line, _LOGGED_LINES)  # a logger prefixes the first line only
    began = notes.within("traceback", source, at.line - 1, _TRACEBACK_LINES)
    raised = began is not None and margin(line) <= began.margin
    if text.raised and not raised:
        return None
    whole = squeezed(window) if text.details or text.refine else ""
    fields, others = _fields(text, groups, whole, search)
    kind, weight = _refined(text, whole, search)
    sizes = _sizes(fields)
    if lines.is_advice(left) and weight in (Weight.CAUSE, Weight.GENERIC, Weight.AFTERMATH):
        weight = Weight.WARNED
    elif lines.is_warned(left) and weight is Weight.CAUSE:
        weight = Weight.GENERIC
    for after in text.after:
        note = notes.within(after.note, source, at.line, after.lines)
        if note is not None:
            if after.kind is None:
                return None
            kind, weight = after.kind, after.weight
            if note.free_mib is not None:
                sizes.setdefault("free", note.free_mib)
    if kind is None:
        return None
    if raised:
        notes.forget("traceback", source, at.line)
    return Hit(
        signature=text.name,
        kind=kind,
        file=at.file,
        line=at.line,
        offset=at.offset,
        text=lines.shown(line, start),
        rank=_rank(text, fields, line, left, source),
        gpu=int(fields["gpu"]) if "gpu" in fields else None,
        tried_mib=sizes.get("tried"),
        free_mib=sizes.get("free"),
        total_mib=sizes.get("total"),
        in_use_mib=sizes.get("in_use"),
        reserved_mib=sizes.get("reserved"),
        others=others,
        weight=weight,
        source=source,
        raised=began is not None,
        pid=int(fields["pid"]) if "pid" in fields else None,
        repeats=text.repeats,
    )


def _fields(
    text: Text, groups: Mapping[str, str], whole: str, search: Search
) -> tuple[dict[str, str], tuple[tuple[int, float], ...]]:
    """All named groups, the line's own first; and (pid, MiB) of other holders."""
    fields = {key: value for key, value in groups.items() if value}
    others: list[tuple[int, float]] = []
    for pattern in text.details:
        for found in search(pattern, whole):
            size = mib(found.get("other_size", ""))
            if size is not None:
                others.append((int(found["other_pid"]), size))
            for key, value in found.items():
                fields.setdefault(key, value)
    return fields, tuple(others[:64])


def _refined(text: Text, whole: str, search: Search) -> tuple[Kind | None, Weight]:
    for refine in text.refine:
        if search(refine.pattern, whole):
            return refine.kind, refine.weight
    return text.kind, text.weight


def _sizes(fields: Mapping[str, str]) -> dict[str, float]:
    """Sizes by name; a group `tried_gib` is in GiB where its text names no unit."""
    sizes: dict[str, float] = {}
    for key, value in fields.items():
        name, _, unit = key.rstrip("0123456789").rpartition("_")
        if key in _SIZES:
            name, unit = key, ""
        if name in _SIZES and unit in ("", "b", "kib", "mib", "gib"):
            size = mib(value, unit)
            if size is not None:
                sizes.setdefault(name, size)
    return sizes


def _rank(text: Text, fields: Mapping[str, str], line: str, left: str, source: str) -> int | None:
    if "rank" in fields:
        return int(fields["rank"])
    if not text.own_rank:
        return None
    rank = lines.rank_of(line)
    if rank is None:
        rank = lines.rank_word(left)
    if rank is None and source.startswith("rank"):
        rank = int(source[4:]) if source[4:].isdigit() else None
    return rank
