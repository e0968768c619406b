"""Verbs over a real ssh to a real sshd: output, exit codes, Ctrl-C, terminals, lost links."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Callable

import pytest
from boxes import Night, is_alive, until
from far import Far

from supervisor.edges import proc

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]


@pytest.mark.parametrize("host", ["words", "words200"])
def test_words_arrive_as_they_were_typed(far: Far, host: str):
    odd = ("logs", "two words", "it's", "$HOME", "", "*", 'a"b', "x;y", "new\nline", "--k=v w", "ü")
    done = far.supervise(*odd, host=host)
    inside = "200" if host == "words200" else ""
    assert done.stdout == "".join(f"<{word}>" for word in ("--far", *odd)) + inside
    assert (done.returncode, done.stderr) == (0, "")


def test_output_and_exit_codes_are_those_of_the_far_side(far: Far, night: Night):
    said = far.supervise("status", "afar", "-o", "json")
    assert json.loads(said.stdout)["runs"][0]["name"] == "afar"
    assert far.supervise("status", "afar", host="ct200").returncode == 0
    missing = far.supervise("status", "nosuch")
    assert (missing.returncode, missing.stdout) == (4, "")
    assert "no run named 'nosuch': there are: afar" in missing.stderr
    assert far.supervise("wait", "afar", "--timeout", "10ms").returncode == 124
    down = far.supervise("down", "afar", "-y")
    assert down.returncode == 0, down.stderr


def test_a_path_is_one_over_there_and_that_is_said(far: Far, night: Night, tmp_path):
    (tmp_path / "here.yaml").write_text("version: 1\n")
    argv = far.argv("check", "here.yaml")
    done = subprocess.run(argv, env=far.environ, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 5
    assert "here.yaml is taken as a path on box" in done.stderr
    assert "there is no such file" in done.stderr


def test_a_log_read_from_standard_input_goes_along(far: Far, night: Night):
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.74 GiB\n"
    done = far.supervise("scan", "-", text=text)
    assert "gpu_oom" in done.stdout, done.stderr


def test_a_dead_link_and_a_missing_program_say_what_to_do(far: Far):
    dead = far.supervise("status", host="dead")
    assert dead.returncode == 1
    assert "the link to dead failed" in dead.stderr
    lost = far.supervise("status", host="lost")
    assert lost.returncode == 127
    assert "hosts: {lost: {supervise:" in lost.stderr


def far_verbs(far: Far, verb: str) -> list[int]:
    """Verbs that run on this far side, by what their command line says."""
    found = []
    for pid in proc.pids():
        words = proc.argv(pid)
        home = (proc.environ(pid) or {}).get("SUPERVISE_HOME")
        if "--far" in words and verb in words and home == str(far.home):
            found.append(pid)
    return found


def follow(far: Far, *words: str) -> subprocess.Popen[bytes]:
    argv = far.argv(*words)
    return subprocess.Popen(
        argv, env=far.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_ctrl_c_ends_what_follows_there_too_and_the_run_goes_on(far: Far, night: Night):
    for words in (("logs", "-f", "afar"), ("wait", "afar")):
        near = follow(far, *words)
        assert near.stdout is not None
        if words[0] == "logs":
            assert b"step" in near.stdout.readline()
        pid = until(lambda verb=words[0]: far_verbs(far, verb), f"{words} on the far side")[0]
        near.send_signal(signal.SIGINT)
        near.communicate(timeout=60)
        assert near.returncode == 130
        until(lambda pid=pid: not is_alive(pid), "the verb on the far side to end")
    assert is_alive(night.leader())
    night.until("FirstProgress")
    assert night.status()["phase"] == "running"


def test_a_link_that_drops_changes_nothing_over_there(far: Far, night: Night):
    near = follow(far, "logs", "-f", "afar")
    assert near.stdout is not None
    near.stdout.readline()
    pid = until(lambda: far_verbs(far, "logs"), "the verb on the far side")[0]
    (ssh,) = [child for child in proc.pids() if (seen := proc.stat(child)) and seen.ppid == near.pid]
    os.kill(ssh, signal.SIGKILL)
    _, said = near.communicate(timeout=60)
    assert near.returncode == 1
    assert b"the link to box failed" in said
    until(lambda: not is_alive(pid), "the verb on the far side to end")
    assert is_alive(night.leader())
    (night.box.work / "go").touch()
    assert far.supervise("wait", "afar").returncode == 0


def read_until(fd: int, what: Callable[[bytes], bool]) -> bytes:
    """What a terminal shows until that is so."""
    shown = b""
    deadline_s = time.monotonic() + 60
    while not what(shown):
        assert time.monotonic() < deadline_s, shown[-2000:]
        if select.select([fd], [], [], 1)[0]:
            try:
                shown += os.read(fd, 4096)
            except OSError:  # the other end is closed
                break
    return shown


def leave(fd: int) -> None:
    """Ctrl-B d, again until it is taken: keys that come within a millisecond of others count as pasted text."""
    shown = b""
    deadline_s = time.monotonic() + 60
    while b"detached" not in shown:
        assert time.monotonic() < deadline_s, shown[-2000:]
        os.write(fd, b"\x02")
        select.select([], [], [], 0.05)
        os.write(fd, b"d")
        again_s = time.monotonic() + 1
        while b"detached" not in shown and time.monotonic() < again_s:
            if select.select([fd], [], [], 0.1)[0]:
                shown += os.read(fd, 4096)


def terminal(far: Far, *words: str) -> tuple[int, int]:
    """The verb with a terminal of its own: its pid, and the other end."""
    pid, fd = pty.fork()
    if pid == 0:
        argv = far.argv(*words)
        os.execve(argv[0], argv, {**far.environ, "TERM": "xterm"})
    return pid, fd


@pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
def test_attach_has_a_terminal_and_leaves_by_its_keys(far: Far, night: Night):
    pid, fd = terminal(far, "attach", "afar")
    read_until(fd, lambda shown: b"step" in shown)
    leave(fd)
    read_until(fd, lambda _: False)
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    assert os.waitstatus_to_exitcode(status) == 0
    assert is_alive(night.leader())


@pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
def test_with_a_terminal_ctrl_c_is_a_key_for_the_far_side(far: Far, night: Night):
    pid, fd = terminal(far, "logs", "-f", "afar")
    read_until(fd, lambda shown: b"step" in shown)
    os.write(fd, b"\x03")
    read_until(fd, lambda _: False)
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    assert os.waitstatus_to_exitcode(status) == 130
    assert is_alive(night.leader())
