"""Verbs and exit codes as the contract says them, with a real job and no GPU: asked as a user would, from outside."""

from __future__ import annotations

import json
import os
import signal

import pytest
from boxes import Box, Night, is_alive

pytestmark = pytest.mark.real

STEPS = r"""
echo "args: $*" >&2
i=0
while [ "$i" -lt "${STEPS:-100000}" ]; do i=$((i+1)); echo "step $i"; sleep 0.02; done
exit "${CODE:-0}"
"""
MORE = r"""
params:
  protected: {anchors: 1024}
  knobs:
    batch: {value: 64, ladder: [48, 32]}
health: {progress: {log: 'step (?P<step>\d+)'}}
recovery: {stop: {grace: 2s}, backoff: {first: 100ms}}
"""
STATUS = (
    "name phase paused wanted attempt restarts step rate checkpoint knobs protected protected_sha256 gpus last_failure "
    "supervisor because as_of"
)
ATTEMPT = "number started_at ended_at argv knobs checkpoint first_step last_step end stopped verified_zero decision"
END = "kind code signal gpu tried_mib free_mib short_by_mib log_line"


@pytest.fixture
def live(box: Box) -> Night:
    """A run that makes steps until it is told to stop."""
    night = box.up(box.spec("a", STEPS, MORE))
    night.until("FirstProgress")
    return night


def changed(box: Box, before: str, after: str) -> str:
    text = (box.work / "a.yaml").read_text()
    assert before in text
    return str(box.write("b.yaml", text.replace(before, after)))


def test_up_on_a_live_run_says_what_it_would_take(box: Box, live: Night) -> None:
    spec = str(box.work / "a.yaml")
    again = box.supervise("up", "-d", spec, code=0)
    assert "already running" in again.err and not again.out

    other = box.supervise("up", "-d", changed(box, "value: 64", "value: 60"), code=7)
    assert "params.knobs.batch" in other.err and "supervise down a" in other.err

    locked = box.supervise("up", "-d", changed(box, "anchors: 1024", "anchors: 512"), code=7)
    assert "anchors 1024 -> 512" in locked.err and "name" in locked.err
    gone = box.supervise("up", "-d", changed(box, "anchors: 1024", "other: 1"), code=7)
    assert "anchors" in gone.err and "removed" in gone.err

    both = changed(box, "anchors: 1024", "anchors: 512")
    (box.work / "b.yaml").write_text((box.work / "b.yaml").read_text().replace("grace: 2s", "grace: 3s"))
    said = box.supervise("up", "-d", both, code=7).err
    assert "recovery.stop.grace" in said, "all that changed is named"
    assert said.index("anchors") < said.index("recovery.stop.grace"), "protected params first"

    assert "down" in box.supervise("up", "-d", "--set", "batch=48", spec, code=7).err
    assert len(live.records("LaunchIntended")) == 1, "nothing of that touched the job"
    assert live.status()["phase"] == "running"


def test_set_takes_values_of_a_rung_only(box: Box) -> None:
    spec = str(box.spec("a", STEPS, MORE))
    for wrong in ("batch=47", "anchors=512", "nosuch=1", "batch", "=48"):
        said = box.supervise("up", "-d", "--set", wrong, spec, code=2)
        assert said.err and not said.out
    assert not (box.home.runs / "a").exists(), "nothing was made for a refused command line"
    night = box.up(box.work / "a.yaml", "--set", "batch=48")
    assert night.status()["knobs"] == {"batch": 48}
    assert night.has("LaunchIntended")[0]["data"]["argv"][1:] == ["--anchors", "1024", "--batch", "48"]


