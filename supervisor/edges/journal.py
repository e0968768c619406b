"""The journal of a run: JSON lines that are on the disk before anybody acts on them. Not what the records mean.

Rule 1: one record is one write and one fsync; a record that was acknowledged is there after a crash.
Rule 2: only the writer (who holds the run's lock) mends, and only the last line: without newline or with a bad
checksum it was never acknowledged, so it is cut. Damage anywhere else is for a person: `JournalDamaged`.
Rule 3: a failed write is truncated back; after a failed fsync nothing is known any more: `JournalLost`.

The lines are those of `journal_lines.py`; who only reads takes `journal_tail.py`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.core.errors import SuperviseError
from supervisor.edges.files import fsync_dir, write_all
from supervisor.edges.journal_lines import Record, Torn, line_of, record_of, scan

if TYPE_CHECKING:
    from supervisor.core.evidence import Instant

RESERVE_BYTES = 2**20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class JournalLost(SuperviseError):
    """What is on the disk is no longer known: the supervisor must end, the next one replays."""

    def __init__(self, file: Path, why: str) -> None:
        self.file, self.why = file, why
        super().__init__(f"{file}: {why}; what was written last may be lost")


class JournalFull(SuperviseError):
    """There is no room for a record, also not after the reserve was freed. The journal stands as it was."""

    def __init__(self, file: Path, why: str) -> None:
        self.file, self.why = file, why
        super().__init__(f"{file}: {why}. Nothing will be launched until there is room: free space on that disk.")


class Journal:
    """One journal file. See `open`."""

    def __init__(self, path: Path, fd: int, reserve: Path | None) -> None:
        """Not for callers: see `open`."""
        self.path = path
        self.cut: Torn | None = None
        self._fd = fd
        self._reserve = reserve
        self._end = 0
        self._n = 0
        self._lost = ""

    @classmethod
    def open(cls, path: Path, *, writer: bool, reserve: Path | None = None) -> Journal:
        """Open the journal; the writer must hold the run's lock.

        The writer makes the file where there is none, reads all of it and cuts a torn last line (`cut` says what).
        Raises JournalDamaged (writer), OSError. A reader may open what is not there: it has no records.
        """
        if not writer:
            return cls(path, -1, None)
        made = not path.exists()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        journal = cls(path, fd, reserve)
        try:
            if made:
                fsync_dir(path.parent)
            journal._mend()
        except BaseException:
            journal.close()
            raise
        return journal

    @property
    def last_n(self) -> int:
        """The number of the last record that the writer knows; 0 for none."""
        return self._n

    def append(self, record_type: str, data: dict[str, Any], at: Instant, *, sync: bool = True) -> int:
        """Append one record; when this returns its number, the record is on the disk.

        `sync` False: it is in the file, for all readers; on the disk it is with the next record that is synced.
        Raises JournalFull (nothing changed: try again later) or JournalLost (end, and replay).
        """
        if self._fd < 0 or self._lost:
            raise JournalLost(self.path, self._lost or "it is not open for writing")
        line = line_of(self._n + 1, at, record_type, data)
        self._see_that_nobody_else_wrote()
        try:
            self._write(line)
        except OSError as error:
            if error.errno not in _FULL:
                raise self._lose(f"writing failed: {error.strerror}") from error
            self._write_into_the_reserve(line, error)
        try:
            if sync:
                os.fsync(self._fd)
        except OSError as error:
            raise self._lose(f"fsync failed: {error.strerror}") from error
        self._end += len(line)
        self._n += 1
        return self._n

    def read(self, after: int = 0) -> Iterator[Record]:
        """The records with numbers above `after`. A torn last line is passed over. Raises JournalDamaged."""
        with suppress(FileNotFoundError), open(self.path, "rb") as file:
            for found in scan(file, self.path):
                if not isinstance(found, Torn) and found["n"] > after:
                    yield record_of(found)

    def close(self) -> None:
        """Close the file; nothing is lost by not closing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _mend(self) -> None:
        with open(self.path, "rb") as file:
            for found in scan(file, self.path):
                if isinstance(found, Torn):
                    self.cut = found
                else:
                    self._n = found["n"]
                    self._end = file.tell()
        if self.cut is not None:
            os.ftruncate(self._fd, self.cut.offset)
            self._end = self.cut.offset
        # Also when nothing was cut: the writer before may have died between its write and its fsync.
        os.fsync(self._fd)

    def _see_that_nobody_else_wrote(self) -> None:
        now = os.fstat(self._fd)
        if now.st_nlink == 0:
            raise self._lose("the file was removed")
        if now.st_size != self._end:
            raise self._lose(f"the file has {now.st_size} bytes where this writer left {self._end}")

    def _write(self, line: bytes) -> None:
        """All of the line or nothing of it. Raises the OSError of the write, or JournalLost."""
        try:
            write_all(self._fd, line)
        except OSError:
            try:
                os.ftruncate(self._fd, self._end)
            except OSError as second:
                raise self._lose(f"a short write could not be taken back: {second.strerror}") from second
            raise

    def _write_into_the_reserve(self, line: bytes, first: OSError) -> None:
        why = f"no room ({first.strerror})"
        if self._reserve is None or not self._reserve.exists():
            raise JournalFull(self.path, why) from first
        try:
            self._reserve.unlink(missing_ok=True)
            self._write(line)
        except OSError as error:
            if error.errno not in _FULL:
                raise self._lose(f"writing failed: {error.strerror}") from error
            raise JournalFull(self.path, f"{why}, and the reserve did not help ({error.strerror})") from error

    def _lose(self, why: str) -> JournalLost:
        self._lost = why
        return JournalLost(self.path, why)


def make_reserve(path: Path) -> bool:
    """See that the reserve is there, with all of its blocks; False when the disk has no room for it now."""
    try:
        if path.stat().st_size >= RESERVE_BYTES:
            return True
    except FileNotFoundError:
        pass  # made below
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.posix_fallocate(fd, 0, RESERVE_BYTES)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        os.ftruncate(fd, 0)
        return False
    finally:
        os.close(fd)
    return True
