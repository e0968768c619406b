"""A run as its own rehearsal: the same spec in a scratch folder, over simulated GPUs, with a stand-in trainer.

Rule 1: nothing under the real workdir is written, and no program of the user's runs, except a start script that
says TRAIN_SCRIPT: it starts the stand-in.
Rule 2: whatever is left out or replaced is said, in the warnings of the spec that comes out.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import re2
from msgspec import Struct
from msgspec.structs import replace

from supervisor.core.spec import Health, Output, Preflight, Progress, Recovery, Resume, Role, RunSpec
from supervisor.edges.files import make_private_dir
from supervisor.edges.paths import RunDir
from supervisor.simulation import saves
from supervisor.simulation.flags import stand_in_environment
from supervisor.simulation.world import World

GPUS = 8
CUT_S = 3.0
STABLE_S = 0.5
"""The memory of the world drains within a second; this and the drain fit into `CUT_S`."""
BACKOFF_S = 1.0
FIRST_STEP = 100
LINE = "step 691/720 | loss 2.2528 | lr 3.00e-05 | 42.3 Ktok/s"
"""What the stand-in prints; a pattern of the spec that finds a step in it is kept."""
OWN_PROGRESS = r"step (?P<step>\d+)/\d+ \| loss (?P<loss>[\d.]+) \|.*\| (?P<rate>[\d.]+) Ktok/s"
CHECKPOINT_FILES = ("model.safetensors", "optim.pt", "state.json")
START_SCRIPT = "start_training.sh"
NOT_INHERITED = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
SKIPPED = "simulated: venv, secrets, pins, hooks, code, data, disk_free, memory fit, checks and user checks are skipped"
_SCRIPT_CAP_BYTES = 2**20
_WILD = re.compile(r"\*+|\?+|\[[^\]]*\]")


class Places(Struct, frozen=True):
    """Where a simulated run lies: `world` is the box, `scratch` stands in for the workdir."""

    world: Path
    scratch: Path

    @classmethod
    def of(cls, run: RunDir) -> Places:
        """Inside the run's own folder."""
        return cls(run.path / "world", run.path / "scratch")


def name_of(name: str) -> str:
    """The simulation's name; a simulation of a simulation is the same one."""
    return name if name.startswith("sim-") else f"sim-{name}"


def simulated(spec: RunSpec, run: RunDir) -> RunSpec:
    """The spec of the simulation; `run` is the folder of `name_of(spec.name)`. Changes nothing on the disk."""
    at = Places.of(run)
    said = [SKIPPED]
    resume = _resume(spec, at, said)
    command = _command(spec, said)
    if spec.done is not None:
        said.append("simulated: `done` is left out, the stand-in trains for a few steps only")
    return replace(
        spec,
        name=run.name,
        command=command,
        workdir=str(at.scratch),
        venv=None,
        env=_env(spec, at, resume),
        secrets=(),
        topology=_roles(spec.topology, said),
        params=replace(spec.params, knobs=tuple(knob for knob in spec.params.knobs if not knob.venv)),
        resume=resume,
        output=Output(
            dir=_mapped(spec.output.dir, spec, at), stale=spec.output.stale, units=_mapped(spec.output.units, spec, at)
        ),
        pins={},
        pins_freeze=False,
        code=None,
        data=None,
        hooks=None,
        preflight=Preflight(gpus_empty=spec.preflight.gpus_empty),
        logs=tuple(_inside(path, spec, at) for path in spec.logs),
        health=_health(spec.health, said),
        done=None,
        recovery=_recovery(spec),
        steps=None,
        simulated=True,
        warnings=(*spec.warnings, *said),
    )


def prepare_scratch(spec: RunSpec, run: RunDir) -> World:
    """Make what the simulated spec needs: the world, the scratch folder, the checkpoint to start from.

    What is there already stays; a world that is in use keeps its processes.
    """
    at = Places.of(run)
    make_private_dir(at.scratch)
    make_private_dir(at.world)
    count = max([GPUS, *(int(gpu) + 1 for gpu in spec.gpus if gpu.isdigit())])
    world = World.create(at.world, gpus=count)
    if spec.resume is not None:
        start = _start_of(spec.resume)
        if start is not None:
            start.parent.mkdir(parents=True, exist_ok=True)
            saves.save(start, _step_in(start.name))
    if spec.output.dir is not None:
        Path(spec.output.dir).parent.mkdir(parents=True, exist_ok=True)
    return world


def job_environment(environ: dict[str, str]) -> dict[str, str]:
    """What the stand-in inherits: all but the choice of GPUs, which the simulation makes itself."""
    return {name: value for name, value in environ.items() if name not in NOT_INHERITED}


def _inside(path: str, spec: RunSpec, at: Places) -> str:
    """The path's place in the scratch folder, also for one outside the workdir. `..` does not lead out."""
    real = os.path.normpath(path)
    workdir = os.path.normpath(spec.workdir)
    if real == workdir:
        return str(at.scratch)
    if real.startswith(workdir.rstrip("/") + "/"):
        return str(at.scratch / real[len(workdir.rstrip("/")) + 1 :])
    return str(at.scratch / "outside" / real.lstrip("/"))


def _mapped(path: str | None, spec: RunSpec, at: Places) -> str | None:
    return None if path is None else _inside(path, spec, at)


