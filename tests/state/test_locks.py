"""Locks end with their holder, whatever it started and whatever happens to the file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from supervisor.edges import locks
from supervisor.edges.locks import Lock, is_held, read_note

HOLDER = """
import sys, os, subprocess, time
from pathlib import Path
from supervisor.edges.locks import Lock
lock = Lock.try_take(Path(sys.argv[1]))
child = None
if sys.argv[2] == "popen":
    child = subprocess.Popen(["sleep", "600"], close_fds=False, stdout=subprocess.DEVNULL).pid
elif sys.argv[2] == "fork":
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(1)
        os.write(write_end, b"!")
        time.sleep(600)
        os._exit(0)
    os.read(read_end, 1)
print("none" if lock is None else "held", child, flush=True)
sys.stdin.read()
"""


def holder(path, how="alone"):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    told, child = process.stdout.readline().split()
    return process, told, None if child == "None" else int(child)


def test_one_holder_at_a_time_also_within_a_process(tmp_path):
    path = tmp_path / "lock"
    assert not is_held(path)
    first = Lock.try_take(path)
    assert first is not None
    assert is_held(path)
    assert Lock.try_take(path) is None
    first.release()
    first.release()
    assert not is_held(path)
    assert Lock.try_take(path) is not None


def test_asking_takes_nothing_and_makes_nothing(tmp_path):
    path = tmp_path / "lock"
    assert not is_held(path)
    assert not path.exists()
    assert read_note(path) == ""
    lock = Lock.try_take(path)
    assert is_held(path)
    assert is_held(path)
    lock.release()
    assert path.exists()


@pytest.mark.parametrize("how", ["alone", "popen", "fork"])
def test_a_killed_holder_gives_the_lock_up_whatever_it_started(tmp_path, how):
    path = tmp_path / "lock"
    process, told, child = holder(path, how)
    try:
        assert told == "held"
        assert is_held(path)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not is_held(path)
        assert Lock.try_take(path) is not None
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
        with process:
            process.kill()


def test_a_forked_child_that_exits_or_lives_changes_nothing_for_its_parent(tmp_path):
    path = tmp_path / "lock"
    process, _, child = holder(path, "fork")
    try:
        os.kill(child, signal.SIGKILL)
        assert is_held(path)
    finally:
        with process:
            process.kill()


def test_a_recreated_lock_file_is_another_lock_and_its_old_holder_can_tell(tmp_path):
    path = tmp_path / "lock"
    old = Lock.try_take(path)
    assert old.is_ours()
    path.unlink()
    assert not is_held(path)
    assert not old.is_ours()
    new = Lock.try_take(path)
    assert new.is_ours()
    assert not old.is_ours()
    old.release()
    assert is_held(path)
    assert not old.is_ours()


def test_a_lock_file_that_is_replaced_between_opening_and_locking_is_opened_again(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    real, calls = locks._lock, []

    def replaced_first(fd):
        calls.append(fd)
        if len(calls) == 1:
            path.unlink()
            path.touch()
        return real(fd)

    monkeypatch.setattr(locks, "_lock", replaced_first)
    lock = Lock.try_take(path)
    assert lock.is_ours()
    assert len(calls) == 2


def test_a_lock_file_that_never_stays_is_an_error_and_not_a_wait(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    monkeypatch.setattr(locks, "_is_at", lambda fd, path: False)
    with pytest.raises(OSError, match="again and again"):
        Lock.try_take(path)


def test_the_mode_is_exact_whatever_the_umask_says(tmp_path):
    path = tmp_path / "shared"
    before = os.umask(0o077)
    try:
        Lock.try_take(path, mode=0o666)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o666


def test_a_link_in_place_of_a_lock_file_is_refused(tmp_path):
    (tmp_path / "victim").touch()
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        Lock.try_take(tmp_path / "lock")


def test_the_note_says_who_holds_the_lock(tmp_path):
    lock = Lock.try_take(tmp_path / "lock")
    lock.note("a longer note about 12345")
    lock.note("run dflash, user me")
    assert read_note(tmp_path / "lock") == "run dflash, user me"


def test_of_many_at_once_one_has_it(tmp_path):
    script = (
        "import sys\nfrom pathlib import Path\nfrom supervisor.edges.locks import Lock\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "lock = Lock.try_take(Path(sys.argv[1]))\n"
        "print('held' if lock else 'none', flush=True); sys.stdin.readline()"
    )
    with contextlib.ExitStack() as stack:
        many = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", script, str(tmp_path / "lock")],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    bufsize=1,
                )
            )
            for _ in range(10)
        ]
        assert [one.stdout.readline() for one in many] == ["ready\n"] * 10
        for one in many:
            one.stdin.write("go\n")
        told = sorted(one.stdout.readline() for one in many)
        for one in many:
            one.stdin.close()
    assert told == ["held\n"] + ["none\n"] * 9
