"""What was: the attempts of a run and what was decided after each, as a JSON document and for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from supervisor.views import words
from supervisor.views.fold import lowered
from supervisor.views.run import AttemptView, Entry, Plain, RunView

SCHEMA = "supervise.history/v1"
END_FIELDS = ("gpu", "tried_mib", "free_mib", "short_by_mib", "log_line")
TOLD_FIELDS = (
    "confidence", "rank", "printed_gpu", "total_mib", "in_use_mib", "reserved_mib", "loaded_mib", "signature",
    "leftover",
)  # fmt: skip
CODE_FIELDS = ("path", "top", "commit", "dirty", "files", "mib")
DUMP_FIELDS = ("why", "step", "path", "summary", "ranks", "problem")
_STOPPED_SHOWN = 3


def document(view: RunView) -> dict[str, Any]:
    """`history -o json`."""
    return {"schema": SCHEMA, "run": view.name, "attempts": [_attempt(view, each) for each in view.attempts]}


def _attempt(view: RunView, of: AttemptView) -> dict[str, Any]:
    checkpoint = of.checkpoint or {}
    return {
        "number": of.number,
        "rehearsal": of.rehearsal,
        "started_at": words.iso(of.started_s if of.started_s is not None else of.intended_s),
        "ended_at": words.iso(of.ended_s),
        "argv": list(of.argv),
        "knobs": dict(of.knobs),
        "changed": {name: list(move) for name, move in of.changed.items()},
        "checkpoint": checkpoint.get("path"),
        "checkpoint_step": checkpoint.get("step"),
        "first_step": of.first_step,
        "last_step": of.last_step,
        "end": _end(of),
        "stopped": [{key: each.get(key) for key in ("pid", "cmdline", "by")} for each in of.stopped],
        "verified_zero": _verified(view, of),
        "decision": _decision(view, of.plan),
        "because": of.because,
        "drift": _drift(of),
        "code": None if of.code is None else {key: of.code.get(key) for key in CODE_FIELDS},
        "dumps": [{key: each.get(key) for key in DUMP_FIELDS} for each in of.dumps],
    }


def _drift(of: AttemptView) -> dict[str, Any] | None:
    """What differed from the last attempt that made progress; None where nothing did, or nobody compared."""
    return None if of.drift is None else {key: of.drift.get(key) for key in ("since", "changes", "suspects")}


def _end(of: AttemptView) -> dict[str, Any] | None:
    """How it ended: what was judged, and the leader's own exit where the judgement names none. None: it runs."""
    if of.ended_s is None and of.failure is None:
        return None
    failure, leader = of.failure or {}, of.end or {}
    own = {key: failure.get(key) if failure.get(key) is not None else leader.get(key) for key in ("code", "signal")}
    return {
        "kind": failure.get("kind", "none"),
        **own,
        **{key: failure.get(key) for key in END_FIELDS},
        "where": failure.get("where"),
        "because": failure.get("because") or of.abandoned or of.stop_because or None,
        **{key: None if failure.get(key) == "" else failure.get(key) for key in TOLD_FIELDS},
        "others": [{"pid": pid, "mib": mib} for pid, mib in failure.get("others") or ()],
        "lost": list(failure.get("lost") or ()),
        "evidence": list(failure.get("evidence") or ()),
    }


def _verified(view: RunView, of: AttemptView) -> dict[str, Any] | None:
    if of.verified is None and not of.holders:
        return None
    verified = of.verified or {"waited_s": None, "used_mib": [], "is_zero": False, "why": "others hold the GPUs"}
    return {
        "waited_s": verified["waited_s"],
        "used_mib": list(verified["used_mib"]),
        "holders": [_holder(view, each) for each in of.holders],
        "is_zero": verified["is_zero"],
        "why": verified["why"] or None,
    }


def _holder(view: RunView, of: Plain) -> dict[str, Any]:
    uuid = of.get("gpu")
    return {
        "gpu": view.gpus.get(str(uuid), (None, ""))[0],
        "uuid": uuid,
        **{key: of.get(key) for key in ("pid", "user", "cmdline", "owner", "run", "used_mib")},
    }


def _decision(view: RunView, plan: Plain | None) -> dict[str, Any] | None:
    if plan is None:
        return None
    moved = {name: list(move) for name, move in lowered(view, plan).items()}
    told = {"wait_s": plan.get("wait_s"), "rule": plan.get("rule") or None, "next": plan.get("next_command") or None}
    return {"do": plan.get("ending") or "relaunch", "lowered": moved, "because": plan.get("because"), **told}


