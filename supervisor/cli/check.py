"""`supervise check`: is a spec valid? 0 or 5. What this machine lacks for it is a warning and never an exit code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli import common
from supervisor.core.errors import Exit, Refusal, SpecError, SuperviseError
from supervisor.views.words import safe_lines

if TYPE_CHECKING:
    from supervisor.core.errors import Mistake
    from supervisor.core.spec import RunSpec
    from supervisor.edges.specfile import SpecFile


@click.command("check")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("-v", "--verbose", is_flag=True, help="Print the resolved spec: every value, and whence it comes.")
@common.output_option
def command(spec: Path, verbose: bool, output: str) -> None:
    """Check SPEC by every rule of the file: all mistakes at once, each with its line."""
    from supervisor.edges import specfile

    environ = dict(os.environ)
    try:
        file = specfile.read(spec, environ)
    except SpecError as error:
        if output == "json":
            _print_json(_document(spec, error.mistakes, (), None))
            common.leave(Exit.SPEC_INVALID)
        raise
    copied, refused = would_copy(file, environ)
    warnings = (*file.spec.warnings, *machine_lacks(file, environ), *changes(file, environ), *refused)
    if output == "json":
        _print_json(_document(spec, (), warnings, file))
        return
    for warning in warnings:
        common.say(f"warning: {warning}")
    if verbose:
        _print_rows(file)
        if copied:
            click.echo(safe_lines(f"code.snapshot would copy {copied}"))
    else:
        click.echo(safe_lines(f"{spec}: valid"))


def machine_lacks(file: SpecFile, environ: dict[str, str]) -> tuple[str, ...]:
    """What is not there on this machine, each with what to do. No run gets far without it; `check` only says it."""
    from supervisor.edges.command import command_path

    spec = file.spec
    lacks: list[str] = []
    if not Path(spec.workdir).is_dir():
        return (f"workdir {spec.workdir} is not there",)
    if spec.venv is not None and not Path(spec.venv, "bin").is_dir():
        lacks.append(f"venv {spec.venv} is not there: make it, or mend `venv`")
    scripts = file.activate_scripts()
    if scripts:
        lacks.append(f"{scripts[0]} and the rest of activate.d are not run: what they set must stand in `env`")
    if "${{" not in spec.command[0]:
        try:
            command_path(spec.command[0], spec.workdir, file.job_environment(environ).get("PATH", ""))
        except Refusal as refusal:
            lacks.append(str(refusal))
    lacks.extend(_script_lacks(spec))
    lacks.extend(_config_lacks(file))
    return tuple(lacks)


def _script_lacks(spec: RunSpec) -> list[str]:
    """The Python script that the command starts, where it is not there: known before the first attempt ends with it."""
    from supervisor.edges.launchers import understand

    script = understand(spec.command).script
    path = Path(spec.workdir, script)
    if not script.endswith(".py") or "${{" in script or path.exists():
        return []
    return [f"{script} is not there ({path}). Relative names start in `workdir`; mend `command`."]


def changes(file: SpecFile, environ: dict[str, str]) -> tuple[str, ...]:
    """What the run would meet that it did not meet when it last went well, and pins that do not hold. Nothing for a run
    that was never launched and pins nothing: then no interpreter is asked."""
    from supervisor.cli import records
    from supervisor.edges.specfile.secrets import redacted
    from supervisor.machines import surroundings

    spec = file.spec
    run = common.home().run(spec.name)
    try:
        attempts = records.view(run).attempts
    except SuperviseError:  # a damaged journal is for other verbs to tell
        return ()
    going = [one for one in attempts if one.startup_s is not None and not one.rehearsal]
    good = surroundings.of_attempt(run, going[-1].number) if going else None
    if file.unread or not Path(spec.workdir).is_dir() or (good is None and not spec.pins):
        return ()
    hidden = file.secret_values(environ)
    now = surroundings.take(spec, {}, file.job_environment(environ), (), lambda text: redacted(text, hidden))
    drift = surroundings.drifted(run, 0, going[-1].number, now) if going else None
    found = surroundings.compared(spec, now, good, None)
    said = [drift.words] if drift is not None else []
    pins = [one for one in found.warnings if not one.startswith("pin")]  # the spec's own warnings say those
    return (*said, *found.problems, *pins)


def would_copy(file: SpecFile, environ: dict[str, str]) -> tuple[str, tuple[str, ...]]:
    """What `code.snapshot` would copy now, and why `up` would refuse to; nothing for a run that is not so launched."""
    spec = file.spec
    if spec.code is None or not spec.code.snapshot or file.unread or not Path(spec.workdir).is_dir():
        return "", ()
    from supervisor.machines import code

    copied, why = code.foreseen(common.home(), spec, file.job_environment(environ))
    return copied, ((why,) if why else ())


def _config_lacks(file: SpecFile) -> list[str]:
    """Config files that are not there, keys that are not in them, protected values that differ."""
    from supervisor.core.guard import file_violations, watched_keys
    from supervisor.edges import configfile

    spec = file.spec
    sources = {one.name: one.from_ for one in spec.files}
    wanted = [(one.from_, key) for one in spec.files for key in one.set]
    lacks: list[str] = []
    for path, key in wanted:
        value, problem = _looked_up(path, key, configfile)
        if problem or value is None:
            lacks.append(problem or f"{path} has no key {key}")
    for watched in watched_keys(spec):
        path = sources.get(watched.file, watched.file)
        value, problem = _looked_up(path, watched.key, configfile)
        if problem:
            lacks.append(problem)
        elif watched.file not in sources:
            lacks.extend(map(str, file_violations(spec, {watched: value})))
    return list(dict.fromkeys(lacks))


def _looked_up(path: str, key: str, configfile: Any) -> tuple[Any, str]:
    """The value of a key in a config file, or what stands in the way of reading it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        return configfile.lookup(text, configfile.format_of(path), key), ""
    except configfile.ConfigProblem as problem:
        return None, f"{path}: {problem}"
    except (OSError, UnicodeDecodeError) as error:
        return None, f"{path} cannot be read: {error.strerror if isinstance(error, OSError) else 'not UTF-8'}"


def _document(
    path: Path, mistakes: tuple[Mistake, ...], warnings: tuple[str, ...], file: SpecFile | None
) -> dict[str, Any]:
    from supervisor.edges.codec import to_plain

    return {
        "schema": "supervise.check/v1",
        "file": str(path),
        "valid": file is not None,
        "mistakes": [to_plain(mistake) for mistake in mistakes],
        "warnings": list(warnings),
        "values": [to_plain(row) for row in file.explain()] if file is not None else [],
    }


def _print_json(document: dict[str, Any]) -> None:
    import json

    click.echo(json.dumps(document, indent=2))


def _print_rows(file: SpecFile) -> None:
    rows = file.explain()
    width = min(max(len(f"{row.path}: {row.value}") for row in rows), 80)
    for row in rows:
        click.echo(safe_lines(f"{f'{row.path}: {row.value}'.ljust(width)}  # {row.whence}"))
