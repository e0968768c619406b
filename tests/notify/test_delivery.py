"""One message to one place, and the courier that tries again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from boxes import until
from listening import Listening

from supervisor import courier
from supervisor.edges import notify, proc
from supervisor.edges.files import read_json, to_json, write_atomic
from supervisor.edges.paths import Home, RunDir

# The server of these tests is a thread; the courier forks where there is none.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

NOTICE = {
    "id": "1f",
    "run": "dflash",
    "host": "h",
    "event": "halted",
    "title": "dflash: halted",
    "text": "no rung left",
}


def place(url: str = "", *command: str) -> notify.Place:
    (found,) = notify.places(url, command)
    return found


def test_a_webhook_gets_the_message_as_json_with_its_id(listening: Listening):
    assert notify.deliver(place(listening.url("/200/secret-path")), NOTICE) == ""
    (told,) = listening.posted()
    assert told["schema"] == "supervise.notice/v1"
    assert (told["id"], told["event"], told["body"]) == ("1f", "halted", "no rung left")
    assert told["text"] == "dflash: halted\nno rung left"


@pytest.mark.parametrize(
    ("path", "deadline_s", "why"),
    [
        ("/500/secret", 60.0, "HTTP 500"),
        ("/404/secret", 60.0, "HTTP 404"),
        ("/hang/secret", 3.0, "no end within 3 s"),
    ],
)
def test_what_was_not_taken_is_said_without_the_address(listening: Listening, path: str, deadline_s: float, why: str):
    assert notify.deliver(place(listening.url(path)), NOTICE, deadline_s=deadline_s) == why


def test_a_place_shows_no_address():
    urls = "https://hooks.example.com/T0/s3cret tgram://s3cret/1 nonsense"
    shown = repr(notify.places(urls, ("/usr/bin/tell", "--me")))
    assert shown == "(Place(1 (webhook)), Place(2 (tgram)), Place(3 (no address)), Place(command tell))"


def test_nobody_listens_there():
    assert notify.deliver(place("http://127.0.0.1:9/s3cret"), NOTICE) == "Connection refused"


def test_a_command_gets_it_on_its_standard_input_and_its_words_in_the_environment(tmp_path: Path):
    script = 'cat >"$0/in"; echo "$SUPERVISE_NOTICE_EVENT" >"$0/event"'
    assert notify.deliver(place("", "sh", "-c", script, str(tmp_path)), NOTICE) == ""
    assert json.loads((tmp_path / "in").read_text())["text"] == "no rung left"
    assert (tmp_path / "event").read_text() == "halted\n"


@pytest.mark.parametrize(
    ("command", "why"), [(("false",), "exit 1"), (("/nonexistent/tell",), "No such file or directory")]
)
def test_a_command_that_fails_is_told_as_such(command: tuple[str, ...], why: str):
    assert notify.deliver(place("", *command), NOTICE) == why


def test_a_command_that_hangs_is_ended_with_what_it_started(tmp_path: Path):
    script = 'sleep 600 & echo $! >"$0/pid"; wait'
    assert notify.deliver(place("", "sh", "-c", script, str(tmp_path)), NOTICE, deadline_s=3.0) == "no end within 3 s"
    pid = int((tmp_path / "pid").read_text())
    until(lambda: (seen := proc.stat(pid)) is None or proc.is_dead(seen), "what it started to be ended")


def test_apprise_delivers_to_its_own_kinds_of_address(listening: Listening):
    pytest.importorskip("apprise")
    assert notify.deliver(place(f"json://127.0.0.1:{listening.port}/secret"), NOTICE) == ""
    (told,) = listening.posted()
    assert (told["title"], told["message"]) == ("dflash: halted", "no rung left")
    assert notify.deliver(place(f"json://127.0.0.1:{listening.port}/500"), NOTICE).startswith("not taken")
    assert "does not know" in notify.deliver(place("nosuch://s3cret"), NOTICE)


def test_without_apprise_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "apprise", None)
    assert "supervise-training[notify]" in notify.deliver(place("slack://a/b/c"), NOTICE)


def put(run_path: Path, ident: str, **config: object) -> Path:
    (run_path / "outbox").mkdir(parents=True, exist_ok=True)
    path = run_path / "outbox" / f"{ident}.json"
    write_atomic(path, to_json({"notify": config, "notice": NOTICE}))
    return path


def test_a_message_is_tried_again_only_where_it_was_not_taken(
    tmp_path: Path, listening: Listening, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("TELL", f"{listening.url('/200/s3cret')} {listening.url('/500/s3cret')}")
    run = RunDir("a", tmp_path)
    path = put(tmp_path, "a", urls_from="TELL")
    courier.carry_all(run, tries_at_s=(0.0, 0.01, 0.02))
    assert sorted(where for _, where, _ in listening.told) == ["/200/s3cret", *["/500/s3cret"] * 3]
    came = read_json(courier.done_of(path))
    assert came is not None
    assert came["why"] == "2 (webhook): HTTP 500"
    assert "s3cret" not in capfd.readouterr().err


def test_a_place_that_hangs_holds_up_no_other(listening: Listening):
    hangs, takes = notify.places(f"{listening.url('/hang')} {listening.url('/200')}")
    came = notify.deliver_all((hangs, takes), NOTICE, deadline_s=6.0)
    assert came == {hangs.name: "no end within 6 s", takes.name: ""}


def test_nobody_to_tell_is_said_and_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TELL", raising=False)
    path = put(tmp_path, "a", urls_from="TELL")
    courier.carry_all(RunDir("a", tmp_path))
    assert (read_json(courier.done_of(path)) or {})["why"] == "nobody to tell: TELL is empty and there is no command"


def test_a_message_that_cannot_be_read_is_given_up(tmp_path: Path):
    path = put(tmp_path, "a")
    path.write_text("[]")
    courier.carry_all(RunDir("a", tmp_path))
    assert "cannot be read" in (read_json(courier.done_of(path)) or {})["why"]


def run_courier(home: Home, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SUPERVISE_HOME": str(home.root), **environ}
    return subprocess.run(
        [sys.executable, "-m", "supervisor.courier", *words], env=env, capture_output=True, text=True, timeout=60
    )


def test_the_courier_carries_all_that_waits_and_ends(tmp_path: Path, listening: Listening):
    home = Home(tmp_path)
    for ident in ("a", "b"):
        put(home.run("dflash").path, ident, urls_from="TELL")
    done = run_courier(home, "dflash", TELL=listening.url("/200/s3cret"))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(listening.posted()) == 2


def test_a_heartbeat_is_one_get_and_says_only_what_went_wrong(tmp_path: Path, listening: Listening):
    home = Home(tmp_path)
    assert run_courier(home, "dflash", "--beat", "PING", PING=listening.url("/200/s3cret")).returncode == 0
    failed = run_courier(home, "dflash", "--beat", "PING", PING=listening.url("/503/s3cret"))
    assert failed.stderr.endswith("heartbeat: HTTP 503\n")
    assert "s3cret" not in failed.stderr
    assert "no http address" in run_courier(home, "dflash", "--beat", "PING", PING="ftp://x").stderr
    assert [method for method, _, _ in listening.told] == ["GET", "GET"]
