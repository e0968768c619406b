"""What an attempt is launched with: its argv, environment and config files. Pure; nothing is read or written here.

Rule 1: two renderings of one spec differ in nothing but knobs, checkpoint, ports and the attempt's own names.
Rule 2: resume arguments stand there only where there is a checkpoint.
Rule 3: a secret's value never comes here; `Rendered.env` is laid over the job's environment, which has it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from supervisor.core.codecopy import from_copy
from supervisor.core.evidence import Checkpoint
from supervisor.core.given import CodeCopy
from supervisor.core.placing import RoleGpus, all_gpus, visible_env
from supervisor.core.scalars import scalars, typed
from supervisor.core.small import small
from supervisor.core.spec import ConfigFile, Form, Param, RunSpec, Scalar, Style, Value
from supervisor.core.state import Attempt, State
from supervisor.core.substitution import fill, names, sole

SECRET = "<secret>"
"""Stands in `RunSpec.env` where a secret's value was."""

ARGS = "params.args"


class Placement(Struct, frozen=True, kw_only=True):
    """What is particular to one attempt. `rungs` maps a knob to the rung it stands on (0 is the start).

    `rehearsal`: it is the small run before the full one. `code`: the copy that it is launched from.
    """

    attempt: int
    attempt_dir: str
    run_dir: str
    rungs: Mapping[str, int] = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
    gpus: Mapping[str, RoleGpus] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    tracking_id: str = ""
    rehearsal: bool = False
    code: CodeCopy | None = None


def placement_of(state: State, attempt: Attempt, attempt_dir: str, run_dir: str) -> Placement:
    """The placement of an attempt that the journal knows."""
    return Placement(
        attempt=attempt.number,
        attempt_dir=attempt_dir,
        run_dir=run_dir,
        rungs=attempt.rungs,
        checkpoint=attempt.checkpoint,
        gpus=state.roles,
        ports=attempt.ports,
        tracking_id=state.tracking_id,
        rehearsal=attempt.rehearsal,
        code=state.code,
    )


class RenderedFile(Struct, frozen=True, kw_only=True):
    """A copy to be written to `path`: `from_` with the values of `set` in place of its own."""

    name: str
    from_: str
    path: str
    set: dict[str, Scalar]


class Rendered(Struct, frozen=True, kw_only=True):
    """A launch. `env` is what the spec sets over the job's environment, without secrets and without deletions."""

    argv: tuple[str, ...]
    env: dict[str, str]
    files: tuple[RenderedFile, ...]


def render(spec: RunSpec, placement: Placement) -> Rendered:
    """The command, environment and config files of an attempt."""
    args: tuple[str, ...] = ()
    spec = from_copy(spec, placement.code)
    if placement.rehearsal and spec.rehearsal is not None:
        args = spec.rehearsal.args
        spec = small(spec, placement.attempt_dir)
    known = _known(spec, placement)
    return Rendered(
        argv=(*_argv(spec, placement, known), *(fill(item, known) for item in args)),
        env=_env(spec, placement, known),
        files=tuple(_file(spec, file, placement, known) for file in spec.files),
    )


def values(spec: RunSpec, rungs: Mapping[str, int]) -> dict[str, Scalar]:
    """Every knob param's value on these rungs; a knob that is not named stands at its start. A venv is no param."""
    moved = (knob.rungs[rungs.get(knob.name, 0)] for knob in spec.params.knobs if not knob.venv)
    return {name: value for rung in moved for name, value in rung.items()}


def venv_of(spec: RunSpec, rungs: Mapping[str, int]) -> str | None:
    """The job's environment on these rungs: the spec's, or where a ladder of venvs stands."""
    for knob in spec.params.knobs:
        if knob.venv:
            return knob.rungs[rungs.get(knob.name, 0)][knob.name].text
    return spec.venv


def all_values(spec: RunSpec, rungs: Mapping[str, int]) -> dict[str, Value]:
    """Every param's value on these rungs: the protected ones first, then the knobs'."""
    return {**spec.params.protected, **values(spec, rungs)}


