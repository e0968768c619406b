"""The journal: what was acknowledged is there after every crash, and only a last line is ever mended."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from supervisor.core.evidence import Instant
from supervisor.edges import journal as module
from supervisor.edges import journal_lines
from supervisor.edges.journal import Journal, JournalFull, JournalLost, make_reserve
from supervisor.edges.journal_lines import JournalDamaged
from supervisor.edges.journal_tail import Tail, read_plain

AT = Instant(boot_id="b", boot_s=12.5, wall_s=1.7e9)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def write(path, *types):
    journal = Journal.open(path, writer=True)
    for one in types:
        journal.append(one, {"x": one}, AT)
    journal.close()
    return path.read_bytes()


def types(path):
    return [record.type for record in Journal.open(path, writer=False).read()]


def test_records_come_back_numbered_from_one(path):
    journal = Journal.open(path, writer=True)
    assert journal.append("A", {"text": "ä\n\u2028", "loss": float("inf"), "none": None}, AT) == 1
    assert journal.append("B", {}, AT) == 2
    assert journal.last_n == 2
    first, second = journal.read()
    assert (first.n, first.type, first.at) == (1, "A", AT)
    assert first.data == {"text": "ä\n\u2028", "loss": float("inf"), "none": None}
    assert [record.n for record in journal.read(after=1)] == [second.n] == [2]
    assert [plain["type"] for plain in read_plain(path)] == ["A", "B"]
    journal.close()
    journal.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes().count(b"\n") == 2


def test_a_line_is_what_the_contract_says(path):
    line = json.loads(write(path, "A"))
    assert list(line) == ["n", "at", "type", "data", "crc"]
    assert line["at"] == {"boot_id": "b", "boot_s": 12.5, "wall_s": 1.7e9}


def test_a_run_without_a_journal_has_no_records(path):
    assert list(Journal.open(path, writer=False).read()) == []
    assert list(read_plain(path)) == []
    assert Tail(path).poll() == []
    assert not path.exists()


def test_a_reader_cannot_write(path):
    with pytest.raises(JournalLost):
        Journal.open(path, writer=False).append("A", {}, AT)


@pytest.mark.parametrize(
    "tail",
    [b'{"n":3,"sta', b"\0" * 4096, b"\n", b'{"n":3,"type":"C"}\n', b"garbage\n", b"\xff\xfe"],
    ids=["half a line", "zeros after a power cut", "an empty line", "no checksum", "garbage", "not text"],
)
def test_a_torn_last_line_is_passed_over_by_readers_and_cut_by_the_writer(path, tail):
    whole = write(path, "A", "B")
    path.write_bytes(whole + tail)
    assert types(path) == ["A", "B"]
    assert path.read_bytes() == whole + tail
    journal = Journal.open(path, writer=True)
    assert (journal.cut.line, journal.cut.offset, journal.cut.length) == (3, len(whole), len(tail))
    assert path.read_bytes() == whole
    assert journal.append("C", {}, AT) == 3
    assert types(path) == ["A", "B", "C"]
    journal.close()


@pytest.mark.parametrize("length", range(0, 130, 7))
def test_a_last_line_cut_anywhere_costs_that_line_only(path, length):
    whole = write(path, "A", "B")
    first = whole.index(b"\n") + 1
    length = min(length, len(whole) - first - 1)
    path.write_bytes(whole[: first + length])
    with contextlib.closing(Journal.open(path, writer=True)) as journal:
        assert journal.last_n == 1
        assert (journal.cut is None) == (length == 0)
    assert types(path) == ["A"]


@pytest.mark.parametrize("writer", [True, False])
@pytest.mark.parametrize("line", [1, 2])
def test_damage_in_the_middle_names_file_and_line_and_changes_nothing(path, line, writer):
    lines = write(path, "A", "B", "C").splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(b'"x"', b'"y"')
    path.write_bytes(b"".join(lines))
    with pytest.raises(JournalDamaged, match=f"journal.jsonl:{line}:") as raised:
        list(Journal.open(path, writer=writer).read())
    assert (raised.value.file, raised.value.line) == (path, line)
    assert path.read_bytes() == b"".join(lines)


def test_a_missing_or_doubled_line_is_damage_also_at_the_end(path):
    lines = write(path, "A", "B", "C").splitlines(keepends=True)
    for kept in ([0, 2], [0, 1, 1], [1, 2]):
        path.write_bytes(b"".join(lines[i] for i in kept))
        with pytest.raises(JournalDamaged, match="stands where"):
            Journal.open(path, writer=True)


def test_a_sealed_line_of_another_format_is_damage_and_not_torn(path):
    body = b'{"n":1,"version":2'
    path.write_bytes(body + journal_lines._SEAL % zlib.crc32(body))
    with pytest.raises(JournalDamaged, match="not a record"):
        Journal.open(path, writer=True)


def test_a_line_without_end_is_not_read_into_memory(path, monkeypatch):
    monkeypatch.setattr(journal_lines, "LINE_CAP_BYTES", 1000)
    path.write_bytes(b"x" * 5000)
    with pytest.raises(JournalDamaged):
        Journal.open(path, writer=True)
    path.unlink()
    journal = Journal.open(path, writer=True)
    with pytest.raises(ValueError, match="a record of"):
        journal.append("A", {"x": "y" * 1000}, AT)
    assert journal.append("A", {}, AT) == 1
    journal.close()


def test_a_short_write_that_fails_is_taken_back(path, monkeypatch):
    journal = Journal.open(path, writer=True)
    journal.append("A", {}, AT)
    before = path.read_bytes()

    def half(fd, data):
        os.write(fd, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_all", half)
        with pytest.raises(JournalFull, match="no room"):
            journal.append("B", {}, AT)
    assert path.read_bytes() == before
    assert journal.append("C", {}, AT) == 2
    journal.close()


@pytest.mark.parametrize(
    ("what", "error"), [("write_all", errno.EIO), ("fsync", errno.EIO), ("fsync", errno.ENOSPC), ("both", errno.ENOSPC)]
)
def test_after_a_failure_that_leaves_doubt_nothing_more_is_written(path, monkeypatch, what, error):
    journal = Journal.open(path, writer=True)
    journal.append("A", {}, AT)

    def fail(*_):
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        if what == "both":
            patch.setattr(os, "ftruncate", fail)
        if what == "fsync":
            patch.setattr(os, "fsync", fail)
        else:
            patch.setattr(module, "write_all", fail)
        with pytest.raises(JournalLost):
            journal.append("B", {}, AT)
    with pytest.raises(JournalLost):
        journal.append("C", {}, AT)
    journal.close()
    assert types(path)[0] == "A"


def test_a_second_writer_is_found_out(path):
    first, second = Journal.open(path, writer=True), Journal.open(path, writer=True)
    first.append("A", {}, AT)
    with pytest.raises(JournalLost, match="bytes where this writer left"):
        second.append("B", {}, AT)
    path.unlink()
    with pytest.raises(JournalLost, match="removed"):
        first.append("C", {}, AT)
    first.close()
    second.close()


def test_the_reserve_is_made_once_and_with_all_its_blocks(tmp_path):
    reserve = tmp_path / "reserve"
    assert make_reserve(reserve)
    assert reserve.stat().st_blocks * 512 >= module.RESERVE_BYTES
    inode = reserve.stat().st_ino
    assert make_reserve(reserve)
    assert reserve.stat().st_ino == inode


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 2 MiB."""
    where = tmp_path / "disk"
    where.mkdir()
    made = os.geteuid() == 0 and shutil.which("mount")
    if (
        not made
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(where)], check=False).returncode
    ):
        pytest.skip("mounting a small file system needs root")
    yield where
    subprocess.run(["umount", str(where)], check=True)


