"""The resolved spec in the words of the file, each value with whence it comes: a line of the file, or the default."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from supervisor.core.scalars import shown
from supervisor.core.spec import Knob, Recovery, RunSpec
from supervisor.edges.specfile.tree import Path, Source, dotted


class Row(Struct, frozen=True):
    """One value: `path` as in mistakes, `whence` a `file:line` or `default`."""

    path: str
    value: str
    whence: str


def explain(spec: RunSpec, source: Source) -> tuple[Row, ...]:
    """Every value of the resolved spec. Secret values are not in a resolved spec, so none is here."""
    return tuple(Row(dotted(path), _text(value), _whence(source, path)) for path, value in _values(spec))


def _whence(source: Source, path: Path) -> str:
    """The line where the value stands, or where the single value or list stands that it was made from."""
    if path == ("resume", "args"):
        path = ("resume", "arg") if ("resume", "arg") in source.positions else path
    node: Any = source.root
    for depth, part in enumerate(path):
        if not isinstance(node, dict):
            path = path[:depth]
            break
        if part not in node:
            return "default"
        node = node[part]
    return f"{source.file}:{source.at(path)[0]}"


def _text(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case tuple() | list():
            return "[" + ", ".join(map(_text, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{key}: {_text(one)}" for key, one in value.items()) + "}"
    return str(value)


def duration(seconds: float | None, default: str = "auto") -> str:
    """A duration as the file writes it."""
    if seconds is None:
        return default
    for unit, length in (("h", 3600.0), ("m", 60.0), ("s", 1.0)):
        if seconds and seconds % length == 0:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds * 1000:g}ms" if seconds else "0s"


def size(mib: float | None, default: str = "none") -> str:
    """A size as the file writes it."""
    if mib is None:
        return default
    return f"{mib / 1024:.0f}GiB" if mib and mib % 1024 == 0 else f"{mib:g}MiB"


def _values(spec: RunSpec) -> Iterator[tuple[Path, Any]]:
    yield ("name",), spec.name
    yield ("command",), spec.command
    yield ("workdir",), spec.workdir
    yield ("venv",), spec.venv
    for name, text in spec.env.items():
        yield ("env", name), text
    yield ("secrets",), spec.secrets
    for role in spec.topology:
        yield ("topology", role.name, "gpus"), role.gpus
        yield ("topology", role.name, "silent"), role.silent.value
    yield ("visible",), spec.visible.value
    yield ("launch", "terminal"), spec.launch.terminal
    yield ("launch", "pty"), spec.launch.pty
    yield from _params(spec)
    for file in spec.files:
        yield ("files", file.name, "from"), file.from_
        yield from ((("files", file.name, "set", key), text) for key, text in file.set.items())
    if spec.resume is not None:
        yield ("resume", "from"), spec.resume.from_
        yield ("resume", "start"), spec.resume.start
        yield ("resume", "args"), spec.resume.args
        yield ("resume", "complete"), spec.resume.complete
        yield ("resume", "step"), spec.resume.step or "by its name"
        yield ("resume", "if_none"), spec.resume.if_none or "fresh until the run has had one, then fail"
    yield ("output", "dir"), spec.output.dir
    yield ("output", "stale"), spec.output.stale.value
    yield ("output", "units"), spec.output.units
    yield from ((("ports", name), port) for name, port in spec.ports.items())
    yield from ((("pins", package), version) for package, version in spec.pins.items())
    yield ("pins", "on_drift"), "warn" if spec.pins_warn else "fail"
    yield ("pins", "freeze"), spec.pins_freeze
    yield from _given(spec)
    yield ("preflight", "gpus_empty"), spec.preflight.gpus_empty
    yield ("preflight", "disk_free"), size(spec.preflight.disk_free_mib)
    yield ("preflight", "checks"), spec.preflight.checks
    yield ("logs",), spec.logs
    yield from _health(spec)
    yield from _recovery(spec.recovery)
    for n, signature in enumerate(spec.signatures):
        yield ("signatures", n), f"{signature.name} ({signature.kind}): {signature.match}"
    yield ("steps",), spec.steps
    yield ("cost_per_hour",), spec.cost_per_hour
    yield from _around(spec)


def _given(spec: RunSpec) -> Iterator[tuple[Path, Any]]:
    if (code := spec.code) is not None:
        yield ("code", "protect"), code.paths or "scripts and config files of the command"
        yield ("code", "on_change"), "halt" if code.strict else "warn"
        yield ("code", "snapshot"), code.snapshot
    if (data := spec.data) is not None:
        yield ("data", "paths"), data.paths
        yield ("data", "on_change"), "fail" if data.strict else "warn"
    if (rehearsal := spec.rehearsal) is not None:
        yield ("rehearsal", "params"), rehearsal.params or None
        yield ("rehearsal", "args"), rehearsal.args
        yield ("rehearsal", "pass", "steps"), rehearsal.steps
        yield ("rehearsal", "pass", "within"), duration(rehearsal.within_s)
    if (hooks := spec.hooks) is not None:
        yield ("hooks", "before_launch"), hooks.before_launch
        yield ("hooks", "after_stop"), hooks.after_stop
        yield ("hooks", "timeout"), duration(hooks.timeout_s)


def _params(spec: RunSpec) -> Iterator[tuple[Path, Any]]:
    yield ("params", "style"), spec.params.style.value
    for name, value in spec.params.protected.items():
        yield ("params", "protected", name), f"{shown(value)} ({_written(spec, name)}, locked)"
    for knob in spec.params.knobs:
        yield ("params", "knobs", knob.name), " -> ".join(_rung(knob, n) for n in range(len(knob.rungs)))
        if knob.keep is not None:
            yield ("params", "knobs", knob.name, "keep"), knob.keep


def _written(spec: RunSpec, name: str) -> str:
    how = spec.params.how[name]
    if how.file is not None:
        return f"{how.key} in {how.file}"
    return how.env or how.flag or f"{name}="


def _rung(knob: Knob, n: int) -> str:
    rung = knob.rungs[n]
    if len(rung) == 1 and knob.name in rung:
        return rung[knob.name].text
    return "{" + ", ".join(f"{name}: {value.text}" for name, value in rung.items()) + "}"


def _health(spec: RunSpec) -> Iterator[tuple[Path, Any]]:
    learned = "2h, then 3 x the longest start seen, at least 1h"
    yield ("health", "startup_timeout"), duration(spec.health.startup_timeout_s, learned)
    progress = spec.health.progress
    if progress is None:
        yield ("health", "progress"), "none: running when alive; no hang or startup rule"
    else:
        for key, value in (("log", progress.log), ("in", progress.in_ or "the job's output"), ("files", progress.files),
                           ("jsonl", progress.jsonl or None), ("heartbeat", progress.heartbeat)):  # fmt: skip
            if value is not None:
                yield ("health", "progress", key), value
        yield ("health", "progress", "stall"), duration(progress.stall_s)
    if spec.done is None:
        yield ("done",), "the job's exit 0"
    else:
        done = (("step", spec.done.step), ("file", spec.done.file), ("log", spec.done.log))
        for what, meant in done:
            if meant is not None:
                yield ("done", what), meant


def _around(spec: RunSpec) -> Iterator[tuple[Path, Any]]:
    if (notify := spec.notify) is not None:
        yield ("notify", "urls_from"), notify.urls_from
        yield ("notify", "on"), notify.on
        yield ("notify", "command"), notify.command
        yield ("notify", "morning"), notify.morning
        if notify.heartbeat_from is not None:
            yield ("notify", "heartbeat", "url_from"), notify.heartbeat_from
            yield ("notify", "heartbeat", "every"), duration(notify.heartbeat_every_s)
    if (tracking := spec.tracking) is not None:
        yield ("tracking", "wandb"), tracking.wandb
        yield ("tracking", "mlflow"), tracking.mlflow
        yield ("tracking", "tensorboard"), tracking.tensorboard


def _recovery(recovery: Recovery) -> Iterator[tuple[Path, Any]]:
    zero = recovery.verify_zero
    yield ("recovery", "max_attempts"), recovery.max_attempts
    yield ("recovery", "per"), duration(recovery.per_s)
    yield ("recovery", "stop", "signal"), recovery.stop_signal
    yield ("recovery", "stop", "grace"), duration(recovery.grace_s)
    yield ("recovery", "verify_zero", "stable_for"), duration(zero.stable_for_s)
    yield ("recovery", "verify_zero", "timeout"), duration(zero.timeout_s)
    yield ("recovery", "verify_zero", "floor"), size(zero.floor_mib, "learned")
    yield ("recovery", "verify_zero", "foreign", "wait"), duration(zero.foreign.wait_s)
    yield ("recovery", "verify_zero", "foreign", "allow"), size(zero.foreign.allow_mib)
    yield ("recovery", "backoff", "first"), duration(recovery.backoff_first_s)
    yield ("recovery", "backoff", "cap"), duration(recovery.backoff_cap_s)
    for n, rule in enumerate(recovery.rules):
        lower = f", lower {'one of ' if rule.one_of else ''}{', '.join(rule.lower)}" if rule.lower else ""
        yield ("recovery", "rules", n), f"{', '.join(map(str, rule.on))}: {rule.do.value}{lower}"
