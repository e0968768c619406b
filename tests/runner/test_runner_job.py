"""The runner with real jobs: the claim, the output, the end."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from attempts import Stage, actor, alive, read, until

from supervisor.edges import proc

pytestmark = pytest.mark.real


def test_of_many_runners_one_starts_the_job_and_the_others_touch_nothing(stage: Stage):
    ran = stage.root / "ran"
    folder = stage.prepare(["sh", "-c", f"echo once >> {ran}"])
    runners = [stage.runner(folder) for _ in range(12)]
    codes = sorted(one.wait() for one in runners)
    assert codes == [0] + [3] * 11
    assert ran.read_text() == "once\n"
    names = sorted(p.name for p in folder.path.iterdir())
    assert names == ["claim", "exit.json", "launch.json", "members.jsonl", "output.log"]


def test_a_runner_that_comes_after_the_supervisors_claim_touches_nothing(stage: Stage):
    folder = stage.prepare(["sh", "-c", "echo started"])
    folder.claim.write_text('{"by":"supervisor","pid":1,"start_ticks":1,"boot_id":"x"}')
    assert stage.runner(folder).wait() == 3
    assert sorted(p.name for p in folder.path.iterdir()) == ["claim", "launch.json"]
    assert read(folder.claim)["by"] == "supervisor"


def test_the_claim_names_the_runner_by_pid_start_ticks_and_boot(stage: Stage):
    attempt = stage.launch(actor("rest"))
    attempt.wait_for("leader")
    pid = attempt.runner.pid
    expected = {"by": "runner", "pid": pid, "start_ticks": proc.start_ticks(pid), "boot_id": proc.boot_id()}
    assert read(attempt.dir.claim) == expected


def test_an_attempt_that_cannot_be_read_is_not_claimed(stage: Stage):
    folder = stage.prepare(["true"])
    stage.home.run("r1").secrets.unlink()
    attempt = stage.runner(folder)
    assert attempt.wait() == 1
    assert b"not started" in attempt.runner.stderr.read()
    assert not folder.claim.exists()


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 3"], 3 << 8),
        (["sh", "-c", "kill -9 $$"], 9),
        (["sh", "-c", "kill -TERM $$"], 15),
        (["sh", "-c", "sh -c 'kill -9 $$'; exit $?"], 137 << 8),
    ],
)
def test_the_raw_wait_status_is_kept_in_every_form_of_death(stage: Stage, command: list[str], status: int):
    attempt = stage.launch(command)
    end = attempt.end()
    assert (end["status"], end["trouble"]) == (status, "")
    leader = attempt.members()[0]
    assert (end["pid"], end["start_ticks"]) == (leader["pid"], leader["start_ticks"])
    assert end["boot_id"] == proc.boot_id()
    assert attempt.wait() == 0


@pytest.mark.parametrize(
    ("name", "mode", "status", "why"),
    [
        ("no-such-command-here", None, 127, "not found in PATH"),
        ("./missing", None, 127, "no such file"),
        ("./plain", 0o644, 126, "Permission denied"),
        ("./orphan", 0o755, 127, "the interpreter that it names is not"),
        ("./noformat", 0o755, 126, "Exec format error"),
    ],
)
def test_a_command_that_cannot_be_executed_ends_with_the_reason(stage: Stage, name, mode, status, why):
    if mode is not None:
        path = stage.root / name
        path.write_text("#!/no/such/interpreter\n" if "orphan" in name else "\0junk")
        path.chmod(mode)
    attempt = stage.launch([name])
    end = attempt.end()
    assert end["status"] == status << 8
    assert why in end["trouble"]
    assert why in attempt.dir.output.read_text()


def test_a_working_directory_that_is_not_there_is_named(stage: Stage):
    attempt = stage.launch(["true"], cwd="/no/such/place")
    assert attempt.end()["trouble"] == "cannot enter /no/such/place: No such file or directory"


def test_no_fast_exit_is_lost(stage: Stage):
    attempts = []
    for n in range(1, 21):
        attempts.append(stage.launch(["sh", "-c", f"exit {n}"], n=n))
        if n % 4 == 0:
            assert [one.wait() for one in attempts[-4:]] == [0] * 4
    assert [one.end()["status"] >> 8 for one in attempts] == list(range(1, 21))


def test_every_line_of_a_burst_is_in_the_output_when_the_end_is_known(stage: Stage):
    attempt = stage.launch([sys.executable, "-I", "-S", "-c", "for n in range(200000): print('line', n)"])
    attempt.end()
    lines = attempt.dir.output.read_text().splitlines()
    assert len(lines) == 200_000
    assert lines[-1] == "line 199999"


def test_a_pane_that_nobody_reads_does_not_hold_up_the_job(stage: Stage):
    read_end, write_end = os.pipe()
    try:
        folder = stage.prepare([sys.executable, "-I", "-S", "-c", "for n in range(400000): print('line', n)"])
        attempt = stage.runner(folder, stdout=write_end)
        assert attempt.end()["status"] == 0
        assert attempt.wait() == 0
        assert folder.output.stat().st_size > 4_000_000
    finally:
        os.close(read_end)
        os.close(write_end)


def test_a_pane_that_goes_away_is_not_the_jobs_end(stage: Stage):
    read_end, write_end = os.pipe()
    folder = stage.prepare(["sh", "-c", "echo one; read x < go; echo two"])
    os.mkfifo(stage.root / "go")
    attempt = stage.runner(folder, stdout=write_end)
    os.close(write_end)
    assert os.read(read_end, 100)  # it showed something
    os.close(read_end)
    (stage.root / "go").write_text("\n")
    assert attempt.end()["status"] == 0
    assert folder.output.read_text() == "one\ntwo\n"


def test_the_pane_shows_what_the_job_prints(stage: Stage):
    folder = stage.prepare(["sh", "-c", "echo hello from the job"])
    attempt = stage.runner(folder, stdout=subprocess.PIPE)
    text = attempt.runner.stdout.read().decode()
    attempt.runner.stdout.close()
    assert "hello from the job\n" in text
    assert "the job has ended: exit code 0" in text


def test_the_output_is_appended_to(stage: Stage):
    folder = stage.prepare(["echo", "new"], output=str(stage.root / "own.log"))
    (stage.root / "own.log").write_text("old\n")
    stage.runner(folder).end()
    assert (stage.root / "own.log").read_text() == "old\nnew\n"


def test_a_terminal_is_given_when_asked_for_and_its_text_is_whole(stage: Stage):
    code = "import sys, os; print(sys.stdout.isatty(), os.isatty(0)); [print(n) for n in range(20000)]"
    attempt = stage.launch([sys.executable, "-I", "-S", "-c", code], pty=True)
    assert attempt.end()["status"] == 0
    lines = attempt.dir.output.read_bytes().split(b"\n")
    assert lines[0] == b"True False"
    assert lines[-2:] == [b"19999", b""]
    assert len(lines) == 20002


def test_a_killed_runner_leaves_the_job_running(stage: Stage):
    attempt = stage.launch(actor("workers", "2"))
    said = attempt.wait_for("leader", "worker0", "worker1")
    os.kill(attempt.runner.pid, signal.SIGKILL)
    attempt.runner.wait()
    assert all(alive(pid) for pid in said.values())
    assert not attempt.dir.exit_json.exists()


def test_the_runner_ignores_what_a_terminal_sends_and_the_job_does_not(stage: Stage):
    os.mkfifo(stage.root / "go")
    attempt = stage.launch(["sh", "-c", "grep SigIgn /proc/self/status; grep SigBlk /proc/self/status; read x < go"])
    until("the job has started", lambda: "SigBlk" in attempt.text())
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGPIPE"):
        os.kill(attempt.runner.pid, getattr(signal, name))
    (stage.root / "go").write_text("\n")
    assert attempt.end()["status"] == 0
    masks = [line.split()[1] for line in attempt.dir.output.read_text().splitlines()]
    assert masks == ["0" * 16, "0" * 16]


def test_the_jobs_environment_is_exactly_what_was_written_down(stage: Stage):
    job = {"HOME": "/h", "A": "1", "B": "2"}
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    attempt = stage.launch([sys.executable, "-I", "-S", "-c", code], job=job, env={"B": "3"}, token="r1:abc")
    attempt.end()
    found = json.loads(attempt.dir.output.read_text())
    found.pop("LC_CTYPE", None)  # Python sets it for itself under the C locale
    assert found == {
        "PATH": os.environ["PATH"],
        "HOME": "/h",
        "A": "1",
        "B": "3",
        "SUPERVISE_TOKEN": "r1:abc",
        "PYTHONUNBUFFERED": "1",
    }


def test_the_job_leads_its_own_session_with_no_open_files_but_its_output(stage: Stage):
    leak = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leak, True)
    code = (
        "import os; fds = {n: os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') "
        "if os.path.lexists(f'/proc/self/fd/{n}')}; print(os.getpid() == os.getsid(0) == os.getpgid(0)); print(fds)"
    )
    try:
        folder = stage.prepare([sys.executable, "-I", "-S", "-c", code])
        assert stage.runner(folder, close_fds=False).wait() == 0
    finally:
        os.close(leak)
    first, second = folder.output.read_text().splitlines()
    assert first == "True"
    output = str(folder.output)
    assert eval(second) == {"0": "/dev/null", "1": output, "2": output}


def test_umask_and_limits_are_the_runs_own(stage: Stage):
    soft = min(777, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    attempt = stage.launch(["sh", "-c", "umask; ulimit -n"], umask=0o027, rlimits={"NOFILE": [soft, soft]})
    attempt.end()
    assert attempt.dir.output.read_text().split() == ["0027", str(soft)]


def test_the_end_is_written_before_the_last_child_is_gone_and_the_runner_stays_for_it(stage: Stage):
    attempt = stage.launch(actor("daemon-and-gone"))
    daemon = attempt.wait_for("daemon")["daemon"]
    assert attempt.end()["status"] == 0
    assert proc.stat(daemon).ppid == attempt.runner.pid
    assert attempt.runner.poll() is None
    os.kill(daemon, signal.SIGKILL)
    assert attempt.wait() == 0


def test_a_job_whose_main_thread_has_exited_has_not_ended(stage: Stage):
    attempt = stage.launch(actor("headless"))
    pid = attempt.wait_for("headless")["headless"]
    until("the leader's entry is a zombie", lambda: proc.stat(pid).state == "Z")
    until("two more looks", lambda: attempt.members()[-1]["pid"] == pid)
    assert not attempt.dir.exit_json.exists()
    assert attempt.runner.poll() is None


def test_the_end_is_written_as_soon_as_the_disk_has_room_again(stage: Stage):
    attempt = stage.launch(actor("rest"))
    leader = attempt.wait_for("leader")["leader"]
    hard = resource.prlimit(attempt.runner.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(attempt.runner.pid, resource.RLIMIT_FSIZE, (0, hard))  # every write fails from now on
    os.kill(leader, signal.SIGKILL)
    until("the leader was reaped", lambda: proc.stat(leader) is None)
    assert not attempt.dir.exit_json.exists()
    assert attempt.runner.poll() is None
    resource.prlimit(attempt.runner.pid, resource.RLIMIT_FSIZE, (hard, hard))
    assert attempt.end()["status"] == 9
    assert attempt.wait() == 0
    assert not [p for p in attempt.dir.path.iterdir() if p.name.endswith(".tmp")]


def test_a_job_without_a_log_is_not_started_and_says_so(stage: Stage):
    folder = stage.prepare(["touch", str(stage.root / "ran")], output="/no/such/folder/out.log")
    attempt = stage.runner(folder)
    assert "cannot write /no/such/folder/out.log" in attempt.end()["trouble"]
    assert not (stage.root / "ran").exists()


def test_an_attempt_whose_folder_is_taken_away_does_not_keep_its_runner(stage: Stage):
    attempt = stage.launch(actor("rest"))
    leader = attempt.wait_for("leader")["leader"]
    attempt.dir.path.rename(stage.root / "taken")
    os.kill(leader, signal.SIGKILL)
    assert attempt.wait() == 0


def test_the_runner_is_small(stage: Stage):
    attempt = stage.launch(actor("rest"))
    attempt.wait_for("leader")
    until("its first looks are over", lambda: len(attempt.members()) >= 1)
    status = Path(f"/proc/{attempt.runner.pid}/status").read_text()
    resident_kib = int(status.split("VmRSS:")[1].split()[0])
    assert resident_kib <= 16 * 1024
