"""What the runner writes down of its descendants: facts, once each, and never a secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attempts import until

from supervisor.edges import descendants, proc
from supervisor.edges.descendants import Descendants

pytestmark = pytest.mark.real

CHILD = [sys.executable, "-I", "-S", "-c", "import sys; print('in place', flush=True); sys.stdin.read()"]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    started.stdout.readline()
    yield started
    started.stdin.close()
    started.stdout.close()
    started.kill()
    started.wait()


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def test_a_descendant_is_written_once_and_not_again(tmp_path: Path, child):
    path = tmp_path / "members.jsonl"
    family = Descendants(os.getpid(), str(path))
    for _ in range(4):
        family.look()
    mine = [line for line in lines(path) if line["pid"] == child.pid]
    assert [(m["start_ticks"], m["sid"]) for m in mine] == [(proc.start_ticks(child.pid), os.getsid(0))]
    assert mine[0]["cmdline"].startswith(sys.executable)


def test_a_process_below_somebody_else_is_not_written(tmp_path: Path, child):
    path = tmp_path / "members.jsonl"
    Descendants(child.pid, str(path)).look()
    assert lines(path) == []


def test_a_grandchild_is_written_with_its_own_session(tmp_path: Path):
    path = tmp_path / "members.jsonl"
    shell = subprocess.Popen(
        ["sh", "-c", 'setsid "$@"; true', "sh", *CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        shell.stdout.readline()
        Descendants(os.getpid(), str(path)).look()
        (below,) = [line for line in lines(path) if line["sid"] == line["pid"]]
        assert proc.stat(below["pid"]).ppid == shell.pid
    finally:
        shell.stdin.close()
        shell.stdout.close()
        shell.wait(30)


def test_a_full_disk_keeps_the_lines_for_later(tmp_path: Path, child):
    path = tmp_path / "away" / "members.jsonl"
    family = Descendants(os.getpid(), str(path))
    family.look()
    path.parent.mkdir()
    family.look()
    assert child.pid in {line["pid"] for line in lines(path)}


def test_a_file_that_has_grown_too_long_keeps_the_living_only(tmp_path: Path, child, monkeypatch):
    path = tmp_path / "members.jsonl"
    monkeypatch.setattr(descendants, "FILE_MAX", 100)
    family = Descendants(os.getpid(), str(path))
    gone = subprocess.Popen(CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    gone.stdout.readline()
    family.leader(gone.pid, ["train"], "boot")
    family.look()
    assert {gone.pid, child.pid} <= {line["pid"] for line in lines(path)}
    gone.communicate(b"")
    more = subprocess.Popen(CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    more.stdout.readline()
    family.look()
    more.communicate(b"")
    assert lines(path)[0]["leader"]
    assert lines(path)[0]["pid"] == gone.pid
    kept = {line["pid"] for line in lines(path)[1:]}  # with whoever else this process has for a child
    assert {child.pid, more.pid} <= kept and gone.pid not in kept
    assert not (tmp_path / "members.jsonl.tmp").exists()


def test_a_title_that_counts_steps_is_written_a_few_times_only(tmp_path: Path, child, monkeypatch):
    path = tmp_path / "members.jsonl"
    family = Descendants(os.getpid(), str(path))
    monkeypatch.setattr(descendants, "YOUNG", 100)
    titles = iter(range(1000))
    monkeypatch.setattr(proc, "cmdline", lambda pid: f"step {next(titles)}")
    for _ in range(20):
        family.look()
    mine = [line for line in lines(path) if line["pid"] == child.pid]
    assert len(mine) == descendants.TITLES_MAX


def test_values_that_are_hidden_are_never_written_not_even_in_part(tmp_path: Path):
    path = tmp_path / "members.jsonl"
    family = Descendants(os.getpid(), str(path), hide=["secret", "secret-longer"])
    family.leader(os.getpid(), ["train", "--key=secret-longer", "x" * 1000], "boot")
    (line,) = lines(path)
    assert line["cmdline"].startswith("train --key=<secret> xxx")
    assert len(line["cmdline"]) == descendants.CMDLINE_MAX
    assert (line["leader"], line["boot_id"]) == (True, "boot")
    assert until("the file is there", path.exists)
    assert path.stat().st_mode & 0o777 == 0o600
