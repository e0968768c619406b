"""A copy of the code, later: what was copied, whether it is so still, and the end of old ones. `codecopy.py` makes it.

Rule: what a job wrote into a copy is never removed with it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from supervisor.edges.files import read_json

SCHEMA = "supervise.code/v1"
KEPT = 3
"""The copy that is used and two before it: processes of an earlier episode may still be there."""

CHUNK_BYTES = 2**20

RUN = (".py", ".pyx", ".so", ".sh", ".bash", ".cu", ".cpp")
"""Without one of these an attempt would run the working tree's, or nothing: such a copy is none."""


class Looked(Struct, frozen=True):
    """`changed`: files that are not as they were copied. `wrote`: files that are there besides. `gone`: why the copy is
    none any more."""

    changed: tuple[str, ...] = ()
    wrote: tuple[str, ...] = ()
    gone: str = ""


def look(copy: Path) -> Looked:
    """The copy as it is now; every file is read. Raises OSError."""
    try:
        told = manifest(copy)
    except ValueError as error:
        return Looked(gone=str(error))
    if told is None:
        return Looked(gone=f"{copy} is not there")
    changed = [name for name, one in told["files"].items() if _differs(copy / "tree" / name, one)]
    absent = [name for name in changed if name.endswith(RUN) and not os.path.lexists(copy / "tree" / name)]
    gone = f"{len(absent)} of its files are not there, such as {absent[0]} in {copy}/tree" if absent else ""
    return Looked(tuple(changed), tuple(_besides(copy / "tree", told["files"])), gone)


def manifest(copy: Path) -> dict[str, Any] | None:
    """What was copied; None where there is no copy. Raises ValueError for damage, OSError."""
    told = read_json(copy / "manifest.json")
    if told is not None and (not isinstance(told, dict) or told.get("schema") != SCHEMA):
        raise ValueError(f"{copy}/manifest.json is no list of copied files of this version")
    return told


def _differs(path: Path, told: list[Any]) -> bool:
    size, _, _, digest = told
    try:
        if path.is_symlink() or path.stat().st_size != size:
            return True
        found = hashlib.sha256()
        with open(path, "rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                found.update(chunk)
    except (FileNotFoundError, NotADirectoryError):
        return True
    return bool(found.hexdigest() != digest)


def _besides(tree: Path, copied: dict[str, Any]) -> Iterator[str]:
    """Files of its own that nobody copied; bytecode is none of them."""
    for folder, folders, names in os.walk(tree):
        folders[:] = [one for one in folders if one != "__pycache__"]
        for name in names:
            path = Path(folder, name)
            inside = str(path.relative_to(tree))
            if inside not in copied and not path.is_symlink():
                yield inside


def prune(folder: Path, keep: str) -> tuple[str, ...]:
    """Removes all but the newest copies and `keep`. Those into which a job wrote stay and are told. Raises OSError."""
    told = []
    for one in sorted(one for one in folder.glob("[0-9]*") if one.name != keep)[: -(KEPT - 1)]:
        wrote = look(one).wrote
        if wrote:
            told.append(f"{one} is kept: a job wrote into it, such as {wrote[0]}; move what you need, then remove it")
        else:
            remove(one)
    return tuple(told)


def remove(path: Path) -> None:
    """Links are removed and never followed. Raises OSError."""
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
