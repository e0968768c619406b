"""The verb that launches an attempt: folder, files, guard, session. Given again, it finds what is there already."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from supervisor.core.codecopy import from_copy, launch_env
from supervisor.core.events import Drifted
from supervisor.core.evidence import Gpu
from supervisor.core.given import CodeCopy
from supervisor.core.guard import Violation, argv_violations, environ_violations
from supervisor.core.placing import RoleGpus
from supervisor.core.render import Placement, Rendered, RenderedFile, placed, placement_of, render, venv_of
from supervisor.core.small import moved_to
from supervisor.core.spec import RunSpec
from supervisor.core.state import Attempt, State
from supervisor.edges import cgroups, claim, secrets
from supervisor.edges.codec import to_plain
from supervisor.edges.detached import runner_argv
from supervisor.edges.files import make_private_dir, read_json, to_json, write_atomic
from supervisor.edges.paths import AttemptDir, Home, RunDir
from supervisor.edges.tmux import Tmux
from supervisor.machines import config_values, surroundings


def placement(run: RunDir, state: State, attempt: Attempt) -> Placement:
    """What is particular to this attempt, from the journal alone."""
    return placement_of(state, attempt, str(run.attempt(attempt.number).path), str(run.path))


def placed_spec(run: RunDir, state: State, attempt: Attempt) -> RunSpec:
    """The spec with no substitution left in what is watched."""
    assert state.spec is not None
    return placed(state.spec, placement(run, state, attempt))


def placed_before(
    run: RunDir, spec: RunSpec, number: int, gpus: Mapping[str, RoleGpus], rungs: Mapping[str, int]
) -> RunSpec:
    """The same for an attempt that is to be launched yet: what belongs to it alone is empty."""
    return placed(spec, Placement(attempt=number, attempt_dir="", run_dir=str(run.path), rungs=rungs, gpus=gpus))


def ensure_attempt(home: Home, run: RunDir, state: State, tmux: Tmux) -> str | None:
    """See that the attempt of the journal is being started. A text says why that cannot be; `protected: ` before it
    where the final command, environment or files differ in a protected param."""
    attempt, spec = state.attempt, state.spec
    assert attempt is not None
    assert spec is not None
    folder = run.attempt(attempt.number)
    if claim.read(folder) is not None:
        return None
    if not folder.launch_json.exists():
        problem = _prepare(run, folder, state, attempt, spec)
        if problem is not None:
            return problem
    argv = runner_argv(folder.path)
    if spec.launch.terminal == "none":
        return _detached(argv, home, run)
    try:
        tmux.ensure_session(run.name, argv, home.root)
    except Exception as error:  # noqa: BLE001 - tmux missing, silent, refusing: each is a reason that the journal tells
        return f"the tmux session could not be made: {error}"
    return None


def _prepare(run: RunDir, folder: AttemptDir, state: State, attempt: Attempt, spec: RunSpec) -> str | None:
    make_private_dir(run.attempts)
    make_private_dir(folder.path)
    rendered = render(spec, placement(run, state, attempt))
    try:
        texts = {file.name: _render_file(file) for file in rendered.files}
    except (OSError, ValueError) as error:
        return f"a config file could not be rendered: {error}"
    known = secrets.load(run)
    job_env = known.job if known is not None else {}
    violations = _violations(spec, state.code, rendered, {**job_env, **rendered.env}, texts)
    if violations:
        return f"protected: {violations[0]}"
    changed = _code(run, folder, state, spec)
    if changed:
        return changed
    if texts:
        make_private_dir(folder.files)
    if attempt.rehearsal:
        for place in moved_to(spec, str(folder.path)).values():
            Path(place).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for file in rendered.files:
        write_atomic(Path(file.path), texts[file.name].encode())
    write_atomic(folder.spec_resolved, to_json(to_plain(spec)), sync=False)  # for people; the journal has it too
    launch = {
        "argv": list(rendered.argv),
        "cwd": spec.workdir,
        "token": attempt.token,
        "env": {
            **rendered.env,
            **_other_venv(spec, attempt, {**job_env, **rendered.env}),
            **launch_env(state.code, {**job_env, **rendered.env}),
        },
        "output": str(folder.output),
        "pty": spec.launch.pty,
        "redact": sorted({*spec.secrets, *filter(secrets.is_secret_name, job_env)}),
        "cgroup": _cgroup(run, attempt),
    }
    write_atomic(folder.launch_json, to_json(launch))
    return None


def _code(run: RunDir, folder: AttemptDir, state: State, spec: RunSpec) -> str:
    """Keeps the hashes of the code that is launched: the fingerprint is taken later, when it may be another. Why that
    may not be, empty where it may: a hook took its time, or somebody saved a file, since it was last compared."""
    if spec.code is None or state.code is not None or spec.simulated:
        return ""
    now = surroundings.code_now(spec)
    write_atomic(folder.code, to_json(now), sync=False)
    return surroundings.code_changed(spec, now, surroundings.of_attempt(run, state.episode_first))


def _other_venv(spec: RunSpec, attempt: Attempt, environ: Mapping[str, str]) -> dict[str, str]:
    """What differs where the attempt stands further down a ladder of venvs than `up` knew."""
    venv = venv_of(spec, attempt.rungs)
    if venv is None or spec.venv is None or venv == spec.venv:
        return {}
    theirs = (f"{spec.venv}/bin", f"{venv}/bin")
    places = [one for one in environ.get("PATH", os.defpath).split(":") if one not in theirs]
    conda = Path(venv, "conda-meta").is_dir()
    named = {"CONDA_PREFIX": venv, "CONDA_DEFAULT_ENV": Path(venv).name, "VIRTUAL_ENV": ""} if conda else {}
    return {"PATH": ":".join((f"{venv}/bin", *places)), **(named or {"VIRTUAL_ENV": venv})}


def _cgroup(run: RunDir, attempt: Attempt) -> str | None:
    """A cgroup of the attempt's own, where this user may make one: its kill misses nobody."""
    parent = cgroups.probe()
    path = cgroups.create(parent, f"{run.name}-{attempt.token.rpartition(':')[2]}") if parent else None
    return str(path) if path else None


