"""`supervise up`: a spec becomes a request. What is checked of the machine, and the launch, are the supervisor's."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from supervisor.cli import common
from supervisor.core.errors import Exit, Refusal

if TYPE_CHECKING:
    from supervisor.core.spec import RunSpec
    from supervisor.edges.journal_lines import Record
    from supervisor.edges.paths import Home, RunDir


@click.command("up")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("-d", "--detach", is_flag=True, help="Return once the job is launched, not at its first progress.")
@click.option(
    "--simulate", is_flag=True, help="A night in minutes: simulated GPUs, a stand-in trainer, a scratch folder."
)
@click.option("--set", "sets", multiple=True, metavar="K=V", help="Start a knob on another rung of its ladder.")
@click.option("--from", "from_", metavar="CKPT|none", help="Start from this checkpoint, or from none.")
def command(spec: Path, detach: bool, simulate: bool, sets: tuple[str, ...], from_: str | None) -> None:
    """Check, launch and supervise the run of SPEC; a live run with an unchanged spec is left alone.

    Follows the output until the first progress. Ctrl-C only detaches: the run goes on.
    """
    from supervisor.cli import warm as warmed

    home = common.home()
    warm = warmed.take(home)  # first of all: it imports while the spec is read here
    try:
        asked = _read(home, spec, simulate, sets, from_)
        _ask(home, asked, warm, detach)
    finally:
        warm.close()


class _Asked(Struct, frozen=True):
    """What will be asked of the run, and the two environments that go with it."""

    spec: RunSpec
    run: RunDir
    rungs: dict[str, int]
    from_: str | None
    source: str
    job_env: dict[str, str]
    own_env: dict[str, str]


def _read(home: Home, path: Path, simulate: bool, sets: Iterable[str], from_: str | None) -> _Asked:
    """Raises SpecError, Refusal, UsageError. Changes nothing."""
    from supervisor.cli.warm import own_environment
    from supervisor.edges import specfile

    environ = dict(os.environ)
    file = specfile.read(path, environ)
    spec, job_env = file.spec, file.job_environment(environ)
    if simulate:
        from supervisor.simulation import night

        spec = night.simulated(spec, home.run(night.name_of(spec.name)))
        job_env = night.job_environment(environ) | spec.env
    return _Asked(
        spec=spec,
        run=home.run(spec.name),
        rungs=specfile.apply_set(spec, _pairs(sets)),
        from_=_start_from(spec, from_),
        source=file.redacted_source(environ),
        job_env=job_env,
        own_env=own_environment(environ),
    )


def _pairs(sets: Iterable[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for each in sets:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--set {each}: write --set K=V, such as --set max_batch_size=48")
        if name in pairs:
            raise click.UsageError(f"--set {name} is given twice")
        pairs[name] = value
    return pairs


def _start_from(spec: RunSpec, named: str | None) -> str | None:
    """`--from` as an absolute path: one from here, from the workdir, or a name beside the spec's checkpoints."""
    if named is None or named == "none":
        return named
    if spec.resume is None:
        raise click.UsageError("--from: the spec has no `resume`, so the command cannot be told a checkpoint")
    beside = Path(spec.resume.from_).parent
    places = [Path(named).absolute(), Path(spec.workdir) / named, *([] if "/" in named else [beside / named])]
    there = next((place for place in places if place.exists()), None)
    if there is None:
        tried = ", ".join(dict.fromkeys(str(place) for place in places))
        raise Refusal(
            Exit.PREFLIGHT, f"--from {named}: there is no such checkpoint (looked for {tried}). Nothing was done."
        )
    return str(there)


def _ask(home: Home, asked: _Asked, warm: Any, detach: bool) -> None:
    """Put the request, wait for its answer, then follow the run unless it is to be left alone."""
    from supervisor.cli import asking
    from supervisor.edges import requests
    from supervisor.edges.codec import to_plain

    run, spec = asked.run, asked.spec
    warnings = Warnings()
    warnings.tell(spec.warnings)
    common.must_be_ours(run)
    _must_be_here(run)
    warnings.tell(_other_file(run, spec))
    request_id = requests.new_id()
    try:
        _prepare(asked, request_id)
    except OSError as error:
        _undo(run, request_id)
        raise common.StateUnusable(home, error) from error
    args = {
        "spec": to_plain(spec),
        "rungs": asked.rungs,
        "from": asked.from_,
        "source": asked.source,
        "user": _user(),
        "uid": os.getuid(),
    }
    try:
        answer = asking.ask(
            home,
            run,
            "up",
            args,
            request_id=request_id,
            hand_over=lambda: warm.hand_over(run.name),
            heard=warnings.hear,
        )
    except common.StateUnusable:
        _undo(run, request_id)
        raise
    asking.tell(answer)
    if answer.exit != Exit.OK or detach:
        common.leave(answer.exit)
    from supervisor.cli import follow

    common.leave(follow.until_progress(run))


def _prepare(asked: _Asked, request_id: str) -> None:
    """What must be on the disk before the request is. Names are made durable with the last of them, the secrets'."""
    from supervisor.edges import secrets
    from supervisor.edges.files import make_private_dir

    run = asked.run
    make_private_dir(run.path)
    if asked.spec.simulated:
        from supervisor.simulation import night

        night.prepare_scratch(asked.spec, run)
    run.open.touch(mode=0o600)
    run.requests.mkdir(mode=0o700, exist_ok=True)
    secrets.stage(run, request_id, asked.job_env, asked.own_env)


def _undo(run: RunDir, request_id: str) -> None:
    """A run that was never asked for is not open, and keeps no secrets."""
    from supervisor.edges import secrets

    with suppress(OSError):  # it could not even be made
        if not run.journal.exists():
            run.open.unlink(missing_ok=True)
        secrets.drop(run, request_id)


def _must_be_here(run: RunDir) -> None:
    """By the small file that says whose the run is: the whole journal would cost a tenth of the launch."""
    if not run.journal.exists():
        return
    from supervisor import guardian
    from supervisor.edges.files import read_json

    machine = read_json(run.machine) or (read_json(run.run_json) or {}).get("machine")
    if machine is None or not guardian.is_here(machine):
        from supervisor.cli import records

        records.must_be_here(run)


def _other_file(run: RunDir, spec: RunSpec) -> tuple[str, ...]:
    """Told where the run was another file's until now: a spec that was copied keeps its `name`, and goes on with it."""
    if not run.journal.exists():
        return ()
    from supervisor.edges.files import read_json

    try:
        known = read_json(run.run_json) or {}
    except ValueError:  # damaged: nothing is known of it, and nothing hangs on it
        known = {}
    before = str((known.get("spec") or {}).get("file") or "")
    if not before or before == spec.file:
        return ()
    text = f"{run.name} was the run of {before}; {spec.file} goes on with it, its checkpoints and its history"
    return (f"{text}. A run of its own takes another `name`.",)


class Warnings:
    """What a person should know, on stderr, each once."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def hear(self, record: Record) -> None:
        """Tell the warnings of a record, as soon as it is there."""
        if record.type == "Warned":
            self.tell([record.data.get("text", "")])
        elif record.type == "PreflightPassed":
            self.tell(record.data.get("warnings", []))

    def tell(self, warnings: Iterable[str]) -> None:
        """Tell those that were not told yet."""
        from supervisor.views.words import safe_block

        for each in warnings:
            if each not in self._told:
                self._told.add(each)
                common.say(f"warning: {safe_block(each)}")


def _user() -> str:
    """The name of whoever asks, for people; the number where the account has no name."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
