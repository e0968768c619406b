"""How an attempt is ended: whose grace it is, who is spared while it saves, what is said of who cannot be ended."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from boxes import Box, is_alive, until

from supervisor.edges import proc

pytestmark = pytest.mark.real

TRAINER = """\
import os, signal, sys, time
def end(*_):
    time.sleep(1.0)  # a last save takes its time
    open("saved", "w").write("yes")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("trainer", os.getpid(), flush=True)
print("step 1", flush=True)
while True:
    time.sleep(0.05)
"""
WRITER = """\
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
with open("saves/step-2.pt.tmp", "wb", buffering=0) as file:
    print("writer", os.getpid(), flush=True)
    while not os.path.exists("asked"):
        time.sleep(0.02)
    for _ in range(60):  # longer than the grace of the group
        file.write(b"x" * 1000)
        time.sleep(0.05)
os.rename("saves/step-2.pt.tmp", "saves/step-2.pt")
print("written", flush=True)
while True:
    time.sleep(0.05)
"""


def test_a_wrapper_that_dies_at_once_does_not_cost_the_trainer_its_grace(box: Box) -> None:
    trainer = box.write("trainer.py", TRAINER)
    more = "recovery: {stop: {grace: 20s}, verify_zero: {stable_for: 100ms}}\n"
    night = box.up(box.spec("wrapped", f"{sys.executable} {trainer}", more))  # sh waits, and dies of TERM itself
    until(lambda: "step 1" in night.output(), "the trainer trains")
    (pid,) = [int(line.split()[1]) for line in night.output().splitlines() if line.startswith("trainer")]
    wrapper = night.leader()
    assert wrapper != pid
    night.down()
    assert not is_alive(wrapper) and not is_alive(pid)
    assert (box.work / "saved").read_text() == "yes"
    assert [one["data"]["signal"] for one in night.records("SignalIntended")] == ["SIGTERM"]  # nobody needed KILL


def test_who_writes_beside_the_checkpoints_is_spared_while_its_file_grows_and_no_longer(box: Box) -> None:
    (box.work / "saves").mkdir()
    writer = box.write("writer.py", WRITER)
    more = (
        'resume: {from: "saves/step-*.pt", arg: --resume}\n'
        "recovery: {stop: {grace: 8s}, verify_zero: {stable_for: 100ms}}\n"
    )
    command = f"setsid {sys.executable} {writer} &\necho step 1; while :; do sleep 1; done"
    night = box.up(box.spec("saving", command, more))
    until(lambda: "writer" in night.output(), "the writer is there")
    (pid,) = [int(line.split()[1]) for line in night.output().splitlines() if line.startswith("writer")]
    (box.work / "asked").touch()
    until(lambda: (box.work / "saves" / "step-2.pt.tmp").stat().st_size > 0, "it saves")
    night.down()
    assert (box.work / "saves" / "step-2.pt").stat().st_size == 60_000  # the save is whole
    assert "written" in night.output()
    assert not is_alive(pid)  # and then it was ended
    killed = [one["pid"] for r in night.has("SignalIntended", signal="SIGKILL") for one in _targets(r)]
    assert pid in killed


def _targets(record: dict) -> list[dict]:
    return [target["id"] for target in record["data"]["targets"]]


def test_who_is_in_uninterruptible_sleep_is_named_and_the_run_halts_without_a_relaunch(box: Box) -> None:
    freezer = Path("/sys/fs/cgroup/freezer")
    if not os.access(freezer / "tasks", os.W_OK):
        pytest.skip("no freezer of cgroup v1 here")
    night = box.up(box.spec("stuck", "echo step 1; exec sleep 600", "recovery: {stop: {grace: 200ms}}\n"))
    leader = night.leader()
    group = freezer / f"supervise-e2e-{os.getpid()}"
    group.mkdir()
    try:
        (group / "tasks").write_text(str(leader))
        (group / "freezer.state").write_text("FROZEN")
        until(lambda: (group / "freezer.state").read_text().strip() == "FROZEN", "it is frozen")
        said = night.down(8)
        assert f"pid {leader}" in said.err
        assert "uninterruptible sleep" in said.err
        (unkillable,) = night.records("Unkillable")
        seen = proc.stat(leader)
        assert seen is not None and seen.state == "D"
        assert unkillable["data"]["wchan"] == proc.wchan(leader) != ""
        assert unkillable["data"]["wchan"] in said.err
        assert night.status()["phase"] == "halted"
        assert len(night.records("LaunchIntended")) == 1
        kills = night.has("SignalIntended", signal="SIGKILL")
        assert [one["pid"] for one in _targets(kills[0])] == [leader]
        assert len(kills) == 1  # asked once more of nobody
        assert night.down(8).code == 8  # still there: still 8
    finally:
        (group / "freezer.state").write_text("THAWED")
        until(lambda: not (group / "tasks").read_text(), "the group is empty")
        group.rmdir()
    night.down(0)
    assert not is_alive(leader)


def test_a_job_stopped_by_ctrl_z_hears_the_signal_too(box: Box) -> None:
    trainer = box.write("trainer.py", TRAINER)
    more = "recovery: {stop: {grace: 20s}, verify_zero: {stable_for: 100ms}}\n"
    night = box.up(box.spec("asleep", f"exec {sys.executable} {trainer}", more))
    until(lambda: "step 1" in night.output(), "the trainer trains")
    os.kill(night.leader(), signal.SIGSTOP)
    until(lambda: (proc.stat(night.leader()) or proc.stat(1)).state == "T", "it is stopped")
    night.down()
    assert (box.work / "saved").read_text() == "yes"


def test_down_typed_into_the_jobs_own_session_ends_the_run_and_not_the_one_who_asks(box: Box) -> None:
    command = (
        "echo step 1; while [ ! -e go ]; do sleep 0.05; done\n"
        f"setsid sh -c '{sys.executable} -m supervisor.cli down inside -y > told 2>&1; echo $? > code' &\n"
        "while :; do sleep 1; done"
    )
    kept = "\n".join(f"export {name}='{box.environ[name]}'" for name in ("SUPERVISE_HOME", "SUPERVISE_LOCKS"))
    night = box.up(box.spec("inside", f"{kept}\n{command}", "recovery: {stop: {grace: 1s}}\n"))
    leader = night.leader()
    (box.work / "go").touch()
    until(lambda: night.records("EpisodeEnded"), "the run ends")
    assert not is_alive(leader)
    assert night.status()["phase"] == "stopped"
    until(lambda: not [p for p, c in box.everybody().items() if "supervisor.cli" in c], "the verb ends by itself")
    assert "inside" in (box.work / "told").read_text()  # it lived to hear the answer
