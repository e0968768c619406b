"""What a report needs beside the journal: samples, environments, a tracker's scalars, what the core would do next."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from supervisor.cli import records
from supervisor.core.drift import diff
from supervisor.core.events import EVENT_TYPES
from supervisor.core.evidence import Instant
from supervisor.core.fold import fold
from supervisor.core.kinds import Kind
from supervisor.core.plans import Failure
from supervisor.core.policy import Tell, plan_after
from supervisor.core.state import State
from supervisor.edges import tensorboard
from supervisor.edges.codec import from_plain, to_plain
from supervisor.edges.files import read_json
from supervisor.edges.journal_tail import read_plain
from supervisor.edges.paths import RunDir
from supervisor.views.report.blocks import Facts, Given
from supervisor.views.report.facts import gathered
from supervisor.views.report.sections import headroom
from supervisor.views.run import Plain

SAMPLES_BYTES_MAX = 32 << 20
"""More than the supervisor keeps; what is beyond is not read."""
LOSS_TAGS, RATE_TAGS = ("loss",), ("rate", "tokens_per_second", "samples_per_second", "steps_per_second")


def facts(run: RunDir, *, since_s: float | None = None) -> Facts:
    """All that a report of the run tells, up to now. `since_s`: only the last so many seconds are drawn."""
    at_s = time.time()
    known = list(records.entries(run))
    now = _now(run)
    given = Given(lines=sample_lines(run), now=now)
    begin_s = None if since_s is None else at_s - since_s
    first = gathered(run.name, known, at_s, given, begin_s)
    tracking = (first.view.spec.get("tracking") or {}) if first.view.spec else {}
    given = given._replace(
        environments=environments(run, [each.number for each in first.view.attempts]),
        scalars=_scalars(tracking),
        next_oom=next_oom(run, first),
    )
    if not given.scalars:
        return first._replace(given=given)
    return gathered(run.name, known, at_s, given, begin_s)


def _now(run: RunDir) -> Plain:
    try:
        now = read_json(run.now)
    except ValueError:  # the supervisor replaces it within a second; the journal says the rest
        return {}
    return now if isinstance(now, dict) else {}


def sample_lines(run: RunDir) -> list[bytes]:
    """The run's samples, oldest first: coarse ones from before the finer ones begin."""
    fine = _lines(run, "before.jsonl", "current.jsonl")
    begin_s = min(map(_wall_s, fine[:2]), default=float("inf"))  # the first may be torn
    return [line for line in _lines(run, "coarse-before.jsonl", "coarse.jsonl") if _wall_s(line) < begin_s] + fine


def _lines(run: RunDir, *names: str) -> list[bytes]:
    lines: list[bytes] = []
    for name in names:
        try:
            with (run.samples / name).open("rb") as file:
                lines += file.read(SAMPLES_BYTES_MAX).split(b"\n")
        except FileNotFoundError:
            continue
    return [line for line in lines if line]


def _wall_s(line: bytes) -> float:
    """When a line is of; one that is none is of the end of time."""
    try:
        return float(json.loads(line)["wall_s"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


def environments(run: RunDir, attempts: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Attempt -> what changed since the attempt before it, most suspicious first; those of which both are known."""
    known: list[tuple[int, Mapping[str, Any]]] = []
    for number in attempts:
        try:
            found = read_json(run.attempt(number).environment)
        except ValueError:  # torn by a crash of the box: then it is not known
            continue
        if isinstance(found, dict):
            known.append((number, found))
    pairs = pairwise(known)
    return {number: tuple(map(str, diff(old, new))) for (before, old), (number, new) in pairs if number == before + 1}


def _scalars(tracking: Plain) -> dict[str, list[tuple[float, int, float]]]:
    """Loss and rate of a TensorBoard folder, where the spec names one."""
    folder = tracking.get("tensorboard")
    if not folder:
        return {}
    found = tensorboard.read(Path(str(folder))).points
    wanted = {"loss": (tracking.get("loss"), LOSS_TAGS), "rate": (tracking.get("rate"), RATE_TAGS)}
    scalars = {}
    for name, (asked, usual) in wanted.items():
        tag = str(asked or next((tag for tag in found if tag.rpartition("/")[2].lower() in usual), ""))
        if tag in found:
            scalars[name] = [(point.wall_s, point.step, point.value) for point in found[tag]]
    return scalars


def next_oom(run: RunDir, of: Facts) -> Plain | None:
    """What the core would plan if the GPU with the least headroom ran out of memory now; None: nothing is running."""
    if not of.view.is_open:
        return None
    state, at = _replayed(run)
    if state.spec is None or state.attempt is None or at is None:
        return None
    told = [(total - peak, index, uuid) for index, uuid, peak, total in _rooms(of) if total and peak is not None]
    gpu, uuid = (min(told)[1:]) if told else (None, None)
    where = "a GPU" if gpu is None else f"GPU {gpu}, which has the least headroom,"
    failure = Failure(kind=Kind.GPU_OOM, because=f"if {where} ran out of memory", gpu=gpu, uuid=uuid)
    plan = plan_after(state, failure, at)
    return None if isinstance(plan, Tell) else dict(to_plain(plan))


def _rooms(of: Facts) -> Iterable[tuple[int, str, float | None, float | None]]:
    uuids = {index: uuid for uuid, (index, _) in of.view.gpus.items()}
    return [(index, uuids[index], peak, total) for index, _, peak, total in headroom(of) if index in uuids]


def _replayed(run: RunDir) -> tuple[State, Instant | None]:
    state, at = State(run=run.name), None
    for record in read_plain(run.journal):
        kind = EVENT_TYPES.get(record["type"])
        if kind is not None:
            at = Instant(**record["at"])
            state = fold(state, from_plain(record["data"], kind), at)
    return state, at
