"""Ranks in the logs: what each of them said last, and who did not report. Texts in, values out.

Names of ranks: torchrun's prefix (`[rank3]:`, `[default3]:`) and its folders (`attempt_0/3/stdout.log`), files named
`rank_3.log`, or `rank 3`, `rank=3` in the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

LATE_S = 10.0
"""Of files of their own: a rank whose file is so much older than the newest one stopped before the others."""

_FILE = re.compile(r"(?:/attempt_\d+/|rank[_-]?|/)(\d{1,5})(?:/std(?:out|err))?\.log$|/attempt_\d+/(\d{1,5})/[^/]+$")
_LINE = re.compile(r"\[(?:rank|default|trainer)(\d{1,5})\]|\brank[ =:_]{0,2}(\d{1,5})\b", re.IGNORECASE)
_STEP = re.compile(r"\b(?:step|iter(?:ation)?|it)\b[ =:]*(\d+)", re.IGNORECASE)


def rank_of_file(path: str) -> int | None:
    """The rank that a log's path names, or None."""
    found = _FILE.search(path)
    return None if found is None else int(found[1] or found[2])


def rank_of_line(line: str) -> int | None:
    """The rank that a line names, or None."""
    found = _LINE.search(line[:200])
    return None if found is None else int(found[1] or found[2])


def last_lines(path: str, lines: Iterable[str]) -> dict[int, str]:
    """The last line of each rank in this file, which may be one rank's own."""
    own = rank_of_file(path)
    said: dict[int, str] = {}
    for line in filter(str.strip, lines):
        rank = own if own is not None else rank_of_line(line)
        if rank is not None:
            said[rank] = line.strip()
    return said


def not_reporting(expected: Iterable[int], said: Mapping[int, str], written_s: Mapping[int, float]) -> tuple[int, ...]:
    """The ranks that are behind: without a line, at an earlier step, or silent for longer than the others.

    `written_s`: when the file of a rank was last written, where each has one of its own. Empty where nothing tells
    them apart, or where most would be behind.
    """
    ranks = sorted({*expected, *said})
    steps = {rank: int(found[1]) for rank, line in said.items() if (found := _last_step(line)) is not None}
    newest_s = max(written_s.values(), default=0.0)
    for behind in (
        [rank for rank in ranks if rank not in said],
        [rank for rank in ranks if rank in steps and steps[rank] < max(steps.values())],
        [rank for rank in ranks if rank in written_s and newest_s - written_s[rank] > LATE_S],
    ):
        if behind and 2 * len(behind) < len(ranks):
            return tuple(behind)
    return ()


def _last_step(line: str) -> re.Match[str] | None:
    found = None
    for found in _STEP.finditer(line):  # noqa: B007 - the last one counts
        pass
    return found
