"""The guard of protected params: what on an argv, in an environment or in a config file differs from what is locked.

Rule 1: any occurrence with another value is a violation, also where an earlier or later one agrees.
Rule 2: values compare as YAML scalars: `1e-4` is `0.0001`, `012` is `12`, `"5"` is `5`.
Rule 3: what is absent is no violation: a launcher need not repeat the flags, a process may have wiped its environment.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import fields, replace

from supervisor.core.keep import NotArithmetic, evaluate
from supervisor.core.occurrences import Occurrence, occurrences
from supervisor.core.render import SECRET
from supervisor.core.scalars import is_text_of, number, same_value, scalars, shown, typed
from supervisor.core.spec import Knob, Params, Recovery, RunSpec, Scalar, Style, Value
from supervisor.core.substitution import sole


class Violation(Struct, frozen=True):
    """A protected param found with another value. `where` says the place as a person would look for it."""

    param: str
    where: str
    found: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.param} is locked at {self.wanted}, and {self.where} says {self.found}"


class WatchedKey(Struct, frozen=True):
    """A value in a config file that is protected: `file` is an absolute path or the name of an entry of `files`."""

    param: str
    file: str
    key: str


def protected_sha256(spec: RunSpec) -> str:
    """SHA-256 over the protected params and what every `keep` comes to. How a value is written does not matter."""
    plain = {name: _canonical(value) for name, value in _locked(spec).items()}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def protected_changes(old: RunSpec, new: RunSpec) -> tuple[str, ...]:
    """What of `old`'s protected params is changed or removed in `new`: `anchors 1024 -> 512`. Adding is allowed."""
    before, after = _locked(old), _locked(new)
    return tuple(
        f"{name} {shown(value)} -> {shown(after[name]) if name in after else '(removed)'}"
        for name, value in before.items()
        if name not in after or not same_value(value, after[name])
    )


def argv_violations(spec: RunSpec, argv: Sequence[str]) -> tuple[Violation, ...]:
    """Every protected param that stands on `argv` with another value than its own."""
    return tuple(found for name, value in _on_argv(spec) for found in _argv_one(spec, name, value, argv))


def environ_violations(spec: RunSpec, environ: Mapping[str, str]) -> tuple[Violation, ...]:
    """Every protected param whose variable is set to another value."""
    return tuple(
        Violation(name, f"the environment variable {variable}", environ[variable], shown(value))
        for name, value in spec.params.protected.items()
        for variable in variables_of(spec, name)
        if variable in environ and not _says((environ[variable],), value)
    )


def in_both(one: Iterable[Violation], other: Iterable[Violation]) -> tuple[Violation, ...]:
    """What is wrong by either way to name the same value: that of the spec, and that of the copy of its code."""
    also = {(each.param, each.where) for each in other}
    return tuple(each for each in one if (each.param, each.where) in also)


def watched_keys(spec: RunSpec) -> tuple[WatchedKey, ...]:
    """The values in config files that must be read and given to `file_violations` before a launch."""
    found: list[WatchedKey] = []
    for name in spec.params.protected:
        how = spec.params.how[name]
        if how.file is not None and how.key is not None:
            copies = [file.name for file in spec.files if file.from_ == how.file]
            found.extend(WatchedKey(name, file, how.key) for file in (how.file, *copies))
        found.extend(
            WatchedKey(name, file.name, key)
            for file in spec.files
            for key, text in file.set.items()
            if sole(text) == f"params.{name}"
        )
    return tuple(found)


def file_violations(spec: RunSpec, values: Mapping[WatchedKey, Value | None]) -> tuple[Violation, ...]:
    """Every watched value that differs. A key that is not there (None) is one: its file no longer says the value."""
    return tuple(
        Violation(
            key.param,
            f"{key.key} in {key.file}",
            "nothing" if found is None else shown(found),
            shown(spec.params.protected[key.param]),
        )
        for key, found in values.items()
        if found is None or not same_value(found, spec.params.protected[key.param])
    )


