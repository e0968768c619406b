"""What dead runs left behind is ended by proof; a stranger with the same command line is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from supervisor.cli import leftover
from supervisor.edges import proc
from supervisor.edges.ownership import new_token
from supervisor.edges.paths import Home

TOKEN = new_token("dead")
"""Another in each process that runs these tests: whoever has it is ended, wherever on the box."""
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
POLITE = "import time; print('up', flush=True); time.sleep(600)"

pytestmark = pytest.mark.real


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Without the guardian's lock: nothing below its holder is ever a run's."""
    monkeypatch.setenv("SUPERVISE_HOME", str(tmp_path / "state"))
    return Home(tmp_path / "state")


@pytest.fixture
def dead_run(home):
    """A run without an open episode whose runner has died."""
    gone = subprocess.Popen(["true"])
    ticks = proc.start_ticks(gone.pid)
    gone.wait()
    attempt = home.run("dead").attempt(1)
    attempt.path.mkdir(parents=True)
    attempt.launch_json.write_text(json.dumps({"token": TOKEN}))
    claim = {"by": "runner", "boot_id": proc.boot_id(), "pid": gone.pid, "start_ticks": ticks or 1}
    attempt.claim.write_text(json.dumps(claim))
    return home.run("dead")


@pytest.fixture
def start():
    """Starts a process, with the dead run's token or without; ends all of them."""
    started = []

    def one(code: str, *, ours: bool) -> subprocess.Popen[bytes]:
        env = {**os.environ, **({"SUPERVISE_TOKEN": TOKEN} if ours else {})}
        made = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, start_new_session=True)
        started.append(made)
        assert made.stdout.readline() == b"up\n"
        return made

    yield one
    for each in started:
        each.kill()
        each.wait()
        each.stdout.close()


def test_leftovers_are_ended_and_a_stranger_lives(dead_run, supervise, start, monkeypatch):
    monkeypatch.setattr(leftover, "GRACE_S", 3.0)
    polite, deaf, stranger = start(POLITE, ours=True), start(DEAF, ours=True), start(POLITE, ours=False)
    code, _, err = supervise("down", "--leftovers", "-y")
    assert code == 0
    assert f"pid {polite.pid}" in err
    assert f"pid {deaf.pid}" in err
    assert f"pid {stranger.pid}" not in err
    assert (polite.wait(timeout=60), deaf.wait(timeout=60)) == (-15, -9)
    assert stranger.poll() is None
    lines = [json.loads(line) for line in (dead_run.path / "leftovers.jsonl").read_text().splitlines()]
    told = [(line["signal"], line["pid"]) for line in lines]  # written before each signal
    assert told == [*sorted(("SIGTERM", each.pid) for each in (polite, deaf)), ("SIGKILL", deaf.pid)]
    assert {line["proof"] for line in lines} == {"token"}
    assert all(line["start_ticks"] and "-c" in line["cmdline"] for line in lines)


def test_without_consent_nothing_is_ended(dead_run, supervise, start):
    left = start(POLITE, ours=True)
    code, _, err = supervise("down", "--leftovers")
    assert code == 2
    assert f"pid {left.pid}" in err
    assert left.poll() is None


def test_processes_of_an_open_run_are_no_leftovers(dead_run, supervise, start):
    dead_run.open.touch()
    left = start(POLITE, ours=True)
    code, _, err = supervise("down", "--leftovers", "-y")
    assert code == 0
    assert "no dead run left anything behind" in err
    assert left.poll() is None
