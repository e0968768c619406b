"""`params`: what is locked, what may move and along which rungs, and how each is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from supervisor.core.keep import NotArithmetic, equal, evaluate
from supervisor.core.keep import names as keep_names
from supervisor.core.render import flag_of
from supervisor.core.scalars import number, same, scalars
from supervisor.core.spec import Form, Knob, Param, Params, Scalar, Style, Value
from supervisor.edges.specfile.leaves import did_you_mean
from supervisor.edges.specfile.shape import DROPPED
from supervisor.edges.specfile.tree import Path
from supervisor.edges.specfile.validate import Book

_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_BATCH = re.compile(r"(?<![a-z])(m|g|micro_?|global_?)?(batch|bs)(?![a-z])", re.IGNORECASE)
_NOT_TRAINING = re.compile(r"(?<![a-z])(eval|evaluation|val|validation|test|infer|inference|gen|generation)(?![a-z])")

CONFIGS = (".yaml", ".yml", ".json", ".toml")
"""Files in which a value can be found by its key."""

WRITING = ("flag", "form", "env", "aliases")


def params_of(book: Book, data: Mapping[str, Any], file_path: Callable[[str], str]) -> Params:
    """The params of a spec. `file_path` makes the file of a `file:key` absolute (or leaves the name of a copy)."""
    section: dict[str, Any] = data.get("params", {})
    style = Style(section.get("style", "argparse"))
    protected: dict[str, Value] = {}
    how: dict[str, Param] = {}
    for name, given in section.get("protected", {}).items():
        path: Path = ("params", "protected", name)
        options = given if isinstance(given, dict) else {"value": given}
        value = _value(options["value"])
        protected[name] = value
        how[name] = _param(book, path, name, options, style, scalars(value))
    knobs = tuple(
        knob
        for name, given in section.get("knobs", {}).items()
        if (knob := _knob(book, name, given, how, style, protected, file_path)) is not None
    )
    _check_forms(book, protected, how)
    how = {name: one if one.file is None else replace(one, file=file_path(one.file)) for name, one in how.items()}
    return Params(style=style, protected=protected, knobs=knobs, how=how)


def names_of(book: Book) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The names of protected params, of knobs and of the params in their rungs, as they stand in the file: also
    those whose value is wrong, so that one mistake does not make others."""
    section = book.source.section("params")
    protected, knobs = ({} if not isinstance(one := section.get(key), dict) else one for key in ("protected", "knobs"))
    inside: set[str] = set()
    for name, knob in knobs.items():
        rungs = knob.get("rungs") if isinstance(knob, dict) else None
        sets = [rung for rung in rungs if isinstance(rung, dict)] if isinstance(rungs, list) else []
        inside.update(key for rung in sets for key in rung)
        if rungs is None:
            inside.add(name)
    return frozenset(protected), frozenset(knobs), frozenset(inside)


def _value(given: Any) -> Value:
    if isinstance(given, list):
        return tuple(item for item in given if item is not DROPPED)
    scalar: Scalar = given
    return scalar


def _param(
    book: Book, path: Path, name: str, options: Mapping[str, Any], style: Style, values: tuple[Scalar, ...]
) -> Param:
    file, key = _file_key(book, path, name)
    env = options.get("env")
    if env is None and style is Style.ENV and file is None:
        env = re.sub(r"\W", "_", name).upper()
    form = Form(options["form"]) if "form" in options else Form.SPACE
    if form is Form.BARE and any(value.tag != "bool" for value in values):
        book.wrong((*path, "form"), "bare writes the flag alone; only true and false can be said that way")
    for option in ("flag", "form", "aliases"):
        if option in options and file is not None:
            book.wrong((*path, option), "a value in a file has no flag")
    flag = options.get("flag")
    if flag is None and style is Style.ARGPARSE and file is None:
        flag = flag_of(name)
    aliases = tuple(alias for alias in options.get("aliases", ()) if alias is not DROPPED)
    return Param(name=name, flag=flag, form=form, env=env, aliases=aliases, file=file, key=key)


