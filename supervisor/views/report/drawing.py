"""A lane for each GPU drawn with characters, for mail and chat. The page draws its own."""

from __future__ import annotations

import time

from supervisor.views import words
from supervisor.views.report.blocks import Facts
from supervisor.views.report.series import EMPTY_U8, EMPTY_U16, Gpu

COLUMNS = 56
BARS = " .:-=+*#"
SIGNS = {"productive": "=", "degraded": "~", "load": "<", "verify": ".", "backoff": "_", "check": "?"}
LEGEND = "= training  ~ degraded  < loading  . verifying  _ waiting  ? checking  X failure"


def lanes(facts: Facts) -> tuple[str, ...]:
    """The run's phases, then memory and utilisation of each GPU; a drop to zero takes its column."""
    width_s = (facts.end_s - facts.begin_s) / COLUMNS
    if not facts.spans:
        return ()
    label = 20
    lines = [f"{'':{label}} {_axis(facts)}", f"{'run':{label}} |{_run(facts, width_s)}|"]
    for gpu in facts.series.gpus:
        index, role = facts.view.gpus.get(gpu.uuid, ("?", ""))
        failed = {_column(mark.at_s, facts, width_s) for mark in facts.marks if index in mark.gpus}
        name = words.cut(words.safe(f"GPU {index} {role}"), 14)
        lines.append(f"{name + ' mem':>{label}} |{_memory(facts, gpu, width_s, failed)}|")
        lines.append(f"{'util':>{label}} |{_util(facts, gpu, width_s)}|")
    return (*lines, f"{'':{label}} {LEGEND[:46]}", f"{'':{label}} {LEGEND[48:]}  memory, utilisation: {BARS.strip()}")


def _axis(facts: Facts) -> str:
    begin, end = (time.strftime("%d %H:%M", time.localtime(at_s)) for at_s in (facts.begin_s, facts.end_s))
    return f" {begin}{end:>{COLUMNS - len(begin)}}"


def _column(at_s: float, facts: Facts, width_s: float) -> int:
    return max(0, min(COLUMNS - 1, int((at_s - facts.begin_s) / width_s)))


def _run(facts: Facts, width_s: float) -> str:
    cells = [" "] * COLUMNS
    for span in facts.spans:
        for at in range(_column(span.begin_s, facts, width_s), _column(span.end_s - 1e-6, facts, width_s) + 1):
            cells[at] = SIGNS.get(span.kind, " ")
    for mark in facts.marks:
        cells[_column(mark.at_s, facts, width_s)] = "X"
    return "".join(cells)


def _buckets(facts: Facts, width_s: float, column: int) -> range:
    of = facts.series
    begin_s = facts.begin_s - of.begin_s + column * width_s
    return range(max(0, int(begin_s / of.bucket_s)), min(of.buckets, max(1, int((begin_s + width_s) / of.bucket_s))))


def _memory(facts: Facts, gpu: Gpu, width_s: float, failed: set[int]) -> str:
    cells = []
    for column in range(COLUMNS):
        known = [gpu.low[at] for at in _buckets(facts, width_s, column) if gpu.low[at] != EMPTY_U16]
        cells.append("X" if column in failed else _bar(min(known) / 65534) if known else " ")
    return "".join(cells)


def _util(facts: Facts, gpu: Gpu, width_s: float) -> str:
    cells = []
    for column in range(COLUMNS):
        known = [gpu.util_low[at] for at in _buckets(facts, width_s, column) if gpu.util_low[at] != EMPTY_U8]
        cells.append(_bar(min(known) / 100) if known else " ")
    return "".join(cells)


def _bar(share: float) -> str:
    return "0" if share < 0.005 else BARS[1 + min(len(BARS) - 2, int(share * (len(BARS) - 1)))]
