"""Hangs, late starts and phases: how long a run may be without progress. Output is no progress, utilisation neither.

Progress is a growing step or a checkpoint that appeared. A bar that grows is life where the limit is `auto` only.
Rule 1: inside a phase of `health.phases` only its limit rules.
Rule 2: while more was written than was read, and until this supervisor has looked for a while, nothing is concluded.
"""

from __future__ import annotations

from msgspec.structs import replace

from supervisor.core.alive import Dumped
from supervisor.core.evidence import Instant
from supervisor.core.phases import Phase
from supervisor.core.plans import Failure, Plan
from supervisor.core.seen import Seen
from supervisor.core.silence import SURE_AFTER_S
from supervisor.core.spec import RunSpec
from supervisor.core.state import Attempt, State
from supervisor.core.watch import Watch

AUTO_STALL_FIRST_S = 1800.0
AUTO_STALL_LEAST_S = 600.0
AUTO_STALL_TIMES = 6.0
"""`stall: auto`: 30 minutes until a checkpoint was saved and the run went on, then the larger of 10 minutes and
6 times the slowest interval, which is never less than the longest pause survived."""

STARTUP_FIRST_S = 7200.0
STARTUP_LEAST_S = 3600.0
STARTUP_TIMES = 3.0
"""`startup_timeout`: 2 hours, then the larger of 1 hour and 3 times the longest start seen."""

QUIET_S = 20.0
"""After so long without a step it is worth a look whether a bar grows."""


def elapsed_s(now: Instant, since: Instant) -> float:
    """Seconds from `since` to `now`, never negative; over a reboot by the wall clock, the only one that went on."""
    if now.boot_id == since.boot_id:
        return max(0.0, now.boot_s - since.boot_s)
    return max(0.0, now.wall_s - since.wall_s)


def startup_timeout_s(spec: RunSpec, state: State) -> float:
    """How long the attempt may take to its first progress, in seconds."""
    if spec.health.startup_timeout_s is not None:
        return spec.health.startup_timeout_s
    if state.longest_start_s > 0.0:
        return max(STARTUP_LEAST_S, STARTUP_TIMES * state.longest_start_s)
    return STARTUP_FIRST_S


def is_half_started(spec: RunSpec, state: State, attempt: Attempt, now: Instant) -> bool:
    """True once half of the time to the first progress is over: worth a look at what the job is doing."""
    if spec.health.progress is None or state.phase is not Phase.STARTING or attempt.launched_at is None:
        return False
    return elapsed_s(now, attempt.launched_at) >= startup_timeout_s(spec, state) / 2


def starts_too_late(spec: RunSpec, state: State, attempt: Attempt, now: Instant) -> str | None:
    """Why the start is given up on, or None."""
    limit = startup_timeout_s(spec, state)
    waited = elapsed_s(now, attempt.launched_at or attempt.began)
    if spec.health.progress is None or state.phase is not Phase.STARTING or waited < limit:
        return None
    return f"no progress {minutes(waited)} after the launch (limit {minutes(limit)})"


def stall_s(spec: RunSpec, watch: Watch) -> float:
    """How long the attempt may go without a step, in seconds."""
    progress = spec.health.progress
    if progress is not None and progress.stall_s is not None:
        return progress.stall_s
    if not watch.saved_and_gone_on:
        return max(AUTO_STALL_FIRST_S, watch.slowest_s)
    return max(AUTO_STALL_LEAST_S, AUTO_STALL_TIMES * watch.slowest_s)


def hangs(spec: RunSpec, state: State, watch: Watch, seen: Seen) -> str | None:
    """Why the run is hanging, or None. One whose pattern never matched has no step to miss."""
    progress = spec.health.progress
    if progress is None or watch.progress_boot_s is None or not may_conclude(watch, seen, stall_s(spec, watch)):
        return None
    now_s = seen.at.boot_s
    bar_s = watch.bar_boot_s if progress.stall_s is None else None
    last = max(watch.progress_boot_s, watch.saved_boot_s or 0.0, watch.left_boot_s or 0.0, bar_s or 0.0)
    if watch.inside:
        limit = float(
            next((p["limit_s"] for p in spec.health.phases if p["name"] == watch.inside), stall_s(spec, watch))
        )
        lasted = now_s - max(last, watch.inside_boot_s)
        if lasted < limit:
            return None
        return f"the phase {watch.inside} goes on for {minutes(lasted)} without a step (limit {minutes(limit)})"
    limit = stall_s(spec, watch)
    if now_s - last < limit:
        return None
    if last > watch.progress_boot_s:  # a checkpoint, a bar or a phase came after the last step
        stepped = minutes(now_s - watch.progress_boot_s)
        quiet = f"no progress for {minutes(now_s - last)} (limit {minutes(limit)})"
        return f"{quiet}; step {watch.last_step} was {stepped} ago"
    return f"no step for {minutes(now_s - last)} after step {watch.last_step} (limit {minutes(limit)})"


def is_quiet(state: State, watch: Watch, seen: Seen) -> bool:
    """True where it is worth a look whether something grows that is no step: a load, or a bar after the last step."""
    spec = state.spec
    if spec is None or spec.health.progress is None:
        return False
    last = watch.progress_boot_s
    return last is None or seen.at.boot_s - last >= QUIET_S


def may_conclude(watch: Watch, seen: Seen, limit_s: float) -> bool:
    """False while what was written has not been read, or nobody has looked for long (never longer than the limit)."""
    return not seen.lagging and seen.at.boot_s - watch.looking_since_boot_s >= min(SURE_AFTER_S, limit_s)


def with_dump(failure: Failure, plan: Plan, dump: Dumped | None) -> tuple[Failure, Plan]:
    """Both with what the dump found."""
    if dump is None:
        return failure, plan
    found = dump.problem or f"{dump.summary} ({dump.path})"
    evidence = (*failure.evidence, f"the job's processes: {found}")
    if not dump.ranks:
        return replace(failure, evidence=evidence), plan
    who = f"rank{'s' if len(dump.ranks) > 1 else ''} {', '.join(map(str, dump.ranks))} did not report"
    because = f"{failure.because}; {who}"
    told = replace(plan, because=plan.because.replace(failure.because, because, 1))
    return replace(failure, because=because, evidence=evidence), told


def minutes(seconds: float) -> str:
    """`45s`, `22m04s`, `2h00m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.3g}s"
    hours, rest = divmod(whole, 3600)
    in_hour, left = divmod(rest, 60)
    if hours:
        return f"{hours}h{in_hour:02d}m"
    return f"{in_hour}m{left:02d}s"
