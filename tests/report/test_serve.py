"""`supervise serve` and `supervise metrics`: the same page live, figures, and who may see them."""

from __future__ import annotations

import http.client
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent.parent / "views"))  # recorded.py
import recorded

from supervisor.cli import metrics, serve
from supervisor.edges.paths import Home

NIGHT = recorded.first_attempt() + recorded.second_attempt()
WITHIN_S = 60.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUPERVISE_HOME", str(tmp_path / "home"))
    recorded.write(tmp_path / "home", NIGHT, from_s=time.time() - 600)
    return tmp_path / "home"


def test_the_list_of_runs_leads_to_the_page_of_each(home: Path):
    pages = serve.Pages(Home(home))
    index = pages("")
    assert index is not None
    assert b'<a href="dflash/">' in index.body
    page = pages("dflash/")
    assert page is not None
    assert b"attempt-2" in page.body
    assert b"connect-src 'self'" in page.body
    assert page.etag


def test_the_page_is_made_once_for_all_who_look_at_the_same_moment(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serve, "FRESH_S", 600.0)  # how long a moment is
    pages = serve.Pages(Home(home))
    assert pages("dflash/") is pages("dflash/")


def test_a_page_that_takes_long_is_made_less_often(home: Path, monkeypatch: pytest.MonkeyPatch):
    clock, made = [100.0], []

    def slow(_: serve.Pages, name: str) -> serve.Answer:
        clock[0] += 3.0
        made.append(name)
        return serve.Answer(b"", "")

    monkeypatch.setattr(serve.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(serve.Pages, "_report", slow)
    pages = serve.Pages(Home(home))
    pages("dflash/")
    clock[0] += 0.9 * 3.0 / serve.SHARE
    pages("dflash/")
    assert len(made) == 1
    clock[0] += 0.2 * 3.0 / serve.SHARE
    pages("dflash/")
    assert len(made) == 2


@pytest.mark.parametrize("path", ["dflash", "other/", "../", "dflash/../dflash/", "dflash/metrics", "%2e%2e/", "/"])
def test_what_is_no_run_is_not_there(home: Path, path: str):
    assert serve.Pages(Home(home))(path) is None


def test_a_damaged_journal_is_said_and_the_server_lives(home: Path):
    journal = Home(home).run("dflash").journal
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], b'{"n": 7}\n', *lines[2:]]))
    answer = serve.Pages(Home(home))("dflash/")
    assert answer is not None
    assert answer.type.startswith("text/plain")
    assert b"journal" in answer.body


def test_a_token_is_kept_where_only_its_owner_can_read_it(tmp_path: Path):
    kept = tmp_path / "token"
    made = serve._kept_token(kept)
    assert serve.TOKEN.fullmatch(made)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert serve._kept_token(kept) == made


@pytest.mark.parametrize("held", [b"", b"short\n", b"a/b" * 10, b"\xff" * 30])
def test_a_file_that_holds_no_token_is_refused(home: Path, tmp_path: Path, held: bytes):
    kept = tmp_path / "token"
    kept.write_bytes(held)
    kept.chmod(0o600)
    said = CliRunner().invoke(serve.command, ["--token-file", str(kept)])
    assert said.exit_code == 2
    assert "holds no token" in said.output


def test_a_token_that_others_can_read_is_refused(home: Path, tmp_path: Path):
    kept = tmp_path / "token"
    kept.write_text("x" * 32)
    kept.chmod(0o644)
    said = CliRunner().invoke(serve.command, ["--token-file", str(kept)])
    assert said.exit_code == 2
    assert "chmod 600" in said.output


def test_metrics_are_printed_or_replace_a_file_that_the_collector_may_read(home: Path, tmp_path: Path):
    said = CliRunner().invoke(metrics.command, [])
    assert 'supervise_step{run="dflash"}' in said.output
    file = tmp_path / "supervise.prom"
    assert CliRunner().invoke(metrics.command, ["dflash", "--textfile", str(file)]).exit_code == 0
    assert 'supervise_step{run="dflash"}' in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert CliRunner().invoke(metrics.command, ["--every", "15s"]).exit_code == 2


@contextmanager
def serving(home: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "supervisor.cli", "serve", *options],
        env=os.environ | {"SUPERVISE_HOME": str(home)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    timer = threading.Timer(WITHIN_S, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        timer.cancel()
        process.kill()
        process.communicate()


@pytest.mark.real
def test_it_serves_until_ctrl_c_and_a_second_one_on_its_port_is_refused(home: Path):
    with serving(home) as (process, address):
        parts = urlsplit(address)
        link = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=WITHIN_S)
        link.request("GET", f"{parts.path}metrics")
        answer = link.getresponse()
        assert answer.status == 200
        assert b"supervise_run_open" in answer.read()
        link.close()
        second = subprocess.run(
            [sys.executable, "-m", "supervisor.cli", "serve", "--port", str(parts.port)],
            env=os.environ | {"SUPERVISE_HOME": str(home)}, capture_output=True, text=True, timeout=WITHIN_S,
        )  # fmt: skip
        assert second.returncode == 7
        assert "--port" in second.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 0
