"""supervisor.log: for people, without secrets, never in the way."""

from __future__ import annotations

import errno
import os
import re

import pytest

from supervisor.edges.log import KEPT_LINES, LateLog, LogFile, open_log
from supervisor.edges.secrets import Redactor


def test_events_are_one_line_each_and_hold_no_secret(tmp_path):
    log = open_log(tmp_path / "supervisor.log", Redactor(["hf_secret"]), run="dflash")
    log.warning("stopping", attempt=1, gpu=5, short_by_mib=174.0, argv=["x", "--token=hf_secret"], ok=True, why=None)
    log.info("a text", text="line one\nline two")
    first, second = (tmp_path / "supervisor.log").read_text().splitlines()
    assert "level=warning event=stopping" in first
    for part in ("run=dflash", "attempt=1", "gpu=5", "short_by_mib=174.0", "ok=true", "<secret>"):
        assert part in first
    assert "hf_secret" not in first
    assert "line two" in second
    assert (tmp_path / "supervisor.log").stat().st_mode & 0o777 == 0o600


def test_a_traceback_is_one_line_and_redacted(tmp_path):
    log = open_log(tmp_path / "supervisor.log", Redactor(["hf_secret"]))
    try:
        raise RuntimeError("cannot use hf_secret")
    except RuntimeError:
        log.exception("failed")
    (line,) = (tmp_path / "supervisor.log").read_text().splitlines()
    assert "RuntimeError: cannot use <secret>" in line


def test_a_full_log_is_set_aside_once(tmp_path):
    log = LogFile(tmp_path / "supervisor.log", cap_bytes=100)
    for n in range(40):
        log.msg(f"line {n:02d}")
    log.close()
    log.close()
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(sizes) == {"supervisor.log", "supervisor.log.1"}
    assert max(sizes.values()) < 120
    assert "line 39" in (tmp_path / "supervisor.log").read_text()


def test_a_disk_that_takes_no_line_costs_the_line_and_says_so_later(tmp_path, monkeypatch):
    log = LogFile(tmp_path / "supervisor.log")

    def full(fd, data):
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        log.msg("one")
        log.msg("two")
    log.msg("three")
    log.msg("four")
    log.close()
    assert (tmp_path / "supervisor.log").read_text().splitlines() == ["dropped_lines=2", "three", "four"]


def test_a_log_that_cannot_be_opened_is_no_reason_to_end(tmp_path):
    log = LogFile(tmp_path / "missing" / "supervisor.log")
    log.msg("one")
    assert log.dropped == 1


@pytest.mark.parametrize("method", ["debug", "info", "warning", "error", "critical"])
def test_every_level_gets_through(tmp_path, method):
    log = open_log(tmp_path / "supervisor.log", Redactor([]))
    getattr(log, method)("said")
    assert f"level={method}" in (tmp_path / "supervisor.log").read_text()


def test_a_late_log_keeps_its_lines_with_their_times_until_it_is_opened(tmp_path):
    path = tmp_path / "supervisor.log"
    log = LateLog(path, Redactor([]), run="dflash")
    log.info("Launched", attempt=1, token="hf_secret")
    log.redactor = Redactor(["hf_secret"])
    assert not path.exists()
    log.open()
    log.info("Answered", exit=0)
    first, second = path.read_text().splitlines()
    assert "event=Launched" in first
    assert "<secret>" in first
    assert "event=Answered" in second
    times = [line.split()[0] for line in (first, second)]
    assert times == sorted(times)
    assert re.fullmatch(r"timestamp=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", times[0])


def test_an_error_opens_a_late_log_and_so_do_too_many_lines(tmp_path):
    failed = LateLog(tmp_path / "failed.log", Redactor([]))
    failed.info("before")
    failed.error("supervisor_ended", error="x", exc_info=RuntimeError("why"))
    assert "RuntimeError: why" in (tmp_path / "failed.log").read_text().splitlines()[1]
    chatty = LateLog(tmp_path / "chatty.log", Redactor([]))
    for n in range(KEPT_LINES + 1):
        chatty.info("line", n=n)
    assert len((tmp_path / "chatty.log").read_text().splitlines()) == KEPT_LINES + 1
