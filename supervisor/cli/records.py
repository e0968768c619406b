"""What the files of a run say, read for people and for verbs: records, view, look, and whose machine it is."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from supervisor import __version__
from supervisor.core.errors import Exit, Refusal, SuperviseError
from supervisor.edges import locks, proc
from supervisor.edges.files import read_json, to_json, write_atomic
from supervisor.edges.journal_tail import Place, PlainRecords, read_plain
from supervisor.edges.paths import RunDir
from supervisor.views import accounting, fold
from supervisor.views import run as run_view
from supervisor.views.kept import Told
from supervisor.views.run import Entry, RunView
from supervisor.views.status import Look

KEPT_FROM = 200
"""Reading so many records costs 3 ms, keeping what was folded 1 ms, and `status` may be asked for each second."""


def entries(run: RunDir) -> Iterator[Entry]:
    """The run's records. Raises JournalDamaged."""
    for record in read_plain(run.journal):
        yield Entry(record["type"], record["at"]["wall_s"], record["data"])


def view(run: RunDir) -> RunView:
    """The run as its journal tells it. Raises JournalDamaged."""
    return _told(run).view


def _told(run: RunDir) -> Told:
    """The run's records, folded. Where many were read, the next verb is spared them. Raises JournalDamaged."""
    told, place = _kept(run)
    read = PlainRecords(run.journal, place)
    if not read.went_on:
        told = Told(run.name)
    before = place.n if read.went_on and place is not None else 0
    for record in read:
        told.take(Entry(record["type"], record["at"]["wall_s"], record["data"]))
    if read.place is not None and read.place.n - before >= KEPT_FROM:
        kept = {"code": _code(), "place": read.place, **told.plain()}
        with suppress(OSError):  # a cache: without it all is read again
            write_atomic(run.view, to_json(kept), sync=False)
    return told


def _kept(run: RunDir) -> tuple[Told, Place | None]:
    """What an earlier verb kept, if it was made by this code."""
    with suppress(OSError, ValueError, KeyError, TypeError):  # damaged, or of another version: no cache
        plain = read_json(run.view)
        if plain is not None and plain["code"] == _code():
            return Told.of(plain), Place(*plain["place"])
    return Told(run.name), None


def _code() -> list[Any]:
    """Changes whenever the code that folds does. Raises OSError."""
    return [__version__, *(os.stat(each.__file__ or "").st_mtime_ns for each in (fold, run_view, accounting))]  # noqa: PTH116


def look(run: RunDir) -> Look:
    """The run as it stands; damage of its files is told in it, not raised."""
    damage = ""
    try:
        told = _told(run)
    except SuperviseError as error:
        damage = str(error)
        told = _as_far_as_it_goes(run)
    now: Any = None
    try:
        now = read_json(run.now)
    except ValueError as error:
        damage = damage or f"{error} (the supervisor replaces it)"
    now = now if isinstance(now, dict) else {}
    return Look(
        view=told.view,
        now=now,
        alive=locks.is_held(run.lock),
        here=is_here(told.view),
        at_s=(at_s := time.time()),
        spent=accounting.document(told.books.total(at_s)),
        asked=is_asked(str(run.requests)),
        damage=damage or str(now.get("trouble", "")),  # a disk that is full: no record can say it
    )


def _as_far_as_it_goes(run: RunDir) -> Told:
    """The records before the damage."""
    told = Told(run.name)
    with suppress(SuperviseError):
        for entry in entries(run):
            told.take(entry)
    return told


def is_asked(requests: str) -> bool:
    """Whether a request waits in that folder to be answered."""
    try:
        names = os.listdir(requests)  # noqa: PTH208 - names only, and pathlib's generator costs more
    except FileNotFoundError:
        return False
    return bool(names) and any(name.endswith(".json") and not name.startswith(".") for name in names)


def is_here(of: RunView) -> bool:
    """Whether the run belongs to this machine. A box without a machine id is known by its host name."""
    if not of.machine:
        return True
    known, ours = of.machine.get("machine_id"), proc.machine_id()
    if known and ours:
        return bool(known == ours)
    return bool(of.machine.get("host") == os.uname().nodename)


def must_be_here(run: RunDir) -> RunView:
    """The run's view. Refusal 7 when it belongs to another machine."""
    seen = view(run)
    if not is_here(seen):
        host = seen.machine.get("host") or "another machine"
        raise Refusal(
            Exit.CONFLICT,
            f"{run.name} belongs to {host}: its processes and GPUs are there, not here. Use it there; if that machine "
            f"is gone for good: supervise adopt {run.name} --here",
        )
    return seen
