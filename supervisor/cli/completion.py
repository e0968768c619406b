"""`supervise completion`: the script that teaches a shell our verbs, runs and hosts."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion of SHELL. It goes where the shell looks for one:

    \b
    bash  supervise completion bash > ~/.local/share/bash-completion/completions/supervise
    zsh   supervise completion zsh > "${fpath[1]}/_supervise"
    fish  supervise completion fish > ~/.config/fish/completions/supervise.fish
    """
    from click.shell_completion import get_completion_class

    from supervisor.cli.verbs import group

    kind = get_completion_class(shell)
    assert kind is not None  # click has these three
    click.echo(kind(group, {}, "supervise", "_SUPERVISE_COMPLETE").source())
