"""The spec's hooks: members of the run, within their time, ended with all that they started."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

import pytest

from supervisor.core.events import HookEnded, HookIntended
from supervisor.core.seen import Hook
from supervisor.edges import proc
from supervisor.edges.files import to_json
from supervisor.edges.paths import Home, RunDir
from supervisor.machines.asides import Asides
from supervisor.machines.hooks import HookRunner


class AtOnce(Asides):
    """Does the work where it is asked for."""

    def __init__(self) -> None:
        super().__init__(lambda: None)

    def ensure(self, name, work):
        if name not in self._begun:
            self._begun.add(name)
            self._run(name, work)


@pytest.fixture
def run(tmp_path) -> RunDir:
    return Home(tmp_path).run("dflash")


def is_ended(pid: int) -> bool:
    """Waits for it: a signal takes its time."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    ready = poll.poll(60_000)
    os.close(fd)
    return bool(ready)


def ran(run: RunDir, tmp_path: Path, script: str, *, timeout_s: float = 60.0, stop: bool = False) -> HookEnded:
    runner = HookRunner(run, AtOnce(), lambda text: text.replace("hunter2", "<secret>"))
    asked = HookIntended(
        attempt=1, hook="before_launch", argv=("sh", "-c", script), token="dflash:1", env={"WORD": "hello"}
    )
    order = Hook(hook=asked, timeout_s=timeout_s, stop=stop)
    runner.do(order, str(tmp_path))
    end = runner.look(order)
    assert end is not None
    return end


def test_it_runs_as_a_member_of_the_run_and_its_words_are_kept(run, tmp_path):
    end = ran(run, tmp_path, "echo $SUPERVISE_TOKEN $WORD $PWD")
    assert (end.code, end.why) == (0, "")
    assert (run.attempt(1).path / "hook-before_launch.log").read_text() == f"dflash:1 hello {tmp_path}\n"


def test_its_failure_has_its_last_words_without_secrets(run, tmp_path):
    end = ran(run, tmp_path, "echo trying; echo no bucket for hunter2; exit 3")
    assert (end.code, end.why) == (3, "no bucket for <secret>")
    assert end.words == "the hook before_launch ended with exit code 3: no bucket for <secret>"


def test_one_that_takes_too_long_is_ended_with_all_that_it_started(run, tmp_path):
    end = ran(run, tmp_path, "sleep 300 & echo $! > child; wait", timeout_s=3.0)
    assert (end.code, end.why) == (None, "did not end in time")
    child = int((tmp_path / "child").read_text())
    assert is_ended(child)


def test_what_it_leaves_in_the_background_is_ended_with_it(run, tmp_path):
    assert ran(run, tmp_path, "sleep 300 & echo $! > child").code == 0
    child = int((tmp_path / "child").read_text())
    assert is_ended(child)


def test_one_that_nobody_waits_for_any_more_is_ended(run, tmp_path):
    end = ran(run, tmp_path, "sleep 300", stop=True)
    assert end.code is None
    assert "nobody waits" in end.why


def test_one_that_is_not_there_is_told(run, tmp_path):
    runner = HookRunner(run, AtOnce(), str)
    order = Hook(hook=HookIntended(attempt=1, hook="after_stop", argv=("./absent",), token="dflash:2"), timeout_s=9.0)
    runner.do(order, str(tmp_path))
    end = runner.look(order)
    assert end is not None
    assert "cannot be run" in end.words


def test_the_hook_of_a_supervisor_that_was_killed_is_ended_and_run_again(run, tmp_path):
    left = subprocess.Popen(["sleep", "300"], start_new_session=True)
    folder = run.attempt(1).path
    folder.mkdir(parents=True)
    note = {"pid": left.pid, "start_ticks": proc.start_ticks(left.pid), "boot_id": proc.boot_id()}
    (folder / "hook-before_launch.json").write_bytes(to_json(note))
    try:
        assert ran(run, tmp_path, "true").code == 0
        assert left.wait(60) == -signal.SIGKILL
    finally:
        left.kill()


def test_a_process_that_only_has_its_number_is_left_alone(run, tmp_path):
    folder = run.attempt(1).path
    folder.mkdir(parents=True)
    note = {"pid": os.getpid(), "start_ticks": 1, "boot_id": proc.boot_id()}
    (folder / "hook-before_launch.json").write_bytes(to_json(note))
    assert ran(run, tmp_path, "true").code == 0
