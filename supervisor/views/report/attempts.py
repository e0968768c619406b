"""The sections of a report about attempts: cause, log lines, arithmetic, environment, locked params. Words only."""

from __future__ import annotations

from supervisor.views import words
from supervisor.views.fold import lowered
from supervisor.views.report.blocks import Block, Facts, Lines, Pairs, Section, Table, Words
from supervisor.views.run import AttemptView, Plain

LINES_SHOWN = 12
CHANGES_SHOWN = 20
CHANGED = "changed"


def attempts_table(facts: Facts) -> Table:
    """One row for each attempt, the first one first."""
    rows = []
    for of in facts.shown:
        begun_s = of.started_s if of.started_s is not None else of.intended_s
        ran = words.duration((of.ended_s if of.ended_s is not None else facts.end_s) - begun_s)
        steps = "" if of.first_step is None else f"{of.first_step} to {_last_step(facts, of)}"
        waited = (of.verified or {}).get("waited_s") if (of.verified or {}).get("is_zero") else None
        zero = "" if waited is None else words.duration(waited)
        changed = words.moves(of.changed) or "none"
        rows.append((str(of.number), words.clock(begun_s), ran, steps, changed, how(of), zero))
    head = ("attempt", "start", "ran", "steps", "knobs changed", "ended", "to zero")
    return Table(head, tuple(rows), right=(0,))


def _last_step(facts: Facts, of: AttemptView) -> int | None:
    is_last = of.number == facts.view.attempts[-1].number and of.ended_s is None
    said = facts.given.now.get("step") if is_last and facts.given.now.get("attempt") == of.number else None
    return said if isinstance(said, int) else of.last_step


def how(of: AttemptView) -> str:
    """`runs`, `gpu_oom on GPU 5`, `stopped by the user`, `well`."""
    if of.ended_s is None and of.failure is None:
        return "runs"
    if of.abandoned is not None:
        return "never started"
    failure = of.failure or {}
    kind = str(failure.get("kind", "none"))
    if kind == "none":
        return "stopped by the user" if of.stop_by == "user" else "well"
    return kind + (f" on GPU {failure['gpu']}" if failure.get("gpu") is not None else "")


def attempt_section(facts: Facts, of: AttemptView) -> Section:
    """All that is known of one attempt."""
    failure = of.failure or {}
    bad = failure.get("kind", "none") != "none"
    blocks: list[Block] = []
    if bad:
        blocks.append(Words(str(failure.get("because", ""))))
    elif of.abandoned:
        blocks.append(Words(of.abandoned))
    blocks.append(Pairs(tuple(_course(facts, of))))
    lines = _log_lines(facts, of)
    if lines:
        blocks += [Words("Log"), Lines(tuple(lines))]
    arithmetic = _arithmetic(facts, of)
    if arithmetic:
        blocks += [Words("Decision"), Pairs(tuple(arithmetic))]
    blocks += _environment(facts, of)
    blocks += _protected(facts, of)
    return Section(f"attempt-{of.number}", f"Attempt {of.number}: {how(of)}", tuple(blocks), of.number, bad)


def _course(facts: Facts, of: AttemptView) -> list[tuple[str, str]]:
    begun_s = of.started_s if of.started_s is not None else of.intended_s
    rows = [("launched", f"{words.clock(begun_s)}: {of.because}")]
    rows.append(("from", str((of.checkpoint or {}).get("path") or "the beginning")))
    if of.startup_s is not None:
        rows.append(("load", f"{words.duration(of.startup_s)} to the first progress"))
    if of.first_step is not None:
        rows.append(("steps", f"{of.first_step} to {_last_step(facts, of)}"))
    if of.knobs:
        rows.append(("knobs", words.pairs(of.knobs) + (f" (changed: {words.moves(of.changed)})" if of.changed else "")))
    if of.ended_s is not None:
        end = of.end or {}
        code = (
            f", signal {end['signal']}" if end.get("signal") else f", exit code {end['code']}" if "code" in end else ""
        )
        rows.append(("ended", f"{words.clock(of.ended_s)}: {how(of)}{code}"))
    rows += [("note", note) for note in of.notes]
    for dump in of.dumps:
        rows.append(("dump", f"{dump.get('why')}: {dump.get('problem') or dump.get('summary') or dump.get('path')}"))
    rows += _signalled(of)
    verified = of.verified or {}
    if verified:
        waited = words.duration(verified.get("waited_s"))
        said = f"verified after {waited}" if verified.get("is_zero") else f"not within {waited}: {verified.get('why')}"
        rows.append(("zero", said))
    for holder in of.holders[:LINES_SHOWN]:
        gpu = facts.view.gpus.get(str(holder.get("gpu")), ("?", ""))[0]
        who = f"GPU {gpu}: pid {holder.get('pid')} of {holder.get('user')} ({holder.get('owner')})"
        rows.append(("holder", words.cut(f"{who} {holder.get('cmdline')}", 300)))
    return rows


