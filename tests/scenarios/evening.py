"""What a transcript may change of the incident's spec, in one word each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fake_specs import uuid
from msgspec.structs import replace

from supervisor.core.aftermath import (
    CgroupKills,
    CouldNotTell,
    GpuHealth,
    KernelSaid,
    OomKill,
    Orphan,
    RankError,
    Space,
    Xid,
)
from supervisor.core.evidence import Hit
from supervisor.core.given import Hooks, Rehearsal
from supervisor.core.kinds import Kind
from supervisor.core.spec import Do, Done, Knob, Rule, RunSpec, Scalar, Silent, Stale


def seconds(text: str) -> float:
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def _recovery(spec: RunSpec, **changes: object) -> RunSpec:
    return replace(spec, recovery=replace(spec.recovery, **changes))  # type: ignore[arg-type]


def _zero(spec: RunSpec, **changes: object) -> RunSpec:
    return _recovery(spec, verify_zero=replace(spec.recovery.verify_zero, **changes))  # type: ignore[arg-type]


def _foreign(spec: RunSpec, **changes: float) -> RunSpec:
    return _zero(spec, foreign=replace(spec.recovery.verify_zero.foreign, **changes))


def _resume(spec: RunSpec, **changes: object) -> RunSpec:
    assert spec.resume is not None
    return replace(spec, resume=replace(spec.resume, **changes))  # type: ignore[arg-type]


def _ladder(spec: RunSpec, text: str) -> RunSpec:
    """`max_batch_size=64,48`: one knob and its rungs."""
    name, _, rungs = text.partition(":")
    made = Knob(name=name, rungs=tuple({name: Scalar(rung, "int")} for rung in rungs.split(",")))
    knobs = tuple(made if one.name == name else one for one in spec.params.knobs)
    return replace(spec, params=replace(spec.params, knobs=knobs))


def _batch(spec: RunSpec, text: str) -> RunSpec:
    """`8x4,4x8`: a knob set whose product is kept."""
    rungs = tuple(
        {"micro_batch": Scalar(a, "int"), "grad_accum": Scalar(b, "int")}
        for a, b in (rung.split("x") for rung in text.split(","))
    )
    knob = Knob(name="batch", rungs=rungs, keep="micro_batch * grad_accum")
    how = {**spec.params.how, **{n: replace(next(iter(spec.params.how.values())), name=n) for n in rungs[0]}}
    return replace(spec, params=replace(spec.params, knobs=(knob,), how=how))


def _drafter(spec: RunSpec, **changes: Any) -> RunSpec:
    """The role of GPUs 5 to 7."""
    roles = tuple(replace(role, **changes) if role.name == "drafter" else role for role in spec.topology)
    return replace(spec, topology=roles)


def _rehearsal(text: str) -> Rehearsal:
    """`20:15m`: so many steps within this time."""
    steps, _, within = text.partition(":")
    return Rehearsal(params={"max_steps": "40"}, args=("--small",), steps=int(steps), within_s=seconds(within))


def _venvs(spec: RunSpec, paths: list[str]) -> RunSpec:
    knob = Knob(name="venv", rungs=tuple({"venv": Scalar(path)} for path in paths), venv=True)
    return replace(spec, venv=paths[0], params=replace(spec.params, knobs=(*spec.params.knobs, knob)))


def _hooks(spec: RunSpec, **changes: Any) -> RunSpec:
    return replace(spec, hooks=replace(spec.hooks or Hooks(), **changes))


def _phase(spec: RunSpec, text: str) -> RunSpec:
    """`eval:2h`: a phase of health.phases and its limit."""
    name, _, limit = text.partition(":")
    phase: dict[str, str | float] = {"name": name, "from": name, "to": name, "limit_s": seconds(limit)}
    return replace(spec, health=replace(spec.health, phases=(phase,)))


_OPTIONS: dict[str, Callable[[RunSpec, str], RunSpec]] = {
    "max_attempts": lambda spec, text: _recovery(spec, max_attempts=int(text)),
    "grace": lambda spec, text: _recovery(spec, grace_s=seconds(text)),
    "zero_timeout": lambda spec, text: _zero(spec, timeout_s=seconds(text)),
    "floor": lambda spec, text: _zero(spec, floor_mib=float(text)),
    "foreign_wait": lambda spec, text: _foreign(spec, wait_s=seconds(text)),
    "foreign_allow": lambda spec, text: _foreign(spec, allow_mib=float(text)),
    "keep": lambda spec, text: _resume(spec, keep=int(text)),
    "mode": lambda spec, text: _resume(spec, mode=text),
    "if_none": lambda spec, text: _resume(spec, if_none=None if text == "default" else text),
    "start": lambda spec, text: _resume(spec, start=None if text == "none" else f"/w/checkpoints/{text}"),
    "resume": lambda spec, text: replace(spec, resume=None),
    "stale": lambda spec, text: replace(spec, output=replace(spec.output, stale=Stale(text))),
    "startup": lambda spec, text: replace(
        spec, health=replace(spec.health, startup_timeout_s=None if text == "default" else seconds(text))
    ),
    "stall": lambda spec, text: replace(
        spec, health=replace(spec.health, progress=replace(spec.health.progress, stall_s=seconds(text)))
    ),
    "silent": lambda spec, text: _drafter(spec, silent=Silent(text)),
    "for": lambda spec, text: _drafter(spec, for_s=seconds(text)),
    "may_finish": lambda spec, text: _drafter(spec, may_finish=text == "yes"),
    "phase": _phase,
    "lost_progress": lambda spec, text: replace(spec, health=replace(spec.health, lost_progress=text)),
    "numeric": lambda spec, text: replace(spec, health=replace(spec.health, numeric_steps=int(text))),
    "progress": lambda spec, text: replace(spec, health=replace(spec.health, progress=None)),
    "venv_ladder": lambda spec, text: _venvs(spec, text.split(",")),
    "rehearsal": lambda spec, text: replace(spec, rehearsal=_rehearsal(text)),
    "before_launch": lambda spec, text: _hooks(spec, before_launch=tuple(text.split("|"))),
    "after_stop": lambda spec, text: _hooks(spec, after_stop=tuple(text.split("|"))),
    "done_step": lambda spec, text: replace(spec, done=Done(step=int(text))),
    "done_log": lambda spec, text: replace(spec, done=Done(log=text)),
    "done_file": lambda spec, text: replace(spec, done=Done(file=text)),
    "gpus": lambda spec, text: replace(spec, topology=()),
    "command": lambda spec, text: replace(spec, command=tuple(text.split())),
    "ladder": _ladder,
    "batch": _batch,
    "knobs": lambda spec, text: replace(spec, params=replace(spec.params, knobs=())),
}


def specs_options(spec: RunSpec, options: Mapping[str, str]) -> RunSpec:
    """The spec with these options; an unknown one is a mistake of the transcript."""
    for name, text in options.items():
        spec = _OPTIONS[name](spec, text)
    return spec


def rule(options: Mapping[str, str], where: str) -> Rule:
    """A recovery rule as in the run spec: `on= do= lower= one_of= role= phase= match= after= times= from= wait=`."""
    names = options.get("lower") or options.get("one_of") or ""
    return Rule(
        on=tuple(Kind(kind) for kind in options["on"].split(",")),
        do=Do(options["do"]),
        lower=tuple(filter(None, names.split(","))),
        one_of="one_of" in options,
        role=options.get("role"),
        phase=options.get("phase"),
        match=options.get("match"),
        after_s=seconds(options["after"]) if "after" in options else None,
        times=int(options["times"]) if "times" in options else None,
        from_older=options.get("from") == "older",
        wait_s=seconds(options["wait"]) if "wait" in options else None,
        where=where,
    )


def witnessed(what: str, of: Mapping[str, str], now_s: float) -> dict[str, Any]:
    """What a witness says, as a field of the aftermath."""
    text = of.get("text", what)
    gpu = uuid(int(of["gpu"])) if "gpu" in of else ""
    match what:
        case "oom_kill":
            pid = int(of["pid"])
            return {"kernel": KernelSaid(oom_kills=(OomKill(pid, "python", f"oom-kill: pid={pid}", True, now_s),))}
        case "xid":
            said = f"NVRM: Xid: {of['code']}"
            return {"kernel": KernelSaid(xids=(Xid(int(of["code"]), said, gpu, False, now_s),))}
        case "cgroup":
            return {"cgroup": CgroupKills("/sys/fs/cgroup/job", int(of["kills"]))}
        case "unfit":
            return {"gpus": (GpuHealth(gpu, unfit="a row remapping is pending: the GPU needs a reset"),)}
        case "room":
            return {"space": (Space("output", "/w/out", float(of["free"])),)}
        case "orphan":
            return {"orphans": (Orphan(int(of["pid"]), int(of["attempt"]), "python train.py"),)}
        case "members":
            return {"own": frozenset(map(int, of["pids"].split(",")))}
        case "rank":
            rank, path = int(of["n"]), f"/e/{of['n']}/error.json"
            hit = Hit("exception", Kind(of["kind"]), path, 1, 0, text, rank=rank)
            return {"ranks": (RankError(rank, now_s, path, text, (hit,)),)}
        case _:
            return {"kernel": CouldNotTell("the kernel's log (/dev/kmsg): Operation not permitted")}
