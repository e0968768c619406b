"""A tree against the shapes: what is valid goes on, everything else is written down as a mistake with its place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import ErrorDetails, ValidationError

from supervisor.core.errors import Mistake
from supervisor.core.spec import Scalar
from supervisor.edges.specfile.keys import KEYS, REQUIRED, SPEC
from supervisor.edges.specfile.leaves import did_you_mean
from supervisor.edges.specfile.shape import DROPPED, FORMS, Shape, mapping
from supervisor.edges.specfile.tree import Path, Source, dotted

_ROUNDS_MAX = 50
"""Each round takes at least one level of a broken branch away, and a tree is at most 50 deep."""

_EXAMPLES = {
    "version": ": `version: 1`",
    "name": ", such as `name: my-run`: the identity of the run",
    "command": ", such as `command: [python, train.py]`",
}
_FORM_WORDS = dict(zip(FORMS, ("a single value", "a list", "a mapping"), strict=True))


@dataclass
class Book:
    """The mistakes and warnings of one file."""

    source: Source
    mistakes: list[Mistake] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def wrong(self, path: Path, what: str) -> None:
        """Writes a mistake down, once."""
        mistake = self.source.mistake(path, what)
        if mistake not in self.mistakes:
            self.mistakes.append(mistake)

    def warn(self, path: Path, what: str) -> None:
        """Writes a warning down: what the user should know and need not change."""
        line, col = self.source.at(path)
        self.warnings.append(f"{self.source.file}:{line}:{col}: {dotted(path)}: {what}")

    def in_order(self) -> list[Mistake]:
        """The mistakes in the order of the file."""
        return sorted(self.mistakes, key=lambda one: (one.file != self.source.file, one.line, one.col))


def validated(book: Book) -> dict[str, Any]:
    """What of the file has the right shape, as plain values; the rest is in the book."""
    book.mistakes.extend(book.source.doubles)
    root = book.source.root
    if not isinstance(root, dict):
        book.wrong((), "a spec is a mapping; it begins with `version: 1`")
        return {}
    for key in REQUIRED:
        if key not in root:
            book.wrong((), f"{key} is required{_EXAMPLES[key]}")
    tree = _copy(root)
    validator = mapping({key: KEYS[key] for key in KEYS if key in tree}).validator()
    gone: set[Path] = set()
    for _ in range(_ROUNDS_MAX):
        try:
            return dict(validator.validate_python(tree))
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                path = _path(detail["loc"])
                if path not in gone:
                    _write_down(book, path, detail)
                wrong = path[:-1] if detail["type"] == "missing" else path
                gone.add(wrong)
                _remove(tree, wrong)
    return {}


def _copy(tree: Any) -> Any:
    """A tree of its own, without the sharing that aliases make."""
    match tree:
        case dict():
            return {key: _copy(value) for key, value in tree.items()}
        case list():
            return [_copy(item) for item in tree]
    return tree


def _write_down(book: Book, path: Path, detail: ErrorDetails) -> None:
    match detail["type"]:
        case "missing":
            book.wrong(path[:-1], f"{path[-1]} is required")
        case "extra_forbidden":
            known = _keys_at(detail["loc"][:-1])
            close = did_you_mean(str(path[-1]), known)
            book.wrong(path, f"unknown key{close}{'' if close else '; known: ' + ', '.join(known)}")
        case "union_tag_invalid":
            shape = _shape_at(detail["loc"])
            forms = " or ".join(_FORM_WORDS[form] for form in (shape.forms if shape else FORMS))
            book.wrong(path, f"must be {forms}, not {_form_word(detail['input'])}")
        case "dict_type":
            book.wrong(path, f"must be a mapping, not {_form_word(detail['input'])}")
        case "list_type":
            book.wrong(path, f"must be a list, not {_form_word(detail['input'])}")
        case "too_short":
            book.wrong(path, "must not be empty")
        case _:
            book.wrong(path, detail["msg"])


def _remove(tree: Any, path: Path) -> None:
    """Takes what is wrong out of the tree, so that the next round looks at the rest. A list keeps its indices."""
    for part in path[:-1]:
        if isinstance(tree, dict) and part not in tree:
            return  # its surroundings are gone already
        tree = tree[part]
    last = path[-1] if path else None
    if isinstance(tree, dict):
        tree.pop(last, None)
    elif isinstance(tree, list) and isinstance(last, int):
        tree[last] = DROPPED


def _path(loc: Iterable[str | int]) -> Path:
    return tuple(part for part in loc if part not in FORMS and part != "[key]")


def _keys_at(loc: Iterable[str | int]) -> list[str]:
    shape = _shape_at(loc)
    return list(shape.keys) if shape else []


def _shape_at(loc: Iterable[str | int]) -> Shape | None:
    shape: Shape | None = SPEC
    for part in loc:
        if shape is None:
            return None
        if part != "[key]":
            shape = shape.inside(part)
    return shape


def _form_word(value: Any) -> str:
    match value:
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case Scalar(tag="null"):
            return "nothing"
        case Scalar(text=text):
            return text
    return "this"
