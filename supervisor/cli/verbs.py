"""What leads from a verb's name to its module, and from an error to text and an exit code. Rules: `supervisor.cli`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from supervisor.cli import VERBS
from supervisor.core.errors import Exit, SuperviseError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class _ReaderGone(Exception):
    """Whoever read our stdout has gone. Not an OSError: click would make exit code 1 of it."""


class Verbs(click.Group):
    """A group that imports a verb's module when that verb is asked for, and only then."""

    def invoke(self, ctx: click.Context) -> object:
        """As click's, or on another machine; a reader that has gone is told apart from other errors."""
        if ctx.params.get("host"):
            from supervisor.cli import remote

            first = getattr(ctx, "_protected_args", None)  # as click calls it from 8.2 on
            return remote.go(ctx.params["host"], [*(ctx.protected_args if first is None else first), *ctx.args])
        if ctx.params.get("far"):
            from supervisor.cli import remote

            remote.watch_the_link()
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderGone from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, in the order of their table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's command; None when there is no such verb."""
        if cmd_name not in VERBS:
            return None
        command = importlib.import_module(_module(cmd_name)).command
        assert isinstance(command, click.Command)  # rule 3
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with a suggestion for a verb that is not there."""
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            import difflib

            close = difflib.get_close_matches(name, VERBS, n=3, cutoff=0.5)
            hint = f" Did you mean {' or '.join(close)}?" if close else " See: supervise --help"
            raise click.UsageError(f"no such verb: {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs from their table: importing them all would take longer than anybody waits for a Tab."""
        from click.shell_completion import CompletionItem

        verbs = [CompletionItem(name, help=text) for name, text in VERBS.items() if name.startswith(incomplete)]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of verbs, without importing any."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


def _module(verb: str) -> str:
    return f"supervisor.cli.{verb}"


def _show_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"supervise {version('supervise-training')}")
        ctx.exit()


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_show_version, help="Show it.")
@click.option("--host", metavar="DEST", help="Do it there, by ssh; see docs/elsewhere.md.")
@click.option("--far", is_flag=True, hidden=True, help="Set by --host on the far side of a link without a terminal.")
def group(host: str | None, far: bool) -> None:
    """Supervises training runs: clean before launch, the training signal never touched, no night wasted."""


def run(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code."""
    try:
        code = _invoke(argv)
        sys.stdout.flush()
    except (_ReaderGone, BrokenPipeError):
        # The reader (`head`, a closed pager) has what it wanted. What is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    return code


def _invoke(argv: Sequence[str] | None) -> int:
    try:
        result = group.main(argv, prog_name="supervise", standalone_mode=False)
    except SuperviseError as error:
        return _told(error, error.exit)
    except click.exceptions.UsageError as error:
        error.show()
        return Exit.USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else Exit.OK if error.code is None else Exit.ERROR
    except OSError as error:
        # An I/O error is exit 1 by the contract; its text names the file.
        return _told(error, Exit.ERROR)
    return result if isinstance(result, int) and not isinstance(result, bool) else Exit.OK


def _told(error: Exception, code: Exit) -> int:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    from supervisor.cli.common import say

    say(f"supervise: {text}" if code == Exit.ERROR else text)
    return code
