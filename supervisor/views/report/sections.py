"""A report in words and tables, the same for a browser, a mail and a chat. Nothing is drawn here."""

from __future__ import annotations

from supervisor.views import words
from supervisor.views.fold import lowered
from supervisor.views.report.attempts import attempt_section, attempts_table
from supervisor.views.report.blocks import Block, Facts, Lines, Pairs, Section, Table, Words
from supervisor.views.report.drawing import lanes
from supervisor.views.run import step_now

BUDGET = (
    ("productive", "training, kept"),
    ("degraded", "training with less than was asked for"),
    ("lost", "training that was rolled back"),
    ("load", "loading"),
    ("verify", "ending, verifying zero, cleaning"),
    ("backoff", "waiting"),
    ("check", "checks before a launch"),
)
"""Class of `views/accounting.py` -> what it is called here."""


def sections(facts: Facts) -> tuple[Section, ...]:
    """All of the report, in the order in which it is read."""
    return (
        Section("verdict", "Verdict", _verdict_blocks(facts)),
        Section("budget", "Where the time went", _budget(facts)),
        Section("lanes", "GPUs over time", _drawn(facts)),
        Section("headroom", "Memory and headroom", _headroom(facts)),
        Section("next", "What the next out-of-memory failure would do", _next_oom(facts)),
        Section("attempts", "Attempts", (attempts_table(facts),)),
        *(attempt_section(facts, each) for each in reversed(facts.shown)),
        Section("warnings", "Warnings", tuple(Words(text) for text in facts.view.warnings)),
    )


def is_told(section: Section) -> bool:
    """Whether there is anything in it."""
    return bool(section.blocks)


def verdict(facts: Facts) -> str:
    """Is it running, what happened, is there anything to do: one line."""
    view = facts.view
    said = [_state(facts)]
    restarts = view.restarts
    if restarts:
        kinds = dict.fromkeys(mark.kind for mark in facts.marks if mark.kind != "none")
        said.append(f"{restarts} restart{'s' if restarts > 1 else ''}" + (f" ({', '.join(kinds)})" if kinds else ""))
    if facts.spent.get("ettr") is not None:
        share, wall = 100 * facts.spent["ettr"], words.duration(facts.spent["wall_s"])
        said.append(f"{share:.1f} % of {wall} productive")
    if view.next_command:
        said.append(f"to do: {view.next_command}")
    elif view.paused:
        said.append(f"to do: supervise resume {view.name}")
    else:
        said.append("nothing to do")
    return "; ".join(said)


def _state(facts: Facts) -> str:
    view = facts.view
    total = f" of {view.spec['steps']}" if view.spec.get("steps") else ""
    step = "" if view.step is None else f" at step {step_now(view, facts.given.now)}{total}"
    match view.phase:
        case "running" | "degraded":
            return f"{view.phase}{step}" + (", recovery paused" if view.paused else "")
        case "finished":
            return f"finished{step}"
        case "halted" | "stopped":
            return f"{view.phase}{step}: {view.because}"
        case _:
            return f"{view.phase}: {view.because}"


def _drawn(facts: Facts) -> tuple[Block, ...]:
    lines = lanes(facts)
    return (Lines(lines, drawn=True),) if lines else ()


def _verdict_blocks(facts: Facts) -> tuple[Block, ...]:
    view = facts.view
    rows = [("because", str(facts.given.now.get("because") or view.because))]
    rows.append(("from, to", f"{words.clock(facts.begin_s)} to {words.clock(facts.end_s)}"))
    if view.checkpoint:
        rows.append(("checkpoint", str(view.checkpoint.get("path"))))
    if view.knobs:
        rows.append(("knobs", words.pairs(view.knobs)))
    if view.protected:
        rows.append(("locked", words.pairs(view.protected)))
        sha = f" (sha256 {view.protected_sha256[:16]})" if view.protected_sha256 else ""
        rows.append(("proof", _protected_in_short(facts) + sha))
    if view.is_open:
        rows.append(("to stop", f"supervise down {view.name}"))
    return Words(verdict(facts)), Pairs(tuple(rows))


