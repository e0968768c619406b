"""docs/spec.md: every key of a run spec, made of the shapes that check it.

    python -m supervisor.views.spec_reference > docs/spec.md

So it cannot name a key that is not there; a test compares, and wants a meaning for each key.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from supervisor.core.around import NOTICES
from supervisor.core.kinds import Kind
from supervisor.edges.specfile.keys import KEYS, REQUIRED
from supervisor.edges.specfile.leaves import DURATION, SIZE
from supervisor.edges.specfile.meanings import meanings
from supervisor.edges.specfile.shape import Shape

HEAD = """# The run spec
Written by `python -m supervisor.views.spec_reference > docs/spec.md` from the shapes that check a spec; do not edit it
by hand. An editor shows the same with a first line `# yaml-language-server: $schema=./supervise.schema.json`
(`supervise schema` prints it).

A whole spec is `version`, `name` and `command`. Unknown keys are mistakes. `supervise check -v SPEC` prints the
resolved spec, with whence each value comes.

- **Substitution.** `${{ name }}`, and no expressions: `run.name run.dir attempt.number attempt.dir topology.R.gpus
  topology.R.physical topology.R.uuids topology.R.count gpus params.K params.args checkpoint.path checkpoint.dir
  checkpoint.name checkpoint.step files.N ports.N workdir venv`. Lists are joined by commas.
- **Values.** Durations are `500ms 0.5s 5m 12h`, sizes `MiB GiB`; bare numbers are refused. What reaches the job stands
  as it is in the file; YAML 1.2: `no` is a string, `1e-4` a number.
- **Every param** must reach the command, the environment or a file. A protected one that also stands in the command is
  a mistake.
"""


_TABLE = ("| key | value | default | meaning |", "|---|---|---|---|")


def page() -> str:
    """The whole page."""
    single = [key for key, shape in KEYS.items() if not list(_below((key,), shape))]
    rows = [row for key in single for row in _rows((key,), KEYS[key], key in REQUIRED)]
    lines = [HEAD, "## Single keys", *_TABLE, *rows, ""]
    for key, shape in KEYS.items():
        if key not in single:
            lines += [f"## {key}", *_TABLE, *_rows((key,), shape, key in REQUIRED), *_more(key), ""]
    return "\n".join(lines).rstrip() + "\n"


def paths() -> Iterator[tuple[str, bool]]:
    """Every key as a dotted path, and whether keys below it say what it means."""
    for key, shape in KEYS.items():
        yield from _paths((key,), shape)


def _paths(path: tuple[str, ...], shape: Shape) -> Iterator[tuple[str, bool]]:
    below = list(_below(path, shape))
    yield ".".join(path), bool(below)
    for inside, one in below:
        yield from _paths(inside, one)


def _below(path: tuple[str, ...], shape: Shape) -> Iterator[tuple[tuple[str, ...], Shape]]:
    """The keys of a shape in all its forms, each once."""
    found: dict[tuple[str, ...], Shape] = {(*path, key): one for key, one in shape.keys.items()}
    for form in shape.forms.values():
        found |= dict(_below(path, form))
    if shape.item is not None:
        part = "NAME" if shape.json.get("type") == "object" else "[]"
        found |= dict(_below((*path, part), shape.item))
    yield from found.items()


def _rows(path: tuple[str, ...], shape: Shape, required: bool) -> Iterator[str]:
    below = list(_below(path, shape))
    default, meaning = meanings().get(".".join(path), ("", ""))
    if meaning or not below:
        shown = "required" if required else default or "-"
        yield f"| `{'.'.join(path)}` | {_value(shape)} | {_cell(shown)} | {_cell(meaning)} |"
    for inside, one in below:
        yield from _rows(
            inside, one, not meanings().get(".".join(inside), ("-", ""))[0] and not list(_below(inside, one))
        )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _value(shape: Shape) -> str:
    """The type in words."""
    return _words(shape.json)


def _words(json: dict[str, Any]) -> str:
    if "anyOf" in json:
        return " or ".join(dict.fromkeys(_words(one) for one in json["anyOf"]))
    if "const" in json:
        return f"`{json['const']}`"
    if "enum" in json:
        kinds = [kind.value for kind in Kind if kind is not Kind.NONE]
        if json["enum"] == kinds:
            return "kind of failure"
        return "one of those below" if json["enum"] == list(NOTICES) else " ".join(f"`{word}`" for word in json["enum"])
    if json.get("pattern") in (DURATION["pattern"], SIZE["pattern"]):
        return "duration" if json["pattern"] == DURATION["pattern"] else "size"
    match json.get("type"):
        case "object":
            return "mapping"
        case "array":
            return f"list of {_words(json['items'])}"
        case "boolean":
            return "`true` `false`"
        case "integer":
            return "whole number" + (f" from {json['minimum']}" if "minimum" in json else "")
        case "number":
            return "number"
        case ["boolean", "string"]:
            return "`true` `false` or text"
        case ["integer", "string"]:
            return "GPU"
    return "text"


def _more(key: str) -> list[str]:
    if key != "notify":
        return []
    return ["", "What `notify.on` may name:", "", *(f"- `{name}`: {meaning}" for name, meaning in NOTICES.items())]


if __name__ == "__main__":
    sys.stdout.write(page())
