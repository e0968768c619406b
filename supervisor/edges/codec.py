"""Values to plain data and back. No files, no JSON text.

A union may hold one value type only: msgspec cannot tell two apart. Give each a record type of its own.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dicts with string keys, lists, strings, numbers, booleans and None, equal in meaning to `value`."""
    return _lists(msgspec.to_builtins(value, str_keys=True))


def from_plain(plain: Any, type_: type[T]) -> T:
    """The value that `to_plain` made `plain` of. Unknown fields are ignored. Raises ValueError."""
    try:
        return msgspec.convert(plain, type_, str_keys=True)
    except msgspec.ValidationError as error:
        raise ValueError(f"{getattr(type_, '__name__', type_)}: {error}") from error


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_lists(item) for item in value]
    return value
