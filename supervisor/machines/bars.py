"""Counts that grow in the logs and are no step: bars, and loads before the first step. Looked for only in quiet times.

Only the last 4 KiB of each log that was read anyway are looked at, and only where something was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from supervisor.core.evidence import Sign
from supervisor.edges.logs import Follower

KNOWN_MAX = 1024

BAR = re.compile(rb"(?:([^\r\n|]{0,60})\|[^|\r\n]{0,200}\|\s*|\xe2[\x94\x95][\x80-\xbf]\s{0,3})(\d{1,9})/(\d{1,9})\b")
"""tqdm's `Evaluating:  45%|####5     | 45/100 [`, and bars drawn with box characters as rich draws them."""

LOAD = re.compile(rb"([^\r\n|]{0,60}?)\b(\d{1,9})(?: of |/)(\d{1,9})\b")
"""`loading shard 13 of 47`, `Loading safetensors checkpoint shards: 28% Completed | 13/47`."""


class Bars:
    """What the logs of one attempt counted last. The first sight of a count is no growth."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._known: dict[tuple[str, str, int], int] = {}
        self._written: dict[str, float | None] = {}

    def look(self, now_boot_s: float, *, loading: bool) -> Iterator[Sign]:
        """The counts that have grown since the look before."""
        for path in self._follower.paths:
            written = self._follower.last_output_boot_s(path)
            if self._written.get(path) == written:
                continue
            self._written[path] = written
            yield from self._in(path, self._follower.tail(path), now_boot_s, loading)

    def _in(self, path: str, data: bytes, now_boot_s: float, loading: bool) -> Iterator[Sign]:
        newest: dict[tuple[str, str, int], int] = {}
        for pattern in (BAR, LOAD) if loading else (BAR,):
            for found in pattern.finditer(data):
                n, total = int(found[2]), int(found[3])
                if 0 <= n <= total and total > 1:
                    label = _label(found[1] or b"")
                    newest[path, label, total] = max(n, newest.get((path, label, total), 0))
        for key, n in newest.items():
            known = self._known.get(key)
            if known is not None and n > known:
                yield Sign(key[1], n, key[2], now_boot_s)
            if known is not None or len(self._known) < KNOWN_MAX:
                self._known[key] = n


def _label(before: bytes) -> str:
    """The words before the count, without a percentage."""
    text = before.decode("utf-8", "replace").strip()
    return text.partition("%")[0].rstrip("0123456789 :").strip()[-40:]
