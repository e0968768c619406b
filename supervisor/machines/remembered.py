"""watch.json: what a supervisor has learned of an attempt, saved with the log offsets it was learned up to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from supervisor.core.state import State
from supervisor.core.watch import Memo, Watch, memo, recalled
from supervisor.edges.codec import from_plain, to_plain
from supervisor.edges.files import read_json, to_json, write_atomic
from supervisor.edges.paths import RunDir


class Remembered(Struct, frozen=True):
    """Both belong together: the logs are read on from where this much was known."""

    watch: Watch
    trail: Mapping[str, Any]


def save(run: RunDir, watch: Watch, trail: Mapping[str, Any], before: bytes) -> bytes:
    """Save both as one file, unless it says what it said `before`. Not fsynced: what is lost is read again."""
    data = to_json({"memo": to_plain(memo(watch)), "trail": trail})
    if data != before:
        write_atomic(run.watch, data, sync=False)
    return data


def load(run: RunDir, state: State, boot_id: str) -> Remembered | None:
    """What was saved of the current attempt in this boot; None for none, torn, or of another attempt or boot."""
    try:
        plain = read_json(run.watch) or {}
        saved, trail = from_plain(plain["memo"], Memo), plain["trail"]
    except (ValueError, KeyError, TypeError):
        return None
    if state.attempt is None or saved.attempt != state.attempt.number or saved.boot_id != boot_id:
        return None
    return Remembered(recalled(saved), trail)
