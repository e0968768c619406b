"""Stops with real processes: the deaf, those in other sessions, daemons; restart; Ctrl-C on `up`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest
from boxes import Box, Night, is_alive, kill, until

pytestmark = pytest.mark.real

FAMILY = """\
import os, signal, subprocess, sys, time

def tell(who):
    with open("family.txt", "a") as file:
        file.write(f"{who} {os.getpid()}\\n")

def deaf(who):
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    tell(who)
    while True:
        time.sleep(0.05)

if sys.argv[1:] == ["daemon"]:
    deaf("daemon")
if not os.fork():  # a worker in the job's own group
    deaf("worker")
if not os.fork():  # a worker in a session of its own
    os.setsid()
    deaf("session")
if not os.fork():  # a daemon: forked twice, in a session of its own, adopted, without the run's environment
    os.setsid()
    if not os.fork():
        os.execve(sys.executable, [sys.executable, sys.argv[0], "daemon"], {})
    os._exit(0)
print("step 1", flush=True)
deaf("leader")
"""
SOON = "recovery: {stop: {signal: SIGTERM, grace: 500ms}}\n"


@pytest.fixture(scope="module")
def quiet(tmp_path_factory) -> Iterator[Box]:
    """A box whose one run is over early, so that nobody need wait long for what happens then."""
    box = Box(tmp_path_factory.mktemp("quiet"))
    yield box
    box.close()


def test_who_watches_is_small(quiet):
    night = quiet.up(quiet.spec("job", "exec sleep 600"))
    (understudy,) = until(lambda: quiet.guardian and quiet.understudies(), "a guardian and an understudy")
    before = cpu_ticks(understudy)
    assert max(map(resident_mib, (understudy, quiet.guardian, night.runner()))) < 16
    night.down()
    assert cpu_ticks(understudy) - before <= 1


def family(box: Box) -> dict[str, int]:
    """Who has told its pid so far."""
    path = box.work / "family.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return {name: int(pid) for name, pid in (line.split() for line in lines)}


def deaf_night(box: Box) -> tuple[Night, dict[str, int]]:
    script = box.write("family.py", FAMILY)
    night = box.up(box.spec("deaf", f"exec {sys.executable} {script}", SOON))
    until(lambda: len(family(box)) == 4, "the family is whole")
    return night, family(box)


def test_down_ends_the_deaf_the_sessions_and_the_daemons(box):
    night, they = deaf_night(box)
    night.down()
    assert not [who for who, pid in they.items() if is_alive(pid)]
    (attempt,) = night.history()["attempts"]
    assert {one["by"] for one in attempt["stopped"]} == {"user"}
    assert {one["pid"] for one in attempt["stopped"]} >= set(they.values())
    signals = [(r["data"]["signal"], r["data"]["group"]) for r in night.records("SignalIntended")]
    assert signals[0] == ("SIGTERM", True)
    assert ("SIGKILL", False) in signals[1:]
    asked, killed = night.until("StopIntended"), night.until("SignalIntended", signal="SIGKILL")
    assert killed["at"]["boot_s"] - asked["at"]["boot_s"] >= 0.5  # the grace was theirs
    assert attempt["end"]["kind"] == "none"


def test_down_ends_all_of_them_also_where_the_runner_was_killed_before(box):
    night, they = deaf_night(box)
    runner = night.runner()
    until(lambda: set(night.members()) >= set(they.values()), "the runner has recorded them")
    kill(runner, box.tmux)
    night.down()
    assert not [who for who, pid in they.items() if is_alive(pid)]


def test_restart_stops_verifies_and_launches_the_same_again(box):
    night = box.up(box.spec("job", "trap 'exit 0' TERM; while :; do echo step 1; sleep 0.1 & wait; done", SOON))
    was = night.leader(1)
    said = box.supervise("restart", night.name, "-y", code=0)
    night.until("Launched", attempt=2)
    assert not is_alive(was), said
    assert is_alive(night.leader(2))
    order = [r["type"] for r in night.records("MembersGone", "VerifiedZero", "LaunchIntended")]
    assert order == ["LaunchIntended", "MembersGone", "VerifiedZero", "LaunchIntended"]
    first, second = night.history()["attempts"]
    assert first["argv"] == second["argv"]
    assert (first["end"]["kind"], first["decision"]["lowered"]) == ("none", {})
    assert {one["by"] for one in first["stopped"]} == {"user"}


def test_ctrl_c_on_up_detaches_and_the_run_goes_on(box):
    loop = "while :; do echo waiting; sleep 0.1; done"
    spec = box.spec("job", loop, "health: {progress: {log: 'step (?P<step>\\d+)'}}\n")
    up = box.start("up", str(spec))
    night = box.night("job")
    night.until("Answered", verb="up")
    assert "waiting" in until(up.stdout.readline, "up follows the output")
    leader = night.leader()
    up.send_signal(signal.SIGINT)
    _, err = up.communicate(timeout=60)
    assert up.returncode == 130
    assert "goes on" in err
    lines = night.output().count("\n")
    until(lambda: night.output().count("\n") > lines + 2, "it goes on")
    assert is_alive(leader)
    assert night.status()["phase"] == "starting"


def test_who_watched_is_gone_when_there_is_nothing_to_watch(quiet):
    until(lambda: not quiet.everybody(), "guardian, understudy and tmux server are gone by themselves")


def resident_mib(pid: int | None) -> float:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Rss:")) / 1024


def cpu_ticks(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