def carries_all_flags(spec: RunSpec, argv: Sequence[str]) -> bool:
    """True when every protected param that goes to the command stands on `argv`: this is the trainer."""
    given = [(name, value) for name, value in _on_argv(spec) if not _is_silent(value)]
    return bool(given) and all(any(occurrences(spec, name, argv)) for name, _ in given)


def runs_command(spec: RunSpec, argv: Sequence[str]) -> bool:
    """True when `argv` runs the script or module that the command names, whatever interpreter stands before it."""
    modules = {module for flag, module in pairwise(argv) if flag == "-m"}
    bases = {_base(item) for item in argv if not item.startswith("-")}
    return any(name in (modules if is_module else bases) for name, is_module in _programs(spec.command))


def changed(old: RunSpec, new: RunSpec) -> tuple[str, ...]:
    """What differs between two specs, as keys of the file, protected params first. Empty: nothing."""
    protected = [f"params.protected.{change}" for change in protected_changes(old, new)]
    added = [f"params.protected.{name} (added)" for name in _locked(new) if name not in _locked(old)]
    rest: list[str] = []
    for one in fields(RunSpec):
        before, after = _placeless(getattr(old, one.name)), _placeless(getattr(new, one.name))
        if before != after and one.name not in ("file", "warnings", "pins_at"):
            rest.extend(_inside(one.name, before, after))
    return tuple(dict.fromkeys(protected + added + rest))


def variables_of(spec: RunSpec, name: str) -> tuple[str, ...]:
    """The environment variables that carry a param: its own, and those set to `${{ params.NAME }}`."""
    own = spec.params.how[name].env
    passed = [key for key, text in spec.env.items() if text != SECRET and sole(text) == f"params.{name}"]
    return tuple(dict.fromkeys(([own] if own else []) + passed))


_LAUNCHER = re.compile(
    r"(python|pypy)[\d.]*|(ba|da|z|k)?sh|env|nohup|nice|stdbuf|time|numactl|taskset|srun|mpirun|mpiexec|torchrun|"
    r"accelerate|deepspeed|uv|poetry|conda|run|exec|launch"
)
_SCRIPT = re.compile(r".+\.(py|pyz|sh|bash)")


def _programs(command: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """What a command runs: (base name of a script, False) or (module, True)."""
    for flag, module in pairwise(command):
        if flag == "-m":
            yield module, True
    words = [item for item in command if not item.startswith("-")]
    scripts = [item for item in words if _SCRIPT.fullmatch(item)]
    first = [item for item in words if not _LAUNCHER.fullmatch(_base(item))]
    own = words[:1] if first[:1] == words[:1] else []
    for item in dict.fromkeys([*own, *(scripts[:1] or ([] if "-m" in command else first[:1]))]):
        yield _base(item), False


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1]


_KEY_OF = {
    "pins_warn": "pins.on_drift",
    "per_s": "per",
    "stop_signal": "stop.signal",
    "grace_s": "stop.grace",
    "backoff_first_s": "backoff.first",
    "backoff_cap_s": "backoff.cap",
}
"""Fields whose key in the file is another."""


def _placeless(value: object) -> object:
    """Without the places of rules: a comment more above one, or another way to name the file, changes nothing."""
    if isinstance(value, Recovery):
        return replace(value, rules=tuple(replace(rule, where="") for rule in value.rules))
    return value


