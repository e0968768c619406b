"""Scalars of event files. The writer here is the format's description put into code; torch's own writer where it is."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.edges.tensorboard import Point, read

TORCH = Path(__file__).parents[2] / ".venv-torch" / "bin" / "python"


def varint(n: int) -> bytes:
    out = b""
    n &= (1 << 64) - 1
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number: int, value: bytes | int | float) -> bytes:
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 1) + struct.pack("<d", value)


def simple(tag: str, value: float) -> bytes:
    return field(1, field(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value))


def tensor(tag: str, value: float) -> bytes:
    return field(1, field(1, tag.encode()) + field(8, field(1, 1) + field(4, struct.pack("<f", value))))


def record(wall_s: float, step: int, summary: bytes) -> bytes:
    data = field(1, wall_s) + field(2, step) + field(5, summary)
    return struct.pack("<Q", len(data)) + b"crc." + data + b"crc."


def events(folder: Path, *records: bytes, began: int = 1000) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.{began}.host.1"
    path.write_bytes(b"".join(records))
    return path


def test_scalars_of_all_attempts_come_in_the_order_of_time(tmp_path: Path):
    events(tmp_path / "b", record(20.0, 2, simple("loss", 0.5)), began=20)
    events(tmp_path, record(1.0, 1, simple("loss", 2.0) + simple("lr", 1.0)), began=3)
    found = read(tmp_path)
    assert found.points == {"loss": [Point(1.0, 1, 2.0), Point(20.0, 2, 0.5)], "lr": [Point(1.0, 1, 1.0)]}
    assert found.left_off == ""


def test_only_the_tags_that_are_wanted_are_kept(tmp_path: Path):
    events(tmp_path, record(1.0, 1, simple("loss", 2.0) + simple("lr", 1.0)))
    assert list(read(tmp_path, frozenset({"loss"})).points) == ["loss"]


def test_newer_writers_put_the_value_into_a_tensor(tmp_path: Path):
    events(tmp_path, record(1.0, 7, tensor("loss", 0.25)))
    assert read(tmp_path).points == {"loss": [Point(1.0, 7, 0.25)]}


def test_a_record_that_is_being_written_ends_the_file_and_nothing_else(tmp_path: Path):
    whole = record(1.0, 1, simple("loss", 2.0))
    path = events(tmp_path, whole, whole)
    for size in range(len(whole), 2 * len(whole)):
        path.write_bytes((whole + whole)[:size])
        assert len(read(tmp_path).points["loss"]) == 1


def test_an_image_of_megabytes_is_skipped(tmp_path: Path):
    big = struct.pack("<Q", 2 << 20) + b"crc." + b"x" * (2 << 20) + b"crc."
    events(tmp_path, big, record(1.0, 1, simple("loss", 2.0)))
    assert list(read(tmp_path).points) == ["loss"]


def test_a_folder_that_is_not_there_has_no_scalars(tmp_path: Path):
    assert read(tmp_path / "none").points == {}


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_are_an_error(tmp_path: Path, data: bytes):
    events(tmp_path, struct.pack("<Q", len(data)) + b"crc." + data + b"crc.", data)
    read(tmp_path)


@pytest.mark.real
def test_what_torch_writes_is_read(tmp_path: Path):
    script = (
        "from torch.utils.tensorboard import SummaryWriter; import sys\n"
        "w = SummaryWriter(sys.argv[1])\nfor n in range(3): w.add_scalar('loss', 1 / (n + 1), n)\nw.close()\n"
    )
    if not any(TORCH.parents[1].glob("lib/python3*/site-packages/tensorboard/version.py")):
        pytest.skip("no tensorboard in .venv-torch")
    done = subprocess.run([TORCH, "-W", "ignore", "-c", script, tmp_path], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert [(point.step, point.value) for point in read(tmp_path).points["loss"]] == [
        (0, 1.0),
        (1, 0.5),
        (2, pytest.approx(1 / 3)),
    ]
