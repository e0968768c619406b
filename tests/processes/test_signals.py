"""Signals reach the job's group as Ctrl-C would, members one by one, and nobody else."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import pytest
from attempts import Stage, actor, alive, until

from supervisor.core.evidence import ProcessId
from supervisor.edges import proc, processes, signals

pytestmark = pytest.mark.real


def members_of(stage: Stage):
    return processes.sweep(stage.own(), stage.home).members


@pytest.mark.parametrize("at_once", [True, False])
def test_the_group_hears_the_signal_and_workers_outside_of_it_do_not(stage: Stage, monkeypatch, at_once: bool):
    if not at_once:  # what an older kernel answers
        monkeypatch.setattr(signals, "_send_to_group", lambda *_: False)
    attempt = stage.launch(actor("group"))
    said = attempt.wait_for("leader", "child", "worker")
    members = members_of(stage)
    leader = next(m.id for m in members if m.id.pid == said["leader"])
    sent = processes.signal_group(leader, members, signal.SIGTERM, stage.home)
    assert {s.id.pid for s in sent if s.sent} == {said["leader"], said["child"]}
    attempt.wait_for("heard", "child-heard")
    assert attempt.end()["status"] == 0
    assert alive(said["worker"])


def test_a_group_whose_leader_is_gone_still_hears(stage: Stage):
    attempt = stage.launch(actor("group"))
    said = attempt.wait_for("leader", "child")
    leader = ProcessId(said["leader"], proc.start_ticks(said["leader"]))
    os.kill(leader.pid, signal.SIGKILL)
    attempt.end()
    processes.signal_group(leader, members_of(stage), signal.SIGTERM, stage.home)
    attempt.wait_for("child-heard")


def test_somebody_in_the_group_who_is_not_ours_is_left_out(stage: Stage):
    lock = stage.home.run("r1").lock
    attempt = stage.launch(actor("exec", *actor("hold-lock", str(lock))))
    said = attempt.wait_for("leader", "lock-holder", "below-lock")
    members = members_of(stage)
    assert [m.id.pid for m in members] == [said["leader"]]
    assert proc.stat(said["lock-holder"]).pgid == said["leader"]
    processes.signal_group(members[0].id, members, signal.SIGTERM, stage.home)
    assert attempt.end()["status"] == signal.SIGTERM
    assert alive(said["lock-holder"])
    for name in ("lock-holder", "below-lock"):
        stage.pids.append(said[name])


def test_a_job_deaf_to_term_dies_of_kill(stage: Stage):
    attempt = stage.launch(actor("deaf"))
    attempt.wait_for("deaf")
    members = members_of(stage)
    processes.signal_members(members, signal.SIGTERM)
    assert proc.is_alive(members[0].id)
    assert processes.signal_members(members, signal.SIGKILL)[0].sent
    assert attempt.end()["status"] == signal.SIGKILL
    assert processes.signal_members(members, signal.SIGKILL)[0].why == "it is gone"


def test_where_there_are_no_pidfds_the_start_ticks_are_still_compared(stage: Stage, monkeypatch):
    innocent = stage.decoy(["sleep", "1000"])

    def denied(pid: int) -> int:
        raise PermissionError(1, "seccomp")

    monkeypatch.setattr(os, "pidfd_open", denied)
    ticks = proc.start_ticks(innocent.pid)
    assert signals._send(ProcessId(innocent.pid, ticks + 1), signal.SIGKILL).why == "it is gone"
    assert alive(innocent.pid)
    assert signals._send(ProcessId(innocent.pid, ticks), signal.SIGKILL).sent


def test_a_watched_process_says_when_it_ends(stage: Stage):
    child = stage.decoy(["sleep", "1000"])
    fd = processes.watch(ProcessId(child.pid, proc.start_ticks(child.pid)))
    assert fd is not None
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(0) == []
        child.kill()
        assert poll.poll(30_000)
    finally:
        os.close(fd)
    child.wait()
    assert processes.watch(ProcessId(child.pid, 1)) is None


def test_a_process_in_uninterruptible_sleep_is_named_with_its_wait_channel(stage: Stage):
    freezer = Path("/sys/fs/cgroup/freezer")
    if not os.access(freezer / "tasks", os.W_OK):
        pytest.skip("no freezer of cgroup v1 here")
    group = freezer / f"supervise-test-{os.getpid()}"
    attempt = stage.launch(actor("rest"))
    leader = attempt.wait_for("leader")["leader"]
    group.mkdir()
    try:
        (group / "tasks").write_text(str(leader))
        (group / "freezer.state").write_text("FROZEN")
        until("it is frozen", lambda: (group / "freezer.state").read_text().strip() == "FROZEN")
        processes.signal_members(members_of(stage), signal.SIGKILL)
        until("it is in state D", lambda: proc.stat(leader).state == "D")
        (member,) = members_of(stage)
        assert member.state == "D"
        assert member.wchan == proc.wchan(leader)
        assert member.wchan
    finally:
        (group / "freezer.state").write_text("THAWED")
        attempt.wait()
        until("the group is empty", lambda: not (group / "tasks").read_text())
        group.rmdir()


def test_a_file_open_for_writing_beside_the_checkpoints_is_seen_with_its_size(stage: Stage):
    saves = stage.root / "saves"
    saves.mkdir()
    (saves / "read-only").write_text("x")
    link = stage.root / "link"
    link.symlink_to(saves)
    writer = stage.launch(actor("writer", str(saves / "step-1.pt"), str(saves / "read-only"))).wait_for("writer")
    (member,) = members_of(stage)
    assert member.id.pid == writer["writer"]
    (writing,) = processes.open_for_writing(member, [link])
    assert (writing.path, writing.size_bytes) == (str(saves / "step-1.pt"), 100)
    assert processes.open_for_writing(member, [stage.root / "save"]) == ()
    assert processes.open_for_writing(member, []) == ()
    stranger = processes.ProcessId(member.id.pid, 1)
    assert processes.open_for_writing(type("N", (), {"id": stranger})(), [saves]) == ()
