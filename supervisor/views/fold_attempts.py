"""What records change of one attempt as people see it. What they change of the run is in `fold.py`.

A record that names an attempt changes that attempt only while its episode lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from supervisor.views.run import AttemptView, Plain, RunView

NOTES_KEPT = 20
Change = Callable[[RunView, Plain, float], RunView]


def _launched(view: RunView, of: Plain, at_s: float) -> RunView:
    leader = (of.get("leader") or {}).get("pid")
    current = _of_episode(view, of)
    started_s = at_s if current is None or current.started_s is None else current.started_s
    return _with(view, of, started_s=started_s, leader=leader)


def _launch_abandoned(view: RunView, of: Plain, at_s: float) -> RunView:
    return _with(view, of, abandoned=of.get("because", ""), ended_s=at_s)


def _first_progress(view: RunView, of: Plain, at_s: float) -> RunView:
    step = of.get("step")
    view = view._replace(step=step, because="making progress")
    return _with(view, of, first_step=step, last_step=step, startup_s=of.get("startup_s"))


def _degraded(view: RunView, of: Plain, at_s: float) -> RunView:
    failure = of.get("failure", {})
    view = view._replace(because=failure.get("because", ""))
    view = _noted(view, of, f"degraded: {failure.get('kind')}: {failure.get('because')}")
    return _failed(view, of["attempt"], failure, at_s)


def _regained(view: RunView, of: Plain, at_s: float) -> RunView:
    return _noted(view._replace(because=of.get("because", "")), of, str(of.get("because", "")))


def _foretold(view: RunView, of: Plain, at_s: float) -> RunView:
    return _noted(view, of, str(of.get("text", "")))


def _noted(view: RunView, of: Plain, text: str) -> RunView:
    attempt = _of_episode(view, of)
    return view if attempt is None else _with(view, of, notes=(*attempt.notes, text)[-NOTES_KEPT:])


def _drifted(view: RunView, of: Plain, at_s: float) -> RunView:
    return _with(view, of, drift=of)


def _hook_ended(view: RunView, of: Plain, at_s: float) -> RunView:
    code, why = of.get("code"), of.get("why")
    how = "failed" if code is None else f"ended with exit code {code}"
    return _noted(view, of, f"the hook {of.get('hook')} {how}" + (f": {why}" if why else ""))


def _rehearsed(view: RunView, of: Plain, at_s: float) -> RunView:
    text = f"the rehearsal passed: {of.get('steps')} steps in {of.get('took_s', 0.0):.0f} s"
    return _noted(view._replace(because=text), of, text)


def _checkpoint_written(view: RunView, of: Plain, at_s: float) -> RunView:
    attempt = _of_episode(view, of)
    if attempt is not None and attempt.rehearsal:
        return view
    return view._replace(checkpoint=of.get("checkpoint"))


def _job_ended(view: RunView, of: Plain, at_s: float) -> RunView:
    return _with(view, of, end=of.get("end", {}), ended_s=at_s, **_steps(of))


def _judged(view: RunView, of: Plain, at_s: float) -> RunView:
    failure, plan = of.get("failure", {}), of.get("plan", {})
    view = _with(view, of, failure=failure, plan=plan, **_steps(of))
    view = view._replace(because=plan.get("because") or failure.get("because", ""))
    return view if failure.get("kind") == "none" else _failed(view, of["attempt"], failure, at_s)


def _stop_intended(view: RunView, of: Plain, at_s: float) -> RunView:
    changes: dict[str, Any] = {"stop_by": of.get("by"), "stop_because": of.get("because", ""), **_steps(of)}
    if of.get("plan"):
        changes["plan"] = of["plan"]
    if (of.get("plan") or {}).get("ending") == "stopped":
        view = view._replace(wanted="down")
    return _with(view._replace(because=of.get("because", "")), of, **changes)


def _planned(view: RunView, of: Plain, at_s: float) -> RunView:
    plan = of.get("plan", {})
    view = view._replace(because=plan.get("because", view.because))
    if plan.get("ending") == "stopped":
        view = view._replace(wanted="down")
    if len(view.attempts) <= view.episode_first:
        return view
    return _with(view, {"attempt": view.attempts[-1].number}, plan=plan)


def _signal_intended(view: RunView, of: Plain, at_s: float) -> RunView:
    attempt = _of_episode(view, of)
    if attempt is None:
        return view
    by = attempt.stop_by or "policy"
    known = {(each["pid"], each["start_ticks"]) for each in attempt.stopped}
    fresh = (
        {**target["id"], "cmdline": target.get("cmdline", ""), "by": by, "proof": target.get("proof")}
        for target in of.get("targets", ())
        if (target["id"]["pid"], target["id"]["start_ticks"]) not in known
    )
    return _with(view, of, stopped=(*attempt.stopped, *fresh))


def _members_gone(view: RunView, of: Plain, at_s: float) -> RunView:
    attempt = _of_episode(view, of)
    return view if attempt is None or attempt.ended_s is not None else _with(view, of, ended_s=at_s)


def _verified_zero(view: RunView, of: Plain, at_s: float) -> RunView:
    return _verified(view, of, True, "")


def _not_zero(view: RunView, of: Plain, at_s: float) -> RunView:
    return _verified(view._replace(because=of.get("why", "")), of, False, of.get("why", ""))


def _verified(view: RunView, of: Plain, is_zero: bool, why: str) -> RunView:
    """Only what is read after an attempt's end says something about that attempt."""
    attempt = _of_episode(view, of)
    if attempt is None or attempt.ended_s is None:
        return view
    verified = {
        "waited_s": of.get("waited_s"),
        "used_mib": list(of.get("used_mib", ())),
        "is_zero": is_zero,
        "why": why,
    }
    holders = tuple(of.get("holders", ())) or attempt.holders
    return _with(view, of, verified=verified, holders=holders)


