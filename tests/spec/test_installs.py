"""Commands that may change the environment on the way to training."""

from __future__ import annotations

import pytest

from supervisor.edges import specfile


def warnings(tmp_path, command: str, script: str = "") -> list[str]:
    (tmp_path / "run.sh").write_text(script)
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"version: 1\nname: run\ncommand: {command}\n")
    return [one.partition(": command: ")[2] for one in specfile.load(spec, {}).warnings]


@pytest.mark.parametrize(
    "command",
    [
        "[uv, run, train.py]",
        "[/usr/bin/uv, -q, run, --with, x, train.py]",
        "[uv, pip, install, x]",
        "[pip3, install, x]",
    ],
)
def test_a_command_that_may_change_the_environment_is_warned_of(tmp_path, command):
    (said,) = warnings(tmp_path, command)
    assert "at every launch" in said


@pytest.mark.parametrize(
    "command",
    ["[uv, run, --no-sync, train.py]", "[python, train.py]", "[python, pip/install.py]", "[./uv-run]", "[absent.sh]"],
)
def test_one_that_does_not_is_not(tmp_path, command):
    assert warnings(tmp_path, command) == []


def test_the_script_that_the_command_names_is_read_with_its_lines(tmp_path):
    script = (
        "#!/bin/sh\n# pip install is done elsewhere\npip install -q flash-attn  # each time\nuv run --no-sync x.py\n"
    )
    (said,) = warnings(tmp_path, "[run.sh]", script)
    assert said.startswith(f"{tmp_path}/run.sh:3: `pip install` may change the environment")


def test_a_script_is_one_by_its_first_line_too(tmp_path):
    (tmp_path / "start").write_text("#!/usr/bin/env bash\nexec uv run train.py\n")
    (said,) = warnings(tmp_path, "[./start, -x, 'step_${{ run.name }}']")
    assert said.startswith(f"{tmp_path}/start:2: `uv run` syncs")
    (tmp_path / "start").write_text("#!/usr/bin/env python3\n# no shell: pip install in it is a text\n")
    assert warnings(tmp_path, "[./start]") == []


def test_frozen_syncs_all_the_same_and_a_variable_says_not_to(tmp_path):
    (said,) = warnings(tmp_path, "[uv, run, --frozen, train.py]")
    assert "write `uv run --no-sync`" in said
    assert warnings(tmp_path, "[uv, run, train.py]\nenv: {UV_NO_SYNC: '1'}") == []
    assert warnings(tmp_path, f"[sh, -c, {'x' * 5000}]") == []
