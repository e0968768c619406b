"""The document of now.json: what a run is doing this second, as plain values. Nothing here is the record."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from msgspec.structs import replace

from supervisor.core.course import ahead
from supervisor.core.evidence import Reading
from supervisor.core.phases import Phase
from supervisor.core.placing import all_gpus
from supervisor.core.seen import Seen
from supervisor.core.silence import in_words, silences
from supervisor.core.spec import Silent
from supervisor.core.stall import minutes
from supervisor.core.state import State
from supervisor.core.watch import Watch

SCHEMA = "supervise.now/v1"


def now_document(state: State, watch: Watch, seen: Seen) -> Mapping[str, Any]:
    """All that `status` shows beside the journal."""
    attempt = state.attempt
    checkpoint = attempt.checkpoint if attempt else None
    return {
        "schema": SCHEMA,
        "as_of": {"boot_id": seen.at.boot_id, "boot_s": seen.at.boot_s, "wall_s": seen.at.wall_s},
        "phase": state.phase.value,
        "paused": state.paused,
        "attempt": attempt.number if attempt else None,
        "step": watch.last_step,
        "rate": watch.rate,
        "loss": _finite(watch.loss),
        "total": watch.total,
        "pending": [p.hit.text[:200] for p in watch.pending[:3]],
        "checkpoint": {"path": checkpoint.path, "step": checkpoint.step} if checkpoint else None,
        "because": state.because,
        "next": _next(state),
        "load": _load(state, watch),
        "would": state.would,
        "ahead": list(ahead(state, watch.course)),
        "less": _less(state, watch, seen),
        "dump": attempt.dump.path if attempt and attempt.dump else "",
        "gpus": _gpus(state, watch),
        "last_line": seen.last_line,
    }


def _finite(value: float | None) -> float | None:
    """JSON has no NaN."""
    return value if value is None or isfinite(value) else None


def _less(state: State, watch: Watch, seen: Seen) -> str:
    """`GPU 6 (drafter) fell silent: ...; running on 2 of 3 drafters` for roles that say `silent: off`: nobody is told
    of those, but whoever looks sees it."""
    unwatched = [] if state.spec is None else [role for role in state.spec.topology if role.silent is Silent.OFF]
    if not unwatched or not watch.work or state.phase not in (Phase.RUNNING, Phase.DEGRADED):
        return ""
    assert state.spec is not None
    spec = replace(state.spec, topology=tuple(replace(role, silent=Silent.NOTIFY) for role in unwatched))
    roles = {name: role.uuids for name, role in state.roles.items()}
    found = silences(spec, roles, watch.work, watch.steps, seen.at.boot_s, in_phase=bool(watch.inside))
    return in_words(found, roles, dict(zip(state.gpus, state.indices, strict=True))) if found else ""


def _load(state: State, watch: Watch) -> str:
    """`loading shard 13 of 47, last time 22m04s` while an attempt starts; empty where nothing is known of it."""
    if state.phase is not Phase.STARTING:
        return ""
    sign = watch.load
    said = [] if sign is None else [f"{sign.what} {sign.n} of {sign.total}".strip()]
    if state.last_start_s > 0.0:
        said.append(f"last time {minutes(state.last_start_s)}")
    return ", ".join(said)


def _next(state: State) -> str:
    match state.phase:
        case Phase.BACKOFF if state.is_held_back:
            return f"relaunch once resumed: supervise resume {state.run}"
        case Phase.BACKOFF:
            return f"relaunch after {state.backoff_s:.0f} s"
        case Phase.STOPPING | Phase.VERIFYING | Phase.CLEANING:
            return state.plan.do if state.plan else "launch"
        case _:
            return state.next_command


def _gpus(state: State, watch: Watch) -> list[dict[str, Any]]:
    roles = {uuid: role for role, gpus in state.roles.items() for uuid in gpus.uuids}
    rows: list[dict[str, Any]] = []
    for place in all_gpus(state.roles):
        row: dict[str, Any] = {"index": place.physical, "uuid": place.uuid, "role": roles[place.uuid]}
        reading = watch.readings.get(place.uuid)
        if isinstance(reading, Reading):
            row |= {
                "used_mib": reading.used_mib,
                "total_mib": reading.total_mib,
                "util_pct": reading.util_pct,
                "peak_mib": watch.course.peaks.get(place.uuid),
                "temperature_c": reading.temperature_c,
                "power_w": reading.power_w,
                "state": "ok",
            }
        else:
            why = reading.why if reading is not None else "not read yet"
            row |= {"used_mib": None, "total_mib": None, "util_pct": None, "state": "unreadable", "why": why}
        rows.append(row)
    return rows
