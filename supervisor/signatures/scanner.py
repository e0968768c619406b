"""One stream of bytes, read in pieces of any size: hits out. Opens nothing and knows no clock.

Rule 1: what is reported depends on the bytes alone, never on how they were cut into pieces.
Rule 2: nothing is reported twice, also where an unfinished line was looked at before its end came. If its end
makes another text of it, that is a second hit with the same offset: the later one holds.
Rule 3: memory is bounded: an unfinished line of any length is looked at in segments and let go.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, Union

from msgspec.structs import replace

from supervisor.core.evidence import Hit, WatchHit, Weight
from supervisor.signatures import lines
from supervisor.signatures.details import Note, Notes, Place, heaviest, margin, squeezed, to_hit
from supervisor.signatures.matcher import Matcher
from supervisor.signatures.model import Text, mib

#: An unfinished line longer than this is looked at in segments; no message is longer.
LINE_CAP = 64 << 10
#: Segments of one line overlap by this much, so that no message is cut.
_OVERLAP = 4 << 10
#: A message is joined from at most so many bytes.
_WINDOW_CAP = 8 << 10

#: Texts further apart are no repetition.
_REPEAT_LINES = 500

#: A card with less than this free is full.
_LOW_MIB = 200.0

_BREAK = re.compile(rb"[\r\n]")

Found = Union[Hit, WatchHit]  # noqa: UP007


class Scanner:
    """Reads one file's bytes in order. `offset` and `line` say where the next byte not yet let go stands.

    `recount(begin, end)` counts line breaks of bytes that are gone; where it is given, they are counted only
    when a hit needs its line number.

    `whole_file`: for who judges a file as a whole. Then the run's own patterns matter only once there was a hit,
    and all hits are told. Otherwise those that never are a cause are not, and those that mean something only when
    they are repeated are told from that repetition on.
    """

    def __init__(
        self, matcher: Matcher, file: str, *, offset: int = 0, line: int = 1,
        recount: Callable[[int, int], int] | None = None, whole_file: bool = False,
    ) -> None:  # fmt: skip
        self.file = file
        self.offset = offset
        self._matcher = matcher
        self._notes = Notes()
        #: Whether the run's own patterns are looked for.
        self.watching = not whole_file
        self._whole_file = whole_file
        self._repeats: dict[str, tuple[int, int, int]] = {}  # signature: how often, and where last
        self._tail = b""
        self._line = line
        self._counted_to = offset
        self._recount = recount
        self._reported: set[tuple[str, int]] = set()
        self._open_at: int | None = None  # where a line began that is too long to be kept
        self._idle_size = -1

    @classmethod
    def resume(cls, matcher: Matcher, file: str, saved: Mapping[str, Any]) -> Scanner:
        """A scanner that goes on where another's `state()` was taken; `file` may have moved."""
        scanner = cls(matcher, file, offset=int(saved["offset"]), line=int(saved["line"]))
        for note, source, line, free_mib, *more in saved.get("notes", ()):
            scanner._notes.add(str(note), str(source), Note(int(line), free_mib, *map(int, more)))
        scanner._reported = {(str(name), int(offset)) for name, offset in saved.get("reported", ())}
        return scanner

    def state(self) -> dict[str, Any]:
        """All that `resume` needs, JSON-ready and small."""
        notes = [[note, source, *seen] for (note, source), seen in self._notes.seen.items()]
        return {
            "offset": self.offset,
            "line": self.line,
            "notes": notes[-32:],
            "reported": sorted([name, offset] for name, offset in self._reported),
        }

    @property
    def line(self) -> int:
        """The line number at `offset`."""
        if self._recount is not None and self._counted_to < self.offset:
            self._line += self._recount(self._counted_to, self.offset)
            self._counted_to = self.offset
        return self._line

    @property
    def pending(self) -> bool:
        """True while bytes are held that `idle` has not looked at."""
        return bool(self._tail) and len(self._tail) != self._idle_size

    @property
    def unfinished(self) -> bytes:
        """The bytes held: an unfinished line, or a message whose end has not come."""
        return self._tail

    def feed(self, data: bytes) -> list[Found]:
        """The hits in all lines that are complete now."""
        block = self._tail + data if self._tail else data
        self._idle_size = -1
        cut = 1 + max(block.rfind(b"\n"), block.rfind(b"\r"))
        found: list[Found] = []
        if cut:
            self._tail = block[cut:]
            found = self._scan(block[:cut] if cut < len(block) else block, keep=True)
        else:
            self._tail = block
        if len(self._tail) > LINE_CAP:
            found += self._segment()
        if self._reported:
            begin = self.offset if self._open_at is None else self._open_at
            self._reported = {(name, offset) for name, offset in self._reported if offset >= begin}
        return found

    def idle(self) -> list[Found]:
        """The hits in what is held, now that nothing more has come for a while. It stays held."""
        if not self.pending:
            return []
        self._idle_size = len(self._tail)
        tail, self._tail = self._tail, b""
        offset, line = self.offset, self.line
        counted, opened = self._counted_to, self._open_at
        found = self._scan(tail, keep=False)
        self._tail, self.offset, self._line = tail, offset, line
        self._counted_to, self._open_at = counted, opened
        self._reported |= {(hit.signature if isinstance(hit, Hit) else hit.name, hit.offset) for hit in found}
        return found

    def end(self) -> list[Found]:
        """The hits in what is held; the stream is over."""
        found = self.idle()
        self._tail = b""
        return found

    def _segment(self) -> list[Found]:
        """Look at a line that is too long to keep, keep only its end."""
        tail, self._tail = self._tail, b""
        opened = self.offset if self._open_at is None else self._open_at
        self._open_at = opened
        found = self._scan(tail, keep=False)
        self._reported |= {(hit.signature if isinstance(hit, Hit) else hit.name, hit.offset) for hit in found}
        self._tail = self._tail + tail[-_OVERLAP:]
        self.offset -= min(_OVERLAP, len(tail))
        self._counted_to = self.offset if self._recount is None else min(self._counted_to, self.offset)
        self._open_at = opened
        return found

    def _scan(self, raw: bytes, *, keep: bool) -> list[Found]:
        """Look at complete lines. With `keep`, a message whose end has not come goes back to the tail."""
        block = lines.cooked(raw)
        if self._matcher.plain_breaks and b"\r" in block:
            block = block.replace(b"\r", b"\n")
        places = _Places(raw, block)
        found: list[Found] = []
        done = len(block)
        skip_to = 0
        for place in self._matcher.candidates(block):
            if place < skip_to:
                continue
            begin, end = _bounds(block, place)
            skip_to = end + 1
            hit, complete = self._look(block, begin, end, places, keep)
            if not complete:
                done = begin
                break
            found += hit
        self.watching = self.watching or bool(found)
        head = block[:done] if done < len(block) else block
        for name, at, groups in self._matcher.watched(head) if self.watching else ():
            begin, end = _bounds(head, at)
            where = self._place(places, begin)
            if (name, where.offset) not in self._reported:
                text = lines.shown(head[begin:end].decode("utf-8", "replace"), at - begin)
                found.append(WatchHit(name, self.file, where.line, where.offset, groups, text))
        consumed = places.raw(done)
        self._advance(raw, consumed)
        if consumed < len(raw):
            self._tail = raw[consumed:] + self._tail
        return sorted(found, key=lambda hit: hit.offset)

    def _look(self, block: bytes, begin: int, end: int, places: _Places, keep: bool) -> tuple[list[Found], bool]:
        """What one line is: hits (none or one), and False where its message has not ended yet."""
        raw_line = block[begin:end]
        named = self._matcher.named(raw_line)
        if not named:
            return [], True
        where = self._place(places, begin)
        line = raw_line.decode("utf-8", "replace")
        for text, _ in named:
            if text.note:
                self._note(text, raw_line, line, where)
        named = [pair for pair in named if not pair[0].note]
        while named:
            text, _ = chosen = heaviest(named)
            start, groups_ = self._matcher.groups(text, raw_line) or (0, {})
            window, complete = self._window(block, begin, end, text.lines, text.until)
            if not complete and keep:
                return [], False
            left = len(raw_line[:start].decode("utf-8", "replace"))
            hit = to_hit(text, groups_, line, left, window, where, self._notes, self._matcher.search)
            if hit is not None:
                return self._told(hit), True
            named.remove(chosen)
        return [], True

    def _told(self, hit: Hit) -> list[Found]:
        """The hit, if it is worth telling."""
        if (hit.signature, hit.offset) in self._reported:
            return []
        if self._whole_file:
            return [hit]
        if hit.weight in (Weight.WRAPPER, Weight.NOISE):
            return []
        if hit.repeats == 1:
            return [hit]
        count, line, offset = self._repeats.get(hit.signature, (0, 0, -1))
        if hit.offset != offset:
            count = count + 1 if hit.line - line <= _REPEAT_LINES else 1
            self._repeats[hit.signature] = (count, hit.line, hit.offset)
        return [replace(hit, repeats=1)] if count >= hit.repeats else []

    def _note(self, text: Text, raw_line: bytes, line: str, where: Place) -> None:
        _, groups = self._matcher.groups(text, raw_line) or (0, {})
        free_mib = mib(groups["free"]) if "free" in groups else None
        if "used" in groups:
            free_mib = (mib(groups["total"]) or 0.0) - (mib(groups["used"]) or 0.0)
            if free_mib > _LOW_MIB:
                return
        self._notes.add(text.name, lines.source_of(line), Note(where.line, free_mib, margin(line)))

    def _window(self, block: bytes, begin: int, end: int, count: int, until: str) -> tuple[list[str], bool]:
        """The line and what follows of its message, from the same source; False where more may still come."""
        first = block[begin:end].decode("utf-8", "replace")
        window = [first]
        if not count or self._ended(window, until):
            return window, True
        source = lines.source_of(first)
        at = end + 1
        looked = 0
        while at < len(block):
            stop = _next_break(block, at)
            text = block[at:stop].decode("utf-8", "replace")
            if lines.source_of(text) == source:
                window.append(text)
                if self._ended(window, until):
                    return window, True
            looked += 1
            at = stop + 1
            if looked >= 4 * count or len(window) > count or at - begin > _WINDOW_CAP:
                return window, True
        return window, False

    def _ended(self, window: list[str], until: str) -> bool:
        return bool(until) and bool(self._matcher.search(until, squeezed(window)))

    def _place(self, places: _Places, begin: int) -> Place:
        raw_at, breaks = places.of(begin)
        offset = self.offset + raw_at
        if self._open_at is not None and breaks == 0 and raw_at == 0:
            offset = self._open_at
        return Place(self.file, self.line + breaks, offset)

    def _advance(self, raw: bytes, consumed: int) -> None:
        if self._recount is None:
            self._line += raw.count(b"\n", 0, consumed)
            self._counted_to = self.offset + consumed
        self.offset += consumed
        if consumed:
            self._open_at = None


