"""`${{ name }}` in a spec: each name must be known where it stands, and every param must reach the job.

Also here: a protected param that stands in the command or the environment as a literal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from supervisor.core.occurrences import occurrences
from supervisor.core.placing import BY_BUS, DEVICES, ORDER
from supervisor.core.render import ARGS
from supervisor.core.spec import RunSpec, Scalar, Style, Visible
from supervisor.core.substitution import names, sole
from supervisor.edges.specfile.leaves import did_you_mean
from supervisor.edges.specfile.params import names_of
from supervisor.edges.specfile.tree import Path
from supervisor.edges.specfile.validate import Book

_LAUNCH = ("command", "env", "files", "rehearsal")
"""Where everything may be substituted, params and checkpoint too."""

_PLACES: tuple[Path, ...] = (
    ("logs",),
    ("health", "progress", "in"),
    ("health", "progress", "files"),
    ("health", "progress", "heartbeat"),
    ("health", "progress", "jsonl", "file"),
    ("output", "dir"),
    ("output", "units"),
    ("done", "file"),
    ("preflight", "checks"),
    ("hooks",),
)
"""Where the names of the run, the attempt, its GPUs, ports and files may be substituted."""

_CHECKPOINT = tuple(f"checkpoint.{part}" for part in ("path", "dir", "name", "step"))


def check(book: Book, spec: RunSpec) -> None:
    """Writes down every unknown name, every param that reaches nothing, every literal of a protected param."""
    known = _known(book, spec)
    used: set[str] = set()
    for path, text in _texts(book.source.root, ()):
        for name in names(text):
            used.add(name)
            _check_name(book, path, name, known)
    _check_reach(book, spec)
    _check_literals(book, spec)
    _check_twice(book, spec)
    _check_visible(book, spec)
    resume = spec.resume
    if resume is not None and resume.mode != "auto" and not resume.args and not used.intersection(_CHECKPOINT):
        book.warn(("resume",), "nothing tells the job which checkpoint to take; give `arg`, or use checkpoint.path")


def _known(book: Book, spec: RunSpec) -> frozenset[str]:
    root: Any = book.source.root
    protected, _, inside = names_of(book)
    known = {"run.name", "run.dir", "attempt.number", "attempt.dir", "gpus", "workdir", ARGS}
    for role in book.source.section("topology"):
        known.update(f"topology.{role}.{part}" for part in ("gpus", "physical", "uuids", "count"))
    known.update(f"params.{name}" for name in protected | inside)
    known.update(f"files.{name}" for name in book.source.section("files"))
    known.update(f"ports.{name}" for name in book.source.section("ports"))
    if "resume" in root:
        known.update(_CHECKPOINT)
    if spec.venv is not None:
        known.add("venv")
    return frozenset(known)


def _texts(node: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Every scalar of the file that holds a `${{`, with its path."""
    match node:
        case dict():
            for key, value in node.items():
                yield from _texts(value, (*path, key))
        case list():
            for n, item in enumerate(node):
                yield from _texts(item, (*path, n))
        case Scalar(text=text) if "${{" in text:
            yield path, text


def _check_name(book: Book, path: Path, name: str, known: frozenset[str]) -> None:
    if path[0] == "params":
        return  # said already: a param's value is literal
    if path[0] == "env" and path[1:2] and path[1] in _named_secrets(book):
        book.wrong(path, f"{path[1]} is named under `secrets`: its value is taken literally, nothing is replaced in it")
    elif name.startswith("${{"):
        book.wrong(path, f"{name}: only ${{{{ name }}}} is replaced; there are no expressions")
    elif name not in known:
        book.wrong(path, _unknown(name, known))
    elif path[0] in _LAUNCH and path[:1] + path[2:3] != ("files", "from"):
        if name in _CHECKPOINT and path[0] == "command":
            book.warn(path, f"{name} is empty where there is no checkpoint; `resume.args` are left out instead")
    elif path[:2] == ("resume", "args"):
        return
    elif not any(path[: len(place)] == place for place in _PLACES):
        book.wrong(path, "nothing is substituted here")
    elif name in _CHECKPOINT or name.startswith("params."):
        book.wrong(path, f"{name} is not known here: it can change from attempt to attempt")


