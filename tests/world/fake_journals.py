"""Journals for a fake world: one in memory, and the real file with the world's time. Records go through JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from fake_specs import RUN
from fake_world import World

from supervisor.core.events import EVENT_TYPES, Event
from supervisor.core.evidence import Instant
from supervisor.core.fold import fold
from supervisor.core.state import State
from supervisor.edges.codec import from_plain, to_plain
from supervisor.edges.journal import Journal
from supervisor.edges.snapshot import read_snapshot, write_snapshot

VERSION = "test"


class Killed(BaseException):
    """The supervisor was killed here: nothing of it cleans up."""


class MemoryJournal:
    """Outlives its supervisors; `records` is all that was ever written. `kill_after` names a record type."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.records: list[tuple[Event, Instant]] = []
        self.kill_after = ""

    def begin(self) -> tuple[State, list[tuple[Event, Instant]]]:
        return State(run=RUN), list(self.records)

    def append(self, event: Event) -> Instant:
        read_back = from_plain(to_plain(event), type(event))
        assert read_back == event
        self.records.append((read_back, self.world.now()))
        if type(event).__name__ == self.kill_after:
            self.kill_after = ""
            raise Killed(type(event).__name__)
        return self.world.now()

    def keep(self, state: State) -> None:
        assert from_plain(to_plain(state), State) == state


class FileJournal:
    """The real journal and snapshot, opened by one supervisor. `touch` may kill it around each write."""

    def __init__(self, folder: Path, world: World, touch: Callable[[str], None]) -> None:
        self._snapshot = folder / "snapshot.json"
        self._world = world
        self._touch = touch
        self._journal = Journal.open(folder / "journal.jsonl", writer=True)

    def begin(self) -> tuple[State, Iterator[tuple[Event, Instant]]]:
        found = read_snapshot(self._snapshot, version=VERSION, boot_id=self._world.boot_id)
        if found is not None and found[0] <= self._journal.last_n:
            return from_plain(found[1], State), self._since(found[0])
        return State(run=RUN), self._since(0)

    def _since(self, n: int) -> Iterator[tuple[Event, Instant]]:
        for record in self._journal.read(n):
            yield from_plain(record.data, EVENT_TYPES[record.type]), record.at

    def append(self, event: Event) -> Instant:
        name = type(event).__name__
        at = self._world.now()
        try:
            self._touch(f"before {name}")
        except BaseException:  # killed in the middle of its write: the line is torn
            with open(self._journal.path, "ab") as file:
                file.write(b'{"n":')
            raise
        self._journal.append(name, to_plain(event), at)
        self._touch(f"after {name}")
        return at

    def keep(self, state: State) -> None:
        plain = to_plain(state)
        self._touch("keep")
        write_snapshot(self._snapshot, self._journal.last_n, plain, version=VERSION, boot_id=self._world.boot_id)

    def close(self) -> None:
        self._journal.close()


def read_events(path: Path) -> list[tuple[Event, Instant]]:
    """All records of a journal file, as events."""
    journal = Journal.open(path, writer=False)
    return [(from_plain(one.data, EVENT_TYPES[one.type]), one.at) for one in journal.read()]


def folded(records: list[tuple[Event, Instant]]) -> State:
    """The state after these records."""
    state = State(run=RUN)
    for event, at in records:
        state = fold(state, event, at)
    return state
