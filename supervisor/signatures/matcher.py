"""The compiled catalogue: which lines of a block are worth a look, and what they are. Reads no streams.

Two steps. One automaton over whole blocks finds candidate lines, all patterns at once and in linear time; only
those lines are looked at one by one. The automaton is google-re2's. For whole files (`bulk`) it is hyperscan's
where that is installed: three times as fast for 70 ms and 14 MiB more at the start, which a supervisor that
follows live logs would not earn back. Both see the same patterns.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from supervisor.core.spec import Signature
from supervisor.signatures.catalogue import CATALOGUE
from supervisor.signatures.literals import split
from supervisor.signatures.model import Text

if TYPE_CHECKING:
    from supervisor.signatures.scanner import Scanner

#: RE2 keeps its lazily built automaton within this; healthy logs need about 1 MiB.
_MAX_MEM = 32 << 20

#: In a block of a few lines each of them is looked at: one automaton less to warm up, which is half the latency
#: of a line that comes alone.
_FEW = 512

#: Of one block, so many matches of a run's own pattern are reported from its start and as many from its end.
WATCH_CAP = 32
_WATCH_END = 8 << 10


class Matcher:
    """All failure texts (the catalogue, then the user's) and the run's own patterns, compiled.

    `watch` maps a name to a pattern whose named groups are reported. A pattern that RE2 refuses is a ValueError.
    """

    def __init__(
        self, user: Sequence[Signature] = (), watch: Mapping[str, str] | None = None, *, bulk: bool = False
    ) -> None:
        import re2  # here, not above: 20 ms that a verb without logs need not pay

        self._re2 = re2
        self._options = self._make_options(captures=True)
        self.texts = (*CATALOGUE, *(_of_user(signature) for signature in user))
        patterns = [text.pattern.encode() for text in self.texts]
        for text, pattern in zip(self.texts, patterns, strict=True):
            if text.source == _USER:
                self._compiled(pattern)
        self._lines = re2.Set.SearchSet(self._make_options(captures=False))
        for pattern in patterns:
            self._lines.Add(pattern)
        self._lines.Compile()
        self._any: Any = None
        self._hyper = _hyperscan(self._blocks()) if bulk else None
        self._singles: dict[str, Any] = {}
        self.watches = {name: self._compiled(b"(?m)" + pattern.encode()) for name, pattern in (watch or {}).items()}
        #: False: carriage returns may stay in blocks, no pattern of a user could trip over them.
        self.plain_breaks = bool(user) or self._hyper is None

    def _make_options(self, *, captures: bool) -> Any:
        options = self._re2.Options()
        options.encoding = self._re2.Options.Encoding.LATIN1
        options.max_mem = _MAX_MEM
        options.log_errors = False
        options.never_capture = not captures
        return options

    def _compiled(self, pattern: bytes, *, captures: bool = True) -> Any:
        try:
            return self._re2.compile(pattern, self._options if captures else self._make_options(captures=False))
        except self._re2.error as error:
            what = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else error
            raise ValueError(f"{pattern.decode('utf-8', 'replace')}: not a linear-time pattern: {what}") from None

    def scanner(self, file: str, saved: Mapping[str, Any] | None = None) -> Scanner:
        """A scanner for one file, from its beginning or from where another's `state()` was taken."""
        from supervisor.signatures.scanner import Scanner

        return Scanner(self, file) if saved is None else Scanner.resume(self, file, saved)

    def candidates(self, block: bytes) -> Iterable[int]:
        """Positions, ascending, inside the lines that are worth a look: at least all that some text matches."""
        if len(block) < _FEW and self.plain_breaks:
            return _line_ends(block)
        if self._hyper is not None:
            found: list[int] = self._hyper(block)
            return found
        return self._searched(block)

    def _blocks(self) -> tuple[bytes, ...]:
        return _for_blocks(tuple(text.pattern for text in self.texts))

    def warm(self) -> None:
        """Compile what only whole blocks need, a tenth of a second: a launch need not wait for it, nor a burst."""
        if self._any is None and self._hyper is None:
            whole = b"|".join(b"(?:" + pattern + b")" for pattern in self._blocks())
            self._any = self._compiled(b"(?m)" + whole, captures=False)

    def _searched(self, block: bytes) -> Iterator[int]:
        self.warm()
        at = 0
        while at < len(block):
            found = self._any.search(block, at)
            if found is None:
                return
            place = max(found.end() - 1, found.start())
            yield place
            at = block.find(b"\n", place) + 1 or len(block)

    def named(self, line: bytes) -> list[tuple[Text, int]]:
        """The texts that match the line, in the order of the catalogue, with their places in it."""
        return [(self.texts[index], index) for index in sorted(self._lines.Match(line) or ())]

    def groups(self, text: Text, line: bytes) -> tuple[int, dict[str, str]] | None:
        """Where the text begins in the line, and its named groups."""
        pattern = self._single(text.pattern)
        found = pattern.search(line)
        if found is None:
            return None
        return found.start(), _decoded(found) if pattern.groups else {}

    def search(self, pattern: str, squeezed: str) -> list[dict[str, str]]:
        """Named groups of each match of a detail pattern, at most 64."""
        matches = self._single(pattern).finditer(squeezed.encode("utf-8", "replace"))
        return [_decoded(found) for found, _ in zip(matches, range(64), strict=False)]

    def watched(self, block: bytes) -> Iterator[tuple[str, int, dict[str, str]]]:
        """Matches of the run's own patterns: name, position, groups. Bounded: the first and last of each block."""
        if self.watches and b"\r" in block:
            block = block.replace(b"\r", b"\n")
        for name, pattern in self.watches.items():
            last = -1
            count = 0
            for found in pattern.finditer(block):
                last = found.start()
                yield name, last, _decoded(found)
                count += 1
                if count == WATCH_CAP:
                    break
            if count < WATCH_CAP:
                continue
            begin = max(block.find(b"\n", last) + 1, block.rfind(b"\n", 0, max(0, len(block) - _WATCH_END)) + 1)
            if begin <= last:
                continue
            kept: list[tuple[str, int, dict[str, str]]] = []
            for found in pattern.finditer(block, begin):
                kept.append((name, found.start(), _decoded(found)))
                del kept[:-WATCH_CAP]
            yield from kept

    def _single(self, pattern: str) -> Any:
        compiled = self._singles.get(pattern)
        if compiled is None:
            compiled = self._singles[pattern] = self._compiled(pattern.encode())
        return compiled


_USER = "the run's spec"


def _line_ends(block: bytes) -> Iterator[int]:
    at = 0
    while at < len(block):
        at = block.find(b"\n", at) + 1 or len(block)
        yield at - 1


def _of_user(signature: Signature) -> Text:
    return Text(name=signature.name, kind=signature.kind, pattern=signature.match, example="", other="", source=_USER)


def _decoded(found: Any) -> dict[str, str]:
    groups = found.groupdict().items()
    return {key.decode(): value.decode("utf-8", "replace") for key, value in groups if value is not None}


@lru_cache(maxsize=4)
def _for_blocks(patterns: tuple[str, ...]) -> tuple[bytes, ...]:
    """What to look for in blocks: plain texts where a pattern has them, else the pattern, with line ends widened
    to carriage returns. Lines found so are looked at again with the patterns themselves."""
    texts: set[str] = set()
    others: dict[str, None] = {}
    for pattern in patterns:
        some, rest = split(pattern)
        texts |= some
        others.update(dict.fromkeys(rest))
    blocks = [re.escape(text).encode() for text in _shortest(sorted(texts))]
    for pattern in others:
        block = re.sub(r"\(\?P<\w+>", "(?:", pattern)
        block = re.sub(r"(?<![\\\[])\^", r"(?:^|\\r)", block)
        blocks.append(re.sub(r"(?<!\\)\$", r"(?:$|\\r)", block).encode())
    return tuple(blocks)


def _shortest(texts: Sequence[str]) -> list[str]:
    """Less those that contain another one."""
    joined, begins = "\n".join(texts), [0]
    for text in texts:
        begins.append(begins[-1] + len(text) + 1)
    longer: set[int] = set()
    for index, text in enumerate(texts):
        at = joined.find(text)
        while at >= 0:
            place = bisect_right(begins, at) - 1
            if place != index:
                longer.add(place)
            at = joined.find(text, begins[place + 1])
    return [text for index, text in enumerate(texts) if index not in longer]


def _hyperscan(patterns: Sequence[bytes]) -> Any:
    """A function from a block to sorted positions, or None where hyperscan is not to be had for this machine."""
    try:
        import hyperscan  # not built for every machine
    except ImportError:
        return None
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    try:
        database.compile(
            expressions=list(patterns),
            ids=list(range(len(patterns))),
            elements=len(patterns),
            flags=[hyperscan.HS_FLAG_MULTILINE] * len(patterns),
        )
    except hyperscan.error:
        return None
    ends: list[int] = []

    def seen(_id: int, _start: int, end: int, _flags: int, _context: Any) -> None:
        ends.append(end)

    def scan(block: bytes) -> list[int]:
        ends.clear()
        database.scan(block, match_event_handler=seen)
        return sorted({max(end - 1, 0) for end in ends})

    return scan