def expand(text: str, spec: RunSpec, placement: Placement) -> str:
    """The text with every `${{ name }}` in it replaced."""
    return fill(text, _known(spec, placement))


def placed(spec: RunSpec, placement: Placement) -> RunSpec:
    """The spec with no substitution left in what is watched, cleaned and checked (the command stays as it is)."""
    spec = from_copy(spec, placement.code)
    if placement.rehearsal and spec.rehearsal is not None:
        spec = small(spec, placement.attempt_dir)
    known = _known(spec, placement)

    def paths(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(fill(text, known) for text in texts)

    def path(text: str | None) -> str | None:
        return None if text is None else fill(text, known)

    progress = spec.health.progress
    if progress is not None:
        progress = replace(
            progress,
            in_=paths(progress.in_),
            files=path(progress.files),
            jsonl={key: fill(text, known) for key, text in progress.jsonl.items()},
            heartbeat=path(progress.heartbeat),
        )
    return replace(
        spec,
        logs=paths(spec.logs),
        output=replace(spec.output, dir=path(spec.output.dir), units=path(spec.output.units)),
        health=replace(spec.health, progress=progress),
        done=spec.done and replace(spec.done, file=path(spec.done.file)),
        preflight=replace(spec.preflight, checks=tuple(map(paths, spec.preflight.checks))),
        hooks=spec.hooks
        and replace(
            spec.hooks,
            before_launch=paths(spec.hooks.before_launch),
            after_stop=paths(spec.hooks.after_stop),
        ),
    )


def file_path(attempt_dir: str, file: ConfigFile) -> str:
    """Where the copy of a config file is written: the attempt's folder, the name of the entry, the same suffix."""
    base = file.from_.rsplit("/", 1)[-1]
    stem, dot, suffix = base.rpartition(".")
    return f"{attempt_dir}/files/{file.name}{dot + suffix if stem else ''}"


def _known(spec: RunSpec, placement: Placement) -> dict[str, str]:
    params = all_values(spec, placement.rungs)
    known = {
        "run.name": spec.name,
        "run.dir": placement.run_dir,
        "attempt.number": str(placement.attempt),
        "attempt.dir": placement.attempt_dir,
        "workdir": spec.workdir,
        "venv": venv_of(spec, placement.rungs) or "",
        "gpus": _joined(gpu.ordinal for gpu in all_gpus(placement.gpus)),
        ARGS: shlex.join(_params(spec, params)),
    }
    for role, gpus in placement.gpus.items():
        known[f"topology.{role}.gpus"] = _joined(gpus.ordinals)
        known[f"topology.{role}.physical"] = _joined(gpus.physical)
        known[f"topology.{role}.uuids"] = _joined(gpus.uuids)
        known[f"topology.{role}.count"] = str(len(gpus.uuids))
    known.update((f"params.{name}", _joined(item.text for item in scalars(params[name]))) for name in params)
    known.update((f"files.{file.name}", file_path(placement.attempt_dir, file)) for file in spec.files)
    known.update((f"ports.{name}", str(port)) for name, port in placement.ports.items())
    return known | _checkpoint(placement.checkpoint)


def _joined(items: Iterable[object]) -> str:
    return ",".join(map(str, items))


def _checkpoint(taken: Checkpoint | None) -> dict[str, str]:
    """Empty texts where there is no checkpoint: in `env` and `files` that is how a job learns of it."""
    if taken is None:
        return dict.fromkeys(("checkpoint.path", "checkpoint.dir", "checkpoint.name", "checkpoint.step"), "")
    folder, _, name = taken.path.rstrip("/").rpartition("/")
    return {
        "checkpoint.path": taken.path,
        "checkpoint.dir": folder or "/",
        "checkpoint.name": name,
        "checkpoint.step": str(taken.step),
    }


def _argv(spec: RunSpec, placement: Placement, known: Mapping[str, str]) -> tuple[str, ...]:
    args = _params(spec, all_values(spec, placement.rungs))
    argv: list[str] = []
    for item in spec.command:
        if sole(item) == ARGS:
            argv.extend(args)
        else:
            argv.append(fill(item, known))
    if not _args_stand_somewhere(spec):
        argv.extend(args)
    if spec.resume is not None and placement.checkpoint is not None:
        argv.extend(fill(item, known) for item in spec.resume.args)
    return tuple(argv)


def _args_stand_somewhere(spec: RunSpec) -> bool:
    texts = [*spec.command, *spec.env.values(), *(text for file in spec.files for text in file.set.values())]
    return any(ARGS in names(text) for text in texts)


def _params(spec: RunSpec, params: Mapping[str, Value]) -> list[str]:
    """The params that go to the command by themselves, in the order of the spec."""
    if spec.params.style not in (Style.ARGPARSE, Style.HYDRA):
        return []
    args: list[str] = []
    for name, value in params.items():
        how = spec.params.how[name]
        if how.env is None and how.file is None:
            write = _hydra if spec.params.style is Style.HYDRA else _argparse
            args.extend(write(how, value))
    return args


def _argparse(how: Param, value: Value) -> list[str]:
    flag = how.flag or flag_of(how.name)
    args: list[str] = []
    for item in scalars(value):
        if item.tag == "bool" and how.form is not Form.EQUALS:
            args.extend([flag] if item.value else [])
        elif how.form is Form.EQUALS:
            args.append(f"{flag}={item.text}")
        else:
            args.extend([flag, item.text])
    return args


def _hydra(how: Param, value: Value) -> list[str]:
    text = value.text if isinstance(value, Scalar) else f"[{_joined(item.text for item in value)}]"
    return [f"{how.flag or how.name}={text}"]


def flag_of(name: str) -> str:
    """The flag that a param has by default: `--token-budget`."""
    return "--" + name.replace("_", "-")


def _env(spec: RunSpec, placement: Placement, known: Mapping[str, str]) -> dict[str, str]:
    env = tracking_env(spec, placement.tracking_id)
    env |= {name: fill(text, known) for name, text in spec.env.items() if text != SECRET}
    for name, value in all_values(spec, placement.rungs).items():
        variable = spec.params.how[name].env
        if variable is not None:
            env[variable] = _joined(item.text for item in scalars(value))
    venv = venv_of(spec, placement.rungs)
    if venv is not None and "PATH" in env:
        env["PATH"] = f"{venv}/bin:{env['PATH']}"
    return env | visible_env(spec, placement.gpus)


def tracking_env(spec: RunSpec, tracking_id: str) -> dict[str, str]:
    """The same run at the trackers in every attempt. `tracking_id` is one word of the run's, the same for its life."""
    tracking = spec.tracking
    env: dict[str, str] = {}
    if tracking is not None and tracking.wandb is not None:
        own = f"{spec.name}-{tracking_id.rpartition('-')[2]}"
        env["WANDB_RUN_ID"] = own if tracking.wandb == "auto" else tracking.wandb
        env["WANDB_RESUME"] = tracking.wandb_resume
    if tracking is not None and tracking.mlflow is not None:
        env["MLFLOW_RUN_ID"] = tracking.mlflow
    return env


def _file(spec: RunSpec, file: ConfigFile, placement: Placement, known: Mapping[str, str]) -> RenderedFile:
    params = all_values(spec, placement.rungs)
    set_: dict[str, Scalar] = {}
    for key, text in file.set.items():
        name = (sole(text) or "").removeprefix("params.")
        value = params.get(name)
        if isinstance(value, Scalar):
            set_[key] = value
        else:
            filled = fill(text, known)
            set_[key] = Scalar(filled) if key in file.quoted else typed(filled)
    return RenderedFile(name=file.name, from_=file.from_, path=file_path(placement.attempt_dir, file), set=set_)
