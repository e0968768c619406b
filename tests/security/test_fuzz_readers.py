"""Any bytes at all: the journal's readers tell records or damage, the matcher tells hits, both in bounded time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.core.evidence import Hit, Instant
from supervisor.edges.journal import Journal
from supervisor.edges.journal_lines import JournalDamaged
from supervisor.edges.journal_tail import Place, PlainRecords, Tail, read_plain
from supervisor.edges.paths import RunDir
from supervisor.signatures import Matcher, Scanner

AT = Instant("b", 1.0, 2.0)
BOUNDED = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def whole(count: int) -> bytes:
    """A journal of so many records."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "journal.jsonl")
        journal = Journal.open(path, writer=True)
        for n in range(count):
            journal.append("Warned", {"text": f"warning {n}"}, AT)
        journal.close()
        return path.read_bytes()


WHOLE = whole(6)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A journal with pieces taken out, put in, doubled or swapped."""
    data = WHOLE
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        end = draw(st.integers(at, min(len(data), at + 200)))
        put = draw(st.one_of(st.binary(max_size=40), st.just(data[at:end] * 2), st.just(b"\n"), st.just(b"")))
        data = data[:at] + put + data[end:]
    return data


def told(records: Iterator[dict[str, object]]) -> list[object]:
    """Numbers of the records, and whether there is damage behind them."""
    seen: list[object] = []
    try:
        seen.extend(record["n"] for record in records)
    except JournalDamaged as damage:
        assert damage.line >= 1
        seen.append("damage")
    return seen


@BOUNDED
@given(st.one_of(st.binary(max_size=600), damaged()))
def test_any_bytes_are_records_or_damage_to_every_reader(data: bytes):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "journal.jsonl")
        path.write_bytes(data)
        seen = told(read_plain(path))
        assert [n for n in seen if n != "damage"] == list(range(1, len(seen) + (seen[-1:] != ["damage"])))
        assert told({"n": one.n} for one in Journal.open(path, writer=False).read()) == seen
        try:
            assert [one.n for one in Tail(path).poll()] == seen
        except JournalDamaged:
            assert seen[-1] == "damage"
        assert path.read_bytes() == data, "a reader writes nothing"
        try:
            Journal.open(path, writer=True).close()
        except JournalDamaged:
            assert seen[-1] == "damage"
            assert path.read_bytes() == data
        else:
            assert data.startswith(path.read_bytes()), "a writer only cuts"
            assert told(read_plain(path)) == seen


@BOUNDED
@given(st.one_of(st.binary(max_size=600), damaged()), st.integers(0, 6))
def test_a_place_in_another_file_is_never_believed(data: bytes, read: int):
    """Reading on from a place gives what reading everything gives, or says that it did not go on."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "journal.jsonl")
        path.write_bytes(b"".join(WHOLE.splitlines(keepends=True)[:read]))
        before = PlainRecords(path)
        assert len(list(before)) == read
        with open(path, "r+b") as file:  # the same inode
            file.truncate()
            file.write(data)
        after = PlainRecords(path, before.place)
        seen, everything = told(iter(after)), told(read_plain(path))
        if after.went_on and everything[:read] == list(range(1, read + 1)):
            assert [*range(1, read + 1), *seen] == everything
        elif not after.went_on:
            assert seen == everything


def test_a_place_that_was_made_up_is_not_believed(tmp_path: Path):
    run = RunDir("r", tmp_path)
    run.journal.write_bytes(WHOLE)
    inode = run.journal.stat().st_ino
    for place in (Place(inode, 3, 10, ""), Place(inode, 9, 10**9, "x"), Place(inode, 2, -5, "x"), Place(0, 0, 0, "")):
        read = PlainRecords(run.journal, place)
        assert not read.went_on
        assert told(iter(read)) == [1, 2, 3, 4, 5, 6]


MATCHER = Matcher(watch={"progress": r"step (?P<step>\d+)"})
LINES = st.one_of(
    st.binary(max_size=80),
    st.sampled_from([
        b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.74 GiB. GPU 5 has a total capacity of ",
        b"RuntimeError: CUDA error: ", b"Traceback (most recent call last):\n", b'  File "x.py", line 1\n', b"\r",
        b"\n",
        b"\x1b[31m", b"[rank3]: ", b"step 12", b"\0" * 300, b"A" * 5000, b"\xff\xfe", b"NCCL WARN ",
        b"Watchdog caught ",
    ]),
)  # fmt: skip


@BOUNDED
@given(st.lists(LINES, max_size=25), st.lists(st.integers(0, 4000), max_size=6), st.booleans())
def test_any_bytes_can_be_scanned_however_they_arrive(pieces: list[bytes], cuts: list[int], idle: bool):
    data = b"".join(pieces)
    scanner = Scanner(MATCHER, "f")
    found, at = [], 0
    for cut in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        found += scanner.feed(data[at:cut])
        at = cut
        if idle:
            found += scanner.idle()
    found += scanner.end()
    hits = [one for one in found if isinstance(one, Hit)]
    assert all(0 <= hit.offset <= len(data) and hit.line >= 1 for hit in hits)
    assert len({(hit.signature, hit.offset) for hit in hits}) == len(hits), "nothing is told twice"
    whole = Scanner(MATCHER, "f")
    assert idle or [one for one in [*whole.feed(data), *whole.end()] if isinstance(one, Hit)] == hits
