"""`code`, `data`, `rehearsal` and `hooks`: what a run is given, and what goes before and after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from supervisor.core.given import Hooks, Rehearsal, Watched
from supervisor.core.small import folders
from supervisor.core.spec import RunSpec
from supervisor.edges.specfile.shape import DROPPED
from supervisor.edges.specfile.tree import Path
from supervisor.edges.specfile.validate import Book


def code_of(data: Mapping[str, Any], paths: Callable[[str], str]) -> Watched | None:
    """None where a change of the code is only part of what is told of a failure."""
    given = data.get("code")
    if given is None:
        return None
    named = tuple(paths(path) for path in given.get("protect", ()) if path is not DROPPED)
    return Watched(paths=named, strict=given.get("on_change") == "halt", snapshot=given.get("snapshot", False))


def data_of(data: Mapping[str, Any], paths: Callable[[str], str]) -> Watched | None:
    """The paths of the data; None where none are named."""
    given = data.get("data")
    if given is None:
        return None
    options = given if isinstance(given, dict) else {"paths": given if isinstance(given, list) else [given]}
    named = tuple(paths(path) for path in options.get("paths", ()) if path is not DROPPED)
    return Watched(paths=named, strict=options.get("on_change") == "fail")


def hooks_of(data: Mapping[str, Any]) -> Hooks | None:
    """The commands around an attempt."""
    given = data.get("hooks")
    if given is None:
        return None
    argv = {
        name: tuple(word for word in given.get(name, ()) if word is not DROPPED)
        for name in ("before_launch", "after_stop")
    }
    return Hooks(**argv, timeout_s=given.get("timeout", 300.0))


def rehearsal_of(book: Book, data: Mapping[str, Any]) -> Rehearsal | None:
    """The small run before the full one."""
    given = data.get("rehearsal")
    if given is None:
        return None
    protected = data.get("params", {}).get("protected", {})
    params = {name: scalar for name, scalar in given.get("params", {}).items() if scalar is not DROPPED}
    for name in params:
        if name in protected:
            where: Path = ("rehearsal", "params", name)
            book.wrong(where, f"{name} is locked under `params.protected`: it would be the rehearsal of another run")
    if "progress" not in data.get("health", {}):
        book.wrong(("rehearsal",), "passes by counting steps: give `health.progress`")
    passes = given.get("pass", {})
    return Rehearsal(
        params={name: scalar.text for name, scalar in params.items()},
        args=tuple(word for word in given.get("args", ()) if word is not DROPPED),
        steps=passes.get("steps", 20),
        within_s=passes.get("within", 900.0),
    )


def check(book: Book, spec: RunSpec) -> None:
    """What a rehearsal could write where the run writes, and params that would reach nothing."""
    if spec.rehearsal is None:
        return
    known = {name for knob in spec.params.knobs for name in knob.rungs[0]} | spec.params.protected.keys()
    for name in spec.rehearsal.params:
        if spec.params.style.value == "template" and name not in known:
            book.wrong(("rehearsal", "params", name), f"{name} reaches nothing with style: template; use `args`")
    base = spec.workdir.rstrip("/") + "/"
    texts = (*spec.command, *spec.env.values(), *spec.rehearsal.args)
    if any("${{ attempt.dir }}" in word for word in spec.rehearsal.args):
        return
    for folder in folders(spec):
        if not any(folder.removeprefix(base) in text for text in texts):
            book.warn(
                ("rehearsal",),
                f"the command does not name {folder}, so a rehearsal would write there too, and what it writes stays "
                "out of play; give `args` with a folder under ${{ attempt.dir }}",
            )