def text(view: RunView, at_s: float, *, verbose: bool = False) -> str:
    """For people, 80 columns. `verbose`: also what else was seen of each failure, and why it lost."""
    lines = words.wrapped(words.safe(view.name), _headline(view), indent=0)
    for attempt in view.attempts:
        lines += ["", *_attempt_lines(view, attempt, at_s, verbose=verbose)]
    if not view.attempts:
        lines += ["", "  nothing was ever launched"]
    if view.next_command:
        lines += ["", *words.wrapped("next", view.next_command)]
    return "\n".join(lines) + "\n"


def events_text(entries: Iterable[Entry]) -> str:
    """Every record, one after the other: when, what, and because."""
    lines = []
    for entry in entries:
        head = f"{words.clock(entry.wall_s)}  {words.safe(entry.type)}"
        lines += words.hanging(f"{head}  {_fields(entry)}", by=4)
    return "\n".join(lines) + "\n" if lines else ""


def _fields(entry: Entry) -> str:
    """The fields that say something in a line; long ones (the spec, lists of checkpoints) are counted, not shown."""
    shown = []
    for key, value in entry.fields.items():
        if value in (None, "", [], {}, False):
            continue
        if isinstance(value, dict):
            told = value.get("because") or value.get("path") or value.get("pid") or f"({len(value)})"
            kind = f"{value['kind']}: " if "kind" in value else ""
            shown.append(f"{key}={kind}{words.safe(told)}")
        elif isinstance(value, list):
            plain = all(isinstance(item, (str, int, float)) for item in value)
            shown.append(f"{key}={words.shown(value)}" if plain else f"{key}=({len(value)})")
        else:
            value = round(value, 3) if isinstance(value, float) else value
            shown.append(f"{key}={words.cut(words.shown(value), 300)}")
    return " ".join(shown)


def _headline(view: RunView) -> str:
    count = len(view.attempts)
    attempts = f"{count} attempt" + ("" if count == 1 else "s")
    return f"{view.phase}, {attempts}: {view.because}"


def _attempt_lines(view: RunView, of: AttemptView, at_s: float, *, verbose: bool) -> list[str]:
    started_s = of.started_s if of.started_s is not None else of.intended_s
    ran = words.duration((of.ended_s if of.ended_s is not None else at_s) - started_s)
    state = (
        "abandoned" if of.abandoned is not None else f"ran {ran}" if of.ended_s is not None else f"running for {ran}"
    )
    kind = " (rehearsal)" if of.rehearsal else ""
    lines = [f"attempt {of.number}{kind}  {words.clock(started_s)}  {state}"]
    if of.because:
        lines += words.wrapped("because", of.because)
    lines += words.wrapped("from", (of.checkpoint or {}).get("path") or "the beginning")
    if of.first_step is not None:
        goes_on = of.ended_s is None and of.stop_by is None and of.last_step == of.first_step
        lines += words.wrapped("steps", f"from {of.first_step} on" if goes_on else f"{of.first_step} to {of.last_step}")
    elif of.ended_s is not None and of.startup_s is None and of.abandoned is None and words.pattern_of(view.spec):
        lines += words.wrapped("steps", "none: no line was what health.progress.log looks for")
    if of.knobs:
        changes = f" (changed: {words.moves(of.changed)})" if of.changed else ""
        lines += words.wrapped("knobs", words.pairs(of.knobs) + changes)
    for note in of.notes:
        lines += words.wrapped("note", words.safe(note))
    for dump in of.dumps:
        found = dump.get("problem") or f"{dump.get('summary')}: {dump.get('path')}"
        lines += words.wrapped("dump", words.safe(f"{dump.get('why')}: {found}"))
    lines += _end_lines(of)
    lines += _why_lines(of) if verbose else []
    lines += _drift_lines(of) if verbose else []
    lines += _code_lines(of) if verbose else []
    lines += _zero_lines(view, of)
    lines += _plan_lines(view, of)
    return lines


def _plan_lines(view: RunView, of: AttemptView) -> list[str]:
    if of.plan is None:
        return []
    because = str(of.plan.get("because") or "")
    moved = words.moves(lowered(view, of.plan))
    said = [of.plan.get("ending") or "relaunch"]
    if moved and moved not in because:
        said.append(moved)
    return words.wrapped("then", ", ".join(said) + (f": {because}" if because else ""))