def test_on_a_full_disk_the_reserve_is_spent_and_then_nothing_changes_any_more(small_disk):
    path, reserve = small_disk / "journal.jsonl", small_disk / "reserve"
    assert make_reserve(reserve)
    journal = Journal.open(path, writer=True, reserve=reserve)
    written = 0
    with pytest.raises(JournalFull, match="free space"):
        for _ in range(10_000):
            written = journal.append("A", {"x": "y" * 5000}, AT)
    assert written * 5000 > module.RESERVE_BYTES  # the reserve went into it
    assert not reserve.exists()
    assert not make_reserve(reserve)
    assert not reserve.exists() or reserve.stat().st_size == 0
    before = path.read_bytes()
    with pytest.raises(JournalFull, match="no room"):
        journal.append("B", {"x": "y" * 5000}, AT)
    assert path.read_bytes() == before
    assert len(types(path)) == written
    (small_disk / "reserve").unlink(missing_ok=True)
    journal.close()
    with contextlib.closing(Journal.open(path, writer=True)) as again:
        assert again.cut is None


def test_a_reserve_that_does_not_help_leaves_the_journal_as_it_was(path, tmp_path, monkeypatch):
    reserve = tmp_path / "reserve"
    reserve.write_bytes(b"x")
    journal = Journal.open(path, writer=True, reserve=reserve)
    errors = iter([errno.ENOSPC, errno.ENOSPC, errno.ENOSPC, errno.EIO])

    def full(fd, data):
        raise OSError(next(errors), "no")

    monkeypatch.setattr(module, "write_all", full)
    with pytest.raises(JournalFull, match="did not help"):
        journal.append("A", {}, AT)
    assert not reserve.exists()
    reserve.write_bytes(b"x")
    with pytest.raises(JournalLost):
        journal.append("A", {}, AT)
    journal.close()


def test_a_file_size_limit_is_a_full_disk(path):
    script = f"""
import resource, sys
from pathlib import Path
from supervisor.core.evidence import Instant
from supervisor.edges.journal import Journal, JournalFull
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, {resource.RLIM_INFINITY}))
journal = Journal.open(Path({str(path)!r}), writer=True)
n = 0
try:
    while True:
        n = journal.append("A", {{}}, Instant("b", 1.0, 2.0))
except JournalFull:
    print(n)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert len(types(path)) == int(done.stdout) > 3


WRITER = """
import sys
from pathlib import Path
from supervisor.core.evidence import Instant
from supervisor.edges.journal import Journal
journal = Journal.open(Path(sys.argv[1]), writer=True)
for i in range(1_000_000):
    print(journal.append("A", {"x": "y" * (i * 977 % 60_000)}, Instant("b", 1.0, 2.0)), flush=True)
