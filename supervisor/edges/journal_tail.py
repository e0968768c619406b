"""Reading a journal that another process writes: as it grows, and on from where one stood. Nothing is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from supervisor.edges.journal_lines import SEAL_LEN, Record, Torn, record_of, scan


class Tail:
    """Follows a journal as it grows: each record once, in order. For verbs that wait for an answer."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        """`from_end`: only records that are not there yet. The file may appear later."""
        self.path = path
        self._offset = 0
        self._n = 0
        self._seen: tuple[int, int] = (-1, -1)
        if from_end:
            self._go_to_the_end()

    def poll(self) -> list[Record]:
        """What is new. One stat when nothing is. Raises JournalDamaged."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return []
        seen = (stat.st_size, stat.st_mtime_ns)
        if seen == self._seen or stat.st_size <= self._offset:
            return []
        records = []
        with open(self.path, "rb") as file:
            file.seek(self._offset)
            for found in scan(file, self.path, self._n):
                if not isinstance(found, Torn):
                    records.append(record_of(found))
                    self._n, self._offset = found["n"], file.tell()
        self._seen = seen
        return records

    def wait(
        self, wanted: Callable[[Record], bool], *, timeout_s: float, now: Callable[[], float], nap: Callable[[], None]
    ) -> Record | None:
        """The first new record that is `wanted`, or None when `timeout_s` of `now()` is over.

        `nap` is called between two looks: a sleep of some milliseconds, or whatever else the caller watches.
        """
        deadline = now() + timeout_s
        while True:
            for record in self.poll():
                if wanted(record):
                    return record
            if now() >= deadline:
                return None
            nap()

    def _go_to_the_end(self) -> None:
        """Behind the last whole line: one that is being written now is still new."""
        with suppress(FileNotFoundError), open(self.path, "rb") as file:
            for found in scan(file, self.path):
                if not isinstance(found, Torn):
                    self._n, self._offset = found["n"], file.tell()


class Place(NamedTuple):
    """Behind a record: the file (inode), the record's number, where the next one begins, how its line ends."""

    inode: int
    n: int
    offset: int
    seal: str


class PlainRecords:
    """The records as they stand in their lines (`n`, `at`, `type`, `data`), for views; those behind `after`.

    Where the file is not the one that had `after`, all of them: `went_on` is False then.
    """

    def __init__(self, path: Path, after: Place | None = None) -> None:
        """Opens nothing yet."""
        self._path = path
        self.place = after
        self.went_on = after is not None and _still_has(path, after)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """`place` is behind the last record that was handed out. Raises JournalDamaged."""
        place = self.place if self.went_on and self.place is not None else Place(0, 0, 0, "")
        self.place = None
        with suppress(FileNotFoundError), open(self._path, "rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            file.seek(place.offset)
            end = None
            for found in scan(file, self._path, place.n):
                if isinstance(found, Torn):
                    break
                yield found
                end = (found["n"], file.tell())
            self.place = place if end is None and place.n else None
            if end is not None:
                file.seek(end[1] - SEAL_LEN)
                self.place = Place(inode, *end, file.read(SEAL_LEN).decode("ascii", "replace"))


def _still_has(path: Path, place: Place) -> bool:
    """Whether the record that ends at `place` is in this file, which only grows."""
    with suppress(OSError), open(path, "rb") as file:
        if os.fstat(file.fileno()).st_ino == place.inode and place.offset >= SEAL_LEN:
            file.seek(place.offset - SEAL_LEN)
            return file.read(SEAL_LEN) == place.seal.encode()
    return False


def read_plain(path: Path) -> Iterator[dict[str, Any]]:
    """All records as they stand in their lines, for views. Raises JournalDamaged."""
    return iter(PlainRecords(path))
