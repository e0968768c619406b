"""YAML text to a tree of mappings, lists and scalars, each with its position. Knows no key of the spec.

Built from PyYAML's parse events, so nothing is constructed: no tags, no recursion, no growth through aliases.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NoReturn, Union

import yaml

from supervisor.core.errors import Mistake, SpecError
from supervisor.core.scalars import typed
from supervisor.core.spec import Scalar

BYTES_MAX = 1 << 20
NODES_MAX = 20_000  # nodes with aliases written out: far more than any spec has, far less than an alias bomb
DEPTH_MAX = 50
_EXPLAINED_MAX = 1 << 16  # characters that the slow parser is asked about, for its better error positions

Path = tuple[Union[str, int], ...]  # noqa: UP007  # a type alias is evaluated at run time on 3.10
Tree = Union[dict[str, Any], list[Any], Scalar]  # noqa: UP007

_TAGS = {f"tag:yaml.org,2002:{name}": name for name in ("str", "int", "float", "bool", "null", "map", "seq")}
_SUBSTITUTION = re.compile(r"\$\{\{[^{}\n]*\}\}")
_OPEN, _CLOSE = "\ue000", "\ue001"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass
class Source:
    """A parsed file. `positions` maps the path of a key or item to its (line, column), counted from 1."""

    file: str
    text: str
    root: Tree
    positions: dict[Path, tuple[int, int]]
    doubles: tuple[Mistake, ...] = ()

    def at(self, path: Path) -> tuple[int, int]:
        """Where a path stands; for one inside an alias, or missing, where the nearest thing around it stands."""
        while path and path not in self.positions:
            path = path[:-1]
        return self.positions.get(path, (1, 1))

    def section(self, key: str) -> dict[str, Any]:
        """What stands under a top-level key, right or wrong; empty if it is no mapping."""
        found = self.root.get(key) if isinstance(self.root, dict) else None
        return found if isinstance(found, dict) else {}

    def mistake(self, path: Path, what: str) -> Mistake:
        """A mistake at a path."""
        return Mistake(self.file, *self.at(path), dotted(path), what)


def dotted(path: Path) -> str:
    """`recovery.rules[0].do`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def parse(file: str, raw: bytes) -> Source:
    """The tree of a YAML document. Raises SpecError with the one mistake that stops the reading."""
    text = _decoded(file, raw)
    shielded = _SUBSTITUTION.sub(lambda m: m.group().replace("{", _OPEN).replace("}", _CLOSE), text)
    builder = _Builder(file, text)
    try:
        for event in yaml.parse(shielded, Loader=_Loader):
            builder.take(event)
    except yaml.YAMLError as error:
        raise SpecError([_explained(file, shielded, error)]) from None
    return builder.source()


def _decoded(file: str, raw: bytes) -> str:
    if len(raw) > BYTES_MAX:
        raise SpecError([Mistake(file, 1, 1, "", f"{len(raw)} bytes; a spec has at most 1 MiB")])
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SpecError([Mistake(file, line, 1, "", "not UTF-8 text")]) from None
    for char in (_OPEN, _CLOSE, "\0"):
        if char in text:
            line = text.count("\n", 0, text.index(char)) + 1
            raise SpecError([Mistake(file, line, 1, "", f"the character U+{ord(char):04X} has no place in a spec")])
    return text


def _explained(file: str, text: str, error: yaml.YAMLError) -> Mistake:
    """A syntax error in words; asked of PyYAML's own parser, whose positions are better than libyaml's."""
    if len(text) <= _EXPLAINED_MAX:
        try:
            for _ in yaml.parse(text, Loader=yaml.SafeLoader):
                pass
        except yaml.YAMLError as better:
            error = better
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, col = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    what = " ".join(filter(None, (getattr(error, "context", None), getattr(error, "problem", None))))
    what = what or " ".join(str(error).split("\n")[0].split())
    return Mistake(file, line, col, "", "not YAML: " + _restored(what))


def _restored(text: str) -> str:
    return text.replace(_OPEN, "{").replace(_CLOSE, "}")


