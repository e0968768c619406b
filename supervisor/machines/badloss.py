"""A progress pattern whose loss is a number also matches where the loss is none. Text in, text out."""

from __future__ import annotations

import re

_GROUP = re.compile(r"\(\?P?<loss>")
NO_NUMBER = r"[+-]?(?:nan|NaN|NAN|inf|Inf|INF|infinity|Infinity)"


def also_bad(pattern: str) -> str | None:
    """The same pattern with a loss that is no number; None where it has no loss, or may match one already.

    A pattern like `loss=(?P<loss>[\\d.]+)` is blind to the line that says `loss=nan`: the run would seem to hang.
    """
    found = _GROUP.search(pattern)
    if found is None:
        return None
    end = _end(pattern, found.end())
    if end is None:
        return None
    return f"{pattern[: found.end()]}{NO_NUMBER}{pattern[end:]}"


def _end(pattern: str, at: int) -> int | None:
    """Where the group closes that is open at `at`."""
    depth, in_class = 0, False
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            at += 1
        elif in_class:
            in_class = sign != "]"
        elif sign == "[":
            in_class = True
            at += 1 if pattern[at + 1 : at + 2] == "]" else 2 if pattern[at + 1 : at + 3] == "^]" else 0
        elif sign == "(":
            depth += 1
        elif sign == ")":
            if depth == 0:
                return at
            depth -= 1
        at += 1
    return None