def _end_lines(of: AttemptView) -> list[str]:
    end = _end(of)
    if end is None:
        return []
    is_users = of.stop_by == "user"
    said = [str(end["kind"]) if end["kind"] != "none" else "stopped by the user" if is_users else "well"]
    if end["gpu"] is not None:
        said.append(f"on GPU {end['gpu']}")
    if end["signal"] is not None:
        said.append(f"signal {end['signal']}")
    elif end["code"] is not None:
        said.append(f"exit code {end['code']}")
    sizes = [("tried_mib", "tried"), ("free_mib", "free"), ("short_by_mib", "short by")]
    told = ", ".join(f"{name} {end[key]:.0f} MiB" for key, name in sizes if end[key] is not None)
    lines = words.wrapped("ended", ", ".join(said) + (f" ({told})" if told else ""))
    if end["because"] and str(end["because"]) not in str((of.plan or {}).get("because")):
        lines += words.wrapped("", end["because"])
    if end["log_line"]:
        where = f"{end['where']}: " if end["where"] else ""
        lines += words.wrapped("log", words.cut(words.safe(where + end["log_line"]), 400))
    return lines


def _why_lines(of: AttemptView) -> list[str]:
    """How sure the verdict is, what the text says of the memory, what else was seen and why it lost."""
    end = _end(of)
    if end is None or not end["confidence"]:
        return []
    by = f", by {end['signature']}" if end["signature"] else ""
    lines = words.wrapped("verdict", f"{end['kind']}, confidence {end['confidence']}{by}")
    sizes = [("in_use_mib", "in use by the process"), ("reserved_mib", "reserved but unallocated")]
    sizes.append(("loaded_mib", "in use on the GPU after the load"))
    told = [f"{end[key]:.0f} MiB {name}" for key, name in sizes if end[key] is not None]
    told += [f"pid {each['pid']} holds {each['mib']:.0f} MiB" for each in end["others"]]
    if end["rank"] is not None:
        told.append(f"rank {end['rank']}")
    if end["printed_gpu"] not in (None, end["gpu"]):
        told.append(f"printed as GPU {end['printed_gpu']}")
    lines += words.wrapped("told", ", ".join(told)) if told else []
    for label, said in (("ruled out", end["lost"]), ("evidence", end["evidence"])):
        for number, each in enumerate(said):
            lines += words.wrapped("" if number else label, words.cut(words.safe(each), 300))
    return lines


def _drift_lines(of: AttemptView) -> list[str]:
    if of.drift is None:
        return []
    lines = words.wrapped("changed", f"since attempt {of.drift.get('since')}, the last that made progress:")
    for change in of.drift.get("changes") or ():
        lines += words.wrapped("", words.cut(words.safe(change), 300))
    return lines


def _code_lines(of: AttemptView) -> list[str]:
    if of.code is None:
        return []
    code = of.code
    at = f" at {str(code.get('commit'))[:10]}, {code.get('dirty')} dirty" if code.get("commit") else ""
    size = f"{code.get('files')} files, {code.get('mib', 0.0):.1f} MiB"
    return words.wrapped("code", words.safe(f"a copy of {code.get('top')}{at}: {size}, in {code.get('path')}"))


def _zero_lines(view: RunView, of: AttemptView) -> list[str]:
    lines = []
    if of.stopped:
        names = [f"{each['pid']} {_short(each['cmdline'])}" for each in of.stopped[:_STOPPED_SHOWN]]
        more = len(of.stopped) - _STOPPED_SHOWN
        lines += words.wrapped("signalled", "; ".join(names) + (f"; and {more} more" if more > 0 else ""))
    verified = _verified(view, of)
    if verified is not None:
        waited = words.duration(verified["waited_s"])
        told = f"after {waited}" if verified["is_zero"] else f"not within {waited}: {verified['why']}"
        lines += words.wrapped("zero", told)
        for each in verified["holders"]:
            held = f"GPU {each['gpu']}: pid {each['pid']} of {each['user']} ({each['owner']}) {each['cmdline']}"
            lines += words.wrapped("holder", words.cut(words.safe(held), 300))
    return lines


def _short(cmdline: str) -> str:
    """A command in a few words: paths by their last part."""
    parts = (word.rstrip("/").rpartition("/")[2] if word.startswith("/") else word for word in cmdline.split(" "))
    return words.cut(words.safe(" ".join(parts)), 60)
