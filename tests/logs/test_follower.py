"""Following log files: nothing lost, nothing told twice, whatever happens to the files."""

from __future__ import annotations

import errno
import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.core.evidence import Hit, WatchHit
from supervisor.edges import logs as module
from supervisor.edges import logs_wake
from supervisor.edges.logs import Follower, last_line
from supervisor.edges.logs_wake import Waker, directory_of
from supervisor.signatures import Matcher

OOM = b"RuntimeError: CUDA error: out of memory\n"


@pytest.fixture(scope="module")
def matcher():
    made = Matcher(watch={"progress": r"step (?P<step>\d+)\b"})
    made.warm()  # as a follower's owner does before a burst comes
    return made


@pytest.fixture
def follow(matcher):
    """Makes followers and closes them."""
    made = []

    def make(*files, saved=None, **options):
        follower = Follower([str(file) for file in files], matcher, saved, **options)
        made.append(follower)
        return follower

    yield make
    for follower in made:
        follower.close()


@pytest.fixture
def clock(monkeypatch):
    """CLOCK_BOOTTIME as the follower sees it, moved by hand."""

    class Clock:
        now_s = 1000.0

    monkeypatch.setattr(module.time, "clock_gettime", lambda _clock: Clock.now_s)
    monkeypatch.setattr(module.time, "time", lambda: 2e9)
    return Clock


def append(path, data):
    with Path(path).open("ab") as stream:
        stream.write(data)


def drained(follower):
    found = follower.poll()
    while follower.lagging:
        found += follower.poll()
    return found


def stepped(found):
    return [int(hit.groups["step"]) for hit in found if isinstance(hit, WatchHit)]


def failures(found):
    return [hit for hit in found if isinstance(hit, Hit)]


def test_what_is_written_is_found_once(tmp_path, follow):
    log = tmp_path / "output.log"
    append(log, b"step 1\n")
    follower = follow(log)
    assert stepped(drained(follower)) == [1]
    append(log, b"step 2\n" + OOM)
    found = drained(follower)
    assert (stepped(found), [hit.line for hit in failures(found)]) == ([2], [3])
    assert drained(follower) == []


def test_a_file_may_appear_later(tmp_path, follow):
    follower = follow(tmp_path / "later" / "output.log")
    assert drained(follower) == []
    (tmp_path / "later").mkdir()
    append(tmp_path / "later" / "output.log", b"step 1\n")
    assert stepped(drained(follower)) == [1]


def test_files_of_globs_are_read_from_their_size_at_the_start_and_new_ones_whole(tmp_path, follow, clock):
    append(tmp_path / "rank0.log", b"step 1\nstep 2\nhalf a line")
    follower = follow(tmp_path / "output.log", globs=[str(tmp_path / "rank*.log")])
    assert drained(follower) == []
    append(tmp_path / "rank0.log", b" of step 3\n")
    append(tmp_path / "rank1.log", b"step 9\n")
    clock.now_s += 2
    found = drained(follower)
    assert sorted(stepped(found)) == [3, 9]
    assert [hit.line for hit in found if hit.file.endswith("rank0.log")] == [3]


def test_a_glob_may_be_a_plain_path_and_a_tree(tmp_path, follow, clock):
    follower = follow(globs=[str(tmp_path / "plain.log"), str(tmp_path / "**" / "stderr.log")])
    append(tmp_path / "plain.log", b"step 1\n")
    (tmp_path / "a" / "0").mkdir(parents=True)
    append(tmp_path / "a" / "0" / "stderr.log", b"step 2\n")
    clock.now_s += 2
    assert sorted(stepped(drained(follower))) == [1, 2]


def test_a_new_follower_goes_on_where_the_saved_one_stood(tmp_path, follow):
    log = tmp_path / "output.log"
    append(log, b"step 1\nstep 2\nst")
    first = follow(log)
    assert stepped(drained(first)) == [1, 2]
    saved = json.loads(json.dumps(first.saved()))
    append(log, b"ep 3\n" + OOM)
    found = drained(follow(log, saved=saved))
    assert (stepped(found), [hit.line for hit in failures(found)]) == ([3], [4])


