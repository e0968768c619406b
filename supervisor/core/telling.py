"""What a person is told of a run, and when: records in, messages out. How they get there is not known here.

Rule 1: a message has a key, and what has the same key was told: a supervisor that is killed tells nothing twice.
Rule 2: nothing here changes what is done about the run.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from supervisor.core import events as ev
from supervisor.core.around import ENDS, Notify
from supervisor.core.evidence import Instant
from supervisor.core.kinds import Kind
from supervisor.core.phases import Phase
from supervisor.core.state import State
from supervisor.core.watch import Watch

PER_HOUR = 10
"""More messages an hour than this nobody reads; ends and the morning's summary are told whatever was told before."""
HOUR_S = 3600.0
STALE_S = HOUR_S
"""A message that could not be delivered for so long is given up."""
SUMMED_UP_MAX = 8
MORNING = "morning"


class Local(Struct, frozen=True):
    """The box's time of day: the date as text, minutes since midnight, and when `now` is in seconds."""

    date: str
    minutes: int
    wall_s: float


def notices(before: State, event: ev.Event, after: State, at: Instant) -> tuple[ev.NotifyIntended, ...]:
    """What is to be told because of this record; nothing where the spec does not ask for it or it was told."""
    notify = after.spec.notify if after.spec else None
    if notify is None:
        return ()
    return tuple(_checked(after, one, at.wall_s) for one in _about(before, event, after) if _is_new(after, notify, one))


def _is_new(state: State, notify: Notify, notice: ev.NotifyIntended) -> bool:
    return notice.on in notify.on and notice.key not in {key for key, _ in state.told}


def _checked(state: State, notice: ev.NotifyIntended, now_s: float) -> ev.NotifyIntended:
    """Held back where too much was told in the last hour."""
    recent = sum(1 for _, told_s in state.told if 0 <= now_s - told_s < HOUR_S)
    if notice.on in ENDS or recent < PER_HOUR:
        return notice
    return ev.NotifyIntended(key=notice.key, on=notice.on, title=notice.title, text=notice.text, held_back=True)


def _about(before: State, event: ev.Event, state: State) -> Iterator[ev.NotifyIntended]:
    match event:
        case ev.FirstProgress(attempt=number, step=step, startup_s=startup_s):
            where = f"at step {step}" if step is not None else "and alive"
            if not before.past:
                if state.launched_in_episode == 1:
                    yield _notice(state, "started", f"{number}", f"first progress after {startup_s:.0f} s, {where}")
            elif before.attempt is not None and before.attempt.progressed_at is None:
                last = before.past[-1]
                because = f"attempt {last.attempt} failed ({last.kind}); attempt {number} makes progress again, {where}"
                yield _notice(state, "recovered", f"{number}", because)
        case ev.Judged(attempt=number, failure=failure, plan=plan):
            if failure.kind is not Kind.NONE and plan.ending is None:
                text = f"attempt {number}: {failure.kind}: {failure.because}\nWhat follows: {plan.because}"
                yield _notice(state, "failed", f"{number}", text)
        case ev.Degraded(attempt=number, failure=failure):
            key = f"{number}:{failure.kind}:{failure.gpu}"
            yield _notice(state, "degraded", key, f"attempt {number} goes on with less: {failure.because}")
        case ev.Foretold(attempt=number, what=what, text=text):
            yield _notice(state, "foretold", f"{number}:{what}", f"attempt {number}: {text}")
        case ev.ForeignHolders(attempt=number, holders=holders, wait_s=wait_s):
            who = ", ".join(f"pid {one.pid} of {one.user}: {one.cmdline[:60]}" for one in holders[:4])
            text = f"waiting up to {wait_s:.0f} s for GPUs that others hold: {who}"
            yield _notice(state, "waiting", f"{number}", text)
        case ev.BackoffBegan(because=because) if state.is_held_back and state.attempt is not None:
            yield _notice(state, "waiting", f"paused {state.attempt.number}", because)
        case ev.Warned(text=text):
            yield _notice(state, "warned", text[:120], text)
        case ev.EpisodeEnded(ending=ending, because=because, next_command=next_command):
            then = f"\nNext: {next_command}" if next_command else ""
            text = f"{because}{then}\n{_past(state)}".rstrip()
            yield _notice(state, ending.value, f"episode {state.episodes}", text)


def _notice(state: State, on: str, key: str, text: str) -> ev.NotifyIntended:
    host = f" on {state.machine.host}" if state.machine and state.machine.host else ""
    return ev.NotifyIntended(key=f"{on}:{key}", on=on, title=f"{state.run}: {on}{host}", text=text)


def _past(state: State) -> str:
    """What went wrong in this episode, in one line for each failure."""
    if not state.past:
        return "No failure in this episode."
    lines = [
        f"attempt {one.attempt}: {one.kind}{', knobs lowered' if one.lowered else ''}, then {one.did}"
        for one in state.past[-SUMMED_UP_MAX:]
    ]
    more = len(state.past) - len(lines)
    return "\n".join([*([f"{more} failures before"] if more else []), *lines])


def morning(state: State, watch: Watch, local: Local) -> tuple[ev.NotifyIntended, ...]:
    """The summary, once a day at its time while the run is open; none for a night that was not seen."""
    notify = state.spec.notify if state.spec else None
    if notify is None or notify.morning is None or state.phase.is_end or state.attempt is None:
        return ()
    hour, _, minute = notify.morning.partition(":")
    late = local.minutes - (int(hour) * 60 + int(minute))
    if not 0 <= late < 60:
        return ()
    seen_since_s = min(state.attempt.began.wall_s, *(one.at.wall_s for one in state.past), local.wall_s)
    key = f"{MORNING}:{local.date}"
    if seen_since_s > local.wall_s - late * 60 - 60 or key in {told for told, _ in state.told}:
        return ()
    notice = _notice(state, MORNING, local.date, summary(state, watch))
    return (notice,)


def summary(state: State, watch: Watch) -> str:
    """What the run is doing and what happened in this episode."""
    attempt = state.attempt
    number = f", attempt {attempt.number}" if attempt else ""
    step = f", step {watch.last_step}" if watch.last_step is not None else ""
    total = f" of {watch.total}" if step and watch.total else ""
    paused = ", recovery paused" if state.paused else ""
    return f"{state.phase.value}{paused}{number}{step}{total}\n{_past(state)}"


def is_in_order(state: State) -> bool:
    """Whether the heartbeat is sent: the run is open, and nothing waits for a person."""
    return not state.phase.is_end and not state.is_held_back and state.phase is not Phase.PREFLIGHT


def given_up(state: State, wall_s: float) -> tuple[ev.Notified, ...]:
    """Messages that nobody needs any more: they could not be delivered for too long."""
    told = dict(state.told)
    old = [one for one in state.untold if wall_s - told.get(one.key, wall_s) > STALE_S]
    return tuple(ev.Notified(key=one.key, why="not delivered within an hour: given up") for one in old)