def _command(spec: RunSpec, said: list[str]) -> tuple[str, ...]:
    """Through the start script where it hands over to TRAIN_SCRIPT; else the stand-in with the same flags."""
    script = Path(spec.workdir) / spec.command[0]
    if script.name == START_SCRIPT and os.access(script, os.X_OK) and _says(script, "TRAIN_SCRIPT"):
        return (str(script), *spec.command[1:])
    said.append(f"simulated: the stand-in trainer runs instead of {spec.command[0]}, with the same flags")
    return (sys.executable, str(Path(saves.__file__).with_name("trainer.py")), *spec.command[1:])


def _says(script: Path, word: str) -> bool:
    with open(script, "rb") as file:
        return word.encode() in file.read(_SCRIPT_CAP_BYTES)


def _env(spec: RunSpec, at: Places, resume: Resume | None) -> dict[str, str]:
    kept = {k: v for k, v in spec.env.items() if k not in (*NOT_INHERITED, *spec.secrets) and v != "<secret>"}
    saves_at = resume.from_ if resume is not None else str(at.scratch / "checkpoints" / "step_*")
    return {
        **kept,
        **stand_in_environment(at.world),
        "SUPERVISE_SIM_CHECKPOINTS": _one_star(saves_at),
        "SUPERVISE_SIM_OUTPUT": _mapped(spec.output.dir, spec, at) or str(at.scratch / "out"),
        "PYTHONDONTWRITEBYTECODE": "1",  # the package may lie in the workdir
    }


def _one_star(glob: str) -> str:
    """The glob as a name with one `*` for the step: the last wildcard of the last part."""
    folder, _, name = glob.rpartition("/")
    folder = _WILD.sub("sim", folder)
    wild = list(_WILD.finditer(name))
    if not wild:
        return f"{folder}/{name}"
    last = wild[-1]
    return f"{folder}/{_WILD.sub('0', name[: last.start()])}*{name[last.end() :]}"


def _roles(topology: tuple[Role, ...], said: list[str]) -> tuple[Role, ...]:
    """The same roles by index: the UUIDs of real GPUs do not exist in the simulated box."""
    taken = {gpu for role in topology for gpu in role.gpus if gpu.isdigit()}
    free = (str(n) for n in range(10_000) if str(n) not in taken)
    roles = []
    for role in topology:
        gpus = tuple(gpu if gpu.isdigit() else next(free) for gpu in role.gpus)
        if gpus != role.gpus:
            said.append(f"simulated: role {role.name} has GPUs {','.join(gpus)} of the simulated box")
        roles.append(replace(role, gpus=gpus))
    return tuple(roles)


def _resume(spec: RunSpec, at: Places, said: list[str]) -> Resume | None:
    resume = spec.resume
    if resume is None:
        return None
    globs = tuple(glob for glob in resume.complete if _fits(glob))
    if globs != resume.complete:
        left = ", ".join(glob for glob in resume.complete if glob not in globs)
        said.append(
            f"simulated: the stand-in's checkpoints have no {left}; resume.complete asks only for what they have"
        )
    start = _mapped(resume.start, spec, at)
    mapped = replace(resume, from_=_inside(resume.from_, spec, at), start=start, complete=globs, mode="explicit")
    if start is not None:
        said.append(f"simulated: a small checkpoint was made to start from, {start}")
    return mapped


def _fits(glob: str) -> bool:
    import fnmatch

    return any(fnmatch.fnmatch(name, glob) for name in CHECKPOINT_FILES)


def _start_of(resume: Resume) -> Path | None:
    """The checkpoint that must be there before the first launch; None where the run may begin without one."""
    if resume.start is not None:
        return Path(resume.start)
    return Path(_one_star(resume.from_).replace("*", str(FIRST_STEP))) if resume.if_none == "fail" else None


def _step_in(name: str) -> int:
    numbers = re.findall(r"\d+", name)
    return int(numbers[-1]) if numbers else FIRST_STEP


def _health(health: Health, said: list[str]) -> Health:
    """With a progress rule that the stand-in's lines meet."""
    progress = health.progress
    if progress is None:
        return health
    if progress.log is not None and _finds_a_step(progress.log):
        return replace(health, progress=Progress(log=progress.log, stall_s=progress.stall_s))
    said.append("simulated: progress is read from the stand-in's own lines, not by health.progress of the spec")
    return replace(health, progress=Progress(log=OWN_PROGRESS, stall_s=progress.stall_s))


def _finds_a_step(pattern: str) -> bool:
    found = re2.search(pattern, LINE)
    return found is not None and "step" in found.groupdict()


def _recovery(spec: RunSpec) -> Recovery:
    """The same rules with times of at most CUT_S."""
    recovery = spec.recovery
    gone = {knob.name for knob in spec.params.knobs if knob.venv}
    zero = recovery.verify_zero
    return replace(
        recovery,
        grace_s=min(recovery.grace_s, CUT_S),
        verify_zero=replace(
            zero,
            stable_for_s=min(zero.stable_for_s, STABLE_S),
            timeout_s=min(zero.timeout_s, CUT_S),
            foreign=replace(zero.foreign, wait_s=min(zero.foreign.wait_s, CUT_S)),
        ),
        backoff_first_s=min(recovery.backoff_first_s, BACKOFF_S),
        backoff_cap_s=min(recovery.backoff_cap_s, CUT_S),
        rules=tuple(replace(rule, lower=_without(rule.lower, gone)) for rule in recovery.rules),
    )


def _without(names: Iterable[str], gone: set[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in gone)