def test_status_is_one_document_and_tells_by_exit_code_only_when_asked(box: Box, live: Night) -> None:
    said = box.supervise("status", "-o", "json", code=0)
    assert not said.err
    document = json.loads(said.out)
    assert document["schema"] == "supervise.status/v1"
    (run,) = document["runs"]
    assert run.keys() >= set(STATUS.split())
    assert (run["name"], run["phase"], run["wanted"], run["attempt"]) == ("a", "running", "up", 1)
    assert (run["restarts"], run["paused"], run["last_failure"]) == (0, False, None)
    assert run["knobs"] == {"batch": 64} and run["protected"] == {"anchors": 1024}
    assert run["supervisor"] == {"pid": live.supervisor, "alive": True}
    assert run["step"] > 0 and len(run["protected_sha256"]) == 64
    assert box.supervise("status", "--exit-code", code=0).out
    live.down()
    assert box.supervise("status", code=0).out
    assert box.supervise("status", "--exit-code", code=3).out
    ended = live.status()
    assert (ended["phase"], ended["wanted"], ended["supervisor"]["pid"]) == ("stopped", "down", None)


def test_down_ends_the_attempt_with_kind_none_by_the_user(box: Box, live: Night) -> None:
    leader = live.leader()
    said = live.down()
    assert not said.out and "stopped" in said.err
    document = live.history()
    assert (document["schema"], document["run"]) == ("supervise.history/v1", "a")
    (attempt,) = document["attempts"]
    assert attempt.keys() >= set(ATTEMPT.split())
    assert attempt["end"].keys() >= set(END.split())
    assert attempt["end"]["kind"] == "none"
    by = {one["pid"]: one for one in attempt["stopped"]}
    assert by[leader]["by"] == "user" and by[leader]["cmdline"]
    assert attempt["verified_zero"].keys() >= {"waited_s", "used_mib", "holders"}
    assert attempt["decision"].keys() >= {"do", "lowered", "because"}
    assert attempt["first_step"] == 1 and attempt["last_step"] >= 1
    assert attempt["argv"][1:] == ["--anchors", "1024", "--batch", "64"]
    again = live.down()
    assert again.code == 0, "down of a run that is down is the state asked for"
    assert live.wait(3).err
    for verb in (("restart", "a", "-y"), ("pause", "a"), ("resume", "a"), ("attach", "a")):
        refused = box.supervise(*verb, code=3)
        assert "supervise " in refused.err and not refused.out, f"{verb} names the next command: {refused.err}"


def test_restart_launches_anew_with_the_same_values(box: Box, live: Night) -> None:
    first = live.leader()
    said = box.supervise("restart", "a", "-y", code=0)
    assert "attempt 2" in said.err
    assert live.leader(2) != first
    one, two = (record["data"]["argv"] for record in live.records("LaunchIntended"))
    assert one == two
    status = live.status()
    assert (status["attempt"], status["restarts"], status["last_failure"]) == (2, 1, None)


def test_pause_keeps_a_dead_job_dead_until_resume(box: Box, live: Night) -> None:
    assert box.supervise("pause", "a", code=0).err
    assert live.status()["paused"] is True
    os.kill(live.leader(), signal.SIGKILL)
    live.until("JobEnded")
    assert box.supervise("wait", "a", "--timeout", "500ms", code=124).err
    assert len(live.records("LaunchIntended")) == 1
    box.supervise("resume", "a", code=0)
    live.until("LaunchIntended", attempt=2)
    assert live.history()["attempts"][0]["end"]["kind"] == "killed"


def test_wait_says_how_it_ended(box: Box) -> None:
    spec = box.spec("a", STEPS, MORE)
    night = box.up(spec, STEPS="8")
    assert box.supervise("wait", "a", "--for", "running", "--timeout", "60s").code == 0
    night.wait(0)
    assert night.status()["phase"] == "finished"
    assert box.supervise("status", "--exit-code").code == 0
    box.up(spec, STEPS="8", CODE="9")
    night.wait(9)
    halted = night.status()
    assert (halted["phase"], halted["last_failure"]["kind"]) == ("halted", "exit")
    assert box.supervise("status", "--exit-code").code == 9
    numbers = [one["number"] for one in night.history()["attempts"]]
    assert numbers == [1, 2, 3, 4], "one that finished, then one and two relaunches; the numbers go on"
    assert box.supervise("wait", "a", "--for", "running", "--timeout", "60s").code == 9
    box.up(spec)
    assert box.supervise("wait", "a", "--timeout", "300ms").code == 124
    assert night.status()["last_failure"]["kind"] == "exit", "stays until finished"


