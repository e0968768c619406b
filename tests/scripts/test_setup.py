"""scripts/_setup.sh on boxes where something is missing. No network: the package set up here is one file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
BACKEND = """
import zipfile

def build_editable(directory, config_settings=None, metadata_directory=None):
    name = "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{directory}/{name}", "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr("tiny-1.0.dist-info/METADATA", META)
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    return name

META = "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\nProvides-Extra: dev\\n"
"""

pytestmark = pytest.mark.real


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with the script and a package that builds by itself."""
    repo = tmp_path / "repo"
    (repo / "scripts").mkdir(parents=True)
    shutil.copy(SCRIPTS / "_setup.sh", repo / "scripts")
    (repo / "backend.py").write_text(BACKEND)
    (repo / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "tiny"\nversion = "1.0"\n'
    )
    return repo


def set_up(repo: Path, *programs: str, then: str = "true", **environ: str) -> subprocess.CompletedProcess[str]:
    """Sources the script as the others do."""
    env = {"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PYTHON": sys.executable}
    script = f"set -euo pipefail; source {repo}/scripts/_setup.sh {' '.join(programs)}; {then}"
    return subprocess.run(
        [shutil.which("bash") or "bash", "-c", script],
        env={key: value for key, value in (env | environ).items() if value},
        capture_output=True,
        text=True,
        timeout=280,
    )


def bare_path(tmp_path: Path, *programs: str) -> str:
    """A PATH with a user who is not root and these programs only."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in programs:
        (folder / program).symlink_to(shutil.which(program) or program)
    (folder / "id").write_text("#!/bin/sh\necho 1000\n")
    (folder / "id").chmod(0o755)
    return str(folder)


def test_a_second_set_up_has_nothing_to_do_and_says_nothing(repo: Path) -> None:
    first = set_up(repo, then="command -v python; echo $VIRTUAL_ENV")
    assert first.returncode == 0, first.stderr
    assert first.stdout.split() == [str(repo / ".venv/bin/python"), str(repo / ".venv")]
    assert "setting up" in first.stderr
    stamp = (repo / ".venv/.setup.stamp").stat().st_mtime_ns
    second = set_up(repo, then="python -c 'import tiny'")
    assert (second.returncode, second.stderr) == (0, "")
    assert (repo / ".venv/.setup.stamp").stat().st_mtime_ns == stamp


def test_a_set_up_that_failed_ends_the_script_and_is_not_taken_for_done(repo: Path) -> None:
    (repo / "backend.py").write_text("raise RuntimeError('does not build')\n")
    failed = set_up(repo, then="echo went on", SUPERVISE_VENV=str(repo / "elsewhere"))
    assert failed.returncode == 1
    assert "went on" not in failed.stdout
    assert not (repo / "elsewhere/.setup.stamp").exists()


def test_a_folder_that_is_no_environment_is_left_alone(repo: Path) -> None:
    (repo / "mine").mkdir()
    (repo / "mine/work").write_text("of a year")
    refused = set_up(repo, SUPERVISE_VENV=str(repo / "mine"))
    assert refused.returncode == 1
    assert "is no virtual environment: move it away" in refused.stderr
    assert (repo / "mine/work").read_text() == "of a year"


def test_who_is_not_root_is_told_what_to_install(repo: Path, tmp_path: Path) -> None:
    named = set_up(repo, "tmux", "gcc", PATH=bare_path(tmp_path, "dirname"))
    assert named.returncode == 1
    assert named.stderr == (
        "missing: tmux gcc libc6-dev. Install them first: sudo apt-get install tmux gcc libc6-dev\n"
    )


def test_a_box_without_python_is_told_so(repo: Path, tmp_path: Path) -> None:
    named = set_up(repo, PATH=bare_path(tmp_path, "dirname", "flock", "cat"), PYTHON="")
    assert named.returncode == 1
    assert "missing: python3 python3-venv" in named.stderr
