"""Files that are whole or not there: atomic replacement, private folders, JSON. Not what is in them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

READ_CAP_BYTES = 64 * 2**20
"""A JSON file of ours is kilobytes; one of this size isn't ours."""

_SMALL_BYTES = 64 * 2**10


def write_atomic(path: Path, data: bytes, *, mode: int = 0o600, sync: bool = True) -> None:
    """Replace `path` by `data`: readers see the old content or the new, also after a power cut if `sync`.

    Raises OSError; the old file then stands as it was and no temporary file is left.
    """
    folder, _, name = os.fspath(path).rpartition("/")  # once a second per run: pathlib costs more than the write
    tmp = f"{folder}/.{name}.{os.getpid()}.{os.urandom(4).hex()}.tmp" if folder else f".{name}.{os.getpid()}.tmp"
    try:
        fd = os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        try:
            write_all(fd, data)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(tmp, path)  # noqa: PTH105
    except BaseException:
        Path(tmp).unlink(missing_ok=True)
        raise
    if sync:
        fsync_dir(path.parent)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`: a short write is continued. Raises OSError."""
    view = memoryview(data)
    while view:
        written = os.write(fd, view)
        view = view[written:]


def fsync_dir(path: Path) -> None:
    """Make names in the folder `path` durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_private_dir(path: Path) -> None:
    """See that the folder is there, with its parents; what is made is 0700, the rest stays as it is."""
    missing = []
    at = path
    while not at.is_dir():
        missing.append(at)
        at = at.parent
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
        fsync_dir(folder.parent)


def read_json(path: Path) -> Any | None:
    """The JSON value in the file; None when there is no file. Raises ValueError for damage, else OSError."""
    try:
        with open(path, "rb") as file:
            data = file.read(_SMALL_BYTES)  # nearly all of them: the cap would be allocated for each
            if len(data) == _SMALL_BYTES:
                data += file.read(READ_CAP_BYTES + 1 - _SMALL_BYTES)
    except FileNotFoundError:
        return None
    if len(data) > READ_CAP_BYTES:
        raise ValueError(f"{path}: larger than {READ_CAP_BYTES} bytes")
    try:
        return json.loads(data)
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from error


def to_json(value: Any) -> bytes:
    """Compact JSON in one line of ASCII, no newline at its end. NaN and undecodable names survive."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")
