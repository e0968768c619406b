"""Verbs that read: which run is meant, what is shown, what is refused and how."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import pytest
import recorded

from supervisor.core.evidence import MachineId
from supervisor.edges import requests

LIVE = recorded.first_attempt() + recorded.second_attempt()


def test_without_any_run_status_says_how_to_start_one(supervise):
    code, out, err = supervise("status")
    assert (code, out) == (0, "")
    assert "supervise up SPEC" in err


def test_status_without_a_name_shows_open_runs_and_those_of_the_last_day(home, supervise):
    recorded.write(home.root, LIVE, name="open")
    recorded.write(home.root, LIVE + recorded.halt(), name="new", from_s=time.time() - 3600, is_open=False)
    old = recorded.write(home.root, LIVE + recorded.halt(), name="old", is_open=False)
    os.utime(old.journal, (1, 1))
    _, out, _ = supervise("status", "-o", "json")
    assert [run["name"] for run in json.loads(out)["runs"]] == ["open", "new"]
    _, out, _ = supervise("status", "--all", "-o", "json")
    assert [run["name"] for run in json.loads(out)["runs"]] == ["open", "new", "old"]


def test_status_is_zero_unless_its_exit_code_is_asked_for(home, supervise):
    recorded.write(home.root, LIVE + recorded.halt(), is_open=False)
    assert supervise("status", "dflash")[0] == 0
    assert supervise("status", "dflash", "--exit-code")[0] == 9


def test_data_is_on_stdout_alone(home, supervise):
    recorded.write(home.root, LIVE)
    _, out, err = supervise("status", "dflash", "-o", "json")
    assert json.loads(out)["schema"] == "supervise.status/v1"
    assert err == ""


def test_no_run_of_that_name_is_4_and_names_what_there_is(home, supervise):
    recorded.write(home.root, LIVE)
    recorded.write(home.root, LIVE, name="sim-other")
    for verb in ("status", "history", "logs", "wait", "pause", "attach"):
        code, out, err = supervise(verb, "nope")
        assert (code, out) == (4, "")
        assert "dflash" in err
    assert "sim-other" in supervise("status", "other")[2]


@pytest.mark.parametrize("name", ["../runs/dflash", ".", "", "dflash/"])
def test_a_name_is_no_path(home, supervise, name):
    recorded.write(home.root, LIVE)
    assert supervise("status", name)[0] == 4


def test_the_run_may_be_left_out_when_one_is_open(home, supervise):
    recorded.write(home.root, LIVE)
    recorded.write(home.root, LIVE + recorded.halt(), name="ended", is_open=False)
    _, out, _ = supervise("history", "-o", "json")
    assert json.loads(out)["run"] == "dflash"
    recorded.write(home.root, LIVE, name="second")
    code, _, err = supervise("history")
    assert code == 2
    assert "dflash, second" in err


def test_history_verbose_shows_every_record(home, supervise):
    recorded.write(home.root, LIVE)
    _, out, _ = supervise("history", "-v")
    for record in ("SupervisorStarted", "EpisodeOpened", "HitSeen", "VerifiedZero"):
        assert record in out


def test_a_damaged_journal_is_named_with_its_line_and_status_still_answers(home, supervise):
    run = recorded.write(home.root, LIVE)
    lines = run.journal.read_bytes().split(b"\n")
    lines[2] = b"{}"
    run.journal.write_bytes(b"\n".join(lines))
    code, out, _ = supervise("status", "dflash")
    assert code == 0
    assert "journal.jsonl:3" in "".join(out.split())
    code, _, err = supervise("history", "dflash")
    assert code == 1
    assert "journal.jsonl:3" in err


def test_a_damaged_now_json_costs_the_live_values_only(home, supervise):
    run = recorded.write(home.root, LIVE)
    run.now.write_text('{"schema": "supervise.n')
    _, out, _ = supervise("status", "-o", "json")
    (one,) = json.loads(out)["runs"]
    assert one["phase"] == "running"
    assert "now.json" in one["damage"]


def test_a_torn_last_line_is_not_there_yet(home, supervise):
    run = recorded.write(home.root, LIVE)
    with open(run.journal, "ab") as file:
        file.write(b'{"n":99,"at"')
    _, out, _ = supervise("status", "-o", "json")
    assert json.loads(out)["runs"][0]["damage"] is None


def test_a_wrong_verb_gets_a_suggestion(supervise):
    code, _, err = supervise("statsu")
    assert code == 2
    assert "Did you mean status" in err


def test_help_names_every_verb_and_imports_none(supervise):
    code, out, _ = supervise("--help")
    assert code == 0
    for verb in ("up", "down", "status", "wait", "scan"):
        assert f"  {verb} " in out


def test_version(supervise):
    code, out, _ = supervise("--version")
    assert code == 0
    assert out.startswith("supervise 0")


@pytest.mark.parametrize(
    ("events", "code"),
    [(LIVE + recorded.finish(), 0), (LIVE + recorded.user_stop(), 3), (LIVE + recorded.halt(), 9)],
)
def test_wait_for_a_run_that_is_done_returns_at_once(home, supervise, events, code):
    recorded.write(home.root, events, is_open=False)
    assert supervise("wait", "dflash")[0] == code


def test_wait_for_running(home, supervise):
    recorded.write(home.root, LIVE)
    assert supervise("wait", "--for", "running")[0] == 0
    recorded.append(home.run("dflash"), [recorded.ev.Degraded(attempt=2, failure=recorded.OOM)])
    assert supervise("wait", "--for", "running")[0] == 10


def test_wait_gives_up_after_its_timeout(home, supervise):
    recorded.write(home.root, LIVE)
    code, _, err = supervise("wait", "--timeout", "100ms")
    assert code == 124
    assert "running" in err
    assert supervise("wait", "--timeout", "5")[0] == 2


def test_wait_sees_the_end_when_it_comes(home, supervise):
    run = recorded.write(home.root, LIVE)
    ending = threading.Thread(target=recorded.append, args=(run, recorded.halt()))
    ending.start()
    assert supervise("wait")[0] == 9
    ending.join()


def test_a_run_of_another_machine_is_shown_but_not_touched(home, supervise):
    elsewhere = MachineId(boot_id="x", machine_id="another", host="far")
    recorded.write(home.root, [recorded.opened(machine=elsewhere)])
    assert supervise("status", "dflash")[0] == 0
    assert "belongs to far" in supervise("status", "dflash")[1]
    for verb in (["wait"], ["down", "-y"], ["pause"], ["restart", "-y"], ["attach"]):
        code, _, err = supervise(*verb, "dflash")
        assert code == 7, verb
        assert "adopt dflash --here" in err


@pytest.mark.parametrize("verb", ["status", "logs"])
def test_the_fast_verbs_import_nothing_heavy(home, verb):
    run = recorded.write(home.root, LIVE)
    run.attempt(1).path.mkdir(parents=True)
    run.attempt(1).output.write_text("x\n")
    heavy = {"pydantic", "rich", "libtmux", "structlog", "yaml", "msgspec", "watchdog", "psutil", "re2", "subprocess",
             "supervisor.core.events", "supervisor.core.evidence", "supervisor.core.spec"}  # fmt: skip
    if sys.version_info < (3, 11):
        heavy.remove("subprocess")  # click imports uuid, which there imports it
    code = f"import sys; from supervisor import cli; cli.run({[verb, 'dflash']!r}); print(sorted(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    modules = set(eval(ran.stdout.splitlines()[-1]))
    assert not heavy & modules


def test_a_closed_pipe_is_no_error(home):
    run = recorded.write(home.root, LIVE)
    run.attempt(1).path.mkdir(parents=True)
    run.attempt(1).output.write_text("x\n" * 1_000_000)
    shell = f"{sys.executable} -m supervisor.cli logs -n 1000000 dflash | head -n 1"
    ran = subprocess.run(["bash", "-o", "pipefail", "-c", shell], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("x\n", "", 0)


def test_an_unreadable_state_directory_is_an_error_with_its_name(home, supervise, monkeypatch):
    blocked = home.root / "file"
    blocked.write_text("")
    monkeypatch.setenv("SUPERVISE_HOME", str(blocked))
    code, _, err = supervise("status")
    assert code == 1
    assert str(blocked) in err


def test_a_request_that_waits_is_shown_and_waited_for(home, supervise):
    run = home.run("new")
    run.path.mkdir(parents=True)
    requests.put(run, {"verb": "up", "args": {}})
    code, out, _ = supervise("status")
    assert code == 0
    assert "a request waits" in out
    assert supervise("wait", "new", "--timeout", "50ms")[0] == 124


def test_a_disk_that_is_full_is_told_though_no_record_can_say_it(home, supervise):
    run = recorded.write(home.root, LIVE)
    run.now.write_text(json.dumps({**recorded.now_json(time.time()), "trouble": "no room for a record"}))
    assert "no room for a record" in supervise("status")[1]
