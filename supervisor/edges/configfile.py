"""A value inside a YAML, JSON or TOML config file: found by its dotted key, replaced so that the rest stays as it is.

YAML and JSON are edited at the value's place in the text: everything else stays byte for byte. TOML goes through
tomlkit. Keys are joined by dots, list items by their number: `model.layers.0.dim`. Text in, text out; no files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # the decoder's own, in all of 3.10 to 3.14
from typing import Any

from msgspec import Struct

from supervisor.core.scalars import typed
from supervisor.core.spec import Scalar, Value

TEXT_MAX = 8 << 20  # characters; a config larger than this is data
_DEPTH_MAX = 100

_PLAIN = re.compile(r"[A-Za-z_./][\w./@+-]*")
_YAML_1_1_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
_JSON_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_BLANK = re.compile(r"[ \t\r\n]*")


class _Found(Struct, frozen=True):
    """A value's place: `text[start:end]`. `value` None: it is neither a scalar nor a list of scalars."""

    key: str
    start: int
    end: int
    value: Value | None
    why_not: str = ""


class ConfigProblem(ValueError):
    """A config file that cannot be read by key or edited, and why: its owner must mend it or the spec."""


def format_of(path: str) -> str:
    """`yaml`, `json` or `toml`, by the name of the file. Raises ConfigProblem for another."""
    suffix = path.rpartition(".")[2].lower()
    known = {"yaml": "yaml", "yml": "yaml", "json": "json", "toml": "toml"}
    if suffix not in known:
        raise ConfigProblem(f"{path}: only .yaml, .yml, .json and .toml can be edited and read by key")
    return known[suffix]


def edited(text: str, format: str, values: Mapping[str, Scalar]) -> str:
    """The text with each key's value replaced. Raises ConfigProblem where a key is missing or holds none."""
    _bounded(text)
    if format == "toml":
        return _toml_edited(text, values)
    places: list[tuple[int, int, str]] = []
    found = list(_spans(text, format))
    for key, scalar in values.items():
        here = [one for one in found if one.key == key]
        if not here:
            raise _refused(f"has no key {key}; `files` replaces values that are there")
        for one in here:
            if not isinstance(one.value, Scalar):
                raise _refused(f"{key} is {one.why_not or 'a list'}; only a single value can be replaced")
            places.append((one.start, one.end, _json_text(scalar) if format == "json" else _yaml_text(scalar)))
    for start, end, new in sorted(places, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def lookup(text: str, format: str, key: str) -> Value | None:
    """The value of a key (the last, if the file has it twice), or None where there is none or it is a mapping."""
    _bounded(text)
    if format == "toml":
        return _toml_lookup(text, key)
    value: Value | None = None
    for one in _spans(text, format):
        if one.key == key:
            value = one.value
    return value


def _bounded(text: str) -> None:
    if len(text) > TEXT_MAX:
        raise _refused("is larger than 8 MiB; that is no config file")


def _refused(why: str) -> ConfigProblem:
    return ConfigProblem(f"the config file {why}")


def _spans(text: str, format: str) -> Iterator[_Found]:
    return _json_spans(text) if format == "json" else _yaml_spans(text)


def _yaml_text(scalar: Scalar) -> str:
    """The scalar as YAML of either version reads it: quoted where a string would be taken for something else."""
    if scalar.tag != "str":
        return scalar.text
    plain = _PLAIN.fullmatch(scalar.text) and typed(scalar.text).tag == "str"
    if plain and scalar.text.lower() not in _YAML_1_1_WORDS:
        return scalar.text
    return json.dumps(scalar.text, ensure_ascii=False)


def _json_text(scalar: Scalar) -> str:
    match scalar.tag:
        case "bool" | "null":
            return json.dumps(scalar.value)
        case "int" | "float":
            return scalar.text if _JSON_NUMBER.fullmatch(scalar.text) else json.dumps(scalar.value)
    return json.dumps(scalar.text, ensure_ascii=False)


@dataclass
class _Level:
    """A collection that the walk is inside of. `key` None: a mapping whose next scalar is a key."""

    path: tuple[str, ...]
    start: int
    is_list: bool
    key: str | None = None
    count: int = 0
    items: list[Scalar] | None = None  # None once something in it is no scalar

    def child(self) -> tuple[str, ...]:
        if self.is_list:
            self.count += 1
            return (*self.path, str(self.count - 1))
        path = (*self.path, self.key or "")
        self.key = None
        return path


def _yaml_spans(text: str) -> Iterator[_Found]:
    """Every value of the first document."""
    import yaml

    levels: list[_Level] = []
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.DocumentEndEvent):
                return
            yield from _yaml_event(yaml, event, levels)
            if len(levels) > _DEPTH_MAX:
                raise _refused(f"is nested more than {_DEPTH_MAX} deep")
    except yaml.YAMLError as error:
        raise _refused(f"is not YAML: {' '.join(str(error).split())}") from None


