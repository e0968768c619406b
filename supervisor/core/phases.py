"""The phases of a run and the one table of how they follow each other. Nothing is decided or folded here.

Rule: the phase changes only by a row of `TRANSITIONS`; docs/recovery.md draws its diagram from that table.
"""

from __future__ import annotations

from enum import Enum

from supervisor.core import events as ev


class Phase(str, Enum):
    """Where a run stands. The last three are ends."""

    PREFLIGHT = "preflight"
    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"
    STOPPING = "stopping"
    VERIFYING = "verifying"
    CLEANING = "cleaning"
    BACKOFF = "backoff"
    FINISHED = "finished"
    STOPPED = "stopped"
    HALTED = "halted"

    @property
    def is_end(self) -> bool:
        """True where no episode is open."""
        return self in ENDS


ENDS = frozenset({Phase.FINISHED, Phase.STOPPED, Phase.HALTED})
HAS_JOB = (Phase.STARTING, Phase.RUNNING, Phase.DEGRADED)


def _table() -> dict[tuple[Phase, str], Phase]:
    rows: dict[tuple[Phase, str], Phase] = {}

    def row(sources: tuple[Phase, ...], trigger: str, to: Phase) -> None:
        for source in sources:
            rows[source, trigger] = to

    row(tuple(ENDS), "EpisodeOpened", Phase.PREFLIGHT)
    row((Phase.PREFLIGHT,), "PreflightRefused:stopped", Phase.STOPPED)
    row((Phase.PREFLIGHT,), "PreflightRefused:halted", Phase.HALTED)
    row((Phase.PREFLIGHT,), "PreflightPassed", Phase.CLEANING)
    row((Phase.CLEANING,), "LaunchIntended", Phase.STARTING)
    row((Phase.STARTING,), "FirstProgress", Phase.RUNNING)
    row((Phase.RUNNING,), "Degraded", Phase.DEGRADED)
    row((Phase.DEGRADED,), "Regained", Phase.RUNNING)
    row((*HAS_JOB, Phase.VERIFYING, *tuple(ENDS)), "StopIntended", Phase.STOPPING)
    row((Phase.STOPPING,), "MembersGone", Phase.VERIFYING)
    row((Phase.VERIFYING,), "VerifiedZero", Phase.CLEANING)
    row((Phase.VERIFYING,), "ForeignHolders", Phase.BACKOFF)
    row((Phase.CLEANING,), "BackoffBegan", Phase.BACKOFF)
    row((Phase.BACKOFF,), "BackoffOver", Phase.VERIFYING)
    row((Phase.CLEANING,), "EpisodeEnded:finished", Phase.FINISHED)
    row((Phase.PREFLIGHT, Phase.CLEANING, Phase.BACKOFF), "EpisodeEnded:stopped", Phase.STOPPED)
    row((Phase.STOPPING, Phase.VERIFYING, Phase.CLEANING), "EpisodeEnded:halted", Phase.HALTED)
    return rows


TRANSITIONS = _table()
"""(phase, trigger) → phase. The trigger is the record's type, with the ending behind a colon where it tells one."""


def trigger(event: ev.Event) -> str:
    """The name under which an event stands in the table."""
    name = type(event).__name__
    return f"{name}:{event.ending.value}" if isinstance(event, (ev.EpisodeEnded, ev.PreflightRefused)) else name