def test_logs_show_the_attempt_that_was_asked_for(box: Box, live: Night) -> None:
    box.supervise("restart", "a", "-y", code=0)
    live.until("FirstProgress", attempt=2)
    live.down()
    first, second = live.output(1).splitlines(), live.output(2).splitlines()
    assert box.supervise("logs", "a", "-n", "2", "-p", code=0).out.splitlines() == first[-2:]
    assert box.supervise("logs", "a", "-n", "1", "--attempt", "2", code=0).out.splitlines() == second[-1:]
    assert box.supervise("logs", "a", "-n", "100000", code=0).out.splitlines() == second
    assert box.supervise("logs", "a", "-n", "0", code=0).out == ""
    assert "supervise" in box.supervise("logs", "a", "--attempt", "9", code=4).err
    assert box.supervise("logs", "a", "--attempt", "1", "-p", code=2).err
    assert box.supervise("logs", "a", "--attempt", "0", code=2).err
    assert box.supervise("logs", "-f", code=0, within_s=20).out, "-f on a run that has ended ends"


def test_logs_follow_over_attempts_until_the_run_ends(box: Box, live: Night) -> None:
    following = box.start("logs", "-f", "-n", "1", "a")
    assert following.stdout is not None
    assert following.stdout.readline().startswith("step ")
    box.supervise("restart", "a", "-y", code=0)
    live.until("FirstProgress", attempt=2)
    live.down()
    out, err = following.communicate(timeout=60)
    assert following.returncode == 0
    assert "attempt 2" in err and "attempt 2" not in out
    assert "step 1" in out.splitlines(), "the second attempt's, from its beginning"


def test_up_follows_until_the_first_progress_and_ctrl_c_only_detaches(box: Box) -> None:
    spec = str(box.spec("a", 'echo loading; cat "$GATE"\n' + STEPS, MORE))
    os.mkfifo(box.work / "gate")
    following = box.start("up", spec, GATE=str(box.work / "gate"))
    assert following.stdout is not None
    assert following.stdout.readline() == "loading\n"
    following.send_signal(signal.SIGINT)
    _, err = following.communicate(timeout=60)
    assert following.returncode == 130 and "supervise status a" in err
    night = box.night("a")
    assert night.status()["phase"] == "starting"
    following = box.start("up", spec)
    with open(box.work / "gate", "w") as gate:
        gate.write("gate is open\n")
    _, err = following.communicate(timeout=60)
    assert following.returncode == 0, err
    assert night.status()["phase"] == "running"


def test_what_a_short_job_printed_is_passed_on(box: Box) -> None:
    said = box.supervise("up", str(box.spec("a", "echo out; echo err >&2", MORE)), code=0)
    assert said.out.splitlines() == ["out", "err"]
    assert said.err


def test_no_such_run_is_4_and_usage_is_2(box: Box) -> None:
    assert "supervise up" in box.supervise("status", "nosuch", code=4).err
    box.up(box.spec("a", STEPS, MORE))
    box.up(box.spec("b", STEPS, MORE))
    for argv in (
        ("status", "nosuch"),
        ("logs", "nosuch"),
        ("history", "nosuch"),
        ("wait", "nosuch"),
        ("attach", "nosuch"),
        ("down", "nosuch", "-y"),
        ("restart", "nosuch", "-y"),
        ("pause", "nosuch"),
        ("resume", "nosuch"),
        ("adopt", "nosuch"),
    ):
        said = box.supervise(*argv, code=4)
        assert "a, b" in said.err and "supervise " in said.err and not said.out, said
    for argv in (
        (),
        ("frobnicate",),
        ("up",),
        ("down", "a"),
        ("restart", "a"),
        ("logs",),
        ("wait",),
        ("down", "-y"),
        ("wait", "a", "--timeout", "5"),
        ("wait", "a", "--for", "ever"),
        ("status", "a", "-o", "yaml"),
        ("adopt",),
    ):
        said = box.supervise(*argv, code=2)
        assert not said.out, argv
    several = box.supervise("status", "-o", "json", code=0).json["runs"]
    assert {run["name"] for run in several} == {"a", "b"}
    box.night("a").down()
    assert box.supervise("status", "--exit-code").code == 3, "the worst of several"


