"""YAML 1.2 core scalars: what a plain text means and when two of them are the same value. No files, no YAML library."""

from __future__ import annotations

import re

from supervisor.core.spec import Scalar, Value

# YAML 1.2.2, section 10.3.2 "Tag Resolution" of the core schema, in its order.
_NULL = re.compile(r"(null|Null|NULL|~|)\Z")
_BOOL = re.compile(r"(true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"([-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(r"([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z")
_DIGITS_MAX = 300  # longer numbers are compared as text: int() refuses more than 4,300 digits


def typed(text: str) -> Scalar:
    """The scalar that a plain (unquoted) text is: `1e-4` is a float, `012` is 12, `no` a string."""
    if _NULL.match(text):
        return Scalar(text, "null")
    if _BOOL.match(text):
        return Scalar(text, "bool")
    if len(text) <= _DIGITS_MAX and _INT.match(text):
        return Scalar(text, "int")
    if len(text) <= _DIGITS_MAX and _FLOAT.match(text):
        return Scalar(text, "float")
    return Scalar(text)


def number(scalar: Scalar) -> int | float | None:
    """The scalar as a number, or None if it is not one. A boolean is not a number."""
    value = scalar.value
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def same(left: Scalar, right: Scalar) -> bool:
    """True when both stand for one value: equal as written, equal as numbers, or equal as booleans."""
    if left.text == right.text:
        return True
    a, b = number(left), number(right)
    if a is not None and b is not None:
        return a == b
    return left.tag == right.tag == "bool" and left.value == right.value


def is_text_of(text: str, wanted: Scalar) -> bool:
    """True when `text`, found in an argv or an environment, says the value `wanted`."""
    return same(typed(text), wanted)


def scalars(value: Value) -> tuple[Scalar, ...]:
    """The scalars of a value: itself, or its items."""
    return (value,) if isinstance(value, Scalar) else value


def shown(value: Value) -> str:
    """A value for people: as written; a list in brackets."""
    return value.text if isinstance(value, Scalar) else "[" + ", ".join(item.text for item in value) + "]"


def same_value(left: Value, right: Value) -> bool:
    """`same`, for lists too: equal length and each item the same. A scalar is never a list."""
    if isinstance(left, Scalar) or isinstance(right, Scalar):
        return isinstance(left, Scalar) and isinstance(right, Scalar) and same(left, right)
    return len(left) == len(right) and all(map(same, left, right))
