"""How a transcript says a record and an order: the fields that matter, in words that can be reviewed like prose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from supervisor.core import events as ev
from supervisor.core import seen as see

FIELDS = {
    "Answered": "verb exit text",
    "Accepted": "verb",
    "EpisodeOpened": "rungs from_",
    "PreflightRefused": "exit ending text",
    "PreflightPassed": "warnings",
    "LaunchIntended": "attempt rehearsal knobs checkpoint because",
    "Launched": "attempt",
    "LaunchAbandoned": "attempt",
    "FirstProgress": "attempt step",
    "CheckpointWritten": "attempt checkpoint",
    "CheckpointDemoted": "path because",
    "HitSeen": "attempt kind gpu dropped",
    "JobEnded": "attempt end",
    "Judged": "attempt failure plan",
    "StopIntended": "attempt by grace_s because",
    "SignalIntended": "signal group targets",
    "SignalSent": "signal group",
    "MembersGone": "attempt",
    "Unkillable": "id wchan",
    "VerifiedZero": "waited_s",
    "ForeignHolders": "holders wait_s",
    "NotZero": "waited_s why holders",
    "CleanIntended": "how path",
    "Cleaned": "did",
    "LeftoversIntended": "leftovers",
    "LeftoversRemoved": "removed kept",
    "PruneIntended": "checkpoints",
    "Pruned": "removed kept",
    "BackoffBegan": "wait_s because",
    "BackoffOver": "",
    "Degraded": "attempt failure",
    "Planned": "plan",
    "EpisodeEnded": "ending because next_command held",
    "PauseSet": "paused",
    "MachineMoved": "machine",
    "Warned": "text",
    "Regained": "attempt because",
    "Foretold": "attempt what text",
    "DumpIntended": "attempt why step",
    "Dumped": "attempt why step ranks problem",
    "HeldBack": "attempt failure plan",
    "HookIntended": "hook attempt argv",
    "HookEnded": "hook attempt code why",
    "Rehearsed": "attempt steps took_s",
    "Drifted": "attempt suspects",
}


def record(event: ev.Event) -> str:
    """One line; fields that are empty or off are left out."""
    name = type(event).__name__
    words = [_field(one, getattr(event, one)) for one in FIELDS[name].split()]
    return " ".join(["record", name, *filter(None, words)])


def order(given: see.Order) -> str:
    """One line for what is to be done now."""
    match given:
        case see.Prune(prune=prune):
            said = ",".join(one.path.rpartition("/")[2] for one in prune.checkpoints)
        case see.CheckFit() | see.Rest() | see.GetReady():
            said = ""
        case see.Launch(attempt=n) | see.Follow(attempt=n) | see.Verify(attempt=n):
            said = f"attempt={n}"
        case see.Stop(attempt=n, send=send, group=group, targets=targets, abandon=abandon):
            to = "group" if group else ",".join(str(t.id.pid) for t in targets)
            sending = f" send={send} to={to}" if send else ""
            said = f"attempt={n}{sending}{' abandon' if abandon else ''}"
        case see.Hook(hook=hook, stop=stop):
            said = f"{hook.hook} attempt={hook.attempt}{' stop' if stop else ''}"
        case see.Clean(how=how):
            said = how
        case see.Tidy(leftovers=leftovers):
            said = ",".join(one.path for one in leftovers)
        case see.Wait(readings=readings):
            said = "reading the GPUs" if readings else ""
    return f"order {type(given).__name__} {said}".rstrip()


def _field(name: str, value: Any) -> str:
    if value in (None, "", (), {}, False) or (name == "wait_s" and value == 0):
        return ""
    if isinstance(value, str) and name not in ("text", "because", "why"):
        return f"{name.rstrip('_')}={value.value if hasattr(value, 'value') else value}"
    return _SAY.get(name, lambda v: f"{name.rstrip('_')}={_plain(v)}")(value)


def _plain(value: Any) -> str:
    if value is True:
        return "yes"
    return f"{value:g}" if isinstance(value, float) else str(getattr(value, "value", value))


def _lines(label: str) -> Callable[[str], str]:
    return lambda text: f"{label}={text}".replace("\n", "\n    ")


def _holders(holders: Iterable[Any]) -> str:
    return "holders=" + ",".join(f"{h.pid}:{h.owner.value}" for h in holders)


def _end(end: Any) -> str:
    if end.signal is not None:
        return f"signal={end.signal}"
    return "exit=unknown" if end.code is None else f"exit={end.code}"


def _plan(plan: ev.Plan) -> str:
    lowered = "".join(f" {name}:{a}->{b}" for name, (a, b) in plan.lowered.items())
    wait = f" wait={plan.wait_s:.0f}s" if plan.wait_s else ""
    older = " from=older" if plan.from_older else ""
    rule = f" rule={plan.rule}" if plan.rule else ""
    return f"do={plan.do}{lowered}{wait}{older}{rule}\n    because {plan.because}"


_SAY: dict[str, Callable[[Any], str]] = {
    "text": _lines("text"),
    "because": _lines("because"),
    "why": _lines("why"),
    "rungs": lambda rungs: "rungs=" + ",".join(f"{k}:{v}" for k, v in rungs.items()),
    "knobs": lambda knobs: " ".join(f"{k}={v}" for k, v in knobs.items()),
    "checkpoint": lambda one: f"checkpoint={one.path.rpartition('/')[2]}",
    "checkpoints": lambda many: "checkpoints=" + ",".join(one.path.rpartition("/")[2] for one in many),
    "end": _end,
    "argv": lambda argv: "argv=" + " ".join(argv),
    "suspects": _lines("suspects"),
    "took_s": lambda took: f"took={took:g}s",
    "failure": lambda failure: (
        f"kind={failure.kind.value}" + (f" gpu={failure.gpu}" if failure.gpu is not None else "")
    ),
    "plan": _plan,
    "targets": lambda targets: "pids=" + ",".join(str(t.id.pid) for t in targets),
    "id": lambda id_: f"pid={id_.pid}",
    "leftovers": lambda left: "; ".join(f"{one.what} {one.path} ({one.proof})" for one in left),
    "removed": lambda paths: "removed=" + ",".join(paths),
    "kept": lambda texts: "kept=" + "; ".join(texts),
    "holders": _holders,
    "ranks": lambda ranks: "ranks=" + ",".join(map(str, ranks)),
    "machine": lambda machine: f"machine={machine.boot_id}",
    "warnings": lambda warnings: "warnings=" + "; ".join(warnings),
    "wait_s": lambda wait: f"wait={wait:.0f}s",
    "waited_s": lambda waited: f"waited={waited:g}s",
    "grace_s": lambda grace: f"grace={grace:g}s",
}