def _render_file(file: RenderedFile) -> str:
    from supervisor.edges import configfile

    text = Path(file.from_).read_text(encoding="utf-8")
    return configfile.edited(text, configfile.format_of(file.from_), file.set)


def _violations(
    spec: RunSpec, code: CodeCopy | None, rendered: Rendered, environ: Mapping[str, str], texts: Mapping[str, str]
) -> tuple[Violation, ...]:
    """On the final argv, environment and files, not on the spec. With a copy of the code, a config file that neither
    the command nor the environment names in the copy may be read from the working tree: both must say the value."""
    moved = from_copy(spec, code)
    told = frozenset((*rendered.argv, *(word.partition("=")[2] for word in rendered.argv), *rendered.env.values()))
    copied = {file.from_ for file in spec.files}
    unnamed = {
        name: one
        for name, one in spec.params.how.items()
        if one.file not in copied and moved.params.how[name].file not in told
    }
    here = replace(spec, params=replace(spec.params, how={**moved.params.how, **unnamed}), files=moved.files)
    return (
        *argv_violations(moved, rendered.argv),
        *environ_violations(moved, environ),
        *config_values.violations(moved, texts),
        *(config_values.violations(here, texts) if code is not None else ()),
    )


_started: dict[str, subprocess.Popen[bytes]] = {}
"""Runners without a terminal that this process started, by attempt: they are reaped, never waited for."""


def _detached(argv: list[str], home: Home, run: RunDir) -> str | None:
    key = argv[-1]
    before = _started.get(key)
    if before is not None and before.poll() is None:
        return None
    with open(run.supervisor_log, "ab") as log:
        try:
            _started[key] = subprocess.Popen(  # the runner outlives us: not a context manager
                argv,
                cwd=home.root,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            return f"the runner could not be started: {error}"
    return None


class Kept(Struct, frozen=True):
    """`drift`: what differs from the last attempt that made progress; `why`: what kept it from being told."""

    drift: Drifted | None
    why: str = ""


def keep_fingerprint(
    run: RunDir, spec: RunSpec, state: State, attempt: Attempt, gpus: Iterable[Gpu], redact: Callable[[str], str]
) -> Kept:
    """environment.json of the attempt: what its command runs in, by the job's own interpreter."""
    folder = run.attempt(attempt.number)
    told = surroundings.of_attempt(run, attempt.number)
    if told is None:
        known = secrets.load(run)
        environ = known.job if known is not None else {}
        told = surroundings.take(spec, attempt.rungs, environ, gpus, redact, state.code)
        with suppress(OSError, ValueError):  # damaged: what was seen later stands
            told = {**told, **({"code": code} if (code := read_json(folder.code)) else {})}
        write_atomic(folder.environment, to_json(told), sync=False)
    return Kept(surroundings.drifted(run, attempt.number, state.good, told))
