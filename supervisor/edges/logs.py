"""Following log files: what was written since the last look, as hits. Decides nothing, writes nothing.

Rule 1: the truth is `stat` and the bytes; events (`wake_fd`) only say that it is worth a look.
Rule 2: an open file is read to its end before a newer one of its name is taken up.
Rule 3: each call reads at most a budget, spread over all files; memory does not grow with what is left.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from glob import glob, has_magic
from pathlib import Path
from typing import Any, Protocol, Union

from msgspec import Struct, field

from supervisor.core.evidence import Hit, WatchHit
from supervisor.edges.logs_wake import Waker, directory_of

Found = Union[Hit, WatchHit]  # noqa: UP007

#: Read in one call at most, and in at most this time, so that a loop stays responsive in a burst.
BUDGET = 8 << 20
_SLICE_S = 0.05
_CHUNK = 512 << 10
#: A file is the same one while its first bytes are: inodes are reused at once.
_HEAD = 256
_LAST = 4 << 10
_IDLE_S = 1.0
_GLOB_S = 1.0
#: Each followed file is an open descriptor.
_FILES = 512


class Scanning(Protocol):
    """What reads one file's bytes."""

    offset: int

    @property
    def pending(self) -> bool: ...
    def feed(self, data: bytes) -> list[Found]: ...
    def idle(self) -> list[Found]: ...
    def end(self) -> list[Found]: ...
    def state(self) -> dict[str, Any]: ...


class Matching(Protocol):
    """What makes a `Scanning` for a file."""

    def scanner(self, file: str, saved: Mapping[str, Any] | None = None) -> Scanning: ...


class _File(Struct):
    """One followed path. `at` is the next byte to read; `scanner` may still hold some before it."""

    path: str
    scanner: Scanning
    fd: int = -1
    identity: tuple[int, int] = (0, 0)
    head: bytes = b""
    at: int = 0
    stamp: tuple[int, int] = (-1, -1)
    size: int = 0
    last: bytes = b""
    output_boot_s: float | None = None
    saved_head: tuple[int, str] | None = None
    replaced: bool = field(default=False)