def _foreign_holders(view: RunView, of: Plain, at_s: float) -> RunView:
    view = view._replace(because="waiting for processes of others to leave the GPUs of this run")
    return _with(view, of, holders=tuple(of.get("holders", ())))


def _dumped(view: RunView, of: Plain, at_s: float) -> RunView:
    attempt = _of_episode(view, of)
    return view if attempt is None else _with(view, of, dumps=(*attempt.dumps, of))


def _failed(view: RunView, attempt: int, failure: Plain, at_s: float) -> RunView:
    return view._replace(last_failure={**failure, "attempt": attempt, "at_s": at_s})


def _steps(of: Plain) -> dict[str, Any]:
    """The steps that a record knows of; one that knows none takes none away."""
    return {key: of[key] for key in ("first_step", "last_step") if of.get(key) is not None}


def _of_episode(view: RunView, of: Plain) -> AttemptView | None:
    """The attempt that a record names, if it belongs to the current episode."""
    for attempt in view.attempts[view.episode_first :]:
        if attempt.number == of.get("attempt"):
            return attempt
    return None


def _with(view: RunView, of: Plain, **changes: Any) -> RunView:
    attempt = _of_episode(view, of)
    if attempt is None:
        return view
    attempts = tuple(each._replace(**changes) if each is attempt else each for each in view.attempts)
    step = changes.get("last_step")
    return view._replace(attempts=attempts, step=view.step if step is None else step)


OF_ATTEMPTS: Mapping[str, Change] = {
    "Launched": _launched,
    "LaunchAbandoned": _launch_abandoned,
    "FirstProgress": _first_progress,
    "Degraded": _degraded,
    "Regained": _regained,
    "Foretold": _foretold,
    "CheckpointWritten": _checkpoint_written,
    "Drifted": _drifted,
    "HookEnded": _hook_ended,
    "Rehearsed": _rehearsed,
    "JobEnded": _job_ended,
    "Judged": _judged,
    "StopIntended": _stop_intended,
    "Planned": _planned,
    "SignalIntended": _signal_intended,
    "MembersGone": _members_gone,
    "VerifiedZero": _verified_zero,
    "NotZero": _not_zero,
    "ForeignHolders": _foreign_holders,
    "Dumped": _dumped,
}
"""Type of record -> what it changes."""
