"""The fine print of the contract with real jobs: ends, params, environment, secrets, terminals. No GPU."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from boxes import Box, Night, is_alive, until

from supervisor.edges import proc

pytestmark = pytest.mark.real

STEPS = 'i=0; while [ "$i" -lt "${STEPS:-100000}" ]; do i=$((i+1)); echo "step $i"; sleep 0.02; done; exit "${CODE:-0}"'
PROGRESS = r"health: {progress: {log: 'step (?P<step>\d+)'}}" + "\n"
QUICK = "recovery: {stop: {grace: 2s}, backoff: {first: 100ms}}\n"
TELL = """\
import json, os, sys
told = {
    "argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(),
    "stdin": os.readlink("/proc/self/fd/0"), "tty": os.isatty(1), "fds": sorted(os.listdir("/proc/self/fd")),
    "is_leader": os.getsid(0) == os.getpid(), "python": sys.executable,
}
with open("told.json.tmp", "w") as file:
    json.dump(told, file)
os.replace("told.json.tmp", "told.json")
"""


def told(box: Box) -> dict[str, Any]:
    """What the job of `teller` saw."""
    path = box.work / "told.json"
    found: dict[str, Any] = json.loads(until(lambda: path.exists() and path.read_text(), "the job tells"))
    path.unlink()
    return found


def teller(box: Box, name: str, more: str = "", then: str = "") -> Path:
    """A spec whose job writes told.json, then does `then`."""
    box.write("tell.py", TELL)
    return box.spec(name, f'{sys.executable} tell.py "$@"\n{then}', more)


def ends(night: Night) -> list[tuple[str, str]]:
    """How each attempt ended, and what was done about it."""
    attempts = night.history()["attempts"]
    return [(one["end"]["kind"], one["decision"]["do"]) for one in attempts if one["end"] and one["decision"]]


# ── ends ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_unexplained_end_is_tried_twice_with_growing_waits_then_halts(box: Box) -> None:
    night = box.up(box.spec("a", "exit 7", QUICK))
    night.wait(9)
    assert ends(night) == [("exit", "relaunch"), ("exit", "relaunch"), ("exit", "halted")]
    first, second = (record["data"]["wait_s"] for record in night.records("BackoffBegan"))
    assert 0.1 <= first <= 0.11 and 0.4 <= second <= 0.44, "first, then four times that, up to 10 % more"
    assert "supervise up" in night.history()["attempts"][-1]["decision"]["next"]
    assert [one["data"]["argv"] for one in night.records("LaunchIntended")] == [[str(box.work / "a.sh")]] * 3


DONE = [
    (f"STEPS=4; {STEPS}", "done: {step: 4}\n" + PROGRESS, 0, ["none"]),
    (f"STEPS=3; {STEPS}", "done: {step: 4}\n" + PROGRESS, 9, ["exit"] * 3),
    ("touch $0.done", "done: {file: run2.sh.done}\n", 0, ["none"]),
    ("true", "done: {file: run3.sh.done}\n", 9, ["exit"] * 3),
    ("touch $0.done; exit 1", "done: {file: run4.sh.done}\n", 9, ["exit"] * 3),
    ("echo training complete", "done: {log: training complete}\n", 0, ["none"]),
    ("echo training", "done: {log: training complete}\n", 9, ["exit"] * 3),
    ("echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.'", "", 9, ["gpu_oom"]),
    ("kill -SEGV $$", "", 9, ["segfault"] * 4),
]
"""What the job does, what the spec says of it, what `wait` returns, how the attempts ended."""


def test_done_decides_what_finished_means(box: Box) -> None:
    quick = "recovery: {backoff: {first: 1ms, cap: 1ms}}\n"
    nights = [box.up(box.spec(f"run{n}", script, more + quick)) for n, (script, more, _, _) in enumerate(DONE)]
    for night, (script, _, code, kinds) in zip(nights, DONE, strict=True):
        night.wait(code)
        assert [kind for kind, _ in ends(night)] == kinds, script


def test_a_job_that_was_killed_is_launched_as_it_was(box: Box) -> None:
    night = box.up(box.spec("a", STEPS, PROGRESS + QUICK))
    for attempt, (number, kind) in enumerate([(signal.SIGKILL, "killed"), (signal.SIGTERM, "preempted")], start=1):
        leader = night.leader(attempt)
        night.until("FirstProgress", attempt=attempt)
        os.kill(leader, number)
        night.until("LaunchIntended", attempt=attempt + 1)
        end = night.history()["attempts"][attempt - 1]["end"]
        assert (end["kind"], end["signal"], end["code"]) == (kind, number, None)
    night.until("FirstProgress", attempt=3)


def test_a_job_that_stops_making_steps_hangs_and_one_that_never_makes_one_times_out(box: Box) -> None:
    never = r"health: {startup_timeout: 300ms, progress: {log: 'step (?P<step>\d+)'}}" + "\n"
    stalls = r"health: {progress: {log: 'step (?P<step>\d+)', stall: 300ms}}" + "\n"
    night = box.up(box.spec("slow", "sleep 1000", never + QUICK))
    stuck = box.up(box.spec("stuck", "echo step 1; sleep 1000", stalls + QUICK))
    night.wait(9)
    assert ends(night) == [("startup_timeout", "relaunch"), ("startup_timeout", "halted")]
    stuck.until("LaunchIntended", attempt=2)
    assert ends(stuck)[0] == ("hang", "relaunch")
    stopped = stuck.history()["attempts"][0]["stopped"]
    assert {one["by"] for one in stopped} == {"policy"} and any("sleep 1000" in one["cmdline"] for one in stopped)


def test_everybody_of_the_run_is_ended_and_nobody_else(box: Box) -> None:
    script = """
        trap '' TERM
        setsid sh -c 'trap "" TERM HUP; while true; do sleep 1000; done' &
        env -i setsid sleep 1001 &
        (setsid setsid sleep 1002 &)
        echo step 1
        while true; do sleep 1003; done
    """
    other = subprocess.Popen(["sleep", "1001"], cwd=box.root)
    try:
        night = box.up(box.spec("a", script, PROGRESS + "recovery: {stop: {grace: 200ms}}\n"))
        night.until("FirstProgress")
        wanted = {"sleep 1000", "sleep 1001", "sleep 1002", "sleep 1003"}

        def ours() -> dict[int, str]:
            return {pid: cmdline for pid, cmdline in box.everybody().items() if pid != other.pid}

        until(lambda: wanted <= set(ours().values()), "they are all there")
        members = [pid for pid, cmdline in ours().items() if cmdline in wanted]
        night.down()
        assert not [pid for pid in members if is_alive(pid)]
        assert other.poll() is None, "never matched by name"
        stopped = {one["pid"]: one["by"] for one in night.history()["attempts"][0]["stopped"]}
        assert set(members) <= stopped.keys() and set(stopped.values()) == {"user"}
    finally:
        other.kill()
        other.wait()


# ── params ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_params_reach_the_job_in_each_style(box: Box) -> None:
    params = (
        "protected: {anchors: 1024, use_x: true, no_y: false, lrs: [1e-4, 012]}, knobs: {mb: {value: 8, ladder: [4]}}"
    )
    argv = {
        "argparse": ["--anchors", "1024", "--use-x", "--lrs", "1e-4", "--lrs", "012", "--mb", "8"],
        "hydra": ["anchors=1024", "use_x=true", "no_y=false", "lrs=[1e-4,012]", "mb=8"],
        "env": [],
    }
    for style, wanted in argv.items():
        box.up(teller(box, style, f"params: {{style: {style}, {params}}}\n"))
        seen = told(box)
        assert seen["argv"] == wanted, style
        if style == "env":
            assert seen["env"]["ANCHORS"] == "1024" and seen["env"]["MB"] == "8"
    spec = box.write(
        "template.yaml",
        "version: 1\nname: template\n"
        "command: [python3, tell.py, '--a=${{ params.anchors }}', '${{ files.conf }}', '${{ run.name }}']\n"
        "params: {style: template, protected: {anchors: 1024}, knobs: {mb: {value: 8, ladder: [4]}}}\n"
        "files: {conf: {from: conf.yaml, set: {train.mb: '${{ params.mb }}'}}}\n",
    )
    box.write("conf.yaml", "# kept\ntrain:\n  mb: 64  # the batch\n  lr: 1e-4\n")
    night = box.up(spec)
    flag, conf, name = told(box)["argv"]
    assert (flag, name) == ("--a=1024", "template")
    assert Path(conf).parent == night.dir.attempt(1).files
    assert Path(conf).read_text() == "# kept\ntrain:\n  mb: 8  # the batch\n  lr: 1e-4\n"
    assert "mb: 64" in (box.work / "conf.yaml").read_text(), "the user's file is not touched"


def test_a_trainer_whose_start_script_changed_a_protected_param_is_stopped(box: Box) -> None:
    box.write("train.py", "import time\nprint('step 1', flush=True)\ntime.sleep(1000)\n")
    night = box.up(
        box.spec(
            "a",
            'python3 train.py --anchors 512 --block-size 32 "$3"',
            "params: {protected: {anchors: 1024, block_size: 32}}\n" + PROGRESS + QUICK,
        )
    )
    night.wait(9)
    assert ends(night) == [("protected_violation", "halted")]
    because = night.history()["attempts"][0]["decision"]["because"]
    assert "anchors" in because and "512" in because and "1024" in because and "pid" in because
    assert night.status()["last_failure"]["kind"] == "protected_violation"
    assert not any("train.py" in cmdline for cmdline in box.everybody().values())


def test_a_variable_of_the_trainer_that_changed_a_protected_param_is_a_violation(box: Box) -> None:
    more = "params: {style: env, protected: {anchors: 1024}}\n" + PROGRESS + QUICK
    box.write("train.sh", "#!/bin/sh\necho step 1\nexec sleep 1000\n", 0o755)
    spec = box.write("a.yaml", f"version: 1\nname: a\ncommand: [env, ANCHORS=512, {box.work}/train.sh]\n{more}")
    night = box.up(spec)
    night.wait(9)
    assert ends(night) == [("protected_violation", "halted")]
    assert "ANCHORS" in night.status()["because"]


def test_another_process_that_names_a_protected_param_is_only_warned_of(box: Box) -> None:
    night = box.up(
        box.spec(
            "a",
            "sh -c 'while true; do sleep 0.1; done' tool --anchors 512 & " + STEPS,
            "params: {protected: {anchors: 1024, block_size: 32}}\n" + PROGRESS + QUICK,
        )
    )
    until(lambda: [one for one in night.records("Warned") if "anchors" in one["data"]["text"]], "it is warned of")
    assert night.status()["phase"] == "running"
    assert any("anchors" in one for one in night.status()["warnings"])


def test_a_config_file_that_no_longer_says_the_protected_value_is_not_launched_with(box: Box) -> None:
    box.write("conf.yaml", "optim: {lr: 0.0001}\n")
    more = "params: {protected: {'conf.yaml:optim.lr': 1e-4}}\n" + PROGRESS + QUICK
    spec = box.spec("a", STEPS, more)
    night = box.up(spec)
    night.until("FirstProgress")
    box.write("conf.yaml", "optim: {lr: 0.0002}\n")
    os.kill(night.leader(), signal.SIGKILL)
    night.wait(9)
    assert night.status()["last_failure"]["kind"] == "protected_violation"
    assert "optim.lr" in night.status()["because"] and "conf.yaml" in night.status()["because"]
    assert not night.dir.attempt(2).output.exists(), "no job was started"
    said = box.supervise("up", "-d", str(spec), code=7)
    assert "optim.lr" in said.err
    box.write("conf.yaml", "optim: {lr: 1.0e-4}\n")
    box.supervise("up", "-d", str(spec), code=0)


# ── environment ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_jobs_environment_is_that_of_up_and_no_other(box: Box) -> None:
    (box.work / "job").mkdir()
    spec = teller(box, "a", "workdir: job\nenv: {FROM_SPEC: '1', OVER: spec}\nenv_file: job.env\n" + QUICK, STEPS)
    (box.work / "tell.py").rename(box.work / "job" / "tell.py")
    box.write("job/job.env", "# comment\nexport FROM_FILE='a b'\nOVER=file\n")
    given = {"MINE": "of up", "TMUX": "/tmp/x,1,0", "TMUX_PANE": "%1", "SUPERVISE_EXTRA": "no", "OVER": "up"}
    given |= {"PYTHONPATH": "/nosuch/path", "LANG": "C.UTF-8"}
    path, box.work = box.work, box.work / "job"
    night = box.up(spec, **given)
    seen = told(box)
    env = seen["env"]
    wanted = {
        name: value for name, value in (box.environ | given).items() if not name.startswith(("TMUX", "SUPERVISE_"))
    }
    wanted |= {"FROM_SPEC": "1", "FROM_FILE": "a b", "OVER": "spec", "PYTHONUNBUFFERED": "1"}
    env.pop("SUPERVISE_TOKEN")
    for name in ("PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"):  # the shell's own
        env.pop(name, None)
        wanted.pop(name, None)
    assert env == wanted
    assert (seen["cwd"], seen["stdin"], seen["tty"]) == (str(path / "job"), "/dev/null", False)
    assert len(seen["fds"]) == 4, "0, 1, 2 and the listing's own"
    leader = proc.stat(night.leader())
    assert leader is not None and leader.sid == leader.pid
    os.kill(night.until_supervised(), signal.SIGKILL)
    os.kill(night.leader(), signal.SIGKILL)
    night.until("LaunchIntended", attempt=2)
    again = told(box)["env"]
    again.pop("SUPERVISE_TOKEN")
    assert {name: value for name, value in again.items() if name in wanted} == wanted, "whoever launches it"
    night.down()
    box.work = path


def test_a_venv_comes_first(box: Box) -> None:
    for name in ("python3", "mytool"):
        box.write(f"venv/bin/{name}", f'#!/bin/sh\nexec {sys.executable} "$@"\n', 0o755)
    box.write("tell.py", TELL)
    spec = box.write("a.yaml", "version: 1\nname: a\nvenv: venv\ncommand: [mytool, tell.py]\n")
    box.supervise("up", str(spec), code=0, PYTHONHOME="", VIRTUAL_ENV="/other")
    seen = told(box)
    assert seen["env"]["VIRTUAL_ENV"] == str(box.work / "venv")
    assert seen["env"]["PATH"].split(":")[0] == str(box.work / "venv" / "bin")
    assert "PYTHONHOME" not in seen["env"]


def test_a_pty_is_a_terminal_for_output_only(box: Box) -> None:
    night = box.up(teller(box, "a", "launch: {pty: true}\n", "echo one; echo two"))
    seen = told(box)
    assert (seen["tty"], seen["stdin"]) == (True, "/dev/null")
    night.wait(0)
    assert night.output().endswith("one\ntwo\n")


def test_without_tmux_up_says_how_to_install_it(box: Box) -> None:
    for name in ("sh", "sleep", "env", "tail", "cat"):
        box.write("bin/x", "").unlink()
        (box.work / "bin" / name).symlink_to(str(shutil.which(name)))
    path = str(box.work / "bin")
    spec = box.spec("a", STEPS, PROGRESS + QUICK)
    said = box.supervise("up", "-d", str(spec), code=6, PATH=path)
    assert "install" in said.err and "tmux" in said.err and "terminal: none" in said.err
    assert not box.night("a").records("LaunchIntended")
    spec.write_text(spec.read_text() + "launch: {terminal: none}\n")
    night = box.up(spec, PATH=path)
    night.until("FirstProgress")
    night.down()


# ── secrets and files ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_secret_stands_in_one_private_file_while_the_run_lasts_and_nowhere_else(box: Box) -> None:
    values = {"HF_TOKEN": "hf_abcdef123456", "NAMED": "named-value-98765", "MY_API_KEY": 'k"ey\\with/odd chars'}
    oom = 'echo "torch.OutOfMemoryError: CUDA out of memory. $HF_TOKEN $NAMED $FILED $PLAIN_SECRET $MY_API_KEY"'
    script = f'{oom}; sleep 1000 "$HF_TOKEN" & {STEPS}'
    box.write("job.env", "FILED=from-the-file-4711\n")
    more = "secrets: [NAMED]\nenv_file: job.env\nenv: {PLAIN_SECRET: in-the-spec-0815}\n" + PROGRESS + QUICK
    values |= {"FILED": "from-the-file-4711", "PLAIN_SECRET": "in-the-spec-0815"}
    script = script.replace('sleep 1000 "$HF_TOKEN"', 'sh -c "while true; do sleep 1; done" "$HF_TOKEN"')
    outside = {name: value for name, value in values.items() if name not in ("FILED", "PLAIN_SECRET")}
    night = box.up(box.spec("a", script, more), **outside)
    night.until("FirstProgress")
    night.until("HitSeen", dropped=True)  # the run went on: it is not what ended it
    os.kill(night.leader(), signal.SIGKILL)
    night.until("LaunchIntended", attempt=2)
    secrets = night.dir.secrets
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    assert all(
        value in json.dumps(json.loads(secrets.read_text())) for name, value in values.items() if '"' not in value
    )
    _nowhere_but(box, values.values(), {"secrets.json", "output.log"})
    for pid, cmdline in box.everybody().items():
        if not cmdline.startswith("sh -c"):
            assert not any(value in cmdline for value in values.values()), (pid, cmdline)
    for verb in (["status", "-o", "json"], ["history", "a", "-v"], ["history", "a", "-o", "json"]):
        said = box.supervise(*verb, code=0)
        assert not any(value in said.out + said.err for value in values.values())
    night.down()
    until(lambda: not secrets.exists(), "deleted when the run ends")
    _nowhere_but(box, values.values(), {"output.log"})
    until(lambda: not night.dir.open.exists(), "nobody writes any more")
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in box.home.root.rglob("*") if not path.is_symlink()}
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}
    assert stat.S_IMODE(box.home.root.stat().st_mode) == 0o700


def test_a_secret_in_what_a_check_or_a_dying_job_says_is_told_nowhere(box: Box) -> None:
    value = "named-value-98765"
    script = 'echo step 1; echo "RuntimeError: CUDA error: device-side assert of $NAMED"; read forever < fifo'
    os.mkfifo(box.work / "fifo")
    refusing = PROGRESS + 'secrets: [NAMED]\npreflight: {checks: [[sh, -c, "echo tok=$NAMED; exit 1"]]}\n'
    said = box.supervise("up", "-d", str(box.spec("a", script, refusing)), code=6, NAMED=value)
    assert "tok=<secret>" in said.err
    _nowhere_but(box, [value], {"secrets.json"})
    night = box.up(box.spec("a", script, PROGRESS + "secrets: [NAMED]\n"), NAMED=value)
    night.until("HitSeen")
    until(lambda: night.dir.now.exists() and b"device-side assert" in night.dir.now.read_bytes(), "it is pending")
    _nowhere_but(box, [value], {"secrets.json", "output.log"})
    night.down()


def _nowhere_but(box: Box, values: Any, names: set[str]) -> None:
    for path in box.home.root.rglob("*"):
        if path.is_file() and path.name not in names:
            data = b""
            with contextlib.suppress(FileNotFoundError):  # written aside, and renamed by now
                data = path.read_bytes()
            forms = [form for value in values for form in (value, json.dumps(value)[1:-1])]
            found = [form for form in forms if form.encode() in data]
            assert not found, f"{path} holds {found}"


def test_progress_and_failure_text_are_read_from_further_logs_as_well(box: Box) -> None:
    (box.work / "logs").mkdir()
    box.write("logs/old.log", "torch.OutOfMemoryError: CUDA out of memory. of last week\nstep 900\n")
    script = f"({STEPS}) > logs/new.log & sleep 0.3; echo 'step 7' >> logs/old.log; wait"
    night = box.up(box.spec("a", script, "logs: ['logs/*.log']\n" + PROGRESS + QUICK))
    first = night.until("FirstProgress")["data"]["step"]
    assert first < 900
    assert not night.records("HitSeen"), "what was there before the launch is not of this run"


def test_ports_are_free_ones_and_the_same_in_command_and_environment(box: Box) -> None:
    spec = box.write(
        "a.yaml",
        "version: 1\nname: a\ncommand: [python3, tell.py, '${{ ports.rdzv }}']\n"
        "env: {MASTER_PORT: '${{ ports.rdzv }}', HERE: '${{ workdir }}'}\nports: {rdzv: auto}\n",
    )
    box.write("tell.py", TELL)
    box.up(spec)
    seen = told(box)
    assert 1024 < int(seen["argv"][0]) < 65536
    assert seen["env"]["MASTER_PORT"] == seen["argv"][0] and seen["env"]["HERE"] == str(box.work)