class Follower:
    """Follows `files` from their beginning and whatever matches `globs`, those there at the start from their size.

    `saved` is an earlier `saved()`; each file goes on from there, and files unknown to it are read whole.
    """

    def __init__(
        self,
        files: Sequence[str],
        matcher: Matching,
        saved: Mapping[str, Any] | None = None,
        *,
        globs: Sequence[str] = (),
        budget: int = BUDGET,
    ) -> None:
        self._matcher = matcher
        self._budget = budget
        self._fixed = tuple(files)
        self._globs = tuple(globs)
        self._files: dict[str, _File] = {}
        self._turn = 0
        self.fed = 0  # bytes that were read so far
        self._globbed_s = float("-inf")
        self._look_for_new = False
        self.lagging = False
        #: Paths beyond the cap on open files: not followed.
        self.skipped = 0
        self._waker = Waker(self._something_new)
        saved_files: Mapping[str, Any] = (saved or {}).get("files", {})
        for path in dict.fromkeys((*self._fixed, *saved_files)):
            self._files[path] = self._begin(path, saved_files.get(path))
        for file in self._files.values():
            self._open(file)
        if saved is None:
            self._find_new(at_end=True)
        self._waker.watch_directories(dict.fromkeys(directory_of(pattern) for pattern in self._globs))

    @property
    def wake_fd(self) -> int:
        """Readable when it is worth calling `poll`."""
        return self._waker.fd

    @property
    def why_polling(self) -> str | None:
        """Why there are no wake-ups; None while there are some."""
        return self._waker.why_polling

    @property
    def paths(self) -> tuple[str, ...]:
        """The followed files."""
        return tuple(self._files)

    def poll(self) -> list[Found]:
        """What was written since the last call, at most the budget; `lagging` says that there is more."""
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._waker.drain()
        if self._look_for_new or now_s - self._globbed_s >= _GLOB_S:
            self._globbed_s = now_s
            self._look_for_new = False
            self._find_new(at_end=False)
            self._waker.watch_directories(dict.fromkeys(directory_of(pattern) for pattern in self._globs))
        found: list[Found] = []
        for file in self._files.values():
            self._look(file, now_s, found)
        self._read(now_s, found)
        for file in self._files.values():
            quiet = file.output_boot_s is None or now_s - file.output_boot_s >= _IDLE_S
            if quiet and file.at >= file.size and file.scanner.pending:
                found += file.scanner.idle()
        return found

    def flush(self) -> list[Found]:
        """The hits in unfinished last lines, without waiting for quiet: nobody writes any more."""
        found: list[Found] = []
        for file in self._files.values():
            if file.at >= file.size and file.scanner.pending:
                found += file.scanner.idle()
        return found

    def last_line(self, path: str) -> str:
        """The last line of a file that is not empty, without escape codes; empty where there is none."""
        file = self._files.get(path)
        return last_line(file.last) if file is not None else ""

    def tail(self, path: str) -> bytes:
        """The last bytes that were read of a file, at most 4 KiB."""
        file = self._files.get(path)
        return file.last if file is not None else b""

    def last_output_boot_s(self, path: str) -> float | None:
        """When the file was last seen to grow (CLOCK_BOOTTIME); None if never."""
        file = self._files.get(path)
        return file.output_boot_s if file is not None else None

    def saved(self) -> dict[str, Any]:
        """All that a new follower needs to go on, JSON-ready."""
        files: dict[str, Any] = {}
        for path, file in self._files.items():
            head = (len(file.head), _hash(file.head)) if file.fd >= 0 else file.saved_head
            if head is not None:
                files[path] = {"identity": list(file.identity), "head": list(head), "scanner": file.scanner.state()}
        return {"files": files}

    def close(self) -> None:
        """Let go of descriptors and threads."""
        self._waker.close()
        for file in self._files.values():
            _close(file)

    def _begin(self, path: str, saved: Mapping[str, Any] | None) -> _File:
        if saved is None:
            return _File(path, self._matcher.scanner(path))
        scanner = self._matcher.scanner(path, saved["scanner"])
        length, digest = saved["head"]
        device, inode = saved["identity"]
        return _File(
            path, scanner, at=scanner.offset, identity=(int(device), int(inode)), saved_head=(int(length), str(digest))
        )

    def _find_new(self, *, at_end: bool) -> None:
        for pattern in self._globs:
            paths = sorted(glob(pattern, recursive=True)) if has_magic(pattern) else [pattern]  # noqa: PTH207
            for path in paths:
                if path in self._files:
                    continue
                if len(self._files) >= _FILES:
                    self.skipped += 1
                    continue
                file = self._files[path] = _File(path, self._matcher.scanner(path))
                if at_end:
                    self._to_end(file)

    def _to_end(self, file: _File) -> None:
        """Begin at the last line break there is now: what stands before it was not written by this attempt."""
        if not self._open(file):
            return
        size = os.fstat(file.fd).st_size
        tail = _pread(file.fd, min(size, _LAST), max(0, size - _LAST))
        begin = size - len(tail) + 1 + max(tail.rfind(b"\n"), tail.rfind(b"\r")) if tail else 0
        lines = 1 + _count_lines(file.fd, begin)
        file.scanner = self._matcher.scanner(file.path, {"offset": begin, "line": lines})
        file.at = begin

    def _look(self, file: _File, now_s: float, found: list[Found]) -> None:
        """See whether the path still is the file that is open, and how long it is."""
        if file.fd < 0 and not self._open(file):
            return
        try:
            status = os.stat(file.path)  # noqa: PTH116  # once per file and look
        except OSError:
            file.replaced = True  # renamed or gone: the open file is read to its end, then it is waited for
        else:
            file.replaced = (status.st_dev, status.st_ino) != file.identity
        if file.replaced:
            with suppress(OSError):  # a file system that went away: nothing new is to be had from it
                status = os.fstat(file.fd)
                file.size = status.st_size
            if file.at >= file.size:
                found += file.scanner.end() if Path(file.path).exists() else []
                self._again(file)
            return
        stamp = (status.st_mtime_ns, status.st_size)
        if stamp == file.stamp:
            return
        file.stamp = stamp
        file.size = status.st_size
        head = _pread(file.fd, _HEAD, 0)
        if file.size < file.at or not head.startswith(file.head):
            self._restart(file)  # truncated, or another file with the same inode
        file.head = head

    def _again(self, file: _File) -> None:
        """Take up the newer file of this name, if there is one."""
        if Path(file.path).exists():
            _close(file)
            self._restart(file)
            self._open(file)

    def _restart(self, file: _File) -> None:
        file.scanner = self._matcher.scanner(file.path)
        file.at = 0
        file.head = file.last = b""
        file.stamp = (-1, -1)
        file.saved_head = None

    def _open(self, file: _File) -> bool:
        """True when the file is open, and where it was saved before, at the place where that was."""
        try:
            file.fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:  # not there yet, or out of descriptors: next time
            return False
        status = os.fstat(file.fd)
        identity = (status.st_dev, status.st_ino)
        head = _pread(file.fd, _HEAD, 0)
        if file.saved_head is not None:
            length, digest = file.saved_head
            if file.identity[1] != identity[1] or status.st_size < file.at or _hash(head[:length]) != digest:
                self._restart(file)
        self._waker.watch_file(file.fd)
        file.identity, file.head = identity, head
        file.size = status.st_size
        file.last = _pread(file.fd, _LAST, max(0, file.at - _LAST)) if file.at else b""
        age_s = max(0.0, time.time() - status.st_mtime)
        file.output_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME) - age_s
        return True

    def _read(self, now_s: float, found: list[Found]) -> None:
        """Read in turns, a chunk each, until the budget is spent."""
        waiting = [file for file in self._files.values() if file.fd >= 0 and file.at < file.size]
        left = self._budget
        turn = self._turn % len(waiting) if waiting else 0
        waiting = waiting[turn:] + waiting[:turn]
        until_s = time.monotonic() + _SLICE_S
        while waiting and left > 0:
            file = waiting.pop(0)
            self._turn += 1
            data = _pread(file.fd, min(_CHUNK, left), file.at)
            if not data:
                file.size = file.at
                continue
            left -= len(data)
            file.at += len(data)
            self.fed += len(data)
            file.output_boot_s = now_s
            file.last = (file.last + data)[-_LAST:] if len(data) < _LAST else data[-_LAST:]
            found += file.scanner.feed(data)
            if file.at < file.size:
                waiting.append(file)
            if time.monotonic() > until_s:
                break
        self.lagging = bool(waiting)

    def _something_new(self) -> None:
        self._look_for_new = True  # called in watchdog's thread


