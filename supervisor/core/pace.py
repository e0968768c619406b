"""How fast an attempt goes, and whether it has become slow. What follows is not decided here.

Rule 1: what counts are growing steps in time; a printed rate only confirms or denies, for nobody knows its unit.
Rule 2: the best is a median of ten buckets, what it is compared with is the third best of ten: evaluations, saves and
stalls are slow buckets among them, and however many they are they make no run slow.
Rule 3: slow is what lasts, against the attempt's own best and that of earlier attempts on the same knobs.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from supervisor.core.events import Failure, Paced, Regained
from supervisor.core.evidence import Step
from supervisor.core.kinds import Kind
from supervisor.core.middle import median
from supervisor.core.state import Attempt, State

BUCKET_S, REPORTS = 60.0, 3
BUCKETS, UPPER = 10, 3
"""Ten stretches of a minute and three reports at least: times of single steps differ."""

SLOW = 0.7
FAST_AGAIN = 0.8
LASTS_S = 600.0
"""Below seven tenths of the best for ten minutes is slow: two of three workers that wait for the third are not."""

STANDS = 0.85
"""A printed rate that is still so much of its best says that the steps became longer, not slower."""

SLOW_ONLY = frozenset({f"{Kind.SLOW.value}:None"})
"""`Attempt.told` where nothing else is wrong with the run."""

FEW, FEW_S = 4, 10.0
"""So many steps over so long tell the stride and the speed roughly."""

FASTER = 1.25
"""A pace is recorded again when it has become so much better."""


class Pace(Struct, frozen=True, kw_only=True):
    """The pace of an attempt. The open bucket began at `step` and `boot_s` and has `reports`, the first one began at
    `first_boot_s`; `strides` are those between the first reports. `speeds` (steps/s) and `rates` (as printed) are
    those of the last buckets; `best` is the best median, `rate_then` what was printed then, and `best_rate` and
    `speed_then` the other way round. `low_since_boot_s`: since when it is slow.
    """

    step: int | None = None
    boot_s: float = 0.0
    reports: int = 0
    first_step: int = 0
    first_boot_s: float = 0.0
    last: int = 0
    strides: tuple[int, ...] = ()
    rate: float | None = None
    speeds: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()
    best: float = 0.0
    rate_then: float | None = None
    best_rate: float = 0.0
    speed_then: float = 0.0
    few: float = 0.0
    low_since_boot_s: float | None = None
    now_boot_s: float = 0.0

    @property
    def speed(self) -> float | None:
        """Steps per second of the last stretch; None while it is too short to tell."""
        return median(self.speeds) if len(self.speeds) == BUCKETS else None

    @property
    def stride(self) -> int:
        """How far one reported step is from the next; 0 while it is not known."""
        return int(median(self.strides)) if self.strides else 0


def _upper(values: Sequence[float]) -> float:
    return sorted(values)[-UPPER]


def stepped(pace: Pace, steps: Sequence[Step], known: Paced | None) -> Pace:
    """After more growing steps. `known`: the fastest of earlier attempts on the same knobs."""
    for step in steps:
        at, number = step.seen_boot_s, step.step
        if pace.step is None:
            pace = Pace(step=number, boot_s=at, first_step=number, first_boot_s=at, last=number, now_boot_s=at)
            continue
        rate = step.rate if step.rate is not None else pace.rate
        strides = pace.strides if len(pace.strides) >= BUCKETS else (*pace.strides, number - pace.last)
        few = pace.few or _few(pace, number, at, len(strides))
        reports = pace.reports + 1
        pace = replace(pace, last=number, strides=strides, rate=rate, few=few, reports=reports, now_boot_s=at)
        if at - pace.boot_s >= BUCKET_S and reports >= REPORTS:
            pace = _closed(pace, known)
    return pace


def _few(pace: Pace, number: int, at: float, strides: int) -> float:
    since_s = at - pace.first_boot_s
    return (number - pace.first_step) / since_s if strides >= FEW - 1 and since_s >= FEW_S else 0.0


def _closed(pace: Pace, known: Paced | None) -> Pace:
    """One more bucket."""
    at, began = pace.now_boot_s, pace.step or 0
    speeds = (*pace.speeds, (pace.last - began) / (at - pace.boot_s))[-BUCKETS:]
    rates = () if pace.rate is None else (*pace.rates, pace.rate)[-BUCKETS:]
    pace = replace(pace, step=pace.last, boot_s=at, reports=0, speeds=speeds, rates=rates)
    speed, rate = pace.speed, _usual_rate(pace)
    if speed is not None and speed > pace.best:
        pace = replace(pace, best=speed, rate_then=rate)
    if speed is not None and rate is not None and rate > pace.best_rate:
        pace = replace(pace, best_rate=rate, speed_then=speed)
    if not _is_low(pace, known):
        return replace(pace, low_since_boot_s=None)
    return pace if pace.low_since_boot_s is not None else replace(pace, low_since_boot_s=at)


def _usual_rate(pace: Pace) -> float | None:
    return median(pace.rates) if len(pace.rates) == BUCKETS else None


def _is_low(pace: Pace, known: Paced | None) -> bool:
    if pace.speed is None:
        return False
    best, rate_then = pace.best, pace.rate_then
    if known is not None and known.steps_per_s > best:
        best, rate_then = known.steps_per_s, known.rate
    return _has_less(pace) or (_upper(pace.speeds) < SLOW * best and not _stands(pace, rate_then))


def _has_less(pace: Pace) -> bool:
    """As many steps, and less in each by what is printed. More steps would be a printed time per step that fell."""
    speed = pace.speed or 0.0
    return (
        len(pace.rates) == BUCKETS and _upper(pace.rates) < SLOW * pace.best_rate and speed <= pace.speed_then / STANDS
    )


def _stands(pace: Pace, rate_then: float | None) -> bool:
    """Fewer steps, and more in each by what is printed."""
    rate = _usual_rate(pace)
    return rate is not None and rate_then is not None and rate_then > 0 and STANDS <= rate / rate_then <= 1.0 / STANDS


def interrupted(pace: Pace, at_boot_s: float) -> Pace:
    """In a phase that is no training: the open bucket tells nothing."""
    return pace if pace.step is None else replace(pace, step=pace.last, boot_s=at_boot_s, reports=0)


def _same_knobs(state: State, attempt: Attempt) -> list[Paced]:
    return [one for one in state.paces if one.settled and one.attempt != attempt.number and one.rungs == attempt.rungs]


def reference(state: State) -> Paced | None:
    """The fastest of earlier attempts on the same knobs."""
    attempt = state.attempt
    return max(_same_knobs(state, attempt), key=_speed, default=None) if attempt is not None else None


def _speed(one: Paced) -> float:
    return one.steps_per_s


def slow(state: State, pace: Pace) -> Failure | None:
    """What the run has become, where it has been slow for long enough."""
    since, speed = pace.low_since_boot_s, pace.speed
    if since is None or speed is None or pace.now_boot_s - since < LASTS_S:
        return None
    known = reference(state)
    best, whose = pace.best, "its own best"
    if known is not None and known.steps_per_s > best:
        best, whose = known.steps_per_s, f"attempt {known.attempt} at the same knobs"
    share = speed / best
    if _has_less(pace) and share >= SLOW:
        share, whose = median(pace.rates) / pace.best_rate, "its own best printed rate"
    minutes = (pace.now_boot_s - since) / 60.0
    because = f"throughput is at {share:.0%} of {whose} for {minutes:.0f} minutes ({each(speed)})"
    return Failure(kind=Kind.SLOW, because=because, confidence="medium")


def each(steps_per_s: float) -> str:
    """`2.1 steps/s`, or `34 s a step` for slow ones."""
    return f"{steps_per_s:.3g} steps/s" if steps_per_s >= 1.0 else f"{1.0 / max(steps_per_s, 1e-9):.3g} s a step"


def told(state: State, attempt: Attempt, pace: Pace) -> Paced | Regained | None:
    """What is to be recorded of the pace now: how fast the attempt goes, or that it is fast again."""
    known = next((one for one in reversed(state.paces) if one.attempt == attempt.number), None)
    speed = pace.best or pace.few
    if speed > 0 and (known is None or (pace.best > 0 and _is_better(known, speed))):
        rate = pace.rate_then if pace.best > 0 else pace.rate
        return Paced(
            attempt=attempt.number,
            steps_per_s=round(speed, 6),
            stride=pace.stride,
            rate=rate,
            settled=pace.best > 0,
            rungs=dict(attempt.rungs),
        )
    if attempt.told == SLOW_ONLY and _is_fast_again(state, pace):
        return Regained(attempt=attempt.number, because=f"as fast again as it was ({each(pace.speed or 0.0)})")
    return None


def _is_better(known: Paced, speed: float) -> bool:
    return not known.settled or speed >= FASTER * known.steps_per_s


def _is_fast_again(state: State, pace: Pace) -> bool:
    known, speed = reference(state), pace.speed
    if pace.low_since_boot_s is not None or speed is None:
        return False
    best = max(pace.best, known.steps_per_s if known is not None else 0.0)
    return _stands(pace, pace.rate_then) or speed >= FAST_AGAIN * best