def _signalled(of: AttemptView) -> list[tuple[str, str]]:
    """Who was signalled, processes of the same command together."""
    pids: dict[tuple[str, str], list[str]] = {}
    for each in of.stopped:
        pids.setdefault((str(each.get("cmdline")), str(each.get("by"))), []).append(str(each.get("pid")))
    shown = list(pids.items())[:LINES_SHOWN]
    return [("signalled", f"pid {', '.join(who)} by {by}: {words.cut(line, 200)}") for (line, by), who in shown]


def _log_lines(facts: Facts, of: AttemptView) -> list[str]:
    """The deciding line and the other failure texts of the attempt, as the journal has them: without secrets."""
    failure = of.failure or {}
    found: dict[str, None] = {}
    if failure.get("log_line"):
        found[_line(failure.get("where"), failure["log_line"])] = None
    for hit in facts.hits.get(of.number, ()):
        if not hit.get("dropped") and str(hit.get("text")) not in str(failure.get("log_line")):
            found[_line(hit.get("where"), hit.get("text"))] = None
    lines = list(found)
    more = len(lines) - LINES_SHOWN
    return [*lines[:LINES_SHOWN], *([f"... and {more} more"] if more > 0 else [])]


def _line(where: object, text: object) -> str:
    file = str(where or "").rpartition("/")[2]
    return words.cut(words.safe(f"{file}: {text}" if file else text), 600)


def _arithmetic(facts: Facts, of: AttemptView) -> list[tuple[str, str]]:
    failure, plan = of.failure or {}, of.plan
    rows: list[tuple[str, str]] = []
    sizes = (
        ("tried_mib", "wanted"), ("free_mib", "free"), ("short_by_mib", "short by"), ("in_use_mib", "in use"),
        ("reserved_mib", "reserved, unallocated"), ("total_mib", "of"),
    )  # fmt: skip
    told = [f"{name} {failure[key]:.0f} MiB" for key, name in sizes if failure.get(key) is not None]
    if told:
        rows.append(("memory", ", ".join(told)))
    if failure.get("confidence"):
        by = f", by {failure['signature']}" if failure.get("signature") else ""
        rows.append(("verdict", f"{failure.get('kind')}, confidence {failure['confidence']}{by}"))
    rows += [("evidence", str(each)) for each in failure.get("evidence") or ()]
    rows += [("not that", str(each)) for each in (failure.get("lost") or ())[:LINES_SHOWN]]
    if plan is not None:
        moved = words.moves(lowered(facts.view, plan))
        then = str(plan.get("ending") or "relaunch") + (f" with {moved}" if moved else "")
        rows.append(("then", then))
        if plan.get("because"):
            rows.append(("because", str(plan["because"])))
        if plan.get("rule"):
            rows.append(("rule", str(plan["rule"])))
        if plan.get("wait_s"):
            rows.append(("wait", words.duration(plan["wait_s"])))
    return rows


def _environment(facts: Facts, of: AttemptView) -> list[Block]:
    drift: Plain = facts.drifts.get(of.number, {})
    changes = [str(each) for each in drift.get("changes") or facts.given.environments.get(of.number, ())]
    if not changes:
        if of.number in facts.given.environments:
            return [Words("Environment: as in the attempt before.")]
        return []
    since = f"attempt {drift['since']}, the last that made progress" if "since" in drift else "the attempt before"
    suspects = f" {drift['suspects']}" if drift.get("suspects") else ""
    more = len(changes) - CHANGES_SHOWN
    shown = [*changes[:CHANGES_SHOWN], *([f"... and {more} more"] if more > 0 else [])]
    return [Words(f"Environment: changed since {since}.{suspects}"), Lines(tuple(words.safe(each) for each in shown))]


def _protected(facts: Facts, of: AttemptView) -> list[Block]:
    """Each locked param as this launch was recorded with it, whether that is the first one, and where it stands."""
    locked = facts.locked.get(of.number)
    if locked is None:
        return []
    how = facts.view.spec.get("params", {}).get("how", {}) or {}
    rows = []
    for name, value in locked.values.items():
        flag = (how.get(name) or {}).get("flag") or f"--{name.replace('_', '-')}"
        rows.append((words.safe(name), words.safe(value), _said_by(of.argv, str(flag)), _since(facts, name, value)))
    if (of.failure or {}).get("kind") == "protected_violation":
        said = "Locked params: not as they must be."
    elif all(row[3] != CHANGED for row in rows):
        said = "Locked params: unchanged, checked on the command before the launch."
    else:
        said = "Locked params: not those of the attempts before; see the table."
    sha = f" sha256 {locked.sha256}" if locked.sha256 else ""
    head = ("param", "value", "in this attempt's command", "against the attempts before")
    return [Words(said + sha), Table(head, tuple(rows))]


def _since(facts: Facts, name: str, value: str) -> str:
    """Against the first attempt that had it."""
    first, was = next((number, one.values[name]) for number, one in facts.locked.items() if name in one.values)
    return CHANGED if was != value else f"the same since attempt {first}"


def _said_by(argv: tuple[str, ...], flag: str) -> str:
    """The words of the command that say it. They are redacted already, as all of the journal."""
    for at, word in enumerate(argv):
        if word.startswith(f"{flag}="):
            return words.cut(words.safe(word), 100)
        if word == flag:
            return words.cut(words.safe(" ".join(argv[at : at + 2])), 100)
    return "by the environment, a file or the script's own default"