def _inside(name: str, before: object, after: object) -> Iterator[str]:
    """The keys of one field that differ: one deeper for a mapping, `params` and `recovery`; else the field itself."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            if before.get(key) != after.get(key):
                yield f"{name}.{key}"
    elif isinstance(before, Params) and isinstance(after, Params):
        yield from _params_inside(before, after)
    elif isinstance(before, Recovery):
        for one in fields(Recovery):
            if getattr(before, one.name) != getattr(after, one.name):
                yield f"recovery.{_KEY_OF.get(one.name, one.name)}"
    else:
        yield _KEY_OF.get(name, name)


def _params_inside(before: Params, after: Params) -> Iterator[str]:
    if before.style != after.style:
        yield "params.style"
    knobs = {knob.name: knob for knob in before.knobs}, {knob.name: knob for knob in after.knobs}
    for name in dict.fromkeys([*knobs[0], *knobs[1]]):
        if knobs[0].get(name) != knobs[1].get(name):
            yield f"params.knobs.{name}"
    for name in dict.fromkeys([*before.how, *after.how]):
        if name in before.how and name in after.how and before.how[name] != after.how[name]:
            yield f"params.{name} (how it is written)"


def _locked(spec: RunSpec) -> dict[str, Value]:
    """Protected params, and each `keep` with what it comes to on the first rung."""
    return dict(spec.params.protected) | {
        f"keep {knob.keep}": Scalar(kept, "float" if "." in kept else "int")
        for knob in spec.params.knobs
        if (kept := _kept(spec, knob)) is not None
    }


def _kept(spec: RunSpec, knob: Knob) -> str | None:
    if knob.keep is None:
        return None
    known = {
        name: value
        for name, scalar in {**spec.params.protected, **knob.rungs[0]}.items()
        if isinstance(scalar, Scalar) and (value := number(scalar)) is not None
    }
    try:
        return repr(evaluate(knob.keep, known))
    except NotArithmetic:  # a spec that was checked has none; an old journal's may
        return None


def _canonical(value: Value) -> object:
    if not isinstance(value, Scalar):
        return [_canonical(item) for item in value]
    plain = number(value)
    if plain is not None:
        return ["number", repr(int(plain) if plain == plain // 1 else plain)]
    return [value.tag if value.tag == "bool" else "str", value.text.lower() if value.tag == "bool" else value.text]


def _on_argv(spec: RunSpec) -> Iterator[tuple[str, Value]]:
    for name, value in spec.params.protected.items():
        how = spec.params.how[name]
        if how.file is None and how.env is None and spec.params.style is not Style.ENV:
            yield name, value


def _is_silent(value: Value) -> bool:
    """True for a value that argparse is told of by saying nothing."""
    return isinstance(value, Scalar) and value.tag == "bool" and value.value is False


def _argv_one(spec: RunSpec, name: str, wanted: Value, argv: Sequence[str]) -> Iterator[Violation]:
    places = tuple(occurrences(spec, name, argv))
    if not isinstance(wanted, Scalar) and _says(tuple(place.values[0] for place in places if place.values), wanted):
        return
    for place in places:
        if not _agrees(place, wanted):
            found = "off" if place.off else " ".join(place.values[:1]) or "nothing"
            yield Violation(name, f"argument {place.index} ({place.written})", found, shown(wanted))


def _agrees(place: Occurrence, wanted: Value) -> bool:
    if isinstance(wanted, Scalar) and wanted.tag == "bool":
        return _bool_agrees(place, wanted)
    if place.off or not place.values:
        return False
    if isinstance(wanted, Scalar):
        return is_text_of(place.values[0], wanted)
    return _says(place.values[:1], wanted) or _says(place.values[: len(wanted)], wanted)


def _bool_agrees(place: Occurrence, wanted: Scalar) -> bool:
    """A flag alone says true, a negated one false; a word behind it counts only when it is a boolean."""
    said = typed(place.values[0]) if place.values else Scalar("true", "bool")
    if place.written.partition("=")[1]:
        return said.tag == "bool" and (said.value == wanted.value) != place.off
    on = said.value if said.tag == "bool" else True
    return (on == wanted.value) != place.off


def _says(texts: tuple[str, ...], wanted: Value) -> bool:
    """True when the words are the value: one word, one word each, or one word with commas or in brackets."""
    items = scalars(wanted)
    if len(texts) == 1 and not isinstance(wanted, Scalar):
        texts = tuple(part.strip() for part in texts[0].strip("[]").split(","))
    return len(texts) == len(items) and all(map(is_text_of, texts, items))
