"""kill -9 of supervisor, guardian, tmux server and runner, alone and together: the training goes on."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations

import pytest
from boxes import Box, Night, is_alive, kill, until

from supervisor.edges.tmux import There, Tmux

pytestmark = pytest.mark.real

STEPS = """\
trap 'echo ended by TERM; exit 0' TERM
n=0; while :; do n=$((n+1)); echo step $n; sleep 0.1 & wait; done"""
WATCHED = """\
health: {progress: {log: 'step (?P<step>\\d+)'}}
recovery: {stop: {signal: SIGTERM, grace: 20s}}
"""
BESIDE = ("supervisor", "guardian", "tmux")


def night_of(box: Box, name: str = "job", command: str = STEPS, more: str = WATCHED) -> Night:
    """A run that makes progress, with everybody there who can be killed."""
    night = box.up(box.spec(name, command, more))
    night.until("FirstProgress")
    everybody_is_there(box, night)
    return night


def everybody_is_there(box: Box, night: Night) -> dict[str, int | None]:
    until(lambda: night.supervisor and box.guardian and box.understudies() and box.tmux, "everybody is there")
    return {"supervisor": night.supervisor, "guardian": box.guardian, "tmux": box.tmux, "runner": night.runner()}


def goes_on(night: Night, attempt: int = 1) -> bool:
    """Waits for a further step of the same process."""
    leader, steps = night.leader(attempt), night.output(attempt).count("step")
    until(lambda: night.output(attempt).count("step") > steps + 1, "a further step")
    return is_alive(leader)


def test_the_view_and_the_watchers_may_die_in_every_combination(box):
    night = night_of(box)
    for dying in (c for size in (1, 2, 3) for c in combinations(BESIDE, size)):
        who = everybody_is_there(box, night)
        kill(*[who[name] for name in dying])
        if "supervisor" in dying:
            night.until_supervised(but=[who["supervisor"]])
        assert goes_on(night), dying
    assert len(night.records("LaunchIntended")) == 1
    assert night.status()["phase"] == "running"
    night.down()
    assert "ended by TERM" in night.output()


@pytest.mark.parametrize("others", [(), BESIDE], ids=["alone", "with all others"])
def test_a_killed_runner_leaves_the_job_running_and_its_end_is_killed(box, others):
    until_told = "until [ -e stop ]; do n=$((n+1)); echo step $n; sleep 0.1; done; exit 0"
    night = night_of(box, command=until_told)
    who = everybody_is_there(box, night)
    kill(who["runner"], *[who[name] for name in others])
    night.until_supervised(but=[who["supervisor"]] if others else [])
    assert goes_on(night)
    until(lambda: [w for w in night.records("Warned") if "runner of attempt 1 was killed" in w["data"]["text"]], "told")
    box.write("stop", "")
    ended = night.until("Judged", attempt=1)["data"]["failure"]
    assert ended["kind"] == "killed"
    assert "exit status unknown" in ended["because"]
    assert not night.dir.attempt(1).exit_json.exists()
    night.until("LaunchIntended", attempt=2)
    night.wait(0)


def test_a_dead_tmux_server_costs_the_view_which_comes_back(box):
    night = night_of(box)
    was, runner = box.tmux, night.runner()
    kill(was)
    until(lambda: box.tmux not in (None, was), "a new tmux server")
    tmux = Tmux(box.home)
    until(lambda: tmux.is_there(night.name) is There.YES, "the session is back")
    (pane,) = [pane for pane in tmux.panes() if pane.session == night.name]
    assert pane.is_view
    seen, steps = attached(box, night), night.output().count("step")
    until(lambda: max(map(int, re.findall(r"step (\d+)", seen())), default=0) > steps, "an attached one sees it grow")
    assert night.runner() == runner
    assert goes_on(night)


def attached(box: Box, night: Night) -> Callable[[], str]:
    """`supervise attach` in a terminal; what it has shown so far."""
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    verb = subprocess.Popen(
        [sys.executable, "-m", "supervisor.cli", "attach", night.name],
        env=box.environ | {"TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        text=True,
    )
    box.verbs.append(verb)
    os.close(theirs)
    box.closing.callback(os.close, ours)
    text = ""

    def shown() -> str:
        nonlocal text
        with contextlib.suppress(BlockingIOError):  # nothing new
            text += os.read(ours, 1 << 16).decode(errors="replace")
        return text

    return shown
