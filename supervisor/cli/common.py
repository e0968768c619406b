"""What several verbs share: options, which run is meant, confirmation, leaving. What a run's files say: `records`.

Imports nothing heavy: `status` and `logs` stand on it.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from typing import Any, NoReturn

import click

from supervisor.core.errors import Exit, Refusal, SuperviseError
from supervisor.edges.paths import Home, RunDir
from supervisor.views.words import safe_lines

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

output_option = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="For people, or one JSON document."
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Don't ask.")


def _runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in home().names() if name.startswith(incomplete)]


run_argument = click.argument("run", required=False, shell_complete=_runs)


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.2 on, not subscriptable before
    """`500ms`, `0.5s`, `5m`, `12h` as seconds; a bare number is refused."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        if isinstance(value, float):
            return value
        found = _DURATION.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no duration: write 500ms, 30s, 5m or 12h", param, ctx)
        return float(found[1]) * _SECONDS[found[2]]


def leave(code: int) -> NoReturn:
    """End the verb with this exit code."""
    raise SystemExit(int(code))


def say(text: str) -> None:
    """Talk: stderr. What names and texts of others would do to a terminal is taken out."""
    click.echo(safe_lines(text), err=True)


def home() -> Home:
    """The state directory of this user."""
    return Home.find(os.environ)


class StateUnusable(SuperviseError):
    """The state directory cannot be written: nothing was asked for. The user's machine is to be mended."""

    def __init__(self, at: Home, error: OSError) -> None:
        if is_full(error):
            then = f"Free some space: df -h {at.root}"
        else:
            then = "Set SUPERVISE_HOME to a folder that you may write, the same for every verb."
        why = error.strerror or str(error)
        super().__init__(f"the state directory {at.root} cannot be written: {why}. Nothing was done. {then}")


def is_full(error: OSError) -> bool:
    """Whether the disk, or the user's part of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def find_run(name: str | None) -> RunDir:
    """The run that is meant. Refusal 4 when there is none of that name, UsageError when the name is needed."""
    at = home()
    names = at.names()
    if name is not None:
        if name in names:
            return at.run(name)
        raise Refusal(Exit.NO_SUCH_RUN, f"no run named {name!r}: {_what_there_is(names, name)}")
    if not names:
        raise Refusal(Exit.NO_SUCH_RUN, f"there is no run in {at.root}. Start one: supervise up SPEC")
    opened = [each for each in names if at.run(each).open.exists()]
    meant = opened or names
    if len(meant) == 1:
        return at.run(meant[0])
    raise click.UsageError(f"which run? There are: {', '.join(meant)}")


def must_be_ours(run: RunDir) -> None:
    """Refusal 7 where another user's run is meant: whoever writes into it could launch as that user."""
    uid = run.stranger
    if uid is None:
        return
    import pwd

    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = f"#{uid}"
    raise Refusal(
        Exit.CONFLICT,
        f"{run.name} in {run.path.parent} belongs to {user}. Nothing was done. As that user: "
        f"sudo -u '{user}' supervise ...; for runs of your own set SUPERVISE_HOME to a folder of yours",
    )


def _what_there_is(names: list[str], wanted: str) -> str:
    if not names:
        return "there is no run at all. Start one: supervise up SPEC"
    if f"sim-{wanted}" in names:
        return f"but there is its simulation, sim-{wanted}"
    return f"there are: {', '.join(names)}. See: supervise status --all"


def confirm(question: str, yes: bool) -> None:
    """Go on only with the user's consent; off a terminal that is `-y`. UsageError without it."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Off a terminal this takes -y.")
    click.confirm(question, default=False, abort=True, err=True)
