"""The claim: one decides about an attempt, whoever comes first, and that stands after every crash."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys

import pytest

from supervisor import runner
from supervisor.core.evidence import ProcessId
from supervisor.edges import claim
from supervisor.edges.claim import By, Claim
from supervisor.edges.paths import AttemptDir

ME = ProcessId(4711, 99)


@pytest.fixture
def attempt(tmp_path):
    return AttemptDir(1, tmp_path)


def test_the_first_one_has_it_and_it_says_who(attempt):
    assert claim.read(attempt) is None
    assert claim.take(attempt, By.SUPERVISOR, ME, "boot")
    assert not claim.take(attempt, By.RUNNER, ProcessId(1, 1), "boot")
    assert claim.read(attempt) == Claim(By.SUPERVISOR, ME, "boot")
    assert [path.name for path in attempt.path.iterdir()] == ["claim"]


def test_the_runners_claim_is_read_and_keeps_the_supervisor_out(attempt):
    assert runner.claim(str(attempt.path), "runner")
    found = claim.read(attempt)
    assert found.by is By.RUNNER
    assert found.claimer.pid == os.getpid()
    assert not claim.take(attempt, By.SUPERVISOR, ME, "boot")


def test_the_supervisors_claim_keeps_the_runner_out(attempt):
    assert claim.take(attempt, By.SUPERVISOR, ME, "boot")
    assert not runner.claim(str(attempt.path), "runner")


@pytest.mark.parametrize("content", [b"", b'{"by":"supervi', b"[]", b'{"by":"nobody","pid":1}', b"\0\0\0"])
def test_a_claim_whose_writer_died_counts_as_that_of_an_unknown_runner(attempt, content):
    attempt.claim.write_bytes(content)
    assert claim.read(attempt) == Claim(By.RUNNER, None)
    assert not claim.take(attempt, By.SUPERVISOR, ME, "boot")


def test_without_hard_links_there_is_still_one_winner(attempt, monkeypatch):
    def no_links(*_, **__):
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", no_links)
    assert claim.take(attempt, By.RUNNER, ME, "boot")
    assert not claim.take(attempt, By.SUPERVISOR, ME, "boot")
    assert claim.read(attempt) == Claim(By.RUNNER, ME, "boot")


def test_a_claim_that_could_not_be_written_is_not_there(attempt, monkeypatch):
    def full(fd, data):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(claim, "write_all", full)
    with pytest.raises(OSError, match="full"):
        claim.take(attempt, By.RUNNER, ME, "boot")
    assert claim.read(attempt) is None
    assert list(attempt.path.iterdir()) == []


def test_another_error_of_linking_is_told(attempt, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(OSError, match="I/O"):
        claim.take(attempt, By.RUNNER, ME, "boot")


RACER = """
import sys, threading
from pathlib import Path
from supervisor.core.evidence import ProcessId
from supervisor.edges import claim
from supervisor.edges.paths import AttemptDir
at = AttemptDir(1, Path(sys.argv[1]))
print("ready", flush=True); sys.stdin.readline()
won = []
def race(i):
    by = claim.By.RUNNER if i % 2 else claim.By.SUPERVISOR
    if claim.take(at, by, ProcessId(int(sys.argv[2]), i), "boot"):
        won.append(i)
    assert claim.read(at).claimer is not None
threads = [threading.Thread(target=race, args=(i,)) for i in range(10)]
[t.start() for t in threads]; [t.join() for t in threads]
print(*won, flush=True)
"""


@pytest.mark.real
def test_of_fifty_claimers_at_once_exactly_one_wins_and_no_claim_is_ever_torn(attempt):
    with contextlib.ExitStack() as stack:
        racers = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", RACER, str(attempt.path), str(number)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    bufsize=1,
                )
            )
            for number in range(5)
        ]
        assert [one.stdout.readline() for one in racers] == ["ready\n"] * 5
        for one in racers:
            one.stdin.write("go\n")
        told = [one.stdout.readline().split() for one in racers]
    winners = [(number, int(i)) for number, won in enumerate(told) for i in won]
    assert len(winners) == 1
    assert [one.returncode for one in racers] == [0] * 5
    plain = json.loads(attempt.claim.read_text())
    assert (plain["pid"], plain["start_ticks"]) == winners[0]
