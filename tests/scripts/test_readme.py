"""What README.md tells a newcomer to type is there to be typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from supervisor.cli import Verbs

REPO = Path(__file__).parents[2]
README = (REPO / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
LINES = [line for kind, block in BLOCKS if not kind for line in block.splitlines()]
COMMANDS = sorted(
    {line for line in LINES if line.startswith("supervise ")} | set(re.findall(r"`(supervise [^`]+)`", README))
)


GROUP = Verbs(name="supervise")


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_is_a_verb_with_those_options(line: str) -> None:
    verb, *words = shlex.split(line)[1:]
    command = GROUP.get_command(click.Context(GROUP), verb)
    assert command is not None, f"no verb {verb}"
    words = words[: words.index("--")] if "--" in words else words
    options = {option for param in command.params for option in param.opts}
    assert {word for word in words if word.startswith("-")} <= options


def test_the_spec_is_valid(tmp_path: Path) -> None:
    (text,) = (block for kind, block in BLOCKS if kind == "yaml")
    (tmp_path / "supervise.yaml").write_text(text)
    checked = CliRunner().invoke(GROUP, ["check", str(tmp_path / "supervise.yaml")])
    assert checked.exit_code == 0, checked.output


def test_every_file_that_is_named_is_there() -> None:
    named = set(re.findall(r"(?:configs|scripts|docs)/[\w./-]*\w", README))
    assert {"scripts/demo", "scripts/test", "configs/dflash.yaml"} <= named
    assert [name for name in sorted(named) if not (REPO / name).exists()] == []
