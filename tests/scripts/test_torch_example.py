"""The real job: examples/torch_cpu under PyTorch, alone and supervised. Skipped where .venv-torch has no torch."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
PYTHON = REPO / ".venv-torch" / "bin" / "python"

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def torch() -> None:
    """Skips where torch is missing, unless SUPERVISE_TEST_NEEDS_TORCH says that it may not be."""
    there = (
        PYTHON.exists() and subprocess.run([PYTHON, "-W", "ignore", "-c", "import torch"], timeout=120).returncode == 0
    )
    if not there and not os.environ.get("SUPERVISE_TEST_NEEDS_TORCH"):
        pytest.skip("no torch in .venv-torch: python3 -m venv .venv-torch && .venv-torch/bin/pip install torch")
    assert there, "torch is missing in .venv-torch"


def train(checkpoints: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """The script alone, at the limit of configs/torch-cpu.yaml."""
    command = [PYTHON, REPO / "examples/torch_cpu/train.py", "--headroom-mib=330", f"--checkpoints={checkpoints}"]
    return subprocess.run([*command, *flags], capture_output=True, text=True, timeout=200)


def losses(output: str) -> dict[int, float]:
    """Loss by step."""
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+) loss (\S+)", output)}


def test_the_first_batch_does_not_fit_and_half_of_it_does(tmp_path: Path) -> None:
    failed = train(tmp_path, "--batch-size=64", "--grad-accum=1")
    assert failed.returncode == 1
    assert "DefaultCPUAllocator: can't allocate memory: you tried to allocate" in failed.stderr
    assert max(losses(failed.stdout)) == 25
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_10.pt", "step_20.pt"]
    resumed = train(tmp_path, "--batch-size=32", "--grad-accum=2", f"--resume={tmp_path}/step_20.pt", "--steps=26")
    assert resumed.returncode == 0, resumed.stderr
    again = losses(resumed.stdout)
    assert list(again) == list(range(21, 27))
    for step in range(21, 26):  # the same sequences in each step, however they are split
        assert again[step] == pytest.approx(losses(failed.stdout)[step], abs=0.002)


def test_supervised_it_is_back_from_its_own_checkpoint_with_half_the_batch_and_finishes(tmp_path: Path) -> None:
    for part in ("examples", "configs"):
        shutil.copytree(REPO / part, tmp_path / part)
    (tmp_path / ".venv-torch").symlink_to(REPO / ".venv-torch")
    home = tmp_path / "home"
    environ = os.environ | {"SUPERVISE_HOME": str(home), "SUPERVISE_LOCKS": str(tmp_path / "locks")}

    def supervise(*words: str) -> subprocess.CompletedProcess[str]:
        command = [Path(sys.executable).with_name("supervise"), *words]
        return subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=250)

    try:
        up = supervise("up", "-d", "configs/torch-cpu.yaml")
        assert up.returncode == 0, up.stderr
        waited = supervise("wait", "torch-cpu", "--timeout", "4m")
        assert waited.returncode == 0, waited.stderr
        first, second = json.loads(supervise("history", "torch-cpu", "-o", "json").stdout)["attempts"]
    finally:
        supervise("down", "torch-cpu", "-y")
        subprocess.run(["tmux", "-S", home / "tmux.sock", "kill-server"], capture_output=True, timeout=10)
        until_all_is_ended(home)
    print(json.dumps([first, second], indent=1))  # shown when one of these fails
    assert (first["end"]["kind"], first["last_step"]) == ("host_oom", 25)
    assert first["decision"]["do"] == "relaunch"
    assert first["decision"]["lowered"] == {"batch_size": [64, 32], "grad_accum": [1, 2]}
    assert Path(second["checkpoint"]) == tmp_path / "out/torch-cpu/step_20.pt"
    assert (second["first_step"], second["last_step"], second["end"]["kind"]) == (21, 32, "none")
    rungs = [(flag(each["argv"], "--batch-size"), flag(each["argv"], "--grad-accum")) for each in (first, second)]
    assert rungs == [("64", "1"), ("32", "2")]
    locked = [flag(each["argv"], "--width") for each in (first, second)]
    assert locked == ["64", "64"]


def flag(argv: list[str], name: str) -> str:
    """The value of a flag that stands there once."""
    assert argv.count(name) == 1
    return argv[argv.index(name) + 1]


def until_all_is_ended(home: Path) -> None:
    """Waits for the guardian, which ends by itself once no run is open. A killed one would be replaced."""
    guardian = int((home / "guardian.lock").read_text())
    try:
        pidfd = os.pidfd_open(guardian)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([pidfd], [], [], 40)
    os.close(pidfd)
    assert ended, "the guardian does not end"