def _is_writable(text: str) -> bool:
    """False for half of a surrogate pair, which an escape can write and no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass
class _Open:
    """A mapping or list that is still being read."""

    value: Any
    path: Path
    anchor: str | None
    key: str | None = None
    size: int = 1


@dataclass
class _Builder:
    file: str
    text: str
    root: Tree | None = None
    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    positions: dict[Path, tuple[int, int]] = field(default_factory=dict)
    doubles: list[Mistake] = field(default_factory=list)
    nodes: int = 0

    def source(self) -> Source:
        if self.root is None:
            self.root = {}
        return Source(self.file, self.text, self.root, self.positions, tuple(self.doubles))

    def take(self, event: Any) -> None:
        match event:
            case yaml.DocumentStartEvent():
                if self.root is not None:
                    self._fail(event, "a second document; a spec is one document")
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                closed = self.stack.pop()
                if closed.anchor is not None:
                    self.anchors[closed.anchor] = (closed.value, closed.size)
                if self.stack:
                    self.stack[-1].size += closed.size - 1  # the collection itself counted when it was opened

    def _scalar(self, event: Any) -> None:
        text = _restored(event.value)
        if "\0" in text or not _is_writable(text):
            self._fail(event, "an escape that no command line or environment can carry")
        parent = self.stack[-1] if self.stack else None
        if parent is not None and isinstance(parent.value, dict) and parent.key is None:
            self._key(parent, text, event)
            return
        kind = self._tag(event)
        if kind is not None:
            scalar = Scalar(text, kind)
            if kind != "str" and (kind not in ("int", "float", "bool", "null") or typed(text).tag != kind):
                self._fail(event, f"`{text}` is no YAML 1.2 {kind}")
        else:
            scalar = typed(text) if event.implicit[0] and event.tag is None else Scalar(text)
        self._put(event, scalar, 1, event.anchor)

    def _key(self, parent: _Open, text: str, event: Any) -> None:
        path = (*parent.path, text)
        here = (event.start_mark.line + 1, event.start_mark.column + 1)
        if text in parent.value:
            first = self.positions[path][0]
            what = f"twice in this mapping (first in line {first})"
            self.doubles.append(Mistake(self.file, *here, dotted(path), what))
        else:
            self.positions[path] = here
        parent.key = text

    def _alias(self, event: Any) -> None:
        if self.stack and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None:
            self._fail(event, "an alias cannot be a key")
        if event.anchor not in self.anchors:
            self._fail(event, f"*{event.anchor} stands for nothing that ended before it")
        value, size = self.anchors[event.anchor]
        self._put(event, value, size, None)

    def _open(self, event: Any) -> None:
        kind = self._tag(event)
        is_map = isinstance(event, yaml.MappingStartEvent)
        if kind not in (None, "map" if is_map else "seq"):
            self._fail(event, f"the tag {event.tag} has no place here")
        if len(self.stack) >= DEPTH_MAX:
            self._fail(event, f"nested more than {DEPTH_MAX} deep")
        if self.stack and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None:
            self._fail(event, "a key must be a single word")
        value: Any = {} if is_map else []
        path = self._put(event, value, 1, None)
        self.stack.append(_Open(value, path, event.anchor))

    def _put(self, event: Any, value: Any, size: int, anchor: str | None) -> Path:
        """Hangs a value into the collection that is open; gives its path."""
        self.nodes += size
        if self.nodes > NODES_MAX:
            self._fail(event, f"more than {NODES_MAX} values once aliases are written out")
        if anchor is not None:
            self.anchors[anchor] = (value, size)
        if not self.stack:
            self.root = value
            return ()
        parent = self.stack[-1]
        parent.size += size
        if isinstance(parent.value, list):
            path: Path = (*parent.path, len(parent.value))
            self.positions[path] = (event.start_mark.line + 1, event.start_mark.column + 1)
            parent.value.append(value)
        else:
            path = (*parent.path, parent.key or "")
            parent.value[parent.key] = value
            parent.key = None
        return path

    def _tag(self, event: Any) -> str | None:
        """The core type that an explicit tag asks for; None without one. `!` alone means a string."""
        if event.tag is None:
            return None
        if event.tag == "!" and isinstance(event, yaml.ScalarEvent):
            return "str"
        if event.tag not in _TAGS:
            self._fail(event, f"the tag {event.tag} is refused: a spec is plain data")
        return _TAGS[event.tag]

    def _fail(self, event: Any, what: str) -> NoReturn:
        mark = event.start_mark
        path = dotted(self.stack[-1].path) if self.stack else ""
        raise SpecError([Mistake(self.file, mark.line + 1, mark.column + 1, path, what)])
