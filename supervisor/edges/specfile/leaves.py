"""The single values of a spec: text, numbers, durations, sizes, patterns, choices. Each says what it wants in words.

Every check takes what stands in the file and gives the plain value, or calls `wrong`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any

import re2

from supervisor.core.kinds import Kind
from supervisor.core.scalars import number
from supervisor.core.spec import Scalar
from supervisor.edges.specfile.shape import Json, Shape, leaf, wrong

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)(MiB|GiB)")
_MIB = {"MiB": 1.0, "GiB": 1024.0}
_NUMBERS_MAX = 1e15


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean X)`, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]})" if close else ""


def scalar(value: Any) -> Scalar:
    """A single value that is not empty; a mapping's key counts as one."""
    if isinstance(value, str):
        return Scalar(value)
    if not isinstance(value, Scalar):
        wrong(f"must be one value, not a {'mapping' if isinstance(value, dict) else 'list'}")
    if value.tag == "null":
        wrong("has no value; give it one, or remove the key")
    return value


def text(value: Any) -> str:
    """Any scalar as it stands in the file."""
    return scalar(value).text


def filled(value: Any) -> str:
    """Text that is not empty."""
    said = text(value)
    if not said or "\0" in said:
        wrong("must not be empty")
    return said


def boolean(value: Any) -> bool:
    """`true` or `false`; `yes` and `no` are strings in YAML 1.2."""
    said = scalar(value)
    if said.tag != "bool":
        wrong(f"must be true or false, not {said.text}")
    return said.value is True


def whole(at_least: int, at_most: int | None = None) -> Callable[[Any], int]:
    """A whole number within bounds."""

    def check(value: Any) -> int:
        said = scalar(value)
        plain = said.value if said.tag == "int" else None
        if not isinstance(plain, int) or plain < at_least or plain > (at_most or _NUMBERS_MAX):
            limits = f"from {at_least} to {at_most}" if at_most else f"of at least {at_least}"
            wrong(f"must be a whole number {limits}, not {said.text}")
        return plain

    return check


def positive(value: Any) -> float:
    """A number that is not negative."""
    said = scalar(value)
    plain = number(said)
    if plain is None or not 0 <= plain <= _NUMBERS_MAX:
        wrong(f"must be a number of at least 0, not {said.text}")
    return float(plain)


def percent(value: Any) -> float:
    """A number from 0 to 100."""
    plain = positive(value)
    if plain > 100:
        wrong(f"must be a percentage from 0 to 100, not {scalar(value).text}")
    return plain


def seconds(value: Any) -> float:
    """A duration: `500ms 0.5s 5m 12h`. A bare number is refused: of what?"""
    said = text(value)
    found = _DURATION.fullmatch(said)
    if found is None or float(found.group(1)) > _NUMBERS_MAX:
        wrong(f"must be a duration with its unit, such as 500ms, 0.5s, 5m or 12h, not {said}")
    return float(found.group(1)) * _SECONDS[found.group(2)]


def mib(value: Any) -> float:
    """A size: `512MiB 20GiB`. A bare number is refused."""
    said = text(value)
    found = _SIZE.fullmatch(said)
    if found is None or float(found.group(1)) > _NUMBERS_MAX:
        wrong(f"must be a size with its unit, such as 512MiB or 20GiB, not {said}")
    return float(found.group(1)) * _MIB[found.group(2)]


def or_word(word: str, check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """None for this one word, else the check."""

    def either(value: Any) -> Any:
        if isinstance(value, Scalar) and value.text == word:
            return None
        return check(value)

    return either


def one_of(*words: str) -> Callable[[Any], str]:
    """One of these words."""

    def check(value: Any) -> str:
        said = text(value)
        if said not in words:
            wrong(f"must be one of {', '.join(words)}, not {said}{did_you_mean(said, words)}")
        return said

    return check


def shaped(pattern: str, what: str) -> Callable[[Any], str]:
    """Text of this shape; `what` says the shape in words."""
    shape = re.compile(pattern)

    def check(value: Any) -> str:
        said = text(value)
        if shape.fullmatch(said) is None:
            wrong(f"must be {what}, not {said}")
        return said

    return check


def pattern(value: Any) -> str:
    """A pattern that matches in linear time (RE2)."""
    said = filled(value)
    compiled(said)
    return said


def compiled(said: str) -> Any:
    """The pattern as RE2 has it; refused where RE2 does not take it (backreferences, lookaround)."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(said, options)
    except re2.error as error:
        why = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        wrong(f"not a linear-time pattern (RE2): {why}")


def progress_pattern(value: Any) -> str:
    """A pattern with a group named `step`."""
    said = pattern(value)
    groups = compiled(said).groupindex
    if "step" not in groups:
        wrong(r"has no group named step; write one, such as step (?P<step>\d+)")
    return said


def step_pattern(value: Any) -> str:
    """`none`, or a pattern with one group that holds the step of a checkpoint's name."""
    said = pattern(value)
    if said != "none" and compiled(said).groups != 1:
        wrong("must have exactly one group: the step")
    return said


def kind(value: Any) -> Kind:
    """A kind of failure."""
    said = text(value)
    names = [known.value for known in Kind if known is not Kind.NONE]
    if said not in names:
        close = did_you_mean(said, names)
        wrong(f"{said} is no kind of failure{close or '; the kinds: ' + ', '.join(names)}")
    return Kind(said)


def param_scalar(value: Any) -> Scalar:
    """A param's value: any scalar but an empty one, and no substitution: what is locked or laddered is literal."""
    said = scalar(value)
    if "${{" in said.text:
        wrong("a param's value is literal; nothing is substituted in it")
    return said


ANY_SCALAR: Json = {"type": ["string", "number", "boolean"]}
STRING: Json = {"type": "string"}

Text = leaf(text, ANY_SCALAR)
Filled = leaf(filled, ANY_SCALAR)
Bool = leaf(boolean, {"type": "boolean"})
Count = leaf(whole(1), {"type": "integer", "minimum": 1})
Whole = leaf(whole(0), {"type": "integer", "minimum": 0})
Positive = leaf(positive, {"type": "number", "minimum": 0})
Percent = leaf(percent, {"type": "number", "minimum": 0, "maximum": 100})
DURATION: Json = {"type": "string", "pattern": f"^{_DURATION.pattern}$"}
SIZE: Json = {"type": "string", "pattern": f"^{_SIZE.pattern}$"}
Duration = leaf(seconds, DURATION)
Size = leaf(mib, SIZE)
Pattern = leaf(pattern, STRING)
ProgressPattern = leaf(progress_pattern, STRING)
StepPattern = leaf(step_pattern, STRING)
KindName = leaf(kind, {"enum": [known.value for known in Kind if known is not Kind.NONE]})
ParamScalar = leaf(param_scalar, ANY_SCALAR)
EnvName = leaf(shaped(r"[A-Za-z_][A-Za-z0-9_]*", "a variable's name: letters, digits and _"), STRING)


def choice(*words: str) -> Shape:
    """A type of these words only."""
    return leaf(one_of(*words), {"enum": list(words)})


def or_none(check: Callable[[Any], Any], json: Json, word: str = "none") -> Shape:
    """A type that also takes one word for "the default"."""
    return leaf(or_word(word, check), {"anyOf": [{"const": word}, json]})
