"""What a pattern cannot match without: a set of texts, one of which stands in every match. Pure.

Automata of hundreds of plain texts run several times faster than those of the patterns they come from. Knows the
syntax that the catalogue uses; for anything else the answer is None and the pattern itself is searched for.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Union

from msgspec import Struct

#: Shorter texts stand everywhere.
_SHORTEST = 4
_LONG = 9
#: What healthy logs are full of.
# fmt: off
_COMMON = frozenset((
    "free", "loss", "Loss", "NCCL ", "HTTP", "code", "status", "exit", "found", "ound", "stop", "detected", "etected",
    "Error", " Error", "ERROR", "Errors", "Exists", "Failed", "Failure", "Mismatch", "NotFound", "Timeout", " timeout",
    "in use", "parser", "scanner", "Column ", "Missing ", "Killed", "killed", "require", "Engine ", "[Errno ",
    "imed out", "nvalid", "[error] ", ": line ", " Killed ", "abort", "/dev/shm", "TERM_", "(HTTP ", "terminat",
))
# fmt: on


class _Chars(Struct, frozen=True):
    text: str


class _Group(Struct, frozen=True):
    branches: tuple[tuple[_Item, ...], ...]


class _Gap(Struct, frozen=True):
    """Anything may stand here."""


_Item = Union[_Chars, _Group, _Gap]  # noqa: UP007


class _Unknown(Exception):
    """Syntax that is not known here."""


def required(pattern: str) -> frozenset[str] | None:
    """Texts of which every match of the pattern contains at least one; None where there is no set."""
    try:
        branches, end = _branches(pattern, 0)
    except (_Unknown, IndexError, ValueError):
        return None
    return _of_branches(branches) if end == len(pattern) else None


def split(pattern: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Texts and patterns of which every match contains or matches one; texts wherever they are rare enough."""
    texts: set[str] = set()
    patterns: list[str] = []
    for branch in _top_branches(pattern):
        found = required(branch)
        if found is not None and all(_rare(text) for text in found):
            texts |= found
        else:
            patterns.append(branch)
    return frozenset(texts), tuple(patterns)


def _rare(text: str) -> bool:
    return len(text) >= _LONG or (len(text) >= _SHORTEST and text not in _COMMON)


def _top_branches(pattern: str) -> list[str]:
    """The pattern cut at its outermost bars; whole where its syntax is not known."""
    cuts: list[int] = []
    depth = at = 0
    try:
        while at < len(pattern):
            char = pattern[at]
            if char == "[":
                at = _class_end(pattern, at + 1)
                continue
            depth += (char == "(") - (char == ")")
            if char == "|" and depth == 0:
                cuts.append(at)
            at += 2 if char == "\\" else 1
    except IndexError:
        return [pattern]
    if "(?i)" in pattern or "(?m)" in pattern:
        return [pattern]  # flags reach over the bars
    return [pattern[begin + 1 : end] for begin, end in pairwise((-1, *cuts, len(pattern)))]


def _of_branches(branches: tuple[tuple[_Item, ...], ...]) -> frozenset[str] | None:
    found: set[str] = set()
    for items in branches:
        best = _of_items(items)
        if best is None:
            return None
        found |= best
    return frozenset(found)


def _of_items(items: tuple[_Item, ...]) -> frozenset[str] | None:
    """The set with the longest shortest text; on a tie the smaller set."""
    choices: list[frozenset[str]] = []
    run = ""
    for item in (*items, _Gap()):
        if isinstance(item, _Chars):
            run += item.text
            continue
        if len(run) >= _SHORTEST:
            choices.append(frozenset({run}))
        run = ""
        if isinstance(item, _Group):
            inner = _of_branches(item.branches)
            if inner is not None:
                choices.append(inner)
    return max(choices, key=lambda texts: (min(map(len, texts)), -len(texts)), default=None)


def _branches(pattern: str, at: int) -> tuple[tuple[tuple[_Item, ...], ...], int]:
    """The branches up to a closing bracket or the end, and where that is."""
    branches: list[tuple[_Item, ...]] = []
    items: list[_Item] = []
    while at < len(pattern) and pattern[at] != ")":
        if pattern[at] == "|":
            branches.append(tuple(items))
            items = []
            at += 1
            continue
        item, at = _item(pattern, at)
        least, at = _quantifier(pattern, at)
        if least is None:
            items += [] if item is None else [item]
        else:
            items += [_Gap()] if least == 0 or item is None else [item, _Gap()]
    branches.append(tuple(items))
    return tuple(branches), at


def _item(pattern: str, at: int) -> tuple[_Item | None, int]:
    """One item; None for what takes no room (an anchor)."""
    char = pattern[at]
    if char == "(":
        return _group(pattern, at + 1)
    if char == "[":
        return _Gap(), _class_end(pattern, at + 1)
    if char == ".":
        return _Gap(), at + 1
    if char in "^$":
        return None, at + 1
    if char == "\\":
        follows = pattern[at + 1]
        if follows in "bBAz":
            return None, at + 2
        if follows.isalnum():
            return _Gap(), at + 2
        return _Chars(follows), at + 2
    if char in "*+?{":
        raise _Unknown(char)
    return _Chars(char), at + 1


def _group(pattern: str, at: int) -> tuple[_Item, int]:
    if pattern[at] == "?":
        if pattern.startswith("?:", at):
            at += 2
        elif pattern.startswith("?P<", at):
            at = pattern.index(">", at) + 1
        else:
            raise _Unknown(pattern[at : at + 3])  # flags change what the texts mean
    branches, at = _branches(pattern, at)
    if at >= len(pattern):
        raise _Unknown("(")
    return _Group(branches), at + 1


def _class_end(pattern: str, at: int) -> int:
    """Past the class's closing bracket."""
    if pattern[at] == "^":
        at += 1
    if pattern[at] == "]":
        at += 1
    while pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1


def _quantifier(pattern: str, at: int) -> tuple[int | None, int]:
    """The least number of times, and past the quantifier; None where there is none."""
    if at >= len(pattern) or pattern[at] not in "*+?{":
        return None, at
    least = 1 if pattern[at] == "+" else 0
    if pattern[at] == "{":
        end = pattern.index("}", at)
        least = int(pattern[at + 1 : end].split(",")[0] or 0)
        at = end
    at += 1
    return least, at + 1 if at < len(pattern) and pattern[at] == "?" else at