"""


@pytest.mark.real
def test_killed_again_and_again_a_writer_loses_no_acknowledged_record(path):
    acknowledged = 0
    for round_ in range(8):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
            for _ in range(3 + 5 * round_):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            told = writer.stdout.read().split("\n")
            acknowledged = max([acknowledged, *(int(line) for line in told[:-1])])
        with contextlib.closing(Journal.open(path, writer=True)) as journal:
            assert journal.last_n in (acknowledged, acknowledged + 1)
            assert [record.n for record in journal.read()] == list(range(1, journal.last_n + 1))


def test_a_tail_gives_each_record_once_and_only_whole_ones(path):
    tail = Tail(path)
    journal = Journal.open(path, writer=True)
    journal.append("A", {}, AT)
    late = Tail(path, from_end=True)
    assert [record.type for record in tail.poll()] == ["A"]
    assert tail.poll() == []
    journal.append("B", {}, AT)
    journal.append("C", {}, AT)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert [record.type for record in tail.poll()] == ["B"]
    path.write_bytes(whole)
    assert [record.type for record in tail.poll()] == ["C"]
    assert [record.type for record in late.poll()] == ["B", "C"]
    journal.close()


def test_waiting_for_an_answer_ends_with_it_or_with_the_time(path):
    journal = Journal.open(path, writer=True)
    tail = Tail(path)
    clock = [0.0]

    def nap():
        clock[0] += 1.0
        if clock[0] == 3.0:
            journal.append("Answered", {"request": "r1", "exit": 0}, AT)

    def is_ours(record):
        return record.data.get("request") == "r1"

    found = tail.wait(is_ours, timeout_s=10.0, now=lambda: clock[0], nap=nap)
    assert found.data["exit"] == 0
    assert clock[0] == 3.0
    assert tail.wait(is_ours, timeout_s=10.0, now=lambda: clock[0], nap=nap) is None
    assert clock[0] == 13.0
    journal.close()


@settings(max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
class Crashes(RuleBasedStateMachine):
    """Whatever fails and whenever it is killed: the records are the acknowledged ones, in order, each once."""

    data = st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=60), max_size=4)

    @initialize()
    def begin(self):
        self.dir = tempfile.TemporaryDirectory()
        self.path = Path(self.dir.name) / "journal.jsonl"
        self.known = []
        self.doubtful = None
        self.seen = []
        self.tail = Tail(self.path)
        self.journal = Journal.open(self.path, writer=True)

    @precondition(lambda self: self.doubtful is None)
    @rule(data=data)
    def append(self, data):
        assert self.journal.append("A", data, AT) == len(self.known) + 1
        self.known.append(data)

    @precondition(lambda self: self.doubtful is None)
    @rule(data=data, written=st.integers(0, 40))
    def the_disk_is_full(self, data, written):
        def short(fd, line):
            os.write(fd, line[:written])
            raise OSError(errno.ENOSPC, "full")

        with mock.patch.object(module, "write_all", short), pytest.raises(JournalFull):
            self.journal.append("A", data, AT)

    @precondition(lambda self: self.doubtful is None)
    @rule(data=data)
    def fsync_fails(self, data):
        with mock.patch.object(os, "fsync", side_effect=OSError(errno.EIO, "I/O")), pytest.raises(JournalLost):
            self.journal.append("A", data, AT)
        self.doubtful = data

    @rule(data=data, cut=st.integers(1, 60), noise=st.binary(max_size=20))
    def killed_in_the_middle_of_a_write(self, data, cut, noise):
        n = len(self.known) + 1 + (self.doubtful is not None)
        line = journal_lines.line_of(n, AT, "A", data)[:-cut] + noise.replace(b"\n", b"")
        with open(self.path, "ab") as file:
            file.write(line)
        self.replay()

    @rule()
    def replay(self):
        self.journal.close()
        self.journal = Journal.open(self.path, writer=True)
        if self.doubtful is not None:
            if self.journal.last_n > len(self.known):
                self.known.append(self.doubtful)
            self.doubtful = None

    @rule()
    def somebody_follows(self):
        self.seen += [record.data for record in self.tail.poll()]

    @invariant()
    def readers_see_what_was_acknowledged(self):
        if self.doubtful is None:
            assert [record.data for record in Journal.open(self.path, writer=False).read()] == self.known
            assert self.seen == self.known[: len(self.seen)]

    def teardown(self):
        self.journal.close()
        self.dir.cleanup()


TestCrashes = Crashes.TestCase


def test_a_record_that_was_merely_seen_is_read_at_once_and_on_the_disk_with_the_next(path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    journal = Journal.open(path, writer=True)
    synced.clear()
    journal.append("HitSeen", {}, AT, sync=False)
    assert not synced
    assert [one.type for one in journal.read()] == ["HitSeen"]
    journal.append("Judged", {}, AT)
    assert len(synced) == 1
    journal.close()
