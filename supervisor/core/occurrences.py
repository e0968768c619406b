"""Where a param stands in an argv, however it is written: `--k v`, `--k=v`, `k=v`, - or _, shortened, negated, aliased.

What is found is text; whether it is the right value is `core/guard.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from supervisor.core.render import flag_of
from supervisor.core.scalars import number, typed
from supervisor.core.spec import Param, RunSpec
from supervisor.core.substitution import sole

PREFIX_MIN = 3
"""argparse takes any unambiguous beginning of a flag; below three letters too many other flags would be meant."""


class Occurrence(Struct, frozen=True):
    """One place where a param is given. `values` are the words that may belong to it: the first one does (or the text
    behind `=`), the rest are further values of a list. Empty: the flag stands alone. `off`: `--no-k` or `~k`."""

    index: int
    written: str
    values: tuple[str, ...]
    off: bool = False


def occurrences(spec: RunSpec, name: str, argv: Sequence[str]) -> Iterator[Occurrence]:
    """Every place of `argv` that gives the param a value. `argv[0]` is the program and is never one."""
    written = _written(spec, name)
    spellings = frozenset(map(_plain, written))
    others = {other for key in spec.params.how if key != name for other in map(_plain, _written(spec, key))}
    for index, item in enumerate(argv):
        if index == 0:
            continue
        key, equals, value = item.partition("=")
        kind = _kind(key, spellings, others, bare_word=bool(equals))
        if kind is None or (_is_short(key) and key not in written):
            continue
        if equals:
            yield Occurrence(index, item, (value,), kind == "off")
        else:
            yield Occurrence(index, item, _words(argv, index + 1), kind == "off")


def _written(spec: RunSpec, name: str) -> list[str]:
    """All ways to write a param: its name, its flag, its aliases, and the flags that stand before `${{ params.NAME }}`
    in the command. Dashes and `_` are told apart nowhere (see `_plain`)."""
    how = spec.params.how.get(name) or Param(name=name)
    return [name, how.flag or flag_of(name), *how.aliases, *_flags_in_command(spec.command, name)]


def _is_short(key: str) -> bool:
    """`-m` is a param's only where the spec writes it so: `python -m` is not about a param named m."""
    return len(key) == 2 and key[0] == "-" and key[1] != "-"


def _flags_in_command(command: Sequence[str], name: str) -> Iterator[str]:
    wanted = f"params.{name}"
    for before, item in zip(("", *command), command, strict=False):
        key, equals, value = item.partition("=")
        if equals and sole(value) == wanted:
            yield key
        elif sole(item) == wanted and before.startswith("-") and "=" not in before:
            yield before


def _plain(text: str) -> str:
    return text.lstrip("-+~").replace("-", "_")


def _kind(key: str, spellings: frozenset[str], others: set[str], *, bare_word: bool) -> str | None:
    """`on` or `off` where the key names the param, else None. Without dashes a key counts only before a `=`."""
    dashed = key.startswith("-")
    if not dashed and not bare_word and not key.startswith("~"):
        return None
    plain = _plain(key)
    if plain in spellings:
        return "off" if key.startswith("~") else "on"
    if not dashed or plain in others:
        return None
    if plain.startswith("no_") and plain[3:] in spellings:
        return "off"
    shortened = key.startswith("--") and len(plain) >= PREFIX_MIN
    return "on" if shortened and any(full.startswith(plain) for full in spellings) else None


def _words(argv: Sequence[str], start: int) -> tuple[str, ...]:
    """The words from `start` to the next flag. A negative number is a word."""
    words: list[str] = []
    for item in argv[start:]:
        if item.startswith("-") and number(typed(item)) is None:
            break
        words.append(item)
    return tuple(words)