def _named_secrets(book: Book) -> list[str]:
    root: Any = book.source.root
    named = root.get("secrets")
    return [one.text for one in named if isinstance(one, Scalar)] if isinstance(named, list) else []


def _unknown(name: str, known: frozenset[str]) -> str:
    if name.startswith("checkpoint.") and name in _CHECKPOINT:
        return f"{name}: there is no `resume`"
    if name == "venv":
        return "venv: there is no `venv`"
    return f"unknown name {name}{did_you_mean(name, sorted(known))}"


def _check_reach(book: Book, spec: RunSpec) -> None:
    """With `style: template` a param reaches the job only where it stands; the other styles pass all of them."""
    texts = [*spec.command, *spec.env.values(), *(text for file in spec.files for text in file.set.values())]
    used = {name for text in texts for name in names(text)}
    for name, how in spec.params.how.items():
        if spec.params.style is not Style.TEMPLATE or how.env is not None or how.file is not None:
            continue
        if f"params.{name}" not in used:
            where = "protected" if name in spec.params.protected else "knobs"
            knob = next((knob.name for knob in spec.params.knobs if name in knob.rungs[0]), name)
            book.wrong(
                ("params", where, knob if where == "knobs" else name),
                f"{name} reaches neither the command nor the environment nor a file; "
                f"write ${{{{ params.{name} }}}} where it goes",
            )


def _check_literals(book: Book, spec: RunSpec) -> None:
    for name in spec.params.protected:
        how = spec.params.how[name]
        if how.file is not None:
            continue
        for place in occurrences(spec, name, spec.command):
            text = place.written.partition("=")[2] or (place.values[0] if place.values else "")
            if sole(text) != f"params.{name}":
                book.wrong(("command", place.index), f"{place.written}: {name} is locked under `params.protected` and "
                           "passed from there; remove it here")  # fmt: skip
        variables = {how.env, name.replace("-", "_").replace(".", "_").upper()}
        for variable, text in spec.env.items():
            if variable in variables and sole(text) != f"params.{name}":
                book.wrong(("env", variable), f"{name} is locked under `params.protected` and passed from there; "
                           "remove it here")  # fmt: skip


def _check_twice(book: Book, spec: RunSpec) -> None:
    """A knob that also stands in the command by itself is given twice, and the job decides which one counts."""
    for knob in spec.params.knobs:
        for name in () if knob.venv else knob.rungs[0]:
            if spec.params.how[name].env is not None:
                continue
            for place in occurrences(spec, name, spec.command):
                if f"params.{name}" not in names(" ".join((place.written, *place.values))):
                    book.warn(("command", place.index), f"{place.written}: {name} is a knob and is passed besides this")


def _check_visible(book: Book, spec: RunSpec) -> None:
    """What `env` says of the GPUs must be what the topology says; by index here, by UUID where GPUs can be asked."""
    if spec.visible is Visible.NONE or not spec.gpus:
        return
    order = spec.env.get(ORDER, BY_BUS)
    if order != BY_BUS:
        book.wrong(("env", ORDER), f"the run's GPUs are numbered by {BY_BUS}; remove it, or write visible: none")
    said = spec.env.get(DEVICES)
    if said is None or not all(gpu.isdigit() for gpu in spec.gpus) or "GPU-" in said:
        return
    wanted = ",".join(sorted(set(spec.gpus), key=int))
    if [item.strip() for item in said.split(",")] != wanted.split(","):
        book.wrong(("env", DEVICES), f"{said or 'empty'} disagrees with the topology, which makes it {wanted}; "
                   "remove it, or write visible: none")  # fmt: skip