class _Places:
    """Where positions of a block without escape codes and NULs stand in the raw bytes; counts lines on the way."""

    def __init__(self, raw: bytes, block: bytes) -> None:
        self._raw, self._block = raw, block
        self._same = len(raw) == len(block)
        self._starts: tuple[list[int], list[int]] | None = None
        self._at = self._breaks = 0

    def raw(self, begin: int) -> int:
        """The raw position of a line's begin."""
        if self._same or begin == 0:
            return begin
        if begin == len(self._block):
            return len(self._raw)
        if self._starts is None:
            self._starts = (_starts(self._block), _starts(self._raw))
        cooked, raw = self._starts
        return raw[bisect_right(cooked, begin) - 1]

    def of(self, begin: int) -> tuple[int, int]:
        """The raw position of a line's begin, and how many line breaks stand before it."""
        at = self.raw(begin)
        if at < self._at:
            self._at = self._breaks = 0
        self._breaks += self._raw.count(b"\n", self._at, at)
        self._at = at
        return at, self._breaks


def _starts(block: bytes) -> list[int]:
    return list(chain((0,), (found.end() for found in _BREAK.finditer(block))))


def _bounds(block: bytes, place: int) -> tuple[int, int]:
    """Begin and end (without the break) of the line around a position."""
    begin = 1 + max(block.rfind(b"\n", 0, place), block.rfind(b"\r", 0, place))
    return begin, _next_break(block, place)


def _next_break(block: bytes, at: int) -> int:
    newline = block.find(b"\n", at)
    end = newline if newline >= 0 else len(block)
    carriage = block.find(b"\r", at, end)
    return carriage if carriage >= 0 else end
