"""Lines that say a run went on, from any trainer's log: steps, good ends, new starts, failures dealt with.

For `scan`, which knows no pattern of the run's own. Data and one translation; no judgement.
"""

# ruff: noqa: E501  # patterns of lines as they are printed

from __future__ import annotations

import re

from supervisor.core.evidence import WatchHit
from supervisor.core.rootcause import Mark
from supervisor.signatures.lines import source_of

_STEP = r"(?i:step|iter|iteration|global_step|global step|update|num_updates|batch)"
_NUMBER = r"s?['\"]?[\s:=#\[(|]{1,12}"
_METRIC = r"(?i:loss|\blr\b|grad|gnorm|tok/s|tokens|\btps\b|it/s|s/it|\bmfu\b|tflops|samples|\btime\b|\bppl\b|reward|skipped=|\bacc\b)"

#: Named patterns for `Matcher(watch=...)`.
MARKS = {
    "step": rf"\b{_STEP}{_NUMBER}(?P<step>\d[\d,]*)[^\n]*{_METRIC}",
    "step_last": rf"{_METRIC}[^\n]*\b{_STEP}{_NUMBER}(?P<step>\d[\d,]*)",
    "bar": r"(?P<step>\d+) ?/ ?\d+ \[\d+:\d+(?::\d+)?<[^\n\]]*(?:it/s|s/it|/s)|(?P<step2>\d+) ?/ ?\d+[^\n]{0,90}\bloss\b",
    "trial": r"\bTrial (?P<step>\d+) finished with value",
    "serving": r"Avg (?:prompt|generation) throughput: [1-9]",
    "dict": r"\{'loss': '?\d[^\n]*'(?:epoch|learning_rate)'",
    "done": (
        r"(?i:training (?:is |has )?(?:complete|completed|finished|done|succeeded)\b|finished \d+ (?:steps|epochs|iterations)|application startup complete"
        r"|init engine \(profile[^\n]*took|\ball done\b|(?:run|job) (?:finished|completed)(?: successfully)?\b|successfully (?:finished|completed)"
        r"|exit(?:ed|ing)? (?:with )?(?:code|status)[: =]*0\b|return code = 0\b|=+ \d+ passed|server is fired up|uvicorn running on|network error resolved|resuming normal operation)"
    ),
    "restart": (
        r"(?i:\battempt[ =:#]*\d+|resum(?:ed|ing) (?:from|at|training)|\brestart(?:ing|ed)\b|relaunch|NCCL version \d|Setting OMP_NUM_THREADS|starting (?:elastic|training|run)\b|init_process_group|world[_ ]size[ =:]+\d)"
    ),
    "caught": (
        r"(?i:\bretry(?:ing)?\b|\brecover(?:ed|ing)?\b|\bskipp(?:ed|ing)\b|fall(?:ing|s)? ?back|reduc(?:ed|ing) (?:the )?(?:micro|batch|max)|\bcontinuing\b|attempting to recover)"
    ),
}

# "number of nan iterations: 0" counts, it is no value.
_NO_STEP = re.compile(
    r"\b(?:nan|inf)\b(?!\s+(?:iter|step|loss|grad|batch|count|skip))|(?i:\b(?:failed|error|exception|aborting|emergency|traceback)\b)"
)


def to_mark(seen: WatchHit) -> Mark | None:
    """What the line says; None where it only looks like a step."""
    source = source_of(seen.text)
    if seen.name in ("done", "restart", "caught"):
        return Mark(seen.offset, source, **{seen.name: True})
    if _NO_STEP.search(seen.text):
        return None
    step = seen.groups.get("step") or seen.groups.get("step2")
    return Mark(seen.offset, source, int(step.replace(",", "")) if step else None)
