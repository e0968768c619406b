"""What people see of a run, folded from its records. Not what the supervisor acts on: that is `core/fold.py`.

Rule 1: a record of a type not known here changes nothing; a field that is missing has its default.
Rule 2: the phase changes only by `PHASES`, which says what the table of `core/phases.py` says (a test compares them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from supervisor.views.fold_attempts import OF_ATTEMPTS, Change
from supervisor.views.run import AttemptView, Entry, Plain, RunView, next_phase, trigger
from supervisor.views.words import value_of


def fold(name: str, entries: Iterable[Entry]) -> RunView:
    """The run after all these records."""
    view = RunView(name)
    for entry in entries:
        view = folded(view, entry)
    return view


def folded(view: RunView, entry: Entry) -> RunView:
    """The run after one more record."""
    phase = next_phase(view.phase, trigger(entry))
    change = _CHANGES.get(entry.type)
    if change is not None:
        view = change(view, entry.fields, entry.wall_s)
    return view._replace(phase=phase, last_s=entry.wall_s)


def _supervisor_started(view: RunView, of: Plain, at_s: float) -> RunView:
    return view._replace(supervisor_pid=of.get("pid"))


def _accepted(view: RunView, of: Plain, at_s: float) -> RunView:
    return view._replace(wanted="down") if of.get("verb") == "down" else view


def _episode_opened(view: RunView, of: Plain, at_s: float) -> RunView:
    spec = of.get("spec", {})
    return view._replace(
        wanted="up",
        because="checking before the launch",
        next_command="",
        held=False,
        spec=spec,
        machine=of.get("machine", {}),
        protected={**view.protected, **{k: _value(v) for k, v in spec.get("params", {}).get("protected", {}).items()}},
        protected_sha256=of.get("protected_sha256"),
        knobs=_knobs_at(spec, of.get("rungs", {})),
        episode_first=len(view.attempts),
        episode_s=at_s,
        ended_s=None,
        warnings=tuple(dict.fromkeys(spec.get("warnings", ()))),
    )


def _refused(view: RunView, of: Plain, at_s: float) -> RunView:
    return _unlaunched(view)._replace(wanted="down", because=of.get("text", ""), ended_s=at_s)


def _unlaunched(view: RunView) -> RunView:
    """An episode that launched nothing leaves values as they stood at the last launch."""
    return view if len(view.attempts) > view.episode_first else view._replace(**view.settled)


def _passed(view: RunView, of: Plain, at_s: float) -> RunView:
    view = _placed(view, of)
    told = _told(view, of.get("warnings", ()))
    return view._replace(because="preflight passed", warnings=told, code=of.get("code"))


def _launch_intended(view: RunView, of: Plain, at_s: float) -> RunView:
    view = _placed(view, of)
    texts = _tags(view.spec)
    knobs: Plain = {name: texts.get((name, text), text) for name, text in of.get("knobs", {}).items()}
    before = view.attempts[-1].knobs if view.attempts else {}
    attempt = AttemptView(
        number=of["attempt"],
        intended_s=at_s,
        argv=tuple(of.get("argv", ())),
        knobs=knobs,
        changed={k: (before[k], v) for k, v in knobs.items() if k in before and before[k] != v},
        checkpoint=of.get("checkpoint"),
        because=of.get("because", ""),
        rehearsal=bool(of.get("rehearsal")),
        code=view.code,
    )
    knobs = knobs or view.knobs
    settled = {"spec": view.spec, "protected": view.protected, "protected_sha256": view.protected_sha256}
    return view._replace(
        attempts=(*view.attempts, attempt),
        step=None,
        knobs=knobs,
        settled={**settled, "knobs": knobs},
        checkpoint=attempt.checkpoint or view.checkpoint,
        because=attempt.because,
    )


def _backoff_began(view: RunView, of: Plain, at_s: float) -> RunView:
    return view._replace(because=of.get("because", ""))


def _episode_ended(view: RunView, of: Plain, at_s: float) -> RunView:
    ending = of.get("ending")
    return _unlaunched(view)._replace(
        paused=False,
        wanted="down",
        because=of.get("because", ""),
        next_command=of.get("next_command", ""),
        held=bool(of.get("held")),
        ended_s=at_s,
        last_failure=None if ending == "finished" else view.last_failure,
    )


def _pause_set(view: RunView, of: Plain, at_s: float) -> RunView:
    return view._replace(paused=bool(of.get("paused")), would="")


def _machine_moved(view: RunView, of: Plain, at_s: float) -> RunView:
    return view._replace(machine=of.get("machine", {}))


def _held_back(view: RunView, of: Plain, at_s: float) -> RunView:
    plan = of.get("plan") or {}
    deed = "halt" if plan.get("ending") else "relaunch"
    return view._replace(would=f"would {deed}: {plan.get('because', '')}")


def _warned(view: RunView, of: Plain, at_s: float) -> RunView:
    return view._replace(warnings=_told(view, [of.get("text", "")]))


def _notified(view: RunView, of: Plain, at_s: float) -> RunView:
    """A message that reached nobody is something to know; one that did is not."""
    text = f"nobody was told of {of.get('key', '')}: {of['why']}" if of.get("why") else ""
    return view._replace(warnings=_told(view, [text])) if text else view


_CHANGES: dict[str, Change] = {
    **OF_ATTEMPTS,
    "SupervisorStarted": _supervisor_started,
    "Accepted": _accepted,
    "EpisodeOpened": _episode_opened,
    "PreflightRefused": _refused,
    "PreflightPassed": _passed,
    "LaunchIntended": _launch_intended,
    "BackoffBegan": _backoff_began,
    "EpisodeEnded": _episode_ended,
    "PauseSet": _pause_set,
    "HeldBack": _held_back,
    "MachineMoved": _machine_moved,
    "Warned": _warned,
    "Notified": _notified,
}


def _told(view: RunView, warnings: Iterable[str]) -> tuple[str, ...]:
    """Each warning once."""
    return tuple(dict.fromkeys((*view.warnings, *warnings)))


def _placed(view: RunView, of: Plain) -> RunView:
    """With the GPUs of the roles that a record names, by UUID; one that names none takes none away."""
    roles = of.get("roles") or {}
    if not roles:
        return view
    gpus = {
        uuid: (index, name)
        for name, has in roles.items()
        for index, uuid in zip(has.get("physical", ()), has.get("uuids", ()), strict=False)
    }
    return view._replace(gpus=gpus)


def _value(value: Any) -> Any:
    """A protected value as JSON: a scalar, or a list of them."""
    if isinstance(value, Mapping):
        return value_of(value["text"], value.get("tag", "str"))
    return [_value(item) for item in value]


def _tags(spec: Plain) -> dict[tuple[str, str], Any]:
    """(param, text) → typed value, for every value that the spec's rungs have."""
    rungs = (rung for knob in spec.get("params", {}).get("knobs", ()) for rung in knob.get("rungs", ()))
    return {(name, scalar["text"]): _value(scalar) for rung in rungs for name, scalar in rung.items()}


def _knobs_at(spec: Plain, at: Plain) -> dict[str, Any]:
    knobs: dict[str, Any] = {}
    for knob in spec.get("params", {}).get("knobs", ()):
        rungs = knob.get("rungs", ())
        place = at.get(knob["name"], 0)
        if place < len(rungs):
            knobs.update({name: _value(scalar) for name, scalar in rungs[place].items()})
    return knobs


def lowered(view: RunView, plan: Plain) -> dict[str, tuple[Any, Any]]:
    """The moves of a plan with typed values."""
    texts = _tags(view.spec)
    moved = plan.get("lowered", {})
    return {k: (texts.get((k, old), old), texts.get((k, new), new)) for k, (old, new) in moved.items()}