def last_line(data: bytes) -> str:
    """The last line that shows something, without escape codes, at most 500 characters."""
    end = len(data)
    while end > 0:
        begin = 1 + max(data.rfind(b"\n", 0, end), data.rfind(b"\r", 0, end))
        if begin < end and (text := _shown(data[begin:end])):
            return text[-500:]
        end = begin - 1
    return ""


def _shown(line: bytes) -> str:
    """What of it a person sees. No escape code contains a line break, so each line has its own whole."""
    if b"\x1b" in line:
        import re

        line = re.sub(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[@-Z\\^_])", b"", line)
    text = line.decode("utf-8", "replace")
    return "".join(char for char in text if char.isprintable() or char == "\t").strip()


def _pread(fd: int, size: int, at: int) -> bytes:
    """At most `size` bytes; empty where nothing can be read now."""
    try:
        return os.pread(fd, size, at)
    except OSError:  # EIO, ESTALE of a file system in trouble: the next look tries again
        return b""


def _count_lines(fd: int, end: int) -> int:
    count = at = 0
    while at < end:
        data = _pread(fd, min(_CHUNK, end - at), at)
        if not data:
            break
        count += data.count(b"\n")
        at += len(data)
    return count


def _hash(head: bytes) -> str:
    return hashlib.blake2b(head, digest_size=8).hexdigest()


def _close(file: _File) -> None:
    if file.fd >= 0:
        os.close(file.fd)
        file.fd = -1