def _file_key(book: Book, path: Path, name: str) -> tuple[str | None, str | None]:
    """`conf/sft.yaml:model.block_size`: the file and the key; (None, None) for an ordinary name."""
    if ":" in name:
        file, _, key = name.rpartition(":")
        if path[1] != "protected" or not file or not key:
            book.wrong(path, "file:key names a value in a config file, under `protected` only")
        elif not file.lower().endswith(CONFIGS) and file not in book.source.section("files"):
            book.wrong(path, f"{file}: values are found by key in {', '.join(CONFIGS)} only")
        return file, key
    if _NAME.fullmatch(name) is None:
        book.wrong(path, "a param's name is letters, digits, `_`, `-` and `.`")
    return None, None


def _knob(
    book: Book,
    name: str,
    given: Mapping[str, Any],
    how: dict[str, Param],
    style: Style,
    protected: Mapping[str, Value],
    file_path: Callable[[str], str],
) -> Knob | None:
    path: Path = ("params", "knobs", name)
    if given.get("venv") or name == "venv":
        return _venvs(book, path, name, given, file_path)
    if _NAME.fullmatch(name) is None:
        book.wrong(path, "a knob's name is letters, digits, `_`, `-` and `.`")
    rungs = _rungs(book, path, name, given)
    if not rungs:
        return None
    for param in rungs[0]:
        if param in protected:
            book.wrong(path, f"{param} is locked under `params.protected`: recovery may not move it")
        elif param in how:
            book.wrong(path, f"{param} is moved by another knob already")
        options = given if "rungs" not in given else given.get("how", {}).get(param, {})
        where = path if "rungs" not in given else (*path, "how", param)
        how[param] = _param(book, where, param, options, style, tuple(rung[param] for rung in rungs))
    for param in given.get("how", {}):
        if param not in rungs[0]:
            book.wrong((*path, "how", param), f"is no param of this knob{did_you_mean(param, rungs[0])}")
    knob = Knob(name=name, rungs=rungs, keep=given.get("keep"), up=given.get("direction", False))
    _check_keep(book, path, knob, protected)
    return knob


def _venvs(book: Book, path: Path, name: str, given: Mapping[str, Any], file_path: Callable[[str], str]) -> Knob | None:
    """Environments of the job, the one to begin with first: one that worked can be fallen back to."""
    for key in ("rungs", "keep", "direction", "how", *WRITING):
        if key in given:
            book.wrong((*path, key), "does not go with a ladder of venvs: {value: .venv, ladder: [.venv-cu128]}")
    rungs = _rungs(book, path, name, {key: given[key] for key in ("value", "ladder") if key in given})
    return Knob(name=name, rungs=tuple({name: Scalar(file_path(rung[name].text))} for rung in rungs), venv=True)


def _rungs(book: Book, path: Path, name: str, given: Mapping[str, Any]) -> tuple[dict[str, Scalar], ...]:
    """The rungs, start first; empty where they are too wrong to be looked at further."""
    if "rungs" in given:
        for key in ("value", "ladder", *WRITING):
            if key in given:
                book.wrong((*path, key), "does not go with `rungs`; how a param is written stands under `how`")
        return _sets(book, path, given["rungs"], bool(given.get("direction")))
    for key in ("keep", "how"):
        if key in given:
            book.wrong((*path, key), "goes with `rungs`, a list of mappings that move several params together")
    raw = _raw(book, path)
    for key in ("value", "ladder"):
        if key not in raw:
            book.wrong(path, f"{key} is required: {{value: 64, ladder: [48, 32]}}, or rungs: [{{...}}, ...]")
    if "value" not in given or "ladder" not in given:
        return ()
    steps = [(("value",), given["value"])] + [(("ladder", n), item) for n, item in enumerate(given["ladder"])]
    if len(steps) == 1:
        book.wrong((*path, "ladder"), "a ladder has at least one rung below the value")
    _check_ladder(book, path, steps, up=bool(given.get("direction")))
    return tuple({name: value} for _, value in steps if value is not DROPPED)


def _raw(book: Book, path: Path) -> Any:
    """What stands at a path in the file, right or wrong."""
    node: Any = book.source.root
    for part in path:
        node = node[part]
    return node


