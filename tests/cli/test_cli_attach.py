"""The run's terminal: shown as it is, left with Ctrl-B d, and deaf to keys unless asked otherwise."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from contextlib import suppress

import pytest
import recorded

from supervisor.edges.tmux import Tmux

pytestmark = [pytest.mark.real, pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")]
WITHIN_S = 30.0


@pytest.fixture
def session(home, tmp_path):
    """A live run whose pane repeats what is typed into it."""
    run = recorded.write(home.root, recorded.first_attempt() + recorded.second_attempt())
    (tmp_path / "typed").touch()
    tmux = Tmux(home)
    tmux.ensure_session(run.name, ["sh", "-c", f"echo pane-is-here; cat > {tmp_path}/typed"], home.root)
    yield run
    server = tmux.server_pid()
    tmux.kill_session(run.name)
    if server is not None:
        with suppress(ProcessLookupError):  # it ends with its last session
            os.kill(server, 15)


def read_until(master: int, wanted: bytes) -> bytes:
    seen, until = b"", time.monotonic() + WITHIN_S
    while wanted not in seen and time.monotonic() < until:
        if select.select([master], [], [], 0.1)[0]:
            seen += os.read(master, 65536)
    assert wanted in seen
    return seen


def leave(master: int) -> None:
    """Ctrl-B d, again until it is taken: keys that come within a millisecond of others count as pasted text."""
    seen, until = b"", time.monotonic() + WITHIN_S
    while b"detached" not in seen and time.monotonic() < until:
        os.write(master, b"\x02")
        select.select([], [], [], 0.05)
        os.write(master, b"d")
        while select.select([master], [], [], 0.3)[0]:
            try:
                seen += os.read(master, 65536)
            except OSError:  # EIO: it has left
                break
    assert b"detached" in seen


@pytest.mark.parametrize(("argv", "typed"), [([], ""), (["--rw"], "hello\n")])
def test_the_terminal_is_read_only_unless_asked_otherwise(session, tmp_path, argv, typed):
    master, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm"}
    command = [sys.executable, "-m", "supervisor.cli", "attach", session.name, *argv]
    attached = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True)
    os.close(slave)
    try:
        read_until(master, b"pane-is-here")
        os.write(master, b"hello\r")
        if typed:
            read_until(master, b"hello")
            until = time.monotonic() + WITHIN_S
            while (tmp_path / "typed").read_text() != typed and time.monotonic() < until:
                time.sleep(0.01)
        leave(master)
        assert attached.wait(timeout=WITHIN_S) == 0
        assert (tmp_path / "typed").read_text() == typed
    finally:
        attached.kill()
        attached.wait()
        os.close(master)


def test_without_a_terminal_attach_says_what_it_needs(session, supervise):
    code, _, err = supervise("attach", session.name)
    assert code == 2
    assert "ssh -t" in err
