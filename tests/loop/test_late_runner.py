"""The claim, raced by the real runner: stopped at every point of its start while the supervisor abandons the launch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor import runner
from supervisor.core.evidence import ProcessId
from supervisor.edges import claim, proc
from supervisor.edges.paths import AttemptDir, Home

pytestmark = pytest.mark.real
DEADLINE_S = 30.0

STOPPED_AT = """
import os, runpy, signal, sys
at, script, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
sys.argv = [script, folder]
seen = 0
def hook(event, args):
    global seen
    if event in ("os.fork", "os.link") or (event in ("open", "os.remove") and folder in str(args[0])):
        if seen == at:
            os.kill(os.getpid(), signal.SIGSTOP)
        seen += 1
sys.addaudithook(hook)
runpy.run_path(script, run_name="__main__")
"""
"""Runs the runner's own file and stops itself before the Nth time that it touches its attempt or forks."""

POINTS = 12
"""More than a start has: the last ones are past the job's end, so the whole start is covered."""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for one in made:
        one.kill()
        one.wait(DEADLINE_S)


def prepared(tmp_path: Path, n: int) -> AttemptDir:
    """An attempt whose job says once that it ran."""
    run = Home(tmp_path).run("r1")
    folder = run.attempt(n)
    folder.path.mkdir(parents=True)
    run.secrets.write_text(json.dumps({"job": {"PATH": os.environ["PATH"]}, "own": {}}))
    argv = ["sh", "-c", f"echo attempt {n} >> {tmp_path}/ran"]
    folder.launch_json.write_text(json.dumps({"argv": argv, "cwd": str(tmp_path), "token": f"r1:{os.getpid()}"}))
    return folder


def ran(tmp_path: Path) -> list[str]:
    file = tmp_path / "ran"
    return file.read_text().split("\n")[:-1] if file.exists() else []


def run_stopping_at(folder: AttemptDir, point: int) -> subprocess.Popen[bytes]:
    *python, script, attempt = runner.command(str(folder.path))
    argv = [*python, "-c", STOPPED_AT, str(point), script, attempt]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def until_stopped_or_gone(process: subprocess.Popen[bytes]) -> bool:
    """True when it stands still at its point; False when it ended without reaching it."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        seen = proc.stat(process.pid)
        if seen is not None and seen.state == "T":
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.002)
    raise AssertionError("it neither stopped nor ended")


def abandon(folder: AttemptDir) -> bool:
    me = ProcessId(os.getpid(), proc.start_ticks(os.getpid()) or 0)
    return claim.take(folder, claim.By.SUPERVISOR, me, proc.boot_id())


@pytest.mark.parametrize("point", range(POINTS))
def test_whoever_takes_the_claim_decides_wherever_the_runner_is_delayed(
    point: int, tmp_path: Path, started: list[subprocess.Popen[bytes]]
):
    folder = prepared(tmp_path, 1)
    late = run_stopping_at(folder, point)
    started.append(late)
    stopped = until_stopped_or_gone(late)
    ours = abandon(folder)
    if stopped:
        os.kill(late.pid, signal.SIGCONT)
    code = late.wait(DEADLINE_S)
    found = claim.read(folder)
    assert found is not None
    if ours:
        assert (found.by, code, ran(tmp_path)) == (claim.By.SUPERVISOR, 3, [])
        assert sorted(p.name for p in folder.path.iterdir()) == ["claim", "launch.json"]
    else:
        assert (found.by, code, ran(tmp_path)) == (claim.By.RUNNER, 0, ["attempt 1"])
        assert found.claimer is not None
        assert found.claimer.pid == late.pid


def test_the_points_cover_the_time_before_and_after_the_claim(tmp_path: Path, started: list[subprocess.Popen[bytes]]):
    """Else the test above would prove less than it says."""
    winners = []
    for point in range(POINTS):
        folder = prepared(tmp_path / str(point), 1)
        late = run_stopping_at(folder, point)
        started.append(late)
        until_stopped_or_gone(late)
        winners.append(abandon(folder))
        late.kill()
    assert winners == sorted(winners, reverse=True), "once the runner has its claim nobody takes it away"
    assert winners[:3] == [True, True, True]
    assert not winners[-1]


def test_a_late_runner_does_not_disturb_the_next_attempt(tmp_path: Path, started: list[subprocess.Popen[bytes]]):
    first = prepared(tmp_path, 1)
    late = run_stopping_at(first, 2)
    started.append(late)
    assert until_stopped_or_gone(late)
    assert abandon(first)
    second = subprocess.run(runner.command(str(prepared(tmp_path, 2).path)), timeout=DEADLINE_S, check=False)
    os.kill(late.pid, signal.SIGCONT)
    assert (late.wait(DEADLINE_S), second.returncode) == (3, 0)
    assert ran(tmp_path) == ["attempt 2"]


def test_no_number_is_claimed_twice(tmp_path: Path, started: list[subprocess.Popen[bytes]]):
    """Four runners of one attempt, all stopped just before they take it, and the supervisor: one wins."""
    folder = prepared(tmp_path, 1)
    runners = [run_stopping_at(folder, 3) for _ in range(4)]
    started.extend(runners)
    assert all(until_stopped_or_gone(one) for one in runners)
    for one in runners[:2]:
        os.kill(one.pid, signal.SIGCONT)
    first = {one.wait(DEADLINE_S) for one in runners[:2]}
    assert not abandon(folder)
    for one in runners[2:]:
        os.kill(one.pid, signal.SIGCONT)
    assert first == {0, 3}
    assert [one.wait(DEADLINE_S) for one in runners[2:]] == [3, 3]
    assert ran(tmp_path) == ["attempt 1"]


def test_this_python_stops_the_runners_own_file():
    assert runner.command("x")[:-1] == [sys.executable, "-I", "-S", str(Path(runner.__file__).resolve())]
