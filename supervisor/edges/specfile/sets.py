"""`--set K=V`: a knob onto one of its rungs. Never a value that is on no rung, never a protected param."""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.core.errors import Exit, Refusal
from supervisor.core.scalars import is_text_of
from supervisor.core.spec import Knob, RunSpec


def apply_set(spec: RunSpec, sets: Mapping[str, str]) -> dict[str, int]:
    """The rung of every knob that `sets` names. A name is a knob's or that of a param in its rungs.

    Raises Refusal (2) for a value that is no rung, and for anything that is not a knob.
    """
    wanted: dict[str, dict[str, str]] = {}
    for name, text in sets.items():
        knob = _knob_of(spec, name)
        wanted.setdefault(knob.name, {})[name] = text
    return {knob.name: _rung(knob, wanted[knob.name]) for knob in spec.params.knobs if knob.name in wanted}


def _knob_of(spec: RunSpec, name: str) -> Knob:
    for knob in spec.params.knobs:
        if name == knob.name and name not in knob.rungs[0]:
            params = ", ".join(knob.rungs[0])
            raise Refusal(Exit.USAGE, f"{name} is a set of knobs. Say which rung by one of its params: {params}.")
        if name in knob.rungs[0]:
            return knob
    knobs = ", ".join(param for knob in spec.params.knobs for param in knob.rungs[0]) or "none"
    if name in spec.params.protected:
        raise Refusal(
            Exit.USAGE,
            f"{name} is locked: it shapes the training signal. --set moves knobs only: {knobs}. "
            f"For another {name} start a run of another `name`.",
        )
    raise Refusal(Exit.USAGE, f"{name} is no knob of this spec. Its knobs: {knobs}.")


def _rung(knob: Knob, wanted: Mapping[str, str]) -> int:
    fits = [
        n for n, rung in enumerate(knob.rungs) if all(is_text_of(text, rung[name]) for name, text in wanted.items())
    ]
    if len(fits) == 1:
        return fits[0]
    said = ", ".join(f"{name}={text}" for name, text in wanted.items())
    rungs = "; ".join(", ".join(f"{name}={value.text}" for name, value in rung.items()) for rung in knob.rungs)
    why = "stands on several rungs" if fits else "is on no rung"
    raise Refusal(Exit.USAGE, f"{said} {why}: a knob only ever has a value of its ladder. The rungs: {rungs}.")
