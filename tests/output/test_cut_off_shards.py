"""The last shard of a writer that died: told by its format's own end, renamed aside, never deleted."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from supervisor.edges.shards import aside, cut_off, ensure_aside, fault

FOOTER = b"thrift bytes"
PARQUET = b"PAR1" + b"row group" + FOOTER + struct.pack("<I", len(FOOTER)) + b"PAR1"
LINES = b'{"a": 1}\n{"a": 2}\n'
ZIPPED = gzip.compress(LINES * 1000)

WHOLE = {
    "a.parquet": PARQUET,
    "a.jsonl": LINES,
    "b.jsonl": LINES[:-1],
    "a.jsonl.gz": ZIPPED,
    "e.jsonl": b"",
    "x.bin": b"?",
}
CUT = {
    "a.parquet": (PARQUET[:-1], "its parquet footer is missing"),
    "b.parquet": (b"PAR1" + struct.pack("<I", 999) + b"PAR1", "its parquet footer is cut off"),
    "c.parquet": (b"", "it is empty"),
    "d.parquet": (b"PA", "it is no whole parquet file: it has no head"),
    "a.jsonl": (LINES[:-3], "its last line is cut off"),
    "b.jsonl": (LINES + b'{"a"\n', "its last line is no JSON value"),
    "e.jsonl.gz": (b"", "e.jsonl.gz is empty"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_shard_is_left_alone(tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(WHOLE[name])
    assert fault(str(tmp_path / name)) is None


@pytest.mark.parametrize("name", CUT)
def test_a_shard_that_was_cut_off_is_known_by_its_end(tmp_path: Path, name: str):
    data, why = CUT[name]
    (tmp_path / name).write_bytes(data)
    assert fault(str(tmp_path / name)) == why


@pytest.mark.parametrize("cut", [1, 8, 40])
def test_a_gzip_stream_that_was_cut_off_is_known(tmp_path: Path, cut: int):
    (tmp_path / "a.jsonl.gz").write_bytes(ZIPPED[:-cut])
    assert "its gzip stream is cut off" in str(fault(str(tmp_path / "a.jsonl.gz")))


def test_a_damaged_gzip_stream_is_known(tmp_path: Path):
    (tmp_path / "a.gz").write_bytes(ZIPPED[:20] + b"\xff\xff\xff" + ZIPPED[23:])
    assert fault(str(tmp_path / "a.gz")) is not None


def test_where_time_is_up_nothing_is_said_of_a_gzip_stream(tmp_path: Path):
    (tmp_path / "a.gz").write_bytes(ZIPPED)
    assert fault(str(tmp_path / "a.gz"), ends_at=0.0) is None


def test_only_what_the_attempt_wrote_is_looked_at(tmp_path: Path):
    shard = tmp_path / "out-1.jsonl"
    shard.write_bytes(LINES[:-3])
    (tmp_path / "out-2.jsonl").symlink_to(shard)
    written_s = shard.stat().st_mtime
    assert cut_off(f"{tmp_path}/*.jsonl", written_s) == ((str(shard), "its last line is cut off"),)
    assert cut_off(f"{tmp_path}/*.jsonl", written_s + 1) == ()
    assert cut_off(f"{tmp_path}/*.jsonl", written_s, deadline_s=0.0) == ()


def test_it_is_renamed_once_and_no_glob_of_shards_takes_it(tmp_path: Path):
    shard = tmp_path / "out-1.jsonl"
    shard.write_bytes(LINES[:-3])
    to = aside(str(shard), 3)
    assert ensure_aside(str(shard), to) == f"renamed to {to}: its last line is cut off"
    assert not shard.exists()
    assert list(tmp_path.glob("*.jsonl")) == []
    assert ensure_aside(str(shard), to) == f"renamed to {to}"


def test_one_that_is_whole_by_then_stays(tmp_path: Path):
    shard = tmp_path / "out-1.jsonl"
    shard.write_bytes(LINES)
    assert ensure_aside(str(shard), aside(str(shard), 3)) == ""
    assert shard.exists()
    assert ensure_aside(str(tmp_path / "none"), str(tmp_path / "none-either")) == ""
