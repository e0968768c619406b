"""What a launch would run in, taken and compared: pins, code, data, and the last attempt that made progress.

Rule: a fingerprint that cannot be told is said, and is not a difference; a pin that cannot be checked does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from supervisor.core.codecopy import from_copy
from supervisor.core.drift import Change, any_build, diff, pin_mismatches, suspects
from supervisor.core.events import Drifted
from supervisor.core.evidence import Gpu
from supervisor.core.given import CodeCopy, Watched
from supervisor.core.render import venv_of
from supervisor.core.spec import RunSpec
from supervisor.edges import environment
from supervisor.edges.files import read_json
from supervisor.edges.paths import RunDir

CHANGES_MAX = 100
NOT_THERE = "not there"
"""What a fingerprint says of a data path that does not exist."""

SHOWN = 8
WITHIN_S, WITH_DATA_S = 5.0, 10.0
"""For the packages and the rest; where there is data to be counted, it gets five seconds more."""


class Compared(Struct, frozen=True):
    """Reasons not to launch, and what to know."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def take(
    spec: RunSpec,
    rungs: Mapping[str, int],
    environ: Mapping[str, str],
    gpus: Iterable[Gpu],
    redact: Callable[[str], str],
    code: CodeCopy | None = None,
) -> dict[str, Any]:
    """The fingerprint of what the spec's command would run in now. Waits for it, some seconds at most.

    `code`: the copy that it is launched from; its files are told under the names that the spec has for them.
    """
    paths = spec.data.paths if spec.data is not None else ()
    there = tuple(gpus)
    protect = _protected(spec)
    told = environment.start_fingerprint(
        workdir=spec.workdir if code is None else code.image_of(spec.workdir),
        argv=from_copy(spec, code).command,
        environ=environ,
        venv=venv_of(spec, rungs),
        redact=redact,
        gpus=there,
        data=paths,
        protect=protect if code is None else tuple(code.image_of(path) for path in protect),
        deadline_s=WITH_DATA_S if paths else WITHIN_S,
    ).wait()
    if not there:  # nobody was asked: that is not a box without GPUs
        told.pop("gpus", None)
    return told if code is None else _as_of_the_tree(told, spec, code, protect)


def _protected(spec: RunSpec) -> tuple[str, ...]:
    files = [one.from_ for one in spec.files]
    files += [how.file for how in spec.params.how.values() if how.file is not None and how.file.startswith("/")]
    return (*(spec.code.paths if spec.code is not None else ()), *dict.fromkeys(files))


def code_now(spec: RunSpec) -> dict[str, str]:
    """The hashes of the code alone, at this instant: a launch is told with what it was launched with."""
    from supervisor.edges.environment_probe import code  # only for specs that ask for it

    return code({"workdir": spec.workdir, "argv": list(spec.command), "protect": list(_protected(spec))}, {})


def code_changed(spec: RunSpec, now: Mapping[str, str], first: Mapping[str, Any] | None) -> str:
    """Why nothing may be launched with this code; empty where `code.on_change` lets it, or nothing changed."""
    before = (first or {}).get("code") or {}
    changed = {name: value for name, value in now.items() if before.get(name, value) != value}
    if spec.code is None or not spec.code.strict or not changed:
        return ""
    return _changed(spec, "code", spec.code, list(diff({"code": {**before}}, {"code": {**before, **changed}})))


def _as_of_the_tree(told: dict[str, Any], spec: RunSpec, code: CodeCopy, protect: Iterable[str]) -> dict[str, Any]:
    """The same names as for the tree that was copied, and the commit that it was of: what happens to it since is not
    what the job runs."""
    from supervisor.edges import codekept  # only for such runs

    words = zip(from_copy(spec, code).command, spec.command, strict=True)
    back = {moved.partition("=")[2] or moved: word.partition("=")[2] or word for moved, word in words if moved != word}
    hashes: dict[str, str] = {}
    for name, value in (told.get("code") or {}).items():
        source = code.source_of(name)
        is_protected = any(f"{source}/".startswith(f"{one}/") for one in protect)
        named = [back[name]] if name in back else []
        hashes |= dict.fromkeys([*named, *([source] if is_protected or not named else [])], value)
    try:
        made = codekept.manifest(Path(code.path).parent) or {}
    except (OSError, ValueError):  # told where the copy is looked at
        made = {}
    dirty = made.get("dirty", {})
    git = {"commit": code.commit, "dirty": dirty, "dirty_files": len(dirty)} if code.commit else None
    unknown = {name: why for name, why in (told.get("unknown") or {}).items() if name != "git"}
    return {**told, "code": hashes, "git": git, "unknown": unknown}


