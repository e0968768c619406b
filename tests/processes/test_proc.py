"""What the kernel says of a process, as it is printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from attempts import Stage, actor, until

from supervisor.core.evidence import ProcessId
from supervisor.edges import proc

LINE = b"%d (%s) %s 7 8 9 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 %d 0 1234 0 0\n"


def test_a_name_with_brackets_and_spaces_does_not_shift_the_fields():
    seen = proc.parse_stat(LINE % (5, b"a) S 1 (b", b"R", 3))
    assert (seen.pid, seen.comm, seen.state, seen.ppid, seen.pgid, seen.sid) == (5, "a) S 1 (b", "R", 7, 8, 9)
    assert (seen.threads, seen.start_ticks) == (3, 1234)


def test_a_torn_line_is_no_process():
    assert proc.parse_stat(b"5 (x) S 1 2") is None
    assert proc.parse_stat(b"") is None


def test_a_zombie_is_dead_unless_another_thread_lives():
    assert proc.is_dead(proc.parse_stat(LINE % (5, b"x", b"Z", 1)))
    assert not proc.is_dead(proc.parse_stat(LINE % (5, b"x", b"Z", 2)))
    assert not proc.is_dead(proc.parse_stat(LINE % (5, b"x", b"D", 1)))


def test_a_process_is_told_by_its_start_ticks():
    ticks = proc.start_ticks(os.getpid())
    assert proc.is_alive(ProcessId(os.getpid(), ticks))
    assert not proc.is_alive(ProcessId(os.getpid(), ticks + 1))
    assert proc.start_ticks(2**22 + 1) is None


def test_an_environment_is_what_was_given_at_exec_and_the_first_of_equal_names():
    child = subprocess.Popen(["sleep", "1000"], env={"A": "1", "B": "x=y", "LONG": "z" * 100_000})
    try:
        until("it runs its program", lambda: "LONG" in (proc.environ(child.pid) or {}))
        found = proc.environ(child.pid)
        assert (found["A"], found["B"], len(found["LONG"])) == ("1", "x=y", 100_000)
        assert proc.cmdline(child.pid) == "sleep 1000"
        assert Path(proc.exe(child.pid)).name in ("sleep", "coreutils", "busybox")
        assert proc.uid(child.pid) == os.getuid()
    finally:
        child.kill()
        child.wait()
    assert proc.environ(child.pid) is None
    assert (proc.argv(child.pid), proc.cmdline(child.pid), proc.exe(child.pid), proc.wchan(child.pid)) == (
        (),
        "",
        "",
        "",
    )


def test_the_memory_of_a_process_without_main_thread_is_read_through_a_live_one(stage: Stage):
    headless = stage.launch(actor("headless")).wait_for("headless")["headless"]
    until("the leader's entry is a zombie", lambda: proc.stat(headless).state == "Z")
    assert len(proc.threads(headless)) == 2
    assert proc.environ(headless)["SUPERVISE_TOKEN"] == stage.token()
    assert proc.argv(headless)[-1] == "headless"


def test_everybody_is_in_one_listing_and_children_are_below_their_parents():
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"])
    try:
        stats = proc.all_stats()
        assert child.pid in proc.children_map(stats)[os.getpid()]
        assert stats[os.getpid()].pid == os.getpid()
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


def test_this_boot_and_this_namespace_have_names():
    assert len(proc.boot_id()) == 36
    assert proc.pid_namespace_inode() > 0
    assert proc.pid1_start_ticks() is not None
    now = proc.now()
    assert now.boot_id == proc.boot_id()
    assert now.boot_s > 0
