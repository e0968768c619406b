"""Single files of a checkpoint: what speaks against a file being whole. No torch, nothing executed, nothing written.

A check applies to files that carry the format's magic; a file of another kind is only asked for not being empty.
Sources: the safetensors format (8-byte little-endian length, JSON, data); torch.save's zip with a `data.pkl`;
pickle opcodes as in CPython's pickletools. Not seen by any of these: a hole of the right size inside the data.
"""

# Paths are text here: globs, and thousands of names in one walk.
# ruff: noqa: PTH116, PTH119

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import tarfile
import zipfile
from typing import Any

HEADER_CAP_BYTES = 100_000_000
"""The safetensors library refuses longer headers."""

PICKLE_CAP_BYTES = 64 * 2**20
"""Descriptions of tensors take a few MiB for the largest models; more is not read."""

JSON_CAP_BYTES = 64 * 2**20
TAR_MEMBERS_CAP = 10_000

TORCH_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
WEIGHT_SUFFIXES = (*TORCH_SUFFIXES, ".safetensors", ".distcp", ".nemo", ".pkl", ".npz", ".h5", ".msgpack")
BEGIN_WITH_A_MARK = (".pt", ".pth", ".ckpt", ".safetensors", ".nemo", ".npz", ".h5", ".pkl")
"""Formats whose first bytes are never zeros: a file that lost its blocks in a power cut, or was only preallocated."""
NEVER_EMPTY = (*WEIGHT_SUFFIXES, ".json", ".metadata")


def file_fault(path: str, size: int) -> str | None:
    """Why this file cannot be whole; None where nothing speaks against it. Raises OSError."""
    name = os.path.basename(path)
    if size == 0:
        return f"{name} is empty" if name.endswith(NEVER_EMPTY) else None
    if name.endswith(".distcp"):
        return None  # archives and raw tensors back to back; `.metadata` says what must be in it
    with open(path, "rb") as file:
        head = file.read(512)
        if name.endswith(BEGIN_WITH_A_MARK) and not head.strip(b"\0"):
            return f"{name} begins with zeros: there was room for it, it was not written"
        if head.startswith(b"PK\x03\x04"):
            return _zip_fault(file, name)
        if head[257:262] == b"ustar":
            return _tar_fault(file, name)
        if _is_safetensors(head):
            return _safetensors_fault(file, name, size)
        if name.endswith(".safetensors") and len(head) < 9 and b"\0" in head and head.strip(b"\0"):
            return f"{name} is cut off in its header"
        if name.endswith(".json") and head.lstrip()[:1] in (b"{", b"["):
            return _json_end_fault(file, name, size)
    return None


def _is_safetensors(head: bytes) -> bool:
    if len(head) < 9 or head[8:9] != b"{":
        return False
    (length,) = struct.unpack("<Q", head[:8])
    return bool(2 <= length <= HEADER_CAP_BYTES)


def _safetensors_fault(file: io.BufferedReader, name: str, size: int) -> str | None:
    file.seek(0)
    (length,) = struct.unpack("<Q", file.read(8))
    text = file.read(length)
    if len(text) < length:
        return f"{name} is cut off in its header"
    try:
        tensors = json.loads(text)
        ends = [entry["data_offsets"][1] for key, entry in tensors.items() if key != "__metadata__"]
        due = 8 + length + max(ends, default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return f"{name} has a broken header"
    if size < due:
        return f"{name} is cut off: {size} of {due} bytes"
    return f"{name} is {size - due} bytes longer than its header says" if size > due else None


def _zip_fault(file: io.BufferedReader, name: str) -> str | None:
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            if any(i.header_offset + i.compress_size > archive.start_dir for i in infos):
                return f"{name} is cut off: entries reach beyond its directory"
            pickles = [i for i in infos if i.filename.endswith("data.pkl")]
            if not pickles and name.endswith(TORCH_SUFFIXES):
                return f"{name} holds no data.pkl"
            for info in pickles:
                if info.file_size <= PICKLE_CAP_BYTES:
                    archive.read(info)  # checks its CRC
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, struct.error) as error:
        return f"{name} is cut off or damaged: {error}"
    return None


def _tar_fault(file: io.BufferedReader, name: str) -> str | None:
    file.seek(0)
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            for count, _member in enumerate(archive):
                if count >= TAR_MEMBERS_CAP:
                    break
    except (tarfile.TarError, EOFError) as error:
        return f"{name} is cut off or damaged: {error}"
    return None


def _json_end_fault(file: io.BufferedReader, name: str, size: int) -> str | None:
    file.seek(max(0, size - 64))
    return None if file.read(64).rstrip()[-1:] in (b"}", b"]") else f"{name} is cut off"


def read_json(path: str) -> Any | None:
    """The value in a JSON file, None where it is none (cut off, not there, too large)."""
    try:
        if os.stat(path).st_size > JSON_CAP_BYTES:
            return None
        with open(path, "rb") as file:
            return json.loads(file.read(JSON_CAP_BYTES))
    except (OSError, ValueError, RecursionError):
        return None


class Ghost:
    """Stands for any object of a pickle: nothing of the class it names is imported, called or run."""

    fields: dict[Any, Any]

    def __new__(cls, *args: object, **kwargs: object) -> Ghost:
        """Takes whatever the class would take. Not in `__init__`: a pickle makes objects without calling it."""
        ghost = super().__new__(cls)
        ghost.fields = dict(kwargs)
        return ghost

    def __init__(self, *args: object, **kwargs: object) -> None:
        """As `__new__`."""

    def __setstate__(self, state: object) -> None:
        """Keeps what the object would have become: `fields` by name."""
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.fields.update(part)

    def __setitem__(self, key: object, value: object) -> None:
        self.fields[key] = value

    def __call__(self, *args: object, **kwargs: object) -> Ghost:
        return Ghost(*args, **kwargs)

    def append(self, item: object) -> None:
        """Items of a list subclass are of no interest."""

    def extend(self, items: object) -> None:
        """As `append`."""

    def add(self, item: object) -> None:
        """As `append`."""

    def get(self, key: object, default: Any = None) -> Any:
        """The attribute or item of that name."""
        return self.fields.get(key, default)


class _Items(dict[Any, Any]):
    """An OrderedDict: torch hangs attributes (`_metadata`) on its own, which a plain dict would refuse."""


class _Ghosts(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return _Items
        return Ghost

    def persistent_load(self, pid: Any) -> Any:
        return None


def read_pickle(data: bytes) -> Any | None:
    """The pickled value with a `Ghost` for every object; None where it cannot be read. Runs no foreign code."""
    if len(data) > PICKLE_CAP_BYTES:
        return None
    try:
        return _Ghosts(io.BytesIO(data)).load()
    except Exception:  # noqa: BLE001 - a damaged pickle raises anything at all; it is unreadable, that's all
        return None


def read_torch_pickle(path: str) -> Any | None:
    """The description in a torch.save zip, tensors left out; None where there is none to be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.filename.endswith("data.pkl") and info.file_size <= PICKLE_CAP_BYTES:
                    return read_pickle(archive.read(info))
    except (OSError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError):
        return None
    return None
