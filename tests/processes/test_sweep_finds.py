"""Every process of a run is found, whatever it did to get away; each by a proof that is a value."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from attempts import DEADLINE_S, Attempt, Stage, actor, alive, until

from supervisor.core.evidence import Owner, Proof
from supervisor.edges import cgroups, proc, processes

pytestmark = pytest.mark.real


def kill_runner(attempt: Attempt) -> None:
    attempt.runner.kill()
    attempt.runner.wait()


def recorded(attempt: Attempt, *pids: int) -> None:
    """Waits until the runner has written these down."""
    until("they are recorded", lambda: set(pids) <= {m["pid"] for m in attempt.members() if m["sid"]})


def test_workers_in_their_own_sessions_are_members(stage: Stage):
    attempt = stage.launch(actor("workers", "3"))
    said = attempt.wait_for("leader", "worker0", "worker1", "worker2")
    found = stage.sweep()
    assert set(found) == set(said.values())
    assert {m.proof for m in found.values()} == {Proof.DESCENDANT}
    assert found[said["worker0"]].sid == said["worker0"] != said["leader"]
    assert "actor.py workers 3" in found[said["leader"]].cmdline


def test_workers_are_found_after_the_launcher_was_killed(stage: Stage):
    attempt = stage.launch(actor("workers", "2"))
    said = attempt.wait_for("leader", "worker0", "worker1")
    os.kill(said["leader"], signal.SIGKILL)
    attempt.end()
    assert set(stage.sweep()) == {said["worker0"], said["worker1"]}


def test_a_daemon_that_forked_twice_is_found_below_the_runner(stage: Stage):
    daemon = stage.launch(actor("daemon")).wait_for("leader", "daemon")["daemon"]
    assert stage.sweep()[daemon].proof is Proof.DESCENDANT


def test_a_daemon_is_found_by_its_token_when_runner_and_records_are_gone(stage: Stage):
    attempt = stage.launch(actor("daemon"))
    said = attempt.wait_for("leader", "daemon")
    kill_runner(attempt)
    attempt.dir.members.unlink()
    found = stage.sweep()
    assert {pid: m.proof for pid, m in found.items()} == dict.fromkeys(said.values(), Proof.TOKEN)


def test_a_title_that_overwrote_the_token_does_not_hide_a_process_of_a_dead_runner(stage: Stage):
    attempt = stage.launch(actor("titled"))
    said = attempt.wait_for("leader", "titled", "grandchild")
    assert proc.environ(said["titled"]) == {}
    recorded(attempt, said["titled"])
    kill_runner(attempt)
    os.kill(said["leader"], signal.SIGKILL)
    until("the leader is gone", lambda: not alive(said["leader"]))
    found = stage.sweep()
    assert found[said["titled"]].proof is Proof.RECORDED
    assert said["grandchild"] in found


def test_a_recorded_session_proves_a_process_that_nothing_else_does(stage: Stage):
    code = (
        "import os, signal\n"
        "say = lambda n: os.write(1, f'{n} {os.getpid()}\\n'.encode())\n"
        "import sys; sys.path.insert(0, os.path.dirname(sys.argv[1])); import actor\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
        "actor.wipe_environment(); say('leader'); signal.sigwait([signal.SIGUSR1])\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    if os.fork() == 0: say('orphan'); signal.pause()\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0); signal.pause()\n"
    )
    attempt = stage.launch([sys.executable, "-I", "-S", "-c", code, actor()[3]])
    leader = attempt.wait_for("leader")["leader"]
    kill_runner(attempt)  # nobody records from here on
    os.kill(leader, signal.SIGUSR1)
    orphan = attempt.wait_for("orphan")["orphan"]
    assert proc.environ(orphan) == {}
    assert proc.stat(orphan).ppid not in (leader, attempt.runner.pid)
    own = stage.own()
    look = processes.sweep(own, stage.home)
    assert {m.id.pid: m.proof for m in look.members}[orphan] is Proof.SESSION
    processes.record(attempt.dir.members, look.members, own.recorded)
    os.kill(leader, signal.SIGKILL)
    until("the leader is gone", lambda: not alive(leader))
    assert stage.sweep()[orphan].proof is Proof.RECORDED


def test_a_process_whose_main_thread_has_exited_is_a_live_member(stage: Stage):
    attempt = stage.launch(actor("headless"))
    pid = attempt.wait_for("headless")["headless"]
    until("the leader's entry is a zombie", lambda: proc.stat(pid).state == "Z")
    kill_runner(attempt)
    attempt.dir.members.unlink()
    member = stage.sweep()[pid]
    assert (member.proof, member.state) == (Proof.TOKEN, "S")
    assert "headless" in member.cmdline
    assert proc.is_alive(member.id)
    processes.signal_members([member], signal.SIGKILL)
    until("it is gone", lambda: not proc.is_alive(member.id))


def test_a_zombie_is_no_member(stage: Stage):
    code = (
        "import os, signal; pid = os.fork(); pid or os._exit(0)\n"
        "print('leader', os.getpid()); print('child', pid, flush=True); signal.pause()"
    )
    said = stage.launch([sys.executable, "-I", "-S", "-c", code]).wait_for("leader", "child")
    until("it is a zombie", lambda: proc.stat(said["child"]).state == "Z")
    assert set(stage.sweep()) == {said["leader"]}
    assert not proc.is_alive(processes.ProcessId(said["child"], proc.start_ticks(said["child"])))


def test_a_stopped_process_is_a_member_and_dies_of_term_and_cont(stage: Stage):
    attempt = stage.launch(actor("hear"))
    leader = attempt.wait_for("leader")["leader"]
    os.kill(leader, signal.SIGSTOP)
    until("it is stopped", lambda: proc.stat(leader).state == "T")
    members = processes.sweep(stage.own(), stage.home).members
    assert [m.state for m in members] == ["T"]
    sent = processes.signal_group(members[0].id, members, signal.SIGTERM, stage.home)
    assert [(s.id.pid, s.sent) for s in sent] == [(leader, True)]
    assert attempt.end()["status"] == 7 << 8


def test_children_that_are_born_and_die_all_the_time_are_all_ended(stage: Stage):
    attempt = stage.launch(actor("hop"))
    attempt.wait_for("leader")
    empty = 0
    deadline_s = time.monotonic() + DEADLINE_S
    while empty < 2:
        members = processes.sweep(stage.own(), stage.home).members
        processes.signal_members(members, signal.SIGKILL)
        empty = 0 if members else empty + 1
        assert time.monotonic() < deadline_s, members
    attempt.wait()


def test_processes_of_an_earlier_attempt_are_the_runs_too(stage: Stage):
    first = stage.launch(actor("daemon-and-gone"), n=1, token="r1:one")
    daemon = first.wait_for("daemon")["daemon"]
    first.end()
    leader = stage.launch(actor("rest"), n=2, token="r1:two").wait_for("leader")["leader"]
    assert set(stage.sweep()) == {daemon, leader}


def test_a_cgroup_holds_what_gave_up_every_other_proof(stage: Stage):
    parent = cgroups.probe()
    if parent is None:
        pytest.skip("no writable cgroup v2 here")
    path = cgroups.create(parent, f"test-{os.getpid()}")
    attempt = stage.launch(actor("titled"), cgroup=str(path))
    try:
        said = attempt.wait_for("leader", "titled", "grandchild")
        kill_runner(attempt)
        attempt.dir.members.unlink()
        os.kill(said["leader"], signal.SIGKILL)
        until("the leader is gone", lambda: not alive(said["leader"]))
        found = stage.sweep()
        assert {found[said[name]].proof for name in ("titled", "grandchild")} == {Proof.CGROUP}
        assert not cgroups.kill(str(path), {said["titled"]})  # somebody else is in it
        assert alive(said["titled"])
        assert cgroups.kill(str(path), set(found))
        until("all are gone", lambda: not cgroups.pids(str(path)))
        assert cgroups.remove(str(path))
    finally:
        for pid in cgroups.pids(str(path)):
            os.kill(pid, signal.SIGKILL)
        cgroups.remove(str(path))


def test_a_run_that_left_processes_and_is_over_has_leftovers(stage: Stage):
    attempt = stage.launch(actor("daemon"))
    said = attempt.wait_for("leader", "daemon")
    stage.home.run("r1").open.touch()
    assert processes.leftovers(stage.home) == ()
    stage.home.run("r1").open.unlink()
    ((name, look),) = processes.leftovers(stage.home)
    assert name == "r1"
    assert {m.id.pid for m in look.members} == set(said.values())


def test_an_owner_is_told_by_proof_for_processes_of_here_and_by_token_for_those_of_elsewhere(stage: Stage):
    here = stage.launch(actor("rest")).wait_for("leader")["leader"]
    elsewhere = stage.decoy(["sleep", "1000"], env={**os.environ, "SUPERVISE_TOKEN": "far-away:1"})
    stranger = stage.decoy(["sleep", "1000"])
    owners = processes.Owners(stage.home)
    assert owners.of(here) == (Owner.RUN, "r1")
    assert owners.of(elsewhere.pid) == (Owner.FOREIGN, "far-away")
    assert owners.of(stranger.pid) == (Owner.FOREIGN, None)
    assert owners.of(2**22 + 1) == (Owner.UNKNOWN, None)
    assert processes.owner_of(here, stage.home) == (Owner.RUN, "r1")