def test_files_unknown_to_what_was_saved_are_read_whole(tmp_path, follow):
    append(tmp_path / "rank0.log", b"step 1\n")
    globs = [str(tmp_path / "rank*.log")]
    saved = follow(globs=globs).saved()
    append(tmp_path / "rank1.log", b"step 7\n")
    assert stepped(drained(follow(globs=globs, saved=saved))) == [7]


def test_a_file_that_is_gone_keeps_its_place_until_it_is_there_again(tmp_path, follow):
    log = tmp_path / "output.log"
    append(log, b"step 1\n")
    first = follow(log)
    drained(first)
    moved = tmp_path / "moved"
    log.rename(moved)
    second = follow(log, saved=first.saved())
    assert drained(second) == []
    third = follow(log, saved=second.saved())
    moved.rename(log)
    append(log, b"step 2\n")
    assert stepped(drained(third)) == [2]


def test_a_saved_place_in_another_file_of_that_name_is_not_used(tmp_path, follow):
    log = tmp_path / "output.log"
    append(log, b"step 1\nstep 2\n")
    first = follow(log)
    drained(first)
    log.unlink()
    append(log, b"step 8\nstep 9, a longer one\n")
    assert stepped(drained(follow(log, saved=first.saved()))) == [8, 9]


def test_rotation_by_rename_reads_the_old_file_to_its_end_first(tmp_path, follow):
    log = tmp_path / "output.log"
    append(log, b"step 1\n")
    follower = follow(log)
    drained(follower)
    append(log, b"step 2\nRuntimeError: CUDA error: out of memory")
    log.rename(tmp_path / "output.log.1")
    append(tmp_path / "output.log.1", b"\nstep 3\n")
    append(log, b"step 4\n")
    found = drained(follower) + drained(follower)
    assert stepped(found) == [2, 3, 4]
    assert len(failures(found)) == 1


def test_a_file_renamed_away_is_read_on_while_no_other_takes_its_name(tmp_path, follow):
    log = tmp_path / "output.log"
    append(log, b"step 1\n")
    follower = follow(log)
    drained(follower)
    log.rename(tmp_path / "away")
    append(tmp_path / "away", b"step 2\n")
    assert stepped(drained(follower)) == [2]


def test_delete_and_recreate_with_the_same_inode_and_a_larger_size_starts_anew(tmp_path, follow):
    log = tmp_path / "output.log"
    append(log, b"step 1\n")
    follower = follow(log)
    drained(follower)
    # The same inode with other contents: what a file system that reuses inodes at once looks like.
    with log.open("r+b") as stream:
        stream.truncate(0)
        stream.write(b"step 5\nstep 6\nstep 7\n")
    assert stepped(drained(follower)) == [5, 6, 7]


def test_truncation_starts_anew(tmp_path, follow):
    log = tmp_path / "output.log"
    append(log, b"step 1\nstep 2\n")
    follower = follow(log)
    drained(follower)
    os.truncate(log, 0)
    assert drained(follower) == []
    append(log, b"step 3\n")
    assert stepped(drained(follower)) == [3]


def test_a_nul_hole_is_skipped(tmp_path, follow):
    log = tmp_path / "output.log"
    append(log, b"\0" * 5001 + b"step 3\n" + OOM)
    found = drained(follow(log))
    assert (stepped(found), len(failures(found))) == ([3], 1)


def test_an_unfinished_line_is_looked_at_after_a_second_of_quiet(tmp_path, follow, clock):
    log = tmp_path / "output.log"
    follower = follow(log)
    append(log, b"\r 10%|# | 1/10" + OOM[:-1])
    assert drained(follower) == []
    clock.now_s += 0.5
    assert drained(follower) == []
    clock.now_s += 0.6
    assert len(failures(drained(follower))) == 1
    append(log, b"\n")
    assert drained(follower) == []


