"""The job's output: its last lines from the end of the file, over attempts, harmless on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading

import pytest
import recorded

from supervisor.cli import logs
from supervisor.edges.paths import Home


def run_with(home: Home, *outputs: bytes):
    run = recorded.write(home.root, recorded.first_attempt() + recorded.second_attempt())
    for n, output in enumerate(outputs, 1):
        run.attempt(n).path.mkdir(parents=True)
        run.attempt(n).output.write_bytes(output)
    return run


@pytest.mark.parametrize(
    ("content", "count", "shown"),
    [
        (b"", 3, b""),
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nb\nc\n", 9, b"a\nb\nc\n"),
        (b"a\nb\n", 0, b""),
        (b"\n\n\n", 2, b"\n\n"),
        (b"x" * 200_000 + b"\n" + b"y" * 200_000 + b"\n", 1, b"y" * 200_000 + b"\n"),
        (b"l\n" * 100_000, 70_000, b"l\n" * 70_000),
    ],
)
def test_the_last_lines_are_found_from_the_end(tmp_path, content, count, shown):
    path = tmp_path / "log"
    path.write_bytes(content)
    with open(path, "rb") as file:
        logs.seek_last_lines(file.fileno(), count)
        assert file.read() == shown


def test_a_huge_log_is_not_read_from_its_beginning(tmp_path):
    path = tmp_path / "log"
    with open(path, "wb") as file:
        file.truncate(50 * 2**30)  # sparse
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast\n")
    with open(path, "rb") as file:
        logs.seek_last_lines(file.fileno(), 1)
        assert file.read() == b"last\n"


def test_the_last_attempt_is_shown_unless_another_is_named(home, supervise):
    run_with(home, b"one\n", b"two\n")
    assert supervise("logs")[1] == "two\n"
    assert supervise("logs", "-p")[1] == "one\n"
    assert supervise("logs", "--attempt", "1")[1] == "one\n"
    code, _, err = supervise("logs", "--attempt", "7")
    assert code == 4
    assert "1, 2" in err
    assert supervise("logs", "-p", "--attempt", "1")[0] == 2


def test_a_run_without_output_says_so(home, supervise):
    run_with(home)
    code, _, err = supervise("logs")
    assert code == 4
    assert "no output yet" in err
    run_with(Home(home.root / "b"), b"x")


def test_no_attempt_before_the_first_one(home, supervise):
    run_with(home, b"one\n")
    code, _, err = supervise("logs", "-p")
    assert code == 4
    assert "no attempt before" in err


def test_following_goes_over_attempts_and_ends_with_the_run(home, capfd):
    run = run_with(home, b"one\n")
    turns = iter([
        lambda: run.attempt(1).output.write_bytes(b"one\nmore\n"),
        lambda: (run.attempt(2).path.mkdir(), run.attempt(2).output.write_bytes(b"two\n")),
        lambda: run.attempt(2).output.write_bytes(b"two\nlast\n"),
        run.open.unlink,
    ])  # fmt: skip
    seen = b"".join(logs.following(run, run.attempt(1), 10, False, nap=lambda: next(turns)()))
    assert seen == b"one\nmore\ntwo\nlast\n"
    assert "attempt 2" in capfd.readouterr().err


def test_following_one_attempt_ends_with_that_attempt(home):
    run = run_with(home, b"one\n")
    turns = iter([lambda: run.attempt(1).exit_json.write_text("{}")])
    assert b"".join(logs.following(run, run.attempt(1), 10, True, nap=lambda: next(turns)())) == b"one\n"


def test_a_pipe_gets_the_output_as_it_was(home, supervise):
    run_with(home, b"\x1b[31mred\x1b[0m \x07\n")
    assert supervise("logs")[1] == "\x1b[31mred\x1b[0m \x07\n"


def test_on_a_terminal_the_output_cannot_move_the_cursor(home):
    evil = b"\x1b[2J\x1b]0;title\x07ok \x1b[31mred\x1b[0m \x9b2J \xe2\x80\xae rtl \x08\x08 \xff\n"
    run_with(home, evil)
    master, slave = pty.openpty()
    argv = [sys.executable, "-m", "supervisor.cli", "logs", "dflash"]
    ran = subprocess.Popen(argv, stdout=slave, stderr=subprocess.DEVNULL)
    os.close(slave)
    shown = b""
    reading = threading.Thread(target=ran.wait)
    reading.start()
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # EIO: the other side is closed
            break
        if not data:
            break
        shown += data
    reading.join()
    os.close(master)
    assert ran.returncode == 0
    assert b"ok red" in shown
    assert not any(bad in shown for bad in (b"\x1b", b"\x07", b"\x08", b"\xe2\x80\xae", b"\xc2\x9b"))
