"""A shell that knows our verbs; supervisors after a reboot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor import cli
from supervisor.cli.completion import SHELLS
from supervisor.edges import home_box

PROGRAM = str(Path(sys.executable).with_name("supervise"))


def completed(home: Path, words: str) -> list[str]:
    environ = {**os.environ, "SUPERVISE_HOME": str(home), "_SUPERVISE_COMPLETE": "bash_complete"}
    environ |= {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    done = subprocess.run([PROGRAM], env=environ, capture_output=True, text=True, timeout=60)
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_verbs_and_runs_are_completed(tmp_path: Path):
    (tmp_path / "runs" / "dflash").mkdir(parents=True)
    assert completed(tmp_path, "supervise st") == ["status"]
    assert completed(tmp_path, "supervise logs df") == ["dflash"]
    assert "--host" in completed(tmp_path, "supervise --h")


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_script(shell: str, capfd: pytest.CaptureFixture[str]):
    assert cli.run(["completion", shell]) == 0
    assert "_SUPERVISE_COMPLETE" in capfd.readouterr().out


def test_bash_takes_the_script(tmp_path: Path):
    script = f'export PATH="{Path(PROGRAM).parent}:$PATH"; source <(supervise completion bash); complete -p supervise'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert "_supervise_completion" in done.stdout, done.stderr


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """systemd's and logind's commands as scripts that write down how they were called."""
    for name in ("systemctl", "loginctl"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/called\n[ ! -e {tmp_path}/refuse-{name} ]\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SUPERVISE_HOME", str(tmp_path / 'st%te $x "x"'))
    monkeypatch.setattr(home_box, "has_systemd", lambda: True)
    return tmp_path


def test_the_unit_starts_the_guardian_and_ends_nothing_with_it(box: Path):
    assert cli.run(["service", "install"]) == 0
    unit = (box / "config/systemd/user/supervise.service").read_text()
    assert "adopt --all --watch" in unit
    assert "KillMode=process" in unit
    assert f'Environment="SUPERVISE_HOME={box}/st%%te $x \\"x\\""' in unit
    assert (box / "called").read_text().splitlines() == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now supervise.service",
        "loginctl enable-linger",
    ]


def test_a_step_that_fails_is_told_with_its_fix(box: Path, capfd: pytest.CaptureFixture[str]):
    (box / "refuse-loginctl").touch()
    assert cli.run(["service", "install"]) == 1
    assert "sudo loginctl enable-linger" in capfd.readouterr().err


def test_uninstall_leaves_the_runs_alone(box: Path):
    assert cli.run(["service", "install"]) == 0
    assert cli.run(["service", "uninstall"]) == 0
    assert not (box / "config/systemd/user/supervise.service").exists()
    assert (box / "called").read_text().splitlines()[-1] == "systemctl --user disable --now supervise.service"
    assert cli.run(["service", "uninstall"]) == 0


def test_without_systemd_the_entrypoints_line_is_said(
    box: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(home_box, "has_systemd", lambda: False)
    assert cli.run(["service", "install"]) == 0
    said = capfd.readouterr()
    assert said.out.strip().endswith("adopt --all --watch &")
    assert "entrypoint" in said.err
    assert not (box / "called").exists()


def test_print_installs_nothing(box: Path, capfd: pytest.CaptureFixture[str]):
    assert cli.run(["service", "install", "--print"]) == 0
    assert capfd.readouterr().out.startswith("# Written by `supervise service install`.")
    assert not (box / "config").exists()