def _protected_in_short(facts: Facts) -> str:
    broken = [each.number for each in facts.view.attempts if (each.failure or {}).get("kind") == "protected_violation"]
    if broken:
        return f"a locked param was not as it must be in attempt {', '.join(map(str, broken))}"
    first: dict[str, str] = {}
    for number, one in facts.locked.items():
        changed = [name for name, value in one.values.items() if first.setdefault(name, value) != value]
        if changed:
            return f"{', '.join(changed)} changed in attempt {number}"
    count = len(facts.locked)
    if count == 0:
        return "nothing was launched"
    return f"the same in all {count} attempts" if count > 1 else "checked on the command of the attempt"


def _budget(facts: Facts) -> tuple[Block, ...]:
    spent = facts.spent
    wall_s = spent.get("wall_s") or 0.0
    if not wall_s:
        return ()
    gpus = len(facts.view.gpus)
    cost = facts.view.spec.get("cost_per_hour")
    head = ["", "time", "share", "GPU-hours", *(["money"] if cost else [])]
    halted_s = max(0.0, facts.at_s - (facts.view.ended_s or facts.at_s)) if facts.view.phase == "halted" else 0.0
    rows = []
    named = [(title, spent.get(f"{key}_s") or 0.0, True) for key, title in BUDGET]
    for title, seconds, counts in (*named, ("halted since", halted_s, False), ("all", wall_s, True)):
        if seconds < 0.05:
            continue
        share = f"{100 * seconds / wall_s:.1f} %" if counts else ""
        money = (f"{seconds / 3600 * float(cost):.2f}",) if cost else ()
        rows.append((title, words.duration(seconds), share, f"{seconds / 3600 * gpus:.1f}", *money))
    blocks: list[Block] = [Table(tuple(head), tuple(rows), right=tuple(range(1, len(head))))]
    if spent.get("lost_steps"):
        blocks.append(Words(f"{spent['lost_steps']} steps were trained and rolled back."))
    return tuple(blocks)


def _headroom(facts: Facts) -> tuple[Block, ...]:
    found = headroom(facts)
    rows = []
    for index, role, peak, total in found:
        left = None if peak is None or total is None else total - peak
        share = "" if left is None or not total else f"{100 * left / total:.1f} %"
        gpu = "?" if index is None else str(index)
        rows.append((gpu, role, words.gib(peak), words.gib(total), words.gib(left), share))
    if not rows:
        return ()
    told = [each for each in found if each[2] is not None and each[3] is not None]
    table = Table(("GPU", "role", "peak, GiB", "of, GiB", "headroom, GiB", "share"), tuple(rows), right=(0, 2, 3, 4, 5))
    if not told:
        return (table,)
    index, role, peak, total = min(told, key=lambda each: (each[3] or 0) - (each[2] or 0))
    least = (total or 0) - (peak or 0)
    return Words(f"Least headroom: GPU {index} ({role}), {least:.0f} MiB below its {total:.0f} MiB at its peak."), table


def headroom(facts: Facts) -> list[tuple[int | None, str, float | None, float | None]]:
    """Index, role, most MiB seen in the time shown, MiB in all, for each GPU."""
    said = {each.get("uuid"): each for each in facts.given.now.get("gpus", ())}
    curves = {each.uuid: each for each in facts.series.gpus}
    found: list[tuple[int | None, str, float | None, float | None]] = []
    for uuid, (index, role) in facts.view.gpus.items():
        curve = curves.get(uuid)
        total = (curve.total_mib if curve else None) or said.get(uuid, {}).get("total_mib")
        seen = [value for value in ((curve.peak_mib if curve else None), said.get(uuid, {}).get("used_mib")) if value]
        found.append((index, role, max(seen, default=None), total))
    return sorted(found, key=lambda each: (each[0] is None, each[0] or 0))


def _next_oom(facts: Facts) -> tuple[Block, ...]:
    plan = facts.given.next_oom
    if plan is None:
        return ()
    moved = words.moves(lowered(facts.view, plan))
    if plan.get("ending"):
        return (Words(f"It would end the run ({plan['ending']}): {plan.get('because', '')}"),)
    rows = [("then", "relaunch" + (f" with {moved}" if moved else " as it is: no knob is left to lower"))]
    checkpoint = (facts.view.checkpoint or {}).get("path")
    rows.append(("from", str(checkpoint or "the beginning")))
    rows.append(("because", str(plan.get("because", ""))))
    if plan.get("rule"):
        rows.append(("rule", str(plan["rule"])))
    return (Pairs(tuple(rows)),)
