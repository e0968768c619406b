"""A command that is not there, is a directory or may not be executed is known before anything is launched."""

from __future__ import annotations

import os

import pytest

from supervisor.core.errors import Exit, Refusal
from supervisor.edges.command import command_path


@pytest.fixture
def box(tmp_path):
    for name in (
        "venv/bin/python",
        "usr/bin/python",
        "usr/bin/plain",
        "work/start.sh",
        "work/data.txt",
        "work/a/b/.keep",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o644 if name.endswith(("plain", ".txt")) else 0o755)
    return tmp_path


def test_the_first_folder_of_the_path_wins(box):
    search = f"{box}/none:{box}/venv/bin:{box}/usr/bin"
    assert command_path("python", str(box), search) == f"{box}/venv/bin/python"


def test_a_name_with_a_slash_is_looked_up_from_workdir(box):
    assert command_path("./start.sh", f"{box}/work", "") == f"{box}/work/start.sh"
    assert command_path(f"{box}/usr/bin/python", "/", "") == f"{box}/usr/bin/python"


def test_an_empty_folder_of_the_path_is_workdir(box):
    assert command_path("start.sh", f"{box}/work", "/none:") == f"{box}/work/start.sh"


@pytest.mark.parametrize(
    ("argv0", "why"),
    [
        ("nope", "nope is not there: no folder of the job's PATH has it"),
        ("plain", "plain is not executable .*chmod"),
        ("./nope.sh", "is not there .*Relative names start in `workdir`"),
        ("./data.txt", "is not executable .*chmod"),
        ("./a", "is a directory"),
    ],
)
def test_each_reason_is_told_with_what_to_do(box, argv0, why):
    if os.geteuid() == 0 and "executable" in why:
        assert not os.access(box / "work/data.txt", os.X_OK), "root may read all, but not execute what nobody may"
    with pytest.raises(Refusal, match=why) as caught:
        command_path(argv0, f"{box}/work", f"{box}/usr/bin")
    assert caught.value.exit == Exit.PREFLIGHT


def test_an_empty_path_has_no_command(box):
    with pytest.raises(Refusal, match="PATH is empty"):
        command_path("python3-none", str(box), "")
