"""Verbs that come at an awkward moment: in backoff, while paused, beside leftovers; and what is checked before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from boxes import REPO, Box, Night, is_alive, until

pytestmark = pytest.mark.real

STEPS = 'i=0; while [ "$i" -lt "${STEPS:-100000}" ]; do i=$((i+1)); echo "step $i"; sleep 0.02; done; exit "${CODE:-0}"'
PROGRESS = r"health: {progress: {log: 'step (?P<step>\d+)'}}" + "\n"
LONG = "recovery: {stop: {grace: 2s}, backoff: {first: 300s}}\n"


def in_backoff(box: Box) -> Night:
    """A run that waits for minutes before it tries again."""
    script = f'case "$ATTEMPT" in 1) echo step 1; exit 7;; esac; {STEPS}'
    night = box.up(box.spec("a", script, "env: {ATTEMPT: '${{ attempt.number }}'}\n" + PROGRESS + LONG))
    night.until("BackoffBegan")
    return night


def test_restart_does_not_sit_out_the_backoff(box: Box) -> None:
    night = in_backoff(box)
    assert night.status()["phase"] == "backoff"
    box.supervise("restart", "a", "-y", code=0)
    night.until("FirstProgress", attempt=2)


def test_down_ends_a_backoff_at_once(box: Box) -> None:
    night = in_backoff(box)
    again = box.supervise("up", "-d", str(box.work / "a.yaml"), code=0)
    assert "already running" in again.err
    night.down()
    assert night.status()["phase"] == "stopped"
    assert len(night.records("LaunchIntended")) == 1


def test_nothing_is_relaunched_while_recovery_is_paused(box: Box) -> None:
    short = "recovery: {stop: {grace: 2s}, backoff: {first: 1s}}\n"
    night = box.up(box.spec("a", "exit 7", short))
    night.until("BackoffBegan")
    box.supervise("pause", "a", code=0)
    launched = len(night.records("LaunchIntended"))  # 1, unless the backoff was over before `pause` came
    assert box.supervise("wait", "a", "--timeout", "2500ms").code == 124
    assert len(night.records("LaunchIntended")) == launched
    box.supervise("resume", "a", code=0)
    night.until("LaunchIntended", attempt=launched + 1)


def test_a_run_that_finished_leaves_nobody_behind(box: Box) -> None:
    until_asleep = 'until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done'
    script = f"setsid sleep 1004 & {until_asleep}; setsid sleep 1005 & {until_asleep}; echo done"
    night = box.up(box.spec("a", script, LONG))
    night.wait(0)
    assert not [cmdline for cmdline in box.everybody().values() if cmdline.startswith("sleep 100")]
    stopped = night.history()["attempts"][0]["stopped"]
    assert sorted(one["cmdline"] for one in stopped) == ["sleep 1004", "sleep 1005"]


def test_processes_of_an_earlier_attempt_that_still_live_forbid_a_launch(box: Box) -> None:
    spec = box.spec("a", STEPS, PROGRESS + LONG)
    night = box.up(spec)
    night.until("FirstProgress")
    night.down()
    token = night.has("LaunchIntended", attempt=1)[0]["data"]["token"]
    left = box.write("left.sh", "#!/bin/sh\necho here\nwhile true; do sleep 0.1; done\n", 0o755)
    other = subprocess.Popen([left], env={**os.environ, "SUPERVISE_TOKEN": token}, stdout=subprocess.PIPE, cwd="/")
    try:
        assert other.stdout is not None and other.stdout.readline() == b"here\n"
        said = box.supervise("up", "-d", str(spec), code=6)
        assert f"pid {other.pid}" in said.err and "supervise down" in said.err
        assert is_alive(other.pid)
        assert len(night.records("LaunchIntended")) == 1
    finally:
        other.kill()
        other.communicate()
    box.supervise("up", "-d", str(spec), code=0)


def test_check_judges_the_file_and_up_the_machine(box: Box) -> None:
    for name in ("dflash", "dflash-4gpu", "eagle3-extract", "torchrun", "torch-cpu"):
        assert box.supervise("check", str(REPO / "configs" / f"{name}.yaml"), code=0).out
    spec = box.write("a.yaml", "version: 1\nname: a\ncommand: [./nosuch]\ntopology: {t: [0]}\nnotify: {on: [halted]}\n")
    assert box.supervise("check", str(spec), code=0).out
    assert "SUPERVISE_NOTIFY is not set" in box.supervise("check", str(spec)).err
    said = box.supervise("up", "-d", str(spec), code=6).err
    assert "NVIDIA driver" in said and "./nosuch is not there" in said, "every reason at once"
    spec.write_text("version: 1\nname: a\ncommand: [/bin/true]\nnotify: {on: [halted]}\n")
    said = box.supervise("up", "-d", str(spec), code=0).err
    assert "notify" in said and "nobody is told" in said
    assert any("notify" in one for one in box.night("a").status()["warnings"])
    for more in (
        "hooks: {after_stop: {run: [true]}}",
        "rehearsal: {pass: {steps: 1}}",
    ):
        spec.write_text(f"version: 1\nname: b\ncommand: [/bin/true]\n{more}\n")
        refused = box.supervise("up", "-d", str(spec), code=5)
        assert more.partition(":")[0] in refused.err


def test_pins_are_those_of_the_jobs_own_venv(box: Box) -> None:
    venv = Path(sys.prefix)
    if not (venv / "pyvenv.cfg").exists():
        pytest.skip("the tests do not run in a venv")
    text = f"version: 1\nname: a\nvenv: {venv}\ncommand: [python, -V]\npins: {{pytest: 0.0.1}}\n"
    spec = box.write("a.yaml", text + PROGRESS)  # which never comes: `up` follows to the end
    said = box.supervise("up", "-d", str(spec), code=6)
    assert "pytest" in said.err and "0.0.1" in said.err and pytest.__version__ in said.err
    spec.write_text(spec.read_text().replace("0.0.1}", "0.0.1, on_drift: warn}"))
    assert "0.0.1" in box.supervise("up", "-d", str(spec), code=0).err
    spec.write_text(spec.read_text().replace("0.0.1, on_drift: warn}", pytest.__version__ + "}"))
    box.night("a").wait(0)
    assert box.supervise("up", str(spec), code=0).out.startswith("Python ")


def test_a_simulated_night_that_is_live_is_left_alone_by_a_second_up(box: Box) -> None:
    spec = REPO / "configs" / "dflash.yaml"
    night = box.up(spec, "--simulate")
    night.until("FirstProgress")
    world = night.dir.path / "world"
    made = (world / "starts.jsonl").stat().st_ino
    assert "already running" in box.supervise("up", "-d", "--simulate", str(spec), code=0).err
    assert box.supervise("up", "-d", "--simulate", "--set", "token_budget=45056", str(spec), code=7).err
    assert (world / "starts.jsonl").stat().st_ino == made, "its world is not made anew"
    step = night.status()["step"]
    until(lambda: (night.status()["step"] or 0) != step, "it goes on")
    night.down()
