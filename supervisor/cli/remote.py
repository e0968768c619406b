"""`supervise --host DEST VERB...`: the same verb where the job is. Which machine that is says the user's configuration.

Rule: nothing is looked up or judged here; words, output, exit status and Ctrl-C are the far side's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from supervisor.cli import common
from supervisor.core.errors import Exit, Refusal

PATHS = {"up": "SPEC", "check": "SPEC", "doctor": "SPEC", "init": "FILE", "scan": "FILE"}
"""Verbs whose argument is a path: on the far side."""
NOT_FOUND = 127


def go(dest: str, words: Sequence[str]) -> int:
    """Run the verb there; its exit code."""
    from supervisor.edges import remote

    try:
        host = remote.find(dest, remote.config_path(os.environ))
    except remote.BadHosts as error:
        raise click.UsageError(str(error)) from error
    _say_where(dest, words)
    tty = all(os.isatty(fd) for fd in (0, 1, 2))
    try:
        code = remote.run(remote.command(host, words, tty=tty), tty=tty, stdin=remote.reads_input(words))
    except FileNotFoundError:
        raise Refusal(Exit.ERROR, "there is no ssh here. Install it: sudo apt-get install openssh-client") from None
    if code == remote.LINK_LOST:
        raise Refusal(
            Exit.ERROR,
            f"the link to {dest} failed (ssh says why). Whatever was asked for there stands, and runs go on. "
            f"See: supervise --host {dest} status",
        )
    if code == NOT_FOUND:
        common.say(
            f"supervise is not in the PATH of a command by ssh on {dest}. Name it in {remote.config_path(os.environ)}: "
            f"hosts: {{{dest}: {{supervise: ~/.supervise-venv/bin/supervise}}}}"
        )
    return code


def _say_where(dest: str, words: Sequence[str]) -> None:
    """A path is one there: said where it could be taken for one here."""
    verb = next((word for word in words if not word.startswith("-")), "")
    if verb not in PATHS:
        return
    for word in words[words.index(verb) + 1 :]:
        if not word.startswith(("-", "/")) and os.path.exists(word):  # noqa: PTH110 - a word that may be no path
            common.say(f"{word} is taken as a path on {dest}, in the home directory there; the one here is not sent")


def watch_the_link() -> None:
    """On the far side of a link without a terminal."""
    from supervisor.edges import remote

    if not sys.stdin.isatty():
        remote.end_with_the_link()
