"""`supervise init`: writes a first spec, with the usual keys as comments."""

from __future__ import annotations

import re
from pathlib import Path

import click

from supervisor.core.errors import Exit, Refusal

COMMAND = "supervisor.init.command"
TEMPLATE = """\
# A run spec. `supervise check {file}` says whether it is valid, `supervise up {file}` starts the run.
version: 1
name: {name}                      # the identity of the run: a-z, 0-9 and -

command: [python, train.py]       # a list of words, no shell
# workdir: .                      # relative to this file; other paths start in workdir
# venv: .venv                     # the job's environment: its bin comes first in PATH

# topology:                       # the GPUs by role; without it the run has none
#   trainer: 8                    # a count, or a list of indices or UUIDs

# env: {{PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True"}}
# secrets: [WANDB_API_KEY]        # names; their values are never shown

# params:                         # passed as --learning-rate 1e-4 and so on
#   protected: {{learning_rate: 1e-4}}                        # locked for the life of the run
#   knobs:                                                  # the only things recovery may change
#     batch:
#       rungs: [{{micro_batch: 8, grad_accum: 4}}, {{micro_batch: 4, grad_accum: 8}}]
#       keep: micro_batch * grad_accum                      # the effective batch stays

# resume: {{from: "checkpoints/step_*", arg: --resume}}       # where checkpoints are, and how the job is told
# output: {{dir: out, stale: remove_if_empty}}

# health:
#   progress: {{log: 'step (?P<step>\\d+)'}}                   # without it, running means alive

# recovery:
#   rules:                                                  # first match wins; the built-in policy follows
#     - {{on: gpu_oom, do: relaunch, lower: [batch]}}
"""


class _WithCommand(click.Command):
    """Whatever follows `--` is the command, and no argument of ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's, without what follows `--`."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[COMMAND], args = args[at + 1 :], args[:at]
        return super().parse_args(ctx, args)


@click.command(
    "init", cls=_WithCommand, options_metavar="[OPTIONS]", epilog="supervise init -- torchrun train.py --lr 1e-4"
)
@click.argument("file", type=click.Path(path_type=Path), default=Path("supervise.yaml"))
@click.option("--name", help="The run's name; by default that of the folder.")
@click.pass_context
def command(ctx: click.Context, file: Path, name: str | None) -> None:
    """Write a commented spec to FILE (supervise.yaml). An existing file is left alone.

    With -- COMMAND... it is made from that command line: what shapes the training is locked, batch and accumulation
    become a knob, GPUs and checkpoints are taken from what the launcher and the script are told.
    """
    if name is not None and re.fullmatch(r"[a-z0-9-]{1,40}", name) is None:
        raise click.UsageError(f"--name {name}: a run's name is 1 to 40 of a-z, 0-9 and -")
    words = ctx.meta.get(COMMAND)
    if words == []:
        raise click.UsageError("-- is followed by the command, as in: supervise init -- python train.py --lr 1e-4")
    if words:
        from supervisor.views.first_spec import first_spec

        text = first_spec(words, name or _name_of(file), str(file))
    else:
        text = TEMPLATE.format(file=file, name=name or _name_of(file))
    try:
        with open(file, "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise Refusal(Exit.USAGE, f"{file} is there already and was left alone. Give another FILE.") from None
    except OSError as error:
        raise Refusal(Exit.ERROR, f"{file} cannot be written: {error.strerror}. Nothing was written.") from None
    click.echo(f"{file} written. Edit it, then: supervise check {file}")


def _name_of(file: Path) -> str:
    """The folder's name as a run's name."""
    plain = re.sub(r"[^a-z0-9]+", "-", file.absolute().parent.name.lower()).strip("-")
    return plain[:40].rstrip("-") or "my-run"
