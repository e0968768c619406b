"""What a dump shows of real processes that hang, with and without py-spy, and that it waits for nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from supervisor.core.aftermath import Printer
from supervisor.core.alive import DumpIntended
from supervisor.core.evidence import ProcessId
from supervisor.edges import hangdump, proc
from supervisor.edges.hangdump import Subject
from supervisor.edges.ownership import Recorded
from supervisor.edges.paths import AttemptDir
from supervisor.machines.dumping import dump

WAITS = "import os, sys; sys.stdout.write('ready\\n'); sys.stdout.flush(); os.read(0, 1)"


@pytest.fixture
def hanging():
    """Two real Python processes that wait for ever, and a program that is no Python; ended by their own pids."""
    started = []
    try:
        for command in ([sys.executable, "-c", WAITS], [sys.executable, "-c", WAITS], ["cat"]):
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            started.append(process)
        os.write(started[2].stdin.fileno(), b"ready\n")
        for process in started:
            assert process.stdout.readline() == b"ready\n"
            while proc.stat(process.pid).state != "S":  # on its way from the word to the wait
                os.sched_yield()
        yield [ProcessId(one.pid, proc.start_ticks(one.pid)) for one in started]
    finally:
        for process in started:
            process.kill()
            process.communicate()


def stand_in(tmp_path, text: str) -> str:
    """A py-spy that says this."""
    path = tmp_path / "py-spy"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_dump_says_where_each_process_waits(hanging, tmp_path):
    found = hangdump.take([Subject(hanging[0], 3), Subject(hanging[2])], (), head="attempt 1", py_spy=None)
    assert found.processes == 2
    assert f"== pid {hanging[0].pid} (rank 3): {sys.executable}" in found.text
    assert "State: S (sleeping)" in found.text
    assert found.text.count("wchan: ") == 2
    assert found.text.count("kernel stack: ") == 2, "what may not be read is said in its place"
    why = "py-spy is not installed: pip install py-spy, beside supervise"
    assert found.summary == f"2 processes, no Python stacks ({why})"


def test_only_python_is_asked_for_python_stacks(hanging, tmp_path):
    py_spy = stand_in(tmp_path, 'echo "Thread $4 (idle): MainThread"; echo "    all_reduce (train.py:12) $*"')
    found = hangdump.take([Subject(one) for one in hanging], (), head="", py_spy=py_spy)
    assert (found.processes, found.stacks) == (3, 2)
    for one in hanging[:2]:
        assert f"all_reduce (train.py:12) dump --nonblocking --pid {one.pid}" in found.text
    assert f"--pid {hanging[2].pid}" not in found.text


def test_a_py_spy_that_is_refused_or_hangs_costs_nothing_but_its_own_part(hanging, tmp_path, monkeypatch):
    refused = stand_in(tmp_path, "echo 'Error: Permission Denied' >&2; exit 1")
    found = hangdump.take([Subject(hanging[0])], (), head="", py_spy=refused)
    assert found.summary == "1 process, no Python stacks (py-spy: Error: Permission Denied)"
    monkeypatch.setattr(hangdump, "STACK_WITHIN_S", 0.2)
    hangs = stand_in(tmp_path, "exec sleep 60")
    found = hangdump.take([Subject(hanging[0])], (), head="", py_spy=hangs)
    assert "no answer within" in found.summary
    assert "wchan: " in found.text
    monkeypatch.setattr(hangdump, "WITHIN_S", 0.0)
    assert "no time left" in hangdump.take([Subject(hanging[0])], (), head="", py_spy=hangs).summary
    monkeypatch.setattr(hangdump, "WITHIN_S", 20.0)
    assert "py-spy: " in hangdump.take([Subject(hanging[0])], (), head="", py_spy=str(tmp_path / "none")).summary


def test_a_process_that_is_gone_or_another_by_now_is_not_looked_at(hanging):
    gone, other = ProcessId(2**22 - 1, 5), ProcessId(hanging[0].pid, hanging[0].start_ticks + 1)
    found = hangdump.take([Subject(gone), Subject(other)], (), head="", py_spy=None)
    assert found.summary == "0 processes, no Python stacks (there is no Python process)"


def test_py_spy_is_looked_for_in_path_then_in_the_venv_of_the_job(tmp_path):
    (tmp_path / "bin").mkdir()
    stand_in(tmp_path / "bin", "true")
    assert hangdump.find_py_spy(str(tmp_path), "/nowhere") == f"{tmp_path}/bin/py-spy"
    assert hangdump.find_py_spy(None, str(tmp_path / "bin")) == f"{tmp_path}/bin/py-spy"


def test_the_rank_that_stopped_before_the_others_is_named(tmp_path):
    output = tmp_path / "output.log"
    lines = [
        f"[rank{rank}]: step {step} | loss 2.1\n" for step in (7, 8) for rank in range(4) if (step, rank) != (8, 2)
    ]
    output.write_text("".join(lines))
    found = hangdump.take([], [str(output), str(tmp_path / "missing.log")], head="", py_spy=None)
    assert found.ranks == (2,)
    assert "rank 2: [rank2]: step 7 | loss 2.1" in found.text
    assert "did not report: rank 2" in found.text


def test_of_files_of_their_own_the_oldest_is_the_one_that_stopped(tmp_path):
    paths = []
    for rank in range(4):
        path = tmp_path / "attempt_0" / str(rank) / "stdout.log"
        path.parent.mkdir(parents=True)
        path.write_text("all_reduce\n")
        paths.append(str(path))
    now = time.time()
    for rank, path in enumerate(paths):
        os.utime(path, (now, now - (100 if rank == 1 else 0)))
    found = hangdump.take([], paths, head="", py_spy=None)
    assert found.ranks == (1,)


def test_the_dump_lies_in_the_attempts_folder_and_the_record_says_where(hanging, tmp_path):
    attempt = AttemptDir(1, tmp_path)
    output = tmp_path / "output.log"
    output.write_text("[rank0]: step 3\n[rank0]: key sk-12345 step 4\n")
    asked = DumpIntended(attempt=1, why="hang", step=4)
    members = [Recorded(one, 1) for one in hanging]
    printers = [Printer(one.pid, rank, None) for rank, one in enumerate(hanging)]
    done = dump(asked, attempt, members, printers, [str(output)], None, lambda text: text.replace("sk-12345", "<key>"))
    assert (done.attempt, done.why, done.step, done.problem) == (1, "hang", 4, "")
    assert done.path == str(tmp_path / "dump-1-hang.txt")
    text = (tmp_path / "dump-1-hang.txt").read_text()
    assert "key <key> step 4" in text
    assert "sk-12345" not in text
    assert (tmp_path / "dump-1-hang.txt").stat().st_mode & 0o777 == 0o600
    late = dump(DumpIntended(attempt=1, why="late start"), attempt, [], [], [], None, str)
    assert late.path == str(tmp_path / "dump-2-late_start.txt")


def test_a_dump_that_cannot_be_written_is_a_sentence(tmp_path):
    done = dump(DumpIntended(attempt=1, why="hang"), AttemptDir(1, tmp_path / "gone"), [], [], [], None, str)
    assert done.path == ""
    assert "it failed" in done.problem