def _check_ladder(book: Book, path: Path, steps: list[tuple[tuple[Any, ...], Any]], *, up: bool) -> None:
    """Numbers fall strictly (rise, with `direction: up`); other scalars are distinct."""
    values = [value for _, value in steps if value is not DROPPED]
    in_numbers = all(number(value) is not None for value in values)
    seen: list[Scalar] = []
    for where, value in steps:
        if value is DROPPED:
            continue
        if any(same(value, earlier) for earlier in seen):
            book.wrong((*path, *where), f"{value.text} stands on this ladder already")
        elif in_numbers and seen and not _goes(seen[-1], value, up=up):
            verb = "rise" if up else "fall"
            hint = "" if up else "; if a larger value asks for less, write direction: up"
            book.wrong((*path, *where), f"the rungs must {verb}: {value.text} follows {seen[-1].text}{hint}")
        seen.append(value)


def _goes(before: Scalar, after: Scalar, *, up: bool) -> bool:
    a, b = number(before), number(after)
    if a is None or b is None:
        return True
    return b > a if up else b < a


def _sets(book: Book, path: Path, given: list[Any], up: bool) -> tuple[dict[str, Scalar], ...]:
    rungs = [((*path, "rungs", n), rung) for n, rung in enumerate(given) if rung is not DROPPED]
    if len(given) < 2:
        book.wrong((*path, "rungs"), "at least two rungs: the start, and one to go down to")
    if not rungs:
        return ()
    first: dict[str, Scalar] = rungs[0][1]
    for where, rung in rungs:
        if set(rung) != set(first) or not rung:
            book.wrong(where, f"every rung sets the same params: {', '.join(first) or 'at least one'}")
            return ()
    for n, (where, rung) in enumerate(rungs):
        if any(all(same(rung[key], earlier[key]) for key in first) for _, earlier in rungs[:n]):
            book.wrong(where, "this rung stands on the ladder already")
        elif len(first) == 1 and n:
            (key,) = first
            if not _goes(rungs[n - 1][1][key], rung[key], up=up):
                book.wrong(
                    where,
                    f"the rungs must {'rise' if up else 'fall'}: {rung[key].text} follows a rung "
                    f"with {rungs[n - 1][1][key].text}",
                )
    return tuple(rung for _, rung in rungs)


def _check_keep(book: Book, path: Path, knob: Knob, protected: Mapping[str, Value]) -> None:
    """Every rung must leave `keep` as it is at the start."""
    if knob.keep is None:
        looks = [name for name in knob.rungs[0] if _BATCH.search(name) and not _NOT_TRAINING.search(name)]
        if looks:
            book.warn(path, f"lowering {', '.join(looks)} changes the effective batch, which is part of the training "
                      "signal; a set of knobs with `keep` keeps it")  # fmt: skip
        return
    try:
        known = [*knob.rungs[0], *protected]
        for name in keep_names(knob.keep):
            if name not in known:
                book.wrong((*path, "keep"), f"{name} is neither in the rungs nor protected{did_you_mean(name, known)}")
                return
        kept = [evaluate(knob.keep, _numbers({**protected, **rung})) for rung in knob.rungs]
    except NotArithmetic as error:
        book.wrong((*path, "keep"), str(error))
        return
    for n, value in enumerate(kept):
        if not equal(value, kept[0]):
            book.wrong((*path, "rungs", n), f"{knob.keep} is {value} here and {kept[0]} at the start")


def _numbers(values: Mapping[str, Value]) -> dict[str, int | float]:
    return {
        name: plain
        for name, value in values.items()
        if isinstance(value, Scalar) and (plain := number(value)) is not None
    }


def _check_forms(book: Book, protected: Mapping[str, Value], how: Mapping[str, Param]) -> None:
    """No two params may be written alike."""
    seen: dict[str, str] = {}
    for name, param in how.items():
        for spelling in _spellings(param):
            first = seen.setdefault(spelling, name)
            if first != name:
                where = "protected" if name in protected else "knobs"
                book.wrong(("params", where, name), f"is written {spelling}, as {first} is")


def _spellings(param: Param) -> Iterator[str]:
    for text in (param.flag, *param.aliases):
        if text is not None:
            yield "--" + text.lstrip("-").replace("_", "-")
    if param.env is not None:
        yield param.env