def test_knobs_stay_where_they_stood_over_ends_and_it_is_said(box: Box) -> None:
    spec = box.spec("a", STEPS, MORE)
    night = box.up(spec, "--set", "batch=48")
    night.down()
    said = box.supervise("up", "-d", str(spec), code=0).err
    assert "batch 48" in said and "lowered" not in said, said
    assert night.status()["knobs"] == {"batch": 48}
    assert [record["data"]["attempt"] for record in night.records("LaunchIntended")] == [1, 2]
    night.down()
    box.supervise("up", "-d", "--set", "batch=64", str(spec), code=0)
    assert night.status()["knobs"] == {"batch": 64}, "only --set moves them up again"
    night.down()
    box.supervise("up", "-d", "--set", "batch=32", str(spec), code=0)
    night.down()
    spec.write_text(spec.read_text().replace("ladder: [48, 32]", "ladder: [48, 32, 16]"))
    box.supervise("up", "-d", str(spec), code=0)
    assert night.status()["knobs"] == {"batch": 64}, "a changed knob section begins anew"


def test_a_protected_param_is_locked_from_the_first_launch_for_the_life_of_the_run(box: Box) -> None:
    spec = box.spec("a", STEPS, MORE)
    text = spec.read_text()
    spec.write_text(text.replace("a.sh", "nosuch.sh"))
    box.supervise("up", "-d", "--set", "batch=48", str(spec), code=6)
    spec.write_text(text.replace("1024", "512"))
    night = box.up(spec)
    assert night.status()["protected"] == {"anchors": 512}, "a run that was refused has launched nothing to keep to"
    assert night.status()["knobs"] == {"batch": 64}
    sha = night.status()["protected_sha256"]
    night.down()
    spec.write_text(text)
    said = box.supervise("up", "-d", str(spec), code=7).err
    assert "anchors 512 -> 1024" in said and "name" in said
    added = text.replace("{anchors: 1024}", "{anchors: 512, block: 32}")
    spec.write_text(added.replace("a.sh", "nosuch.sh"))
    box.supervise("up", "-d", "--set", "batch=32", str(spec), code=6)
    refused = night.status()
    assert (refused["protected"], refused["knobs"]) == ({"anchors": 512}, {"batch": 64})
    assert (refused["phase"], refused["protected_sha256"]) == ("stopped", sha)
    spec.write_text(added.replace("block: 32", "block: 64"))
    box.supervise("up", "-d", str(spec), code=0)
    assert night.status()["protected"] == {"anchors": 512, "block": 64}, "adding one is allowed"
    assert night.status()["protected_sha256"] != sha
    night.down()
    spec.write_text(text.replace("1024", "512"))
    assert "block" in box.supervise("up", "-d", str(spec), code=7).err, "removing it is not"


def test_a_run_is_marked_open_though_the_episode_before_ends_meanwhile(box: Box) -> None:
    mark = box.home.run("a").open
    taken_away = box.write("check.sh", f"#!/bin/sh\nrm {mark}\n", 0o755)
    night = box.up(box.spec("a", STEPS, MORE + f"preflight: {{checks: [[{taken_away}]]}}\n"))
    assert mark.exists(), "else no guardian would bring a supervisor back"
    night.down()


def test_adopt_brings_a_supervisor_back(box: Box, live: Night) -> None:
    assert box.supervise("adopt", "--all", code=0).err
    former = live.supervisor
    assert former
    os.kill(former, signal.SIGKILL)
    said = box.supervise("adopt", "a", code=0)
    assert "supervised" in said.err and not said.out
    assert live.until_supervised(but=[former])
    assert len(live.records("LaunchIntended")) == 1
    live.down()
    assert box.supervise("adopt", "--all", code=0).err


def test_attach_refuses_without_a_terminal(box: Box) -> None:
    night = box.up(box.spec("a", STEPS, MORE + "launch: {terminal: none}\n"))
    night.until("FirstProgress")
    said = box.supervise("attach", "a", code=3)
    assert "supervise logs -f a" in said.err
    assert box.tmux is None, "no tmux server was started"
    leader = night.leader()
    night.down()
    assert not is_alive(leader)
