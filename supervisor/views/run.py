"""A run and its attempts as people see them, and its phases. How records become these is `views/fold.py`.

Named tuples: `status` makes these classes at every call and wants nothing but the standard library for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

Plain = Mapping[str, Any]


class Entry(NamedTuple):
    """One record: its type's name, when it was written (Unix time), its fields as plain values."""

    type: str
    wall_s: float
    fields: Plain


class AttemptView(NamedTuple):
    """One attempt. `failure`, `plan` and `end` are records' values as they stand; None until they are known."""

    number: int
    intended_s: float
    argv: tuple[str, ...] = ()
    knobs: Mapping[str, Any] = MappingProxyType({})
    changed: Mapping[str, tuple[Any, Any]] = MappingProxyType({})
    checkpoint: Plain | None = None
    because: str = ""
    started_s: float | None = None
    ended_s: float | None = None
    startup_s: float | None = None
    first_step: int | None = None
    last_step: int | None = None
    leader: int | None = None
    end: Plain | None = None
    failure: Plain | None = None
    plan: Plain | None = None
    stop_by: str | None = None
    stop_because: str = ""
    stopped: tuple[Plain, ...] = ()
    holders: tuple[Plain, ...] = ()
    verified: Plain | None = None
    abandoned: str | None = None
    notes: tuple[str, ...] = ()  # how it did while it lived: degraded, as fast again, what would be full
    dumps: tuple[Plain, ...] = ()
    rehearsal: bool = False
    drift: Plain | None = None
    code: Plain | None = None  # the copy of the code that it was launched from


class RunView(NamedTuple):
    """A run as its journal tells it."""

    name: str
    phase: str = "stopped"
    paused: bool = False
    wanted: str = "down"
    because: str = "never launched"
    next_command: str = ""
    held: bool = False
    spec: Plain = MappingProxyType({})
    machine: Plain = MappingProxyType({})
    protected: Mapping[str, Any] = MappingProxyType({})
    protected_sha256: str | None = None
    knobs: Mapping[str, Any] = MappingProxyType({})
    settled: Plain = MappingProxyType({})  # of these, what the last launch was made with
    gpus: Mapping[str, tuple[int, str]] = MappingProxyType({})  # UUID → physical index, role
    attempts: tuple[AttemptView, ...] = ()
    episode_first: int = 0  # position in `attempts` of the episode's first one
    episode_s: float | None = None
    ended_s: float | None = None
    checkpoint: Plain | None = None
    step: int | None = None
    last_failure: Plain | None = None
    supervisor_pid: int | None = None
    warnings: tuple[str, ...] = ()
    code: Plain | None = None
    would: str = ""  # what recovery would have done, had it not been paused
    last_s: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether an episode lasts."""
        return self.phase not in ENDS

    @property
    def restarts(self) -> int:
        """Relaunches within the episode."""
        return max(0, len(self.attempts) - self.episode_first - 1)


ENDS = ("finished", "stopped", "halted")
PHASES: dict[str, tuple[tuple[str, ...], str]] = {
    "EpisodeOpened": (ENDS, "preflight"),
    "PreflightRefused:stopped": (("preflight",), "stopped"),
    "PreflightRefused:halted": (("preflight",), "halted"),
    "PreflightPassed": (("preflight",), "cleaning"),
    "LaunchIntended": (("cleaning",), "starting"),
    "FirstProgress": (("starting",), "running"),
    "Degraded": (("running",), "degraded"),
    "Regained": (("degraded",), "running"),
    "StopIntended": (("starting", "running", "degraded", "verifying", *ENDS), "stopping"),
    "MembersGone": (("stopping",), "verifying"),
    "VerifiedZero": (("verifying",), "cleaning"),
    "ForeignHolders": (("verifying",), "backoff"),
    "BackoffBegan": (("cleaning",), "backoff"),
    "BackoffOver": (("backoff",), "verifying"),
    "EpisodeEnded:finished": (("cleaning",), "finished"),
    "EpisodeEnded:stopped": (("preflight", "cleaning", "backoff"), "stopped"),
    "EpisodeEnded:halted": (("stopping", "verifying", "cleaning"), "halted"),
}
"""Record → the phases in which it moves the run, and where to."""


def trigger(entry: Entry) -> str:
    """The name under which a record stands in `PHASES`."""
    tells = entry.type in ("EpisodeEnded", "PreflightRefused")
    return f"{entry.type}:{entry.fields.get('ending', 'stopped')}" if tells else entry.type


def next_phase(phase: str, by: str) -> str:
    """The phase after a record; the same one where the table has no row."""
    sources, to = PHASES.get(by, ((), phase))
    return to if phase in sources else phase


def step_now(view: RunView, now: Plain) -> int | None:
    """The last step known of the last attempt: the one that `now` tells, or the one that was recorded at its end."""
    said = now.get("step")
    if not isinstance(said, int) or not view.attempts or now.get("attempt") != view.attempts[-1].number:
        return view.step
    of = view.attempts[-1]
    return said if of.ended_s is None or of.last_step is None else max(said, of.last_step)