def of_attempt(run: RunDir, attempt: int | None) -> dict[str, Any] | None:
    """What an attempt ran in; None where nobody wrote it down."""
    if attempt is None:
        return None
    try:
        told = read_json(run.attempt(attempt).environment)
    except (OSError, ValueError):  # damaged: it tells nothing
        return None
    return told if isinstance(told, dict) else None


def drifted(run: RunDir, attempt: int, since: int | None, now: Mapping[str, Any]) -> Drifted | None:
    """What differs from the last attempt that made progress; None where nothing does, or there was none."""
    before = of_attempt(run, since)
    if before is None or since is None or since == attempt:
        return None
    changes = diff(before, now)
    if not changes:
        return None
    told = tuple(map(str, changes[:CHANGES_MAX]))
    return Drifted(attempt=attempt, since=since, changes=told, suspects=suspects(changes))


def is_watched(spec: RunSpec) -> bool:
    """True where a launch depends on what it would run in."""
    return bool(spec.pins) or spec.pins_freeze or spec.code is not None or spec.data is not None


def compared(
    spec: RunSpec, now: Mapping[str, Any], good: Mapping[str, Any] | None, first: Mapping[str, Any] | None
) -> Compared:
    """By the spec's pins, code and data. `good`: the last attempt that made progress; `first`: the episode's first."""
    problems: list[str] = []
    warnings = [f"pin {name}: any build of that version matches" for name in any_build(spec.pins)]
    wrong = _pins(spec, now, good)
    if spec.pins_freeze and good is None:
        warnings.append("pins: freeze: no attempt of this run has made progress yet, so there is nothing to hold on to")
    (warnings if spec.pins_warn else problems).extend(wrong)
    base = first if first is not None else good
    for what, watched, before in (("code", spec.code, base), ("data", spec.data, good or first)):
        if watched is None or before is None:
            continue
        changes = [one for one in diff(before, now) if one.group == what]
        if changes:
            (problems if watched.strict else warnings).append(_changed(spec, what, watched, changes))
    if spec.data is not None and first is None:
        absent = [path for path, told in (now.get("data") or {}).items() if told == NOT_THERE]
        fix = f"mend `data` in {spec.file}, or mount it"
        (problems if spec.data.strict else warnings).extend(f"data {path} is not there; {fix}" for path in absent)
    why = (now.get("unknown") or {}).get("data")
    if spec.data is not None and why:
        (problems if spec.data.strict else warnings).append(f"the data: {why}; is its disk well?")
    return Compared(tuple(problems), tuple(warnings))


def _pins(spec: RunSpec, now: Mapping[str, Any], good: Mapping[str, Any] | None) -> list[str]:
    frozen = dict((good or {}).get("packages") or {}) if spec.pins_freeze else {}
    said = []
    for one in pin_mismatches({**frozen, **spec.pins}, now.get("packages")):
        at = spec.pins_at.get(one.name) or spec.pins_at.get("freeze", "")
        pip = f"{spec.venv}/bin/python -m pip" if spec.venv else "pip"
        fix = f"{pip} install '{one.name}=={one.wanted}', or mend the pin"
        said.append(f"{at + ': ' if at else ''}{one}\n  next: {fix}")
    if said and good is not None:
        said.append(f"since the last attempt that made progress: {_shown(diff(good, now))}")
    return said


def _changed(spec: RunSpec, what: str, watched: Watched, changes: list[Change]) -> str:
    text = f"the {what} changed since the run was last launched well: {_shown(changes)}"
    fix = f"put it back, or write `{what}: {{..., on_change: warn}}` in {spec.file}"
    return f"{text}\n  next: {fix}" if watched.strict else text


def _shown(changes: Iterable[Change]) -> str:
    told = [str(one) for one in changes]
    more = f"; and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
    return "; ".join(told[:SHOWN]) + more or "nothing else"
