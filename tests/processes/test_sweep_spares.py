"""Nothing that is not proven to be the run's is ever a member, however much it looks like one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from attempts import Stage, actor, alive, until

from supervisor import runner
from supervisor.core.evidence import Member, ProcessId, Proof
from supervisor.edges import boundaries, proc, processes
from supervisor.edges.boundaries import Bound, Boundaries

pytestmark = pytest.mark.real


def test_a_decoy_with_the_same_argv_is_not_touched(stage: Stage):
    leader = stage.launch(actor("rest")).wait_for("leader")["leader"]
    decoy = stage.decoy(actor("rest"))
    until("it looks the same", lambda: proc.argv(decoy.pid) == proc.argv(leader))
    assert set(stage.sweep()) == {leader}


@pytest.mark.parametrize("like", ["{}0", "x{}", "", "{0} {0}", "r1:", "r1"])
def test_a_token_counts_only_when_it_is_equal(stage: Stage, like: str):
    token = like.format(stage.token())
    leader = stage.launch(actor("rest")).wait_for("leader")["leader"]
    stage.decoy(["sleep", "1000"], env={**os.environ, "SUPERVISE_TOKEN": token})
    near = {"X_SUPERVISE_TOKEN": stage.token(), "X": f"SUPERVISE_TOKEN={stage.token()}"}
    stage.decoy(["sleep", "1000"], env={**os.environ, **near})
    assert set(stage.sweep()) == {leader}


def test_runs_whose_names_begin_alike_keep_apart(stage: Stage):
    one = stage.launch(actor("workers", "2"), run="r1").wait_for("leader", "worker0", "worker1")
    ten = stage.launch(actor("workers", "2"), run="r10").wait_for("leader", "worker0", "worker1")
    assert set(stage.sweep("r1")) == set(one.values())
    assert set(stage.sweep("r10")) == set(ten.values())


def test_a_process_of_another_run_below_ours_is_the_other_runs(stage: Stage):
    other = ["env", "SUPERVISE_TOKEN=r2:another", *actor("titled")]
    said = stage.launch(actor("exec", *other)).wait_for("leader", "titled", "grandchild")
    leader = proc.stat(proc.stat(said["titled"]).ppid).ppid
    assert set(stage.sweep()) == {leader}  # the titled ones have no token any more: their nearest ancestor's counts


def test_another_runs_runner_below_ours_ends_what_is_ours(stage: Stage):
    inner = stage.prepare(actor("titled"), run="r2")
    outer = stage.launch(actor("exec", *runner.command(str(inner.path))), run="r1")
    leader = outer.wait_for("leader")["leader"]
    until("the inner run is in place", lambda: inner.output.exists() and "grandchild" in inner.output.read_text())
    assert set(stage.sweep("r1")) == {leader}
    assert len(stage.sweep("r2")) == 3


def test_a_job_whose_runner_died_inside_another_run_is_still_its_own_runs(stage: Stage):
    inner = stage.prepare(actor("workers", "1"), run="r2")
    outer = stage.launch(actor("exec", *runner.command(str(inner.path))), run="r1")
    leader = outer.wait_for("leader")["leader"]
    until("the inner run is in place", lambda: inner.output.exists() and "worker0" in inner.output.read_text())
    own = stage.own("r2")
    os.kill(own.runner.pid, signal.SIGKILL)
    until("its runner is gone", lambda: not proc.is_alive(own.runner))
    assert set(stage.sweep("r1")) == {leader}
    assert len(stage.sweep("r2")) == 2


def test_a_tmux_server_that_the_job_started_is_spared_with_all_its_panes(stage: Stage):
    sock = stage.root / "tmux.sock"
    tmux = ["tmux", "-f", "/dev/null", "-S", str(sock)]
    attempt = stage.launch(
        ["sh", "-c", f"{' '.join(tmux)} new-session -d 'exec sleep 1000'; echo leader $$; exec sleep 999"]
    )
    leader = attempt.wait_for("leader")["leader"]
    asked = subprocess.run(
        [*tmux, "display-message", "-p", "#{pid} #{pane_pid}"], capture_output=True, text=True, timeout=30, check=True
    )
    server, pane = map(int, asked.stdout.split())
    try:
        until("it carries our token", lambda: (proc.environ(pane) or {}).get("SUPERVISE_TOKEN") == stage.token())
        until("it is below our runner", lambda: proc.stat(server).ppid == attempt.runner.pid)
        assert boundaries.listener(sock) == server
        assert set(stage.sweep()) == {leader}
    finally:
        subprocess.run([*tmux, "kill-server"], timeout=30, check=True)


def test_a_process_that_listens_on_our_tmux_socket_is_a_terminal_whatever_it_is_called(stage: Stage):
    code = (
        "import os, socket, sys, signal; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\n"
        "print('listener', os.getpid(), flush=True); signal.pause()"
    )
    attempt = stage.launch([sys.executable, "-I", "-S", "-c", code, str(stage.home.tmux_sock)])
    listener = attempt.wait_for("listener")["listener"]
    assert Boundaries(stage.home).of(listener) is Bound.TERMINAL
    assert stage.sweep() == {}


def test_a_supervisor_that_was_started_in_the_runs_own_pane_lives_with_all_below_it(stage: Stage):
    lock = stage.home.run("r1").lock
    attempt = stage.launch(actor("exec", *actor("hold-lock", str(lock))))
    said = attempt.wait_for("leader", "lock-holder", "below-lock")
    assert proc.environ(said["lock-holder"])["SUPERVISE_TOKEN"] == stage.token()
    assert set(stage.sweep()) == {said["leader"]}


def test_an_open_lock_file_alone_makes_no_supervisor(stage: Stage):
    lock = stage.home.run("r1").lock
    lock.parent.mkdir(parents=True)
    lock.touch()
    attempt = stage.launch(["sh", "-c", f"exec {' '.join(actor('writer', str(stage.root / 'f'), str(lock)))}"])
    writer = attempt.wait_for("writer")["writer"]
    assert set(stage.sweep()) == {writer}


@pytest.mark.parametrize(
    ("words", "own"),
    [
        (["-I", "-m", "supervisor.guardian"], True),
        (["-I", "-m", "supervisor.loop", "r1"], True),
        (["-m", "supervisor.supervise_run", "r1"], True),
        (["-m", "supervisor.cli.up", "x.yaml"], True),
        (["-X", "utf8", "-m", "supervisor", "up"], True),
        (["-I", "-m", "supervisor.edges.gpus_helper", "--wake", "3"], True),
        (["-m", "supervisor.simulation.trainer"], False),
        (["-m", "supervisor.supervisord"], False),
        (["train.py", "-m", "supervisor.guardian"], False),
        (["-c", "x", "-m", "supervisor.guardian"], False),
        (["supervise_all.py"], False),
        ([], False),
    ],
)
def test_our_own_processes_are_known_by_the_module_that_runs(words: list[str], own: bool):
    assert boundaries.is_own(("/usr/bin/python3", *words)) is own


def test_a_trainer_in_a_file_called_runner_py_is_no_runner(stage: Stage):
    folder = stage.root / "supervisor"
    folder.mkdir()
    script = folder / "runner.py"
    script.write_text("import os, signal; print('trainer', os.getpid(), flush=True); signal.pause()")
    attempt = stage.launch([sys.executable, "-I", "-S", str(script), str(stage.root)])
    trainer = attempt.wait_for("trainer")["trainer"]
    assert set(stage.sweep()) == {trainer}


def test_a_console_script_is_ours_only_when_it_starts_our_verbs(tmp_path: Path):
    script = tmp_path / "supervise"
    script.write_text("#!/usr/bin/python3\nfrom supervisor.cli import main\nmain()\n")
    assert boundaries.is_own(("/usr/bin/python3", str(script), "up"))
    script.write_text("#!/usr/bin/python3\nprint('something else of that name')\n")
    assert not boundaries.is_own(("/usr/bin/python3", str(script), "up"))


def test_the_one_who_asks_and_its_ancestors_are_spared(stage: Stage):
    code = (
        "import os, sys, json; sys.path[:0] = json.loads(sys.argv[1])\n"
        "from pathlib import Path\n"
        "from supervisor.edges import processes; from supervisor.edges.paths import Home\n"
        "home = Home(Path(sys.argv[2])); own = processes.ownership_of(home.run('r1'))\n"
        "found = [m.id.pid for m in processes.sweep(own, home).members]\n"
        "print('found', found, flush=True); print('asker', os.getpid(), flush=True)\n"
    )
    script = stage.root / "ask.py"
    script.write_text(code)
    paths = json.dumps([p for p in sys.path if p])
    shell = 'sleep 1000 & echo sleeper $!; until [ -e go ]; do sleep 0.01; done; "$@"; wait'
    script_argv = [sys.executable, "-I", str(script), paths, str(stage.root)]
    folder = stage.prepare(["bash", "-c", shell, "job", *script_argv])
    attempt = stage.runner(folder)
    sleeper = attempt.wait_for("sleeper")["sleeper"]
    until("the record is there", lambda: attempt.members())
    (stage.root / "go").touch()
    attempt.wait_for("asker")
    assert f"found [{sleeper}]" in attempt.text()


def test_a_reused_number_is_not_signalled(stage: Stage):
    last_pid = Path("/proc/sys/kernel/ns_last_pid")
    if not os.access(last_pid, os.W_OK):
        pytest.skip("numbers cannot be chosen here")
    attempt = stage.launch(actor("rest"))
    leader = attempt.wait_for("leader")["leader"]
    members = processes.sweep(stage.own(), stage.home).members
    ownership = stage.own()
    os.kill(leader, signal.SIGKILL)
    attempt.wait()
    innocent = None
    for _ in range(200):
        newest = last_pid.read_text()
        last_pid.write_text(str(leader - 1))
        innocent = stage.decoy(["sleep", "1000"], start_new_session=True)
        last_pid.write_text(newest)  # else other tests would get the numbers of their dead anew
        if innocent.pid == leader:
            break
        innocent.kill()
        innocent.wait()
    assert innocent is not None
    if innocent.pid != leader:
        pytest.skip("another process was always faster")
    assert processes.sweep(ownership, stage.home).members == ()
    (said,) = processes.signal_members(members, signal.SIGKILL)
    assert (said.sent, said.why) == (False, "the number belongs to another process now")
    assert processes.signal_group(members[0].id, members, signal.SIGKILL, stage.home) == ()
    assert processes.watch(members[0].id) is None
    assert alive(innocent.pid)


def test_names_from_another_boot_are_not_signalled(stage: Stage):
    innocent = stage.decoy(["sleep", "1000"])
    named = Member(ProcessId(innocent.pid, proc.start_ticks(innocent.pid)), "sleep", Proof.RECORDED, "S")
    (said,) = processes.signal_members([named], signal.SIGKILL, boot_id="another")
    assert not said.sent
    assert alive(innocent.pid)


def test_records_of_another_boot_prove_nothing(stage: Stage):
    innocent = stage.decoy(["sleep", "1000"], start_new_session=True)
    ticks = proc.start_ticks(innocent.pid)
    recorded = (processes.Recorded(ProcessId(innocent.pid, ticks), innocent.pid),)
    this = processes.Ownership("r1", stage.token(), recorded=recorded)
    assert [m.id.pid for m in processes.sweep(this, stage.home).members] == [innocent.pid]
    runner_like = ProcessId(os.getpid(), proc.start_ticks(os.getpid()))
    other = processes.Ownership("r1", stage.token(), runner=runner_like, recorded=recorded, boot_id="another")
    assert processes.sweep(other, stage.home).members == ()


def test_a_session_number_alone_proves_nothing(stage: Stage):
    innocent = stage.decoy(["sleep", "1000"], start_new_session=True)
    gone = processes.Recorded(ProcessId(innocent.pid, 1), innocent.pid)  # an earlier process of that number
    ownership = processes.Ownership("r1", stage.token(), recorded=(gone,))
    assert processes.sweep(ownership, stage.home).members == ()


def test_the_command_lines_of_members_show_no_secret(stage: Stage):
    attempt = stage.launch([*actor("rest"), "--key=sekret-value"], job={"API_KEY": "sekret-value"}, redact=["API_KEY"])
    attempt.wait_for("leader")
    (member,) = processes.sweep(stage.own(), stage.home).members
    assert member.cmdline.endswith("--key=<secret>")
    assert "sekret" not in attempt.dir.members.read_text()
    assert "sekret" not in repr(stage.own())