def test_flush_looks_at_unfinished_lines_at_once(tmp_path, follow):
    log = tmp_path / "output.log"
    append(log, OOM[:-1])
    follower = follow(log)
    assert drained(follower) == []
    assert len(failures(follower.flush())) == 1


def test_a_burst_is_caught_up_with_in_turns_within_the_budget(tmp_path, follow, monkeypatch):
    monkeypatch.setattr(module, "_SLICE_S", 600.0)  # what ends a turn here is the budget, however slow the box is
    big, small = tmp_path / "big.log", tmp_path / "small.log"
    big.write_bytes(b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 50_000 + b"step 5\n")
    append(small, b"step 1\n")
    follower = follow(big, small, budget=1 << 20)
    assert stepped(follower.poll()) == [1]
    assert follower.lagging
    polls = 1
    found = []
    while follower.lagging:
        found += follower.poll()
        polls += 1
    assert stepped(found) == [5]
    assert polls == 5


def test_sixty_four_files_are_all_heard(tmp_path, follow):
    paths = [tmp_path / f"rank{n}.log" for n in range(64)]
    for n, path in enumerate(paths):
        append(path, b"step %d\n" % n)
    follower = follow(*paths)
    assert sorted(stepped(drained(follower))) == list(range(64))


def test_a_write_wakes_whoever_waits(tmp_path, follow):
    log = tmp_path / "output.log"
    append(log, b"step 1\n")
    follower = follow(log)
    drained(follower)
    assert select.select([follower.wake_fd], [], [], 0)[0] == []
    append(log, b"step 2\n")
    assert select.select([follower.wake_fd], [], [], 30)[0]
    assert stepped(drained(follower)) == [2]
    assert select.select([follower.wake_fd], [], [], 0)[0] == []


def test_a_file_that_appears_for_a_glob_wakes_whoever_waits(tmp_path, follow):
    follower = follow(globs=[str(tmp_path / "rank*.log")])
    drained(follower)
    append(tmp_path / "rank3.log", b"step 3\n")
    assert select.select([follower.wake_fd], [], [], 30)[0]
    assert stepped(drained(follower)) == [3]


def test_a_watched_directory_that_is_recreated_is_watched_again(tmp_path, follow, clock):
    folder = tmp_path / "logs"
    folder.mkdir()
    follower = follow(globs=[str(folder / "*.log")])
    drained(follower)
    folder.rmdir()
    folder.mkdir()
    woken = False
    for n in range(100):  # the old watch ends in a thread of its own: until then there are no wake-ups
        clock.now_s += 2
        drained(follower)
        append(folder / f"{n}.log", b"step 1\n")
        woken = bool(select.select([follower.wake_fd], [], [], 0.3)[0])
        if woken:
            break
    assert woken
    assert 1 in stepped(drained(follower))


def test_without_inotify_the_log_is_still_read(tmp_path, follow, monkeypatch):
    class Libc:
        @staticmethod
        def inotify_init1(_flags):
            return -1

    monkeypatch.setattr(logs_wake.ctypes, "CDLL", lambda *_a, **_k: Libc)
    monkeypatch.setattr(logs_wake.ctypes, "get_errno", lambda: errno.EMFILE)
    log = tmp_path / "output.log"
    append(log, b"step 1\n")
    follower = follow(log)
    assert "EMFILE" in follower.why_polling
    assert stepped(drained(follower)) == [1]


def test_a_full_table_of_watches_is_not_a_full_disk(tmp_path, follow, monkeypatch):
    real = Waker.watch_file

    def refused(self, fd):
        monkeypatch.setattr(logs_wake.ctypes, "get_errno", lambda: errno.ENOSPC)
        real(self, -1)

    monkeypatch.setattr(Waker, "watch_file", refused)
    append(tmp_path / "output.log", b"step 1\n")
    follower = follow(tmp_path / "output.log")
    assert follower.why_polling.startswith("inotify: ENOSPC")
    assert stepped(drained(follower)) == [1]


