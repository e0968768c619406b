"""scripts/demo: the first thing that a newcomer runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]


def started_by_it(directory: Path) -> list[str]:
    """Command lines of live processes that name the demo's folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended meanwhile
        if f"{directory}/supervise-demo." in words:
            found.append(words)
    return found


def left_of_it(directory: Path) -> list[str]:
    """Who stays. What was just told to end gets a moment."""
    deadline = time.monotonic() + 30
    while (left := started_by_it(directory)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def start(directory: Path, **environ: str) -> subprocess.Popen[str]:
    """The demo, its folder in `directory`; skips where it would set up an environment under the tests' feet."""
    if not (Path(sys.prefix) / ".setup.stamp").exists():
        pytest.skip("not in an environment of scripts/_setup.sh: run scripts/test")
    env = os.environ | {"SUPERVISE_VENV": sys.prefix, "TMPDIR": str(directory)} | environ
    return subprocess.Popen(
        [REPO / "scripts" / "demo"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_it_plays_the_incident_and_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = start(tmp_path)
    output, _ = demo.communicate(timeout=350)
    assert demo.returncode == 0, output
    told = " ".join(output.split())  # its tables are wrapped
    assert "token_budget 49152 -> 45056" in told
    assert "short by 174 MiB" in told
    assert list(tmp_path.iterdir()) == []
    assert left_of_it(tmp_path) == []


def test_ctrl_c_cleans_up_too(tmp_path: Path) -> None:
    demo = start(tmp_path, SUPERVISE_SIM_SCENARIO="slow")
    assert demo.stdout is not None
    for line in demo.stdout:
        if line.startswith("$ supervise wait"):
            break
    for child in children(demo.pid):  # a terminal's Ctrl-C reaches the verb that runs, and the script
        os.kill(child, signal.SIGINT)
    demo.send_signal(signal.SIGINT)
    rest = demo.stdout.read()
    assert demo.wait(timeout=120) != 0, rest
    demo.stdout.close()
    assert list(tmp_path.iterdir()) == []
    assert left_of_it(tmp_path) == []


def children(pid: int) -> list[int]:
    """Once it has some: the children of a process."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if found:
            return [int(child) for child in found]
        time.sleep(0.02)
    raise AssertionError("no child came")
