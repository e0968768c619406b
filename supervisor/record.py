"""The journal as the loop wants it: core events in, core events out. Secrets are redacted on the way to the disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from supervisor import __version__
from supervisor.core.events import (
    EVENT_TYPES,
    EpisodeOpened,
    Event,
    HitSeen,
    LaunchIntended,
    PreflightPassed,
    PreflightRefused,
    Warned,
)
from supervisor.core.evidence import Instant
from supervisor.core.scalars import scalars
from supervisor.core.spec import RunSpec
from supervisor.core.state import State
from supervisor.edges import proc
from supervisor.edges.codec import from_plain, to_plain
from supervisor.edges.journal import Journal
from supervisor.edges.paths import Home, RunDir
from supervisor.edges.secrets import Redactor, is_secret_name, load
from supervisor.edges.snapshot import read_snapshot, write_snapshot


class LiveRedactor(Redactor):
    """A redactor whose values may be named later."""

    def __init__(self) -> None:
        super().__init__(())

    def hide(self, values: Iterable[str]) -> None:
        """Redact these from now on."""
        super().__init__(values)


OBSERVED = (HitSeen, Warned)
"""What was merely seen: nothing is done because of it, so nothing waits for the disk, which may take 50 ms."""


class Record:
    """The journal of one run, opened by the holder of its lock."""

    def __init__(self, home: Home, run: RunDir) -> None:
        self._run = run
        self._journal = Journal.open(run.journal, writer=True, reserve=home.reserve)
        self.redactor = LiveRedactor()
        self._spec: RunSpec | None = None
        self.log: Any = None
        self._kept_n = -1

    def begin(self) -> tuple[State, Iterator[tuple[Event, Instant]]]:
        """The state at the last snapshot (of this version and boot, else the empty one), and every record since."""
        found = read_snapshot(self._run.snapshot, version=__version__, boot_id=proc.boot_id())
        if found is not None and found[0] <= self._journal.last_n:
            try:
                state = from_plain(found[1], State)
                self._spec = state.spec
                return state, self._records(after=found[0])
            except ValueError:  # a cache in doubt is no cache
                return State(run=self._run.name), self._records(after=0)
        return State(run=self._run.name), self._records(after=0)

    def _records(self, after: int) -> Iterator[tuple[Event, Instant]]:
        """Records, oldest first. One of a type that this version does not know changes nothing."""
        for record in self._journal.read(after):
            kind = EVENT_TYPES.get(record.type)
            if kind is not None:
                event = from_plain(record.data, kind)
                if isinstance(event, EpisodeOpened):
                    self._spec = event.spec
                yield event, record.at
        self._refresh()

    def append(self, event: Event) -> Instant:
        """Write one record and fsync it, unless it is one of OBSERVED. Raises JournalFull, JournalLost."""
        if isinstance(event, EpisodeOpened):
            self._spec = event.spec
        if isinstance(event, (PreflightPassed, PreflightRefused, LaunchIntended)):
            self._refresh()
        at = proc.now()
        plain = self.redactor.plain(to_plain(event))
        self._journal.append(type(event).__name__, plain, at, sync=not isinstance(event, OBSERVED))
        self._tell(type(event).__name__, plain)
        return at

    def _tell(self, name: str, plain: dict[str, Any]) -> None:
        """The same to supervisor.log, short, for the person watching."""
        if self.log is not None:
            short = {key: value for key, value in plain.items() if isinstance(value, (str, int, float))}
            self.log.info(name, **{key: value for key, value in short.items() if value not in ("", None)})

    def keep(self, state: State) -> None:
        """Keep a snapshot of the fold, if it has changed."""
        if self._kept_n == self._journal.last_n:
            return
        self._kept_n = self._journal.last_n
        plain = self.redactor.plain(to_plain(state))  # as the records that it stands for
        write_snapshot(self._run.snapshot, self._journal.last_n, plain, version=__version__, boot_id=proc.boot_id())

    def _refresh(self) -> None:
        """Redact the secret values of the run's environment from now on; never the value of a param."""
        known = load(self._run)
        if known is None or self._spec is None:
            return
        told = self._spec.notify
        addresses = {told.urls_from, told.heartbeat_from} if told is not None else set()
        values = {word for name in addresses for word in known.own.get(name or "", "").split()}
        names = {*self._spec.secrets, *filter(is_secret_name, known.job)}
        params = self._spec.params
        texts = {s.text for value in params.protected.values() for s in scalars(value)}
        texts |= {scalar.text for knob in params.knobs for rung in knob.rungs for scalar in rung.values()}
        values |= {known.job[name] for name in names if name in known.job}
        self.redactor.hide(values - texts)

    def close(self) -> None:
        """Let go of the file."""
        self._journal.close()