def _yaml_event(yaml: Any, event: Any, levels: list[_Level]) -> Iterator[_Found]:
    top = levels[-1] if levels else None
    start, end = event.start_mark.index, event.end_mark.index
    match event:
        case yaml.ScalarEvent():
            if top is not None and not top.is_list and top.key is None:
                top.key = event.value
                return
            path = top.child() if top else ()
            scalar = typed(event.value) if event.implicit[0] else Scalar(event.value)
            if top is not None and top.items is not None:
                top.items.append(scalar)
            block = event.style in ("|", ">")
            yield _Found(".".join(path), start, end, None if block else scalar, "a block of text" if block else "")
        case yaml.AliasEvent():
            if top is not None and not top.is_list and top.key is None:
                top.key = ""
                return
            path = top.child() if top else ()
            if top is not None:
                top.items = None
            yield _Found(".".join(path), start, end, None, f"the alias *{event.anchor}")
        case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
            path = top.child() if top else ()
            if top is not None:
                top.items = None
            is_list = isinstance(event, yaml.SequenceStartEvent)
            levels.append(_Level(path, start, is_list, items=[] if is_list else None))
        case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
            closed = levels.pop()
            value = tuple(closed.items) if closed.items is not None else None
            yield _Found(".".join(closed.path), closed.start, end, value, "" if closed.is_list else "a mapping")


def _json_spans(text: str) -> Iterator[_Found]:
    try:
        yield from _json_value(text, _blank(text, 0), ())
    except ConfigProblem:
        raise
    except (ValueError, IndexError) as error:
        raise _refused(f"is not JSON: {error}") from None


def _blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _json_value(text: str, start: int, path: tuple[str, ...]) -> Iterator[_Found]:
    """Every value from `start` on; the outermost last, so that its end is known."""
    if len(path) > _DEPTH_MAX:
        raise _refused(f"is nested more than {_DEPTH_MAX} deep")
    if text[start] not in "{[":
        value, end = json.JSONDecoder().raw_decode(text, start)
        said = Scalar(value) if isinstance(value, str) else typed(text[start:end])
        yield _Found(".".join(path), start, end, said)
        return
    closing = "}" if text[start] == "{" else "]"
    at, count = _blank(text, start + 1), 0
    items: list[Scalar] | None = [] if closing == "]" else None
    while text[at] != closing:
        if count:
            at = _blank(text, _expect(text, at, ","))
        name = str(count)
        if closing == "}":
            name, at = scanstring(text, _expect(text, at, '"'), True)
            at = _blank(text, _expect(text, _blank(text, at), ":"))
        for one in _json_value(text, at, (*path, name)):
            yield one
        if items is not None:
            items = [*items, one.value] if isinstance(one.value, Scalar) else None
        at, count = _blank(text, one.end), count + 1
    why = "a mapping" if closing == "}" else ""
    yield _Found(".".join(path), start, at + 1, None if items is None else tuple(items), why)


def _expect(text: str, at: int, char: str) -> int:
    if text[at] != char:
        raise ValueError(f"{char} is missing at character {at}")
    return at + 1


def _toml_edited(text: str, values: Mapping[str, Scalar]) -> str:
    import tomlkit

    document = _toml(text)
    for key, scalar in values.items():
        holder, name = _toml_place(document, key)
        if holder is None:
            raise _refused(f"has no key {key}; `files` replaces values that are there")
        if _toml_scalar(holder[name]) is None:
            raise _refused(f"{key} is no single value; only a single value can be replaced")
        holder[name] = tomlkit.item(scalar.value)
    return tomlkit.dumps(document)


def _toml(text: str) -> Any:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise _refused(f"is not TOML: {error}") from None


def _toml_place(document: Any, key: str) -> tuple[Any, Any]:
    """The table or array that holds a key, and the name in it; (None, None) where there is none."""
    holder: Any = None
    name: Any = None
    node = document
    parts = key.split(".")
    for part in parts:
        holder, name = node, int(part) if isinstance(node, list) and part.isdigit() else part
        try:
            node = node[name]
        except (KeyError, IndexError, TypeError):
            return None, None
    return holder, name


def _toml_lookup(text: str, key: str) -> Value | None:
    holder, name = _toml_place(_toml(text), key)
    if holder is None:
        return None
    node = holder[name]
    if isinstance(node, list):
        items = [_toml_scalar(item) for item in node]
        return None if None in items else tuple(item for item in items if item is not None)
    return _toml_scalar(node)


def _toml_scalar(node: Any) -> Scalar | None:
    plain = getattr(node, "unwrap", lambda: node)()
    match plain:
        case bool():
            return Scalar(str(plain).lower(), "bool")
        case int() | float():
            return Scalar(repr(plain), "int" if isinstance(plain, int) else "float")
        case str():
            return Scalar(plain)
    return None
