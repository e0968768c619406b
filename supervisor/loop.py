"""See, decide, write it down, do it. READ THIS FIRST.

One loop per run, one thread. It knows neither tmux nor NVML nor YAML: the world is a `Machine`, the record a `Journal`.
Rule 1: nothing is done that the journal does not already say.
Rule 2: a supervisor that is killed at any instant is replaced by one that replays the journal and gives the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from supervisor.core import events as ev
from supervisor.core.decisions import decide
from supervisor.core.evidence import Instant
from supervisor.core.fold import fold
from supervisor.core.now import now_document
from supervisor.core.orders import order
from supervisor.core.seen import Order, Seen
from supervisor.core.state import State
from supervisor.core.watch import Watch, begun, counted, looked, told

REMEMBER_EVERY_S = 10.0
"""How often the watch and the log offsets are saved."""

SHOW_EVERY_S = 1.0
"""How often now.json is replaced; also at every change of the state."""

THOUGHTS = 64
"""No look leads to more thoughts than this; more is a bug, not a reason to spin."""


class Journal(Protocol):
    """The record of a run. `append` returns once the record is on the disk."""

    def begin(self) -> tuple[State, Iterable[tuple[ev.Event, Instant]]]:
        """A state to begin with (the empty one, or a snapshot), and every record since, oldest first."""
        ...

    def append(self, event: ev.Event) -> Instant:
        """Write one record and fsync it; raises when it may not be there."""
        ...

    def keep(self, state: State) -> None:
        """Keep a snapshot of the fold: a cache, never the truth."""
        ...


class Machine(Protocol):
    """The world, as verbs that may be given again. Each answers within its deadline."""

    def do(self, order: Order, state: State) -> None:
        """Make it so, or go on making it so."""
        ...

    def look(self, order: Order, state: State) -> Seen:
        """What is so now, as far as the order needs it."""
        ...

    def wait(self, order: Order, seen: Seen) -> None:
        """Sleep until something may have changed, or it is time to look again."""
        ...

    def recall(self, state: State) -> Watch | None:
        """What an earlier supervisor remembered of this attempt, where it is of this boot."""
        ...

    def remember(self, watch: Watch) -> None:
        """Save the watch together with the log offsets."""
        ...

    def show(self, now: Mapping[str, Any]) -> None:
        """Replace now.json."""
        ...

    def close(self, state: State) -> None:
        """The episode is over: take back secrets, locks and the mark that it is open."""
        ...


class Teller(Protocol):
    """Tells people. It decides nothing about the run and waits for nothing; its records change no phase."""

    def about(self, before: State, event: ev.Event, after: State, at: Instant) -> Iterable[ev.Event]:
        """What is to be told because of this record."""
        ...

    def tell(self, state: State, watch: Watch) -> Iterable[ev.Event]:
        """See that what is to be told is on its way, and say what came of it."""
        ...


class Loop:
    """One run's supervisor. `turn` is one round; `run` goes on until there is nothing left to supervise.

    `teller` makes the one who tells people; it is asked for only where the spec has `notify`.
    """

    def __init__(
        self,
        journal: Journal,
        machine: Machine,
        started: ev.SupervisorStarted,
        teller: Callable[[], Teller] | None = None,
    ) -> None:
        self.journal = journal
        self.machine = machine
        self._make_teller = teller
        self._made_teller: Teller | None = None
        self.state, records = journal.begin()
        for event, at in records:
            self.state = fold(self.state, event, at)
        self._record(started)
        self._watch = self.machine.recall(self.state)
        self._seen: Seen | None = None
        self._remembered_boot_s = 0.0
        self._shown_boot_s = 0.0
        self._changed = True

    def run(self) -> None:
        """Supervise until the episode is over and every request is answered."""
        while self.turn():
            pass
        self.machine.close(self.state)

    def turn(self) -> bool:
        """One round: do, look, decide, record, show, wait. False when there is nothing left to supervise."""
        seen, watch = self._look()
        self._changed = self._think(watch, seen) or self._changed
        if (teller := self._teller()) is not None:
            for event in teller.tell(self.state, self._watch_now(seen)):
                self._record(event)
        self._show(seen)
        if self._is_over(seen):
            return False
        if not self._changed:
            self.machine.wait(order(self.state, self._watch_now(seen), seen), seen)
        self._changed = False
        return True

    def _look(self) -> tuple[Seen, Watch]:
        last = self._seen or Seen.nothing()
        asked = order(self.state, self._watch_now(last), last)
        self.machine.do(asked, self.state)
        seen = self.machine.look(asked, self.state)
        before = self._watch_now(seen)
        watch = looked(before, seen, self.state)
        said = told(before, watch, self.state)
        for event in said:
            self._record(event)
        for text in seen.warnings:
            self._record(ev.Warned(text=text))
        self._seen, self._watch = seen, counted(watch, len(said))
        return seen, self._watch

    def _watch_now(self, seen: Seen) -> Watch:
        """The watch of the current attempt: a new attempt begins with an empty one, and so does a new boot.

        Before the first look the boot is not known (""): what was recalled stays."""
        number = self.state.attempt.number if self.state.attempt else 0
        other_boot = self._watch is not None and seen.at.boot_id not in ("", self._watch.boot_id)
        if self._watch is None or self._watch.attempt != number or other_boot:
            self._watch = begun(number, seen.at)
        return self._watch

    def _think(self, watch: Watch, seen: Seen) -> bool:
        """Record until there is nothing to say. True when the state changed."""
        changed = False
        for _ in range(THOUGHTS):
            events = decide(self.state, self._watch_now(seen), seen)
            if not events:
                return changed
            changed = True
            for event in events:
                self._record(event)
        raise RuntimeError(f"{THOUGHTS} thoughts about one look: the last was {events!r}")

    def _record(self, event: ev.Event) -> None:
        at = self.journal.append(event)
        before, self.state = self.state, fold(self.state, event, at)
        if (teller := self._teller()) is not None:
            for told in teller.about(before, event, self.state, at):
                self._record(told)

    def _teller(self) -> Teller | None:
        if self._make_teller is None or self.state.spec is None or self.state.spec.notify is None:
            return None
        if self._made_teller is None:
            self._made_teller = self._make_teller()
        return self._made_teller

    def _show(self, seen: Seen) -> None:
        now_s = seen.at.boot_s
        watch = self._watch_now(seen)
        if self._changed or now_s - self._shown_boot_s >= SHOW_EVERY_S:
            self.machine.show(now_document(self.state, watch, seen))
            self._shown_boot_s = now_s
        if now_s - self._remembered_boot_s >= REMEMBER_EVERY_S:
            self.machine.remember(watch)
            self.journal.keep(self.state)
            self._remembered_boot_s = now_s

    def _is_over(self, seen: Seen) -> bool:
        unread = any(r.id not in self.state.answered for r in seen.requests)
        return self.state.phase.is_end and not self.state.waiting and not unread and not self._changed
