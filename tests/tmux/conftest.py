"""A tmux server of the test's own, ended by the pid that the test knows."""

from __future__ import annotations

import os
import shutil
import signal
import time

import pytest

from supervisor.edges import proc
from supervisor.edges.paths import Home
from supervisor.edges.tmux import Tmux


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


@pytest.fixture
def tmux(home):
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    tmux = Tmux(home)
    yield tmux
    end(tmux.server_pid())


def end(pid):
    """End the server and wait until it is gone; its panes get SIGHUP with it."""
    if pid is None:
        return
    children = [seen.pid for seen in proc.all_stats().values() if seen.ppid == pid]
    for one in (pid, *children):
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + 10
    while (seen := proc.stat(pid)) is not None and not proc.is_dead(seen):
        assert time.monotonic() < deadline
        time.sleep(0.002)
