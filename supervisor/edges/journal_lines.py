"""How a record stands in a line of a journal, and how lines are read. Not who writes them, nor what they mean.

A line is `{"n":1,"at":{"boot_id":..,"boot_s":..,"wall_s":..},"type":..,"data":{..},"crc":"0a1b2c3d"}`; the checksum is
CRC-32 of the line up to and without `,"crc"`. Only the last line may be without newline or with a bad checksum: it was
never acknowledged.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from supervisor.core.errors import SuperviseError
from supervisor.edges.files import to_json

if TYPE_CHECKING:  # making the classes of `evidence` is a fifth of the time that `status` has
    from supervisor.core.evidence import Instant

LINE_CAP_BYTES = 16 * 2**20
_SEAL = b',"crc":"%08x"}\n'
SEAL_LEN = len(_SEAL % 0)
"""The bytes at the end of each line that hold its checksum."""


class JournalDamaged(SuperviseError):
    """A line that is not the last one is unreadable, or a number is out of order. Nothing may be launched."""

    def __init__(self, file: Path, line: int, why: str) -> None:
        self.file, self.line, self.why = file, line, why
        super().__init__(
            f"{file}:{line}: the journal is damaged: {why}. Nothing was changed; a copy of the file from a backup, "
            f"or another `name` for the run, is the way on."
        )


@dataclass(frozen=True, slots=True)
class Record:
    """One line. `n` counts from 1 without a gap; `type` and `data` are the caller's."""

    n: int
    at: Instant
    type: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Torn:
    """The last line was never finished: `line` counts from 1, `offset` is where it begins."""

    line: int
    offset: int
    length: int
    why: str


def line_of(n: int, at: Instant, record_type: str, data: dict[str, Any]) -> bytes:
    """The line of a record. Raises ValueError where it is longer than any may be."""
    when = {"boot_id": at.boot_id, "boot_s": at.boot_s, "wall_s": at.wall_s}
    body = to_json({"n": n, "at": when, "type": record_type, "data": data})[:-1]
    line = body + _SEAL % zlib.crc32(body)
    if len(line) > LINE_CAP_BYTES:
        raise ValueError(f"a record of {len(line)} bytes: {record_type}")
    return line


def scan(file: BinaryIO, path: Path, last_n: int = 0) -> Iterator[dict[str, Any] | Torn]:
    """The records from where `file` stands; a torn last line comes last. Raises JournalDamaged.

    While a record is handed out, `file.tell()` is where the next one begins.
    """
    number = last_n  # lines and records are numbered alike
    while True:
        start = file.tell()
        line = file.readline(LINE_CAP_BYTES + 1)
        if not line:
            return
        number += 1
        if why := _is_torn(line):
            if file.read(1):
                raise JournalDamaged(path, number, why)
            yield Torn(number, start, len(line), why)
            return
        record = _parse(line)
        if record is None:
            raise JournalDamaged(path, number, "the checksum fits, but it is not a record of this program")
        if record["n"] != number:
            raise JournalDamaged(path, number, f"record {record['n']} stands where {number} belongs")
        yield record


def _is_torn(line: bytes) -> str:
    """Why the line was never finished; empty for a whole one."""
    if not line.endswith(b"\n"):
        return "the line has no end"
    body = line[:-SEAL_LEN]
    return "" if line == body + _SEAL % zlib.crc32(body) else "the checksum does not fit"


def _parse(line: bytes) -> dict[str, Any] | None:
    """The record in a whole line, as it stands; None when it is none of ours."""
    try:
        plain: dict[str, Any] = json.loads(line[:-SEAL_LEN] + b"}")
        for key in ("boot_id", "boot_s", "wall_s"):
            plain["at"][key]
        return {key: plain[key] for key in ("n", "at", "type", "data")}
    except (ValueError, KeyError, TypeError):
        return None


def record_of(plain: dict[str, Any]) -> Record:
    """The record of what `scan` found."""
    from supervisor.core.evidence import Instant

    at = plain["at"]
    instant = Instant(boot_id=at["boot_id"], boot_s=at["boot_s"], wall_s=at["wall_s"])
    return Record(n=plain["n"], at=instant, type=plain["type"], data=plain["data"])