def test_where_watchdog_cannot_start_globs_are_still_followed(tmp_path, follow, monkeypatch, clock):
    def refused():
        raise OSError(errno.EMFILE, "inotify instance limit reached")

    monkeypatch.setattr(Waker, "_start", staticmethod(refused))
    follower = follow(globs=[str(tmp_path / "*.log")])
    assert "EMFILE" in follower.why_polling
    append(tmp_path / "a.log", b"step 1\n")
    clock.now_s += 2
    assert stepped(drained(follower)) == [1]


def test_out_of_descriptors_the_file_is_tried_again(tmp_path, follow, monkeypatch):
    log = tmp_path / "output.log"
    append(log, b"step 1\n")
    real = os.open

    def refused(path, *args, **options):
        if str(path).endswith("output.log"):
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path, *args, **options)

    monkeypatch.setattr(module.os, "open", refused)
    follower = follow(log)
    assert drained(follower) == []
    monkeypatch.setattr(module.os, "open", real)
    assert stepped(drained(follower)) == [1]


def test_a_file_system_in_trouble_loses_nothing(tmp_path, follow, monkeypatch):
    log = tmp_path / "output.log"
    append(log, b"step 1\n")
    follower = follow(log)
    real = os.pread

    def stale(_fd, _size, _at):
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(module.os, "pread", stale)
    assert drained(follower) == []
    monkeypatch.setattr(module.os, "pread", real)
    append(log, b"step 2\n")
    assert stepped(drained(follower)) == [1, 2]


def test_more_files_than_descriptors_are_counted_as_skipped(tmp_path, follow, monkeypatch):
    monkeypatch.setattr(module, "_FILES", 2)
    for n in range(3):
        append(tmp_path / f"{n}.log", b"step 1\n")
    follower = follow(globs=[str(tmp_path / "*.log")])
    assert (len(follower.paths), follower.skipped) == (2, 1)


def test_the_last_line_is_clean_and_the_time_of_output_known(tmp_path, follow, clock):
    log = tmp_path / "output.log"
    append(log, b"step 1\n\x1b[32m 10%|#\x1b[0m\r\x1b[32m 20%|##\x1b[0m\r\n\n")
    follower = follow(log)
    drained(follower)
    assert follower.last_line(str(log)) == "20%|##"
    assert follower.last_output_boot_s(str(log)) == clock.now_s
    clock.now_s += 5
    drained(follower)
    assert follower.last_output_boot_s(str(log)) == clock.now_s - 5
    again = follow(log, saved=follower.saved())
    drained(again)
    assert again.last_line(str(log)) == "20%|##"
    assert again.last_line("unknown") == ""
    assert again.last_output_boot_s("unknown") is None


def test_last_line_of_nothing_is_empty():
    assert last_line(b"\x1b[0m\r\n \n") == ""
    assert last_line(b"") == ""


@pytest.mark.parametrize(
    ("pattern", "directory"),
    [("/a/b/c.log", "/a/b"), ("/a/b/*.log", "/a/b"), ("/a/*/c/d.log", "/a"), ("x.log", "."), ("/a/**/x", "/a")],
)
def test_the_directory_to_watch_stands_before_the_first_wildcard(pattern, directory):
    assert directory_of(pattern) == directory


def test_closing_twice_is_harmless(tmp_path, matcher):
    follower = Follower([str(tmp_path / "x")], matcher, globs=[str(tmp_path / "*.log")])
    follower.close()
    follower.close()


@pytest.mark.real
def test_a_real_writer_is_followed_line_by_line(tmp_path, follow):
    log = tmp_path / "output.log"
    log.touch()
    follower = follow(log)
    code = f"import os\nfor n in range(2000): os.write(1, b'step %d\\n' % n)\nos.write(1, {OOM!r})"
    with log.open("ab") as stream:
        writer = subprocess.Popen([sys.executable, "-c", code], stdout=stream)
    found = []
    try:
        while not failures(found):
            select.select([follower.wake_fd], [], [], 30)
            found += follower.poll()
    finally:
        writer.wait(30)
    assert stepped(found)[-1] == 1999
    assert failures(found)[0].line == 2001
