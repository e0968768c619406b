"""Records of an attempt that may not be well: dumps, and what recovery held back. Part of `core/events.py`."""

from __future__ import annotations

from msgspec import Struct

from supervisor.core.plans import Failure, Plan


class DumpIntended(Struct, frozen=True, kw_only=True):
    """What the attempt's processes are doing will be written down; nothing of it is stopped by that.

    `why` is the kind that is feared; `step` the last one known then.
    """

    attempt: int
    why: str
    step: int | None = None


class Dumped(Struct, frozen=True, kw_only=True):
    """What the dump found. `path` is in the attempt's folder, empty where there is none and `problem` says why.

    `ranks`: who did not report, as far as the logs tell.
    """

    attempt: int
    why: str
    step: int | None = None
    path: str = ""
    summary: str = ""
    ranks: tuple[int, ...] = ()
    problem: str = ""


class HeldBack(Struct, frozen=True, kw_only=True):
    """Recovery is paused: this failure was seen, and this would have been done about it."""

    attempt: int
    failure: Failure
    plan: Plan
