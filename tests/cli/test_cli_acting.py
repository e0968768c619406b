"""Verbs that act: what they ask for, that they wait for the answer, and what they refuse before asking."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import recorded

from supervisor.cli import asking, follow, up
from supervisor.core import events as ev
from supervisor.core.spec import RunSpec
from supervisor.edges import secrets
from supervisor.edges.codec import from_plain
from supervisor.edges.locks import Lock, is_held

LIVE = recorded.first_attempt() + recorded.second_attempt()

SPEC = """\
version: 1
name: tiny
command: [./train.sh]
env: {HF_TOKEN: hf_secret_value}
params:
  style: argparse
  protected: {anchors: 1024}
  knobs:
    batch: {value: 64, ladder: [48, 32]}
resume: {from: "checkpoints/step_*", arg: --resume}
"""


@pytest.fixture
def spec(tmp_path) -> Path:
    (tmp_path / "train.sh").write_text("#!/bin/sh\n")
    (tmp_path / "train.sh").chmod(0o755)
    path = tmp_path / "tiny.yaml"
    path.write_text(SPEC)
    return path


@pytest.mark.parametrize(
    ("argv", "verb"),
    [(["down", "-y"], "down"), (["restart", "-y"], "restart"), (["pause"], "pause"), (["resume"], "resume")],
)
def test_a_verb_ends_with_the_exit_code_and_text_of_its_answer(home, supervise, answering, argv, verb):
    run = recorded.write(home.root, LIVE)
    with answering(run, exit=8, text="GPU 5 holds 900 MiB") as supervisor:
        code, out, err = supervise(*argv)
    assert (code, out) == (8, "")
    assert "GPU 5 holds 900 MiB" in err
    assert [(each.verb, each.data["args"]) for each in supervisor.asked] == [(verb, {})]


@pytest.mark.parametrize("verb", ["down", "restart"])
def test_off_a_terminal_a_destructive_verb_takes_yes(home, supervise, verb):
    run = recorded.write(home.root, LIVE)
    code, _, err = supervise(verb)
    assert code == 2
    assert "-y" in err
    assert not run.requests.exists()


def test_an_answer_from_a_log_cannot_move_the_cursor(home, supervise, answering):
    run = recorded.write(home.root, LIVE)
    with answering(run, text="bad \x1b[2J line\nnext"):
        assert "bad  line\nnext" in supervise("pause")[2]


def test_a_request_that_nobody_reads_is_told_and_stands(home, supervise, monkeypatch):
    run = recorded.write(home.root, LIVE)
    monkeypatch.setattr(asking, "NOBODY_S", 0.05)
    monkeypatch.setattr(asking.detached, "start_supervisor", lambda *_: 0)
    code, _, err = supervise("pause")
    assert code == 1
    assert "supervisor.log" in err
    assert len(list(run.requests.glob("*.json"))) == 1


def test_ctrl_c_only_stops_the_waiting(home, tmp_path):
    run = recorded.write(home.root, LIVE)
    held = Lock.try_take(run.lock)
    waiting = subprocess.Popen(
        [sys.executable, "-m", "supervisor.cli", "pause", "dflash"], stderr=subprocess.PIPE, text=True
    )
    while not list(run.requests.glob("*.json")):
        assert waiting.poll() is None
        time.sleep(0.01)
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 130
    assert "stands" in err
    assert len(list(run.requests.glob("*.json"))) == 1
    held.release()


def test_up_asks_with_the_resolved_spec_and_stages_the_secrets_apart(home, supervise, answering, spec, monkeypatch):
    run = home.run("tiny")
    monkeypatch.setenv("WANDB_API_KEY", "wandb_secret_value")
    monkeypatch.setenv("TMUX", "/tmp/x")
    with answering(run, text="tiny: attempt 1 launched") as supervisor:
        code, out, err = supervise("up", "-d", str(spec), "--set", "batch=48")
    assert (code, out) == (0, "")
    assert "attempt 1 launched" in err
    (request,) = supervisor.asked
    args = request.data["args"]
    sent = from_plain(args["spec"], RunSpec)
    assert (sent.name, sent.command, args["rungs"], args["from"]) == ("tiny", ("./train.sh",), {"batch": 1}, None)
    assert args["uid"] == os.getuid()
    assert "secret_value" not in json.dumps(args)
    assert run.open.exists()
    assert run.path.stat().st_mode & 0o777 == 0o700
    staged = secrets.load_staged(run, request.id)
    assert staged.job["HF_TOKEN"] == "hf_secret_value"
    assert staged.job["WANDB_API_KEY"] == "wandb_secret_value"
    assert "TMUX" not in staged.job
    assert "SUPERVISE_HOME" not in staged.job
    assert staged.own["SUPERVISE_HOME"] == str(home.root)


def test_a_refused_up_ends_with_the_code_of_the_refusal(home, supervise, answering, spec):
    with answering(home.run("tiny"), exit=6, text="GPU 9 does not exist"):
        code, _, err = supervise("up", str(spec))
    assert code == 6
    assert "GPU 9" in err


def test_warnings_are_told_while_up_waits(home, supervise, answering, spec):
    warned = (
        ev.Warned(text="knobs stay where they stood"),
        ev.PreflightPassed(warnings=("linger is off", "knobs stay where they stood")),
    )
    with answering(home.run("tiny"), before=warned):
        _, _, err = supervise("up", "-d", str(spec))
    assert err.count("warning: knobs stay") == 1
    assert "warning: linger is off" in err


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["--set", "anchors=512"], 2, "locked"),
        (["--set", "batch=47"], 2, "rung"),
        (["--set", "batch"], 2, "--set K=V"),
        (["--set", "batch=48", "--set", "batch=32"], 2, "twice"),
        (["--from", "step_7"], 6, "no such checkpoint"),
    ],
)
def test_what_up_refuses_before_anything_is_made(home, supervise, spec, argv, code, said):
    got, _, err = supervise("up", "-d", str(spec), *argv)
    assert got == code
    assert said in err
    assert home.names() == []


def test_a_spec_that_is_not_there_is_5_and_nothing_is_made(home, supervise):
    code, _, err = supervise("up", "-d", "nope.yaml")
    assert code == 5
    assert "nope.yaml" in err
    assert home.names() == []


def test_all_mistakes_of_a_spec_are_told_and_nothing_is_made(home, supervise, spec):
    spec.write_text(SPEC.replace("value: 64", "value: 40").replace("command: [./train.sh]", "command: ./train.sh"))
    code, _, err = supervise("up", "-d", str(spec))
    assert code == 5
    assert err.count("tiny.yaml:") >= 2
    assert home.names() == []


def test_an_unwritable_state_directory_is_an_error_with_its_name(supervise, spec, tmp_path, monkeypatch):
    (tmp_path / "blocked").write_text("")
    monkeypatch.setenv("SUPERVISE_HOME", str(tmp_path / "blocked"))
    code, _, err = supervise("up", "-d", str(spec))
    assert code == 1
    assert "blocked" in err


def test_a_checkpoint_may_be_named_by_its_name_alone(home, supervise, answering, spec, tmp_path):
    (tmp_path / "checkpoints" / "step_7").mkdir(parents=True)
    with answering(home.run("tiny")) as supervisor:
        assert supervise("up", "-d", str(spec), "--from", "step_7")[0] == 0
        assert supervise("up", "-d", str(spec), "--from", "none")[0] == 0
    asked = [each.data["args"]["from"] for each in supervisor.asked]
    assert asked == [str(tmp_path / "checkpoints" / "step_7"), "none"]


def test_up_follows_the_output_until_first_progress(home, supervise, capfd):
    run = recorded.write(home.root, recorded.first_attempt()[:7])
    run.attempt(1).path.mkdir(parents=True)
    run.attempt(1).output.write_text("loading\n")

    real_sleep = time.sleep
    turns = iter([
        lambda: run.attempt(1).output.write_text("loading\nstep 691\n"),
        lambda: recorded.append(run, [ev.FirstProgress(attempt=1, step=691, startup_s=20.0)]),
    ])  # fmt: skip
    follow.time.sleep = lambda _: next(turns)()
    try:
        assert follow.until_progress(run) == 0
    finally:
        follow.time.sleep = real_sleep
    said = capfd.readouterr()
    assert said.out == "loading\nstep 691\n"
    assert "first progress after 20 s, step 691" in said.err


@pytest.mark.parametrize(("is_screen", "ended"), [(True, b"\rstep 1\n\rstep 2\n"), (False, b"\rstep 1\rstep 2\n")])
def test_on_a_screen_a_bar_ends_its_line_before_we_speak(home, is_screen, ended):
    run = recorded.write(home.root, recorded.first_attempt()[:7])
    run.attempt(1).path.mkdir(parents=True)
    run.attempt(1).output.write_bytes(b"\rstep 1")
    passed: list[bytes] = []
    output = follow.Output(run, passed.append, is_screen=is_screen)
    output.end_line()
    output.go_to(1)
    for more in (b"", b"\rstep 2\n"):
        with open(run.attempt(1).output, "ab") as file:
            file.write(more)
        output.pass_on()
        output.end_line()
        output.end_line()
    assert b"".join(passed) == ended


def test_a_copied_spec_is_told_that_it_goes_on_with_the_run_of_its_name(home, supervise, answering, spec, tmp_path):
    run = home.run("tiny")
    run.path.mkdir(parents=True)
    said = []
    for before in (str(spec), "/elsewhere/tiny.yaml", None):
        run.run_json.write_text(json.dumps({"spec": {"file": before}} if before else {}))
        with answering(run):
            code, _, err = supervise("up", "-d", str(spec))
        assert code == 0
        said.append(f"tiny was the run of {before}; {spec} goes on with it" in err)
    assert said == [False, True, False]


@pytest.mark.parametrize(("ending", "code"), [(recorded.halt, 9), (recorded.user_stop, 3), (recorded.finish, 0)])
def test_following_a_run_that_ended_tells_how(home, ending, code):
    run = recorded.write(home.root, LIVE[:-1] + ending())
    assert follow.until_progress(run) == code


def test_adopt_says_what_it_takes(home, supervise):
    for argv in ([], ["--watch"], ["--here"], ["--all", "--here"]):
        assert supervise("adopt", *argv)[0] == 2


def test_adopting_a_run_that_has_a_supervisor_finds_it_there(home, supervise, answering):
    run = recorded.write(home.root, LIVE)
    with answering(run):
        code, _, err = supervise("adopt", "--all")
    assert code == 0
    assert "dflash: supervised" in err


def test_nothing_to_adopt_is_no_error(home, supervise):
    recorded.write(home.root, LIVE + recorded.halt(), is_open=False)
    code, _, err = supervise("adopt", "--all")
    assert code == 0
    assert "no run of this machine is open" in err


def test_a_run_is_moved_by_the_supervisor_that_is_asked(home, supervise, answering, monkeypatch):
    run = recorded.write(home.root, LIVE)
    with answering(run):
        code, _, err = supervise("adopt", "dflash", "--here")
    assert code == 7
    assert "supervised at this moment" in err
    assert not is_held(run.lock)


def test_no_leftovers_is_said(home, supervise):
    code, _, err = supervise("down", "--leftovers")
    assert code == 0
    assert "no dead run left anything behind" in err


def test_a_terminal_that_the_spec_does_not_want_is_not_attached_to(home, supervise):
    opened = recorded.opened()
    plain = json.loads(json.dumps(recorded.to_plain(opened)))
    plain["spec"]["launch"]["terminal"] = "none"
    recorded.write(home.root, [from_plain(plain, ev.EpisodeOpened), *LIVE[2:]])
    code, _, err = supervise("attach", "dflash")
    assert code == 3
    assert "supervise logs -f dflash" in err


def test_the_environment_of_supervisors_is_the_callers_without_what_changes_their_python():
    from supervisor.cli.warm import own_environment

    given = {"PYTHONPATH": "/x", "TMUX": "/y", "SUPERVISE_TOKEN": "r:1", "SUPERVISE_LOCKS": "/l", "PATH": "/bin"}
    assert own_environment(given) == {"SUPERVISE_LOCKS": "/l", "PATH": "/bin"}


def test_the_user_is_named_by_number_where_the_account_has_no_name(monkeypatch):
    monkeypatch.setattr(up.os, "getuid", lambda: 987_654)
    assert up._user() == "987654"


def test_supervisors_that_come_and_go_without_an_answer_are_told(home):
    run = recorded.write(home.root, LIVE)
    tail = asking.Tail(run.journal, from_end=True)
    recorded.append(run, [ev.SupervisorStarted(pid=1, version="0")] * (asking.STARTS_MAX + 1))
    with pytest.raises(asking.NobodyAnswers, match=r"supervisor\.log"):
        asking._answer(home, run, tail, "id", None)


@pytest.mark.parametrize("where", ["machine.json", "run.json", None])
def test_up_of_a_run_that_belongs_elsewhere_is_7_wherever_that_is_written(home, supervise, spec, where):
    elsewhere = recorded.MachineId(boot_id="x", machine_id="another", host="far")
    run = recorded.write(home.root, [recorded.opened("tiny", elsewhere)], name="tiny")
    plain = recorded.to_plain(elsewhere)
    if where is not None:
        (run.path / where).write_text(json.dumps(plain if where == "machine.json" else {"machine": plain}))
    code, _, err = supervise("up", "-d", str(spec))
    assert code == 7
    assert "belongs to far" in err
    assert not run.requests.exists()
