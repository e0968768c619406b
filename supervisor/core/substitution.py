"""`${{ name }}`: finding names in a text and putting values in their place. There are no expressions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_NAME = re.compile(r"\$\{\{\s*([A-Za-z_][\w.:/@+-]*)\s*\}\}")
_ANY = re.compile(r"\$\{\{.*?(?:\}\}|\Z)", re.DOTALL)


def names(text: str) -> Iterator[str]:
    """The names that a text asks for, in order; an expression or an unclosed one as it stands, with its `${{`."""
    for found in _ANY.finditer(text):
        name = _NAME.fullmatch(found.group())
        yield name.group(1) if name else found.group()


def sole(text: str) -> str | None:
    """The name, if the text is one substitution and nothing else."""
    found = _NAME.fullmatch(text)
    return found.group(1) if found else None


def fill(text: str, values: Mapping[str, str]) -> str:
    """The text with every name's value in its place. KeyError for a name without a value."""
    return _NAME.sub(lambda found: values[found.group(1)], text)
