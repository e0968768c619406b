"""Where a run's time went: a fold over its records. No opinion on whether that was good.

Each second between `up` and the end of an episode belongs to exactly one of the classes of `Accounting`; the time
between two episodes, in which the run was not wanted, belongs to none. ETTR (effective training time ratio) is
`productive_s / wall_s`, as in the reports of ByteRobust (arXiv 2509.16293) and of Meta's research clusters
(arXiv 2410.21680): training that a later launch began behind is lost, not productive.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from supervisor.views.run import ENDS, Entry, Plain, next_phase, trigger

CLASSES = {
    "preflight": "check",
    "starting": "load",
    "running": "productive",
    "degraded": "degraded",
    "stopping": "verify",
    "verifying": "verify",
    "cleaning": "verify",
    "backoff": "backoff",
}
"""Phase → class. What a job still does after its end was seen is `verify` too."""

WRITTEN_KEPT = 5000
"""So many checkpoints are remembered, the newest: a launch from an older one throws away what is unknown."""


class Accounting(NamedTuple):
    """Seconds of a run by class; they add up to `wall_s`.

    `productive_s`: trained and kept. `degraded_s`: trained and kept with less than was asked for. `lost_s`: trained
    and thrown away; `lost_steps` are its steps, as far as they are known. `load_s`: from the launch to the first
    progress. `verify_s`: ending what was left, reading the GPUs, cleaning. `check_s`: the checks before a launch,
    a rehearsal among them.
    """

    productive_s: float = 0.0
    degraded_s: float = 0.0
    lost_s: float = 0.0
    load_s: float = 0.0
    verify_s: float = 0.0
    backoff_s: float = 0.0
    check_s: float = 0.0
    lost_steps: int = 0
    attempts: int = 0
    episodes: int = 0

    @property
    def wall_s(self) -> float:
        """All the time in which the run was wanted."""
        return sum(self[: self._fields.index("lost_steps")])

    @property
    def ettr(self) -> float | None:
        """The share of the wall time that was productive; None before there is any."""
        return self.productive_s / self.wall_s if self.wall_s > 0 else None


class _Stretch(NamedTuple):
    """Training of one attempt that no launch has thrown away yet (Unix times)."""

    kind: str
    begin_s: float
    end_s: float


class Books:
    """What is known while the records go by: `take` each, ask for the `total` at any time."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = dict.fromkeys((*CLASSES.values(), "lost"), 0.0)
        self.training: list[_Stretch] = []
        self.written: dict[str, float] = {}
        self.last_step: int | None = None
        self.lost_steps = self.attempts = self.episodes = 0
        self.phase, self.since_s, self.ended, self.small = "stopped", 0.0, False, False

    def take(self, entry: Entry) -> None:
        """The time before a record, and what it says."""
        self._spend(entry.wall_s)
        by = trigger(entry)
        if by in ("JobEnded", "LaunchIntended"):
            self.ended = by == "JobEnded"
        if by == "LaunchIntended":
            self.small = bool(entry.fields.get("rehearsal"))
        self._note(entry)
        self.phase, self.since_s = next_phase(self.phase, by), max(self.since_s, entry.wall_s)

    def total(self, now_s: float | None = None) -> Accounting:
        """Where the time went, up to `now_s` (Unix time; None: up to the last record)."""
        spent = dict(self.spent)
        if now_s is not None and (kind := self._class()) and now_s > self.since_s:
            spent[kind] += now_s - self.since_s
        seconds = {f"{kind}_s": max(0.0, each) for kind, each in spent.items()}
        return Accounting(**seconds, lost_steps=self.lost_steps, attempts=self.attempts, episodes=self.episodes)

    def plain(self) -> dict[str, Any]:
        """All of it, JSON-ready."""
        return vars(self)

    @classmethod
    def of(cls, plain: Plain) -> Books:
        """The books of `plain()`. Raises KeyError, TypeError."""
        books = cls()
        for name in vars(books):
            setattr(books, name, plain[name])
        books.training = [_Stretch(*one) for one in books.training]
        return books

    def _class(self) -> str:
        return _class(self.phase, self.ended, self.small)

    def _spend(self, end_s: float) -> None:
        """Time in this class; a clock that was set back spends nothing."""
        kind, begin_s = self._class(), self.since_s
        if not kind or end_s <= begin_s:
            return
        self.spent[kind] += end_s - begin_s
        if kind in ("productive", "degraded"):
            last = self.training[-1] if self.training else None
            if last is not None and last.kind == kind and last.end_s == begin_s:
                self.training[-1] = last._replace(end_s=end_s)
            else:
                self.training.append(_Stretch(kind, begin_s, end_s))

    def _launch(self, checkpoint: Plain | None) -> None:
        """A launch throws away what was trained after its checkpoint was written."""
        self.attempts += 1
        kept_until_s = self.written.get(checkpoint.get("path", ""), 0.0) if checkpoint else 0.0
        before = list(self.training)
        self.training = []
        for one in before:
            lost_s = min(one.end_s - one.begin_s, max(0.0, one.end_s - kept_until_s))
            self.spent[one.kind] -= lost_s
            self.spent["lost"] += lost_s
            if one.end_s - lost_s > one.begin_s:
                self.training.append(one._replace(end_s=one.end_s - lost_s))
        step = checkpoint.get("step", -1) if checkpoint else 0
        if self.last_step is not None and step >= 0:
            self.lost_steps += max(0, self.last_step - step)
        self.last_step = None

    def _note(self, entry: Entry) -> None:
        """What a record says beside its time."""
        of = entry.fields
        match entry.type:
            case "EpisodeOpened":
                self.episodes += 1
            case "LaunchIntended" if not of.get("rehearsal"):
                self._launch(of.get("checkpoint"))
            case "CheckpointWritten":
                self._saved((of.get("checkpoint") or {}).get("path", ""), entry.wall_s)
            case "FirstProgress" if of.get("step") is not None:
                self.last_step = of["step"]
            case _:
                pass
        if of.get("last_step") is not None:
            self.last_step = of["last_step"]

    def _saved(self, path: str, at_s: float) -> None:
        self.written.pop(path, None)  # so that the newest stand last
        self.written[path] = at_s
        if len(self.written) > WRITTEN_KEPT:
            del self.written[next(iter(self.written))]


def accounting(entries: Iterable[Entry], now_s: float | None = None) -> Accounting:
    """Where the time went, up to `now_s` (Unix time; None: up to the last record)."""
    books = Books()
    for entry in entries:
        books.take(entry)
    return books.total(now_s)


def _class(phase: str, ended: bool, small: bool) -> str:
    """`small`: a rehearsal, which checks and trains nothing that is kept."""
    kind = CLASSES.get(phase, "") if phase not in ENDS else ""
    if small and kind in ("productive", "degraded", "load"):
        return "check"
    return "verify" if ended and kind in ("productive", "degraded", "load") else kind


def document(found: Accounting) -> dict[str, Any]:
    """For JSON: seconds rounded to tenths, ETTR to four digits."""
    said: dict[str, Any] = {
        name: round(value, 1) if isinstance(value, float) else value for name, value in found._asdict().items()
    }
    return {"wall_s": round(found.wall_s, 1), "ettr": None if found.ettr is None else round(found.ettr, 4), **said}
