"""A snapshot of the fold over the journal: a cache, ignored whenever in doubt. Not what is in it."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from supervisor.edges.files import read_json, to_json, write_atomic


def write_snapshot(path: Path, n: int, plain: Any, *, version: str, boot_id: str) -> None:
    """Save the fold of the records 1 to `n`. `version` is that of the code that folded. Not fsynced: a cache."""
    state = to_json(plain).decode("ascii")
    head = f"{version} {boot_id} {n} "
    crc = zlib.crc32((head + state).encode())
    write_atomic(
        path,
        to_json({"version": version, "boot_id": boot_id, "n": n, "state": state, "crc": f"{crc:08x}"}),
        sync=False,
    )


def read_snapshot(path: Path, *, version: str, boot_id: str) -> tuple[int, Any] | None:
    """(n, plain), or None when there is none, it is damaged, or other code or another boot wrote it.

    The caller drops it too when the journal's last number is below `n`.
    """
    try:
        found = read_json(path)
        if found is None or (found["version"], found["boot_id"]) != (version, boot_id):
            return None
        n, state = found["n"], found["state"]
        head = f"{version} {boot_id} {n} "
        if found["crc"] != f"{zlib.crc32((head + state).encode()):08x}":
            return None
        return int(n), json.loads(state)
    except (ValueError, KeyError, TypeError, OSError):
        return None  # a cache in doubt is no cache: the journal is read instead
