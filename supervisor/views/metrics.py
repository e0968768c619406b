"""Runs as Prometheus metrics (text format 0.0.4), for a scrape or node_exporter's textfile collector.

Rule 1: what is not known is left out; a stale reading is not known, and nothing is ever told as zero for want of it.
Rule 2: names and units are those of Prometheus: base units (bytes, seconds, ratios), `_total` for what only grows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from supervisor.views import words
from supervisor.views.run import PHASES
from supervisor.views.status import Look, gpus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MIB = 1 << 20
NAMES = {
    "supervise_run_info": ("gauge", "Always 1; the labels say which run, where, and from which spec."),
    "supervise_run_open": ("gauge", "Whether the run is wanted: 0 once it has finished, stopped or halted."),
    "supervise_phase": ("gauge", "1 for the phase that the run is in, 0 for the others."),
    "supervise_supervisor_alive": ("gauge", "Whether a supervisor holds the run at this moment."),
    "supervise_paused": ("gauge", "Whether automatic recovery is off."),
    "supervise_said_timestamp_seconds": ("gauge", "When the supervisor last said how the run is."),
    "supervise_attempts_total": ("counter", "Launches of the run, over all of its episodes."),
    "supervise_restarts": ("gauge", "Relaunches within the episode."),
    "supervise_failures_total": ("counter", "Attempts that failed, by kind."),
    "supervise_step": ("gauge", "The last step known of the last attempt."),
    "supervise_steps_target": ("gauge", "How many steps the spec asks for."),
    "supervise_checkpoint_step": ("gauge", "The step of the newest complete checkpoint."),
    "supervise_rate": ("gauge", "What the job says of its pace, in its own unit."),
    "supervise_loss": ("gauge", "The loss that the job reported last."),
    "supervise_time_seconds": ("gauge", "Where the time went; a rollback moves time from productive to lost."),
    "supervise_lost_steps_total": ("counter", "Steps that were trained and rolled back."),
    "supervise_ettr_ratio": ("gauge", "Effective training time ratio: productive time of all time."),
    "supervise_gpu_readable": ("gauge", "Whether the GPU could be read."),
    "supervise_gpu_memory_used_bytes": ("gauge", "Memory in use."),
    "supervise_gpu_memory_total_bytes": ("gauge", "Memory in all."),
    "supervise_gpu_utilization_ratio": ("gauge", "Utilisation as the driver tells it."),
    "supervise_gpu_temperature_celsius": ("gauge", "Temperature."),
    "supervise_gpu_power_watts": ("gauge", "Power drawn."),
}
"""Metric -> type and help, in the order in which they are told."""
_CLASSES = ("productive", "degraded", "lost", "load", "verify", "backoff", "check")
_ALL_PHASES = tuple(dict.fromkeys(phase for sources, to in PHASES.values() for phase in (*sources, to)))

Sample = tuple[str, Mapping[str, object], float]


def text(looks: Iterable[Look]) -> str:
    """All of these runs, each metric's samples together, as the format asks."""
    told: dict[str, list[str]] = {name: [] for name in NAMES}
    for look in looks:
        for name, labels, value in _run(look):
            told[name].append(f"{name}{{{_labels({'run': look.view.name, **labels})}}} {_number(value)}")
    lines = []
    for name, samples in told.items():
        if samples:
            kind, says = NAMES[name]
            lines += [f"# HELP {name} {says}", f"# TYPE {name} {kind}", *samples]
    return "\n".join(lines) + "\n" if lines else ""


def _run(look: Look) -> Iterator[Sample]:
    view = look.view
    host = view.machine.get("host") or ""
    yield "supervise_run_info", {"host": host, "spec": view.spec.get("file") or ""}, 1
    yield "supervise_run_open", {}, view.is_open
    for phase in _ALL_PHASES:
        yield "supervise_phase", {"phase": phase}, phase == look.phase
    yield "supervise_supervisor_alive", {}, look.alive
    yield "supervise_paused", {}, view.paused
    yield "supervise_attempts_total", {}, len(view.attempts)
    yield "supervise_restarts", {}, view.restarts
    for kind, count in sorted(_failures(look).items()):
        yield "supervise_failures_total", {"kind": kind}, count
    known: dict[str, Any] = {
        "supervise_said_timestamp_seconds": look.said_s,
        "supervise_step": look.step,
        "supervise_steps_target": view.spec.get("steps"),
        "supervise_checkpoint_step": _step_of(view.checkpoint or {}),
        "supervise_rate": look.live("rate"),
        "supervise_loss": look.live("loss"),
        "supervise_lost_steps_total": look.spent.get("lost_steps"),
        "supervise_ettr_ratio": look.spent.get("ettr"),
    }
    for name, value in known.items():
        if value is not None:
            yield name, {}, value
    for kind in _CLASSES:
        if (seconds := look.spent.get(f"{kind}_s")) is not None:
            yield "supervise_time_seconds", {"class": kind}, seconds
    if view.is_open and look.alive:
        yield from _gpus(look)


def _failures(look: Look) -> Counter[str]:
    kinds = (str((each.failure or {}).get("kind", "none")) for each in look.view.attempts)
    return Counter(kind for kind in kinds if kind != "none")


def _step_of(checkpoint: Mapping[str, Any]) -> int | None:
    step = checkpoint.get("step")
    return step if isinstance(step, int) and step >= 0 else None


def _gpus(look: Look) -> Iterator[Sample]:
    for each in gpus(look):
        if each["state"] == "unknown":
            continue
        labels = {"gpu": "" if each["index"] is None else each["index"], "uuid": each["uuid"], "role": each["role"]}
        is_read = each["state"] == "ok"
        yield "supervise_gpu_readable", labels, is_read
        if not is_read:
            continue
        values = (
            ("memory_used_bytes", each["used_mib"], MIB),
            ("memory_total_bytes", each["total_mib"], MIB),
            ("utilization_ratio", each["util_pct"], 0.01),
            ("temperature_celsius", each["temperature_c"], 1),
            ("power_watts", each["power_w"], 1),
        )
        for name, value, times in values:
            if value is not None:
                yield f"supervise_gpu_{name}", labels, value * times


def _labels(values: Mapping[str, object]) -> str:
    return ",".join(f'{name}="{_label(value)}"' for name, value in values.items())


def _label(value: object) -> str:
    """A label's value: backslash, quote and newline are escaped as the format asks, the rest is one safe line."""
    said = words.safe("" if value is None else value)
    return said.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if isinstance(value, (bool, int)):
        return str(int(value))
    return str(int(value)) if value.is_integer() else f"{round(value, 4):.10g}" if abs(value) < 1e9 else repr(value)
