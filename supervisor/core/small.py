"""How a rehearsal differs from its run: other params, and what it writes lies in the attempt's folder."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from msgspec.structs import replace

from supervisor.core.scalars import typed
from supervisor.core.spec import Knob, Param, RunSpec


def folders(spec: RunSpec) -> tuple[str, ...]:
    """The folders that the run writes to, as far as the spec says: its output, and where its checkpoints are."""
    found = [spec.output.dir] if spec.output.dir else []
    if spec.resume is not None:
        head = re.split(r"[*?\[]", spec.resume.from_, maxsplit=1)[0]
        found.append(posixpath.dirname(head))
    inside = [one for one in found if "${{" not in one and not (spec.workdir + "/").startswith(one.rstrip("/") + "/")]
    return tuple(sorted(dict.fromkeys(inside), key=len, reverse=True))


def moved_to(spec: RunSpec, attempt_dir: str) -> dict[str, str]:
    """Each of these folders, and where it lies in a rehearsal."""
    base = spec.workdir.rstrip("/") + "/"
    return {one: f"{attempt_dir}/rehearsal/{one.removeprefix(base).lstrip('/')}" for one in folders(spec)}


def small(spec: RunSpec, attempt_dir: str) -> RunSpec:
    """The spec of the rehearsal: its params, and what is written moved into the attempt's folder."""
    assert spec.rehearsal is not None
    moves = _Moves(spec, moved_to(spec, attempt_dir))
    progress = spec.health.progress
    if progress is not None:
        progress = replace(
            progress,
            in_=tuple(map(moves, progress.in_)),
            files=moves.maybe(progress.files),
            jsonl={key: moves(text) for key, text in progress.jsonl.items()},
            heartbeat=moves.maybe(progress.heartbeat),
        )
    return replace(
        _with_params(spec, spec.rehearsal.params),
        command=tuple(map(moves, spec.command)),
        env={name: moves(text) for name, text in spec.env.items()},
        files=tuple(replace(one, set={key: moves(text) for key, text in one.set.items()}) for one in spec.files),
        logs=tuple(map(moves, spec.logs)),
        output=replace(spec.output, dir=moves.maybe(spec.output.dir), units=moves.maybe(spec.output.units)),
        health=replace(spec.health, progress=progress),
        done=None,
    )


def _with_params(spec: RunSpec, texts: Mapping[str, str]) -> RunSpec:
    """Knobs that it names stand still at its value; other params are passed as the style says."""
    given = {name: typed(text) for name, text in texts.items()}
    knobs = [
        replace(
            knob, rungs=tuple({name: given.get(name, value) for name, value in rung.items()} for rung in knob.rungs)
        )
        for knob in spec.params.knobs
    ]
    known = {name for knob in knobs for name in knob.rungs[0]}
    new = [name for name in given if name not in known]
    how = {**spec.params.how, **{name: Param(name=name, env=_variable(spec, name)) for name in new}}
    knobs += [Knob(name=name, rungs=({name: given[name]},)) for name in new]
    return replace(spec, params=replace(spec.params, knobs=tuple(knobs), how=how))


def _variable(spec: RunSpec, name: str) -> str | None:
    return re.sub(r"\W", "_", name).upper() if spec.params.style.value == "env" else None


class _Moves:
    """Puts the new folder where a text names an old one, absolute or as it is seen from the workdir."""

    def __init__(self, spec: RunSpec, moves: Mapping[str, str]) -> None:
        base = spec.workdir.rstrip("/") + "/"
        self._to = dict(moves)
        self._to.update({old.removeprefix(base): new for old, new in moves.items() if old.startswith(base)})
        names = "|".join(re.escape(one) for one in sorted(self._to, key=len, reverse=True))
        self._pattern = re.compile(rf"(?P<head>^|[=,:])(?:\./)?(?P<old>{names})(?=/|,|:|$)") if names else None

    def __call__(self, text: str) -> str:
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: found["head"] + self._to[found["old"]], text)

    def maybe(self, text: str | None) -> str | None:
        """The same for what may not be there."""
        return None if text is None else self(text)
