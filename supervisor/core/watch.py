"""What a supervisor remembers of a running attempt between looks: progress, pending hits, GPU normals.

Not in the journal: saved every ten seconds together with the log offsets, so a new supervisor reads on from both.
No opinion here on what is wrong (`core/verdicts.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from supervisor.core.course import Course, followed
from supervisor.core.events import HitSeen
from supervisor.core.evidence import GpuSeen, Holder, Instant, Reading, Sign, Step, Uuid
from supervisor.core.pending import DRAIN_S as DRAIN_S
from supervisor.core.pending import Pending as Pending
from supervisor.core.pending import held, is_refuted
from supervisor.core.pending import physical as physical
from supervisor.core.phases import Phase
from supervisor.core.seen import Seen
from supervisor.core.silence import ASKED_IN_VAIN, GpuWork, suspected, util_below, work_seen
from supervisor.core.state import KILL, State, send_key
from supervisor.core.zero import ZeroWatch

INTERVALS_KEPT = 20
"""How many intervals between steps are remembered; the contract's limit for a silent hit looks at so many."""

PENDING_KEPT = 64
"""A storm of failure texts is remembered by its first texts: the root cause comes first."""

TOLD_PER_ATTEMPT = 100
"""A trainer that catches an out-of-memory error each step must not fill the journal."""

GAP_S = 90.0
"""Nobody looked for so long (the box slept): what went on meanwhile is not known, so no clock went on either."""


class Memo(Struct, frozen=True, kw_only=True):
    """What outlives a supervisor. Times are CLOCK_BOOTTIME seconds of boot `boot_id`.

    `normal` is who held each GPU when last asked and in order: pids are compared, never signalled, so they may be
    of another PID namespace. `low_since` is since when a GPU has been below `util_below`. `gained` counts the
    attempt's checkpoints seen, `saved_boot_s` is when the last appeared, `bar_boot_s` when a bar last grew.
    `inside`: the phase of `health.phases` that the job is in since `inside_boot_s` (empty: none); `left_boot_s`: when
    it left the last. `slowest_s` is the longest time between two signs of life, outside such phases.
    """

    attempt: int
    boot_id: str
    began_boot_s: float
    steps: int = 0
    first_step: int | None = None
    last_step: int | None = None
    rate: float | None = None
    loss: float | None = None
    total: int | None = None
    progress_boot_s: float | None = None
    intervals: tuple[float, ...] = ()
    slowest_s: float = 0.0
    saved_at_steps: int | None = None
    pending: tuple[Pending, ...] = ()
    normal: dict[Uuid, tuple[int, ...]] = field(default_factory=dict)
    low_since: dict[Uuid, float] = field(default_factory=dict)
    done_seen: bool = False
    sigterm_seen: bool = False
    failure_text_at: int | None = None
    hits_told: int = 0
    gained: int = 0
    saved_boot_s: float | None = None
    bar_boot_s: float | None = None
    inside: str = ""
    inside_boot_s: float = 0.0
    left_boot_s: float | None = None
    work: dict[Uuid, GpuWork] = field(default_factory=dict)
    course: Course = field(default_factory=Course)


class Watch(Memo, frozen=True, kw_only=True):
    """The memory of one attempt: what is saved; and what is not: the newest readings, what is empty so far (since
    `zero_began_boot_s`, when this supervisor began to look), who holds the rest (asked now and then only), and since
    when this supervisor, not one before it, has sent KILL (None: not yet); when each GPU was last seen at work, when
    it last looked and since when it does so without a gap; the newest sign of life of a load."""

    readings: dict[Uuid, GpuSeen] = field(default_factory=dict)
    dropped: tuple[Pending, ...] = ()
    zero: ZeroWatch | None = None
    zero_from: Instant | None = None
    zero_began_boot_s: float = 0.0
    kill_began_boot_s: float | None = None
    holders: tuple[Holder, ...] = ()
    worked_boot_s: dict[Uuid, float] = field(default_factory=dict)
    suspects: bool = False
    asked_in_vain: int = 0
    looked_boot_s: float | None = None
    looking_since_boot_s: float = 0.0
    load: Sign | None = None

    @property
    def saved_and_gone_on(self) -> bool:
        """True once a checkpoint appeared and a further step came after it."""
        return self.saved_at_steps is not None and self.steps > self.saved_at_steps

    @property
    def asks_processes(self) -> bool:
        """True while the next look should ask NVML who holds the GPUs: hits are pending, a GPU may have lost its
        holder, or no normal is known yet."""
        unknown = self.steps > 0 and not self.normal and self.asked_in_vain < ASKED_IN_VAIN
        return bool(self.pending) or self.suspects or unknown

    @property
    def last_sign_boot_s(self) -> float | None:
        """When the run last showed that it goes on, in any way; None before its first step."""
        if self.progress_boot_s is None:
            return None
        signs = (self.progress_boot_s, self.saved_boot_s, self.bar_boot_s, self.left_boot_s)
        return max(one for one in signs if one is not None)

    def is_zero(self, now_boot_s: float, stable_for_s: float) -> bool:
        """True only when every GPU of the run was read at its floor for that long since the last process was gone."""
        return self.zero is not None and self.zero.verified(now_boot_s, stable_for_s)


def begun(attempt: int, at: Instant) -> Watch:
    """The empty watch of an attempt."""
    return Watch(attempt=attempt, boot_id=at.boot_id, began_boot_s=at.boot_s)


def memo(watch: Watch) -> Memo:
    """The part to be saved."""
    return Memo(**{name: getattr(watch, name) for name in Memo.__struct_fields__})


def recalled(saved: Memo) -> Watch:
    """The watch that an earlier supervisor saved."""
    return Watch(**{name: getattr(saved, name) for name in Memo.__struct_fields__})


def looked(watch: Watch, seen: Seen, state: State) -> Watch:
    """The watch after one more look."""
    watch = _looked_at(watch, seen.at.boot_s)
    if seen.marks or seen.signs:
        watch = _signed(watch, seen)
    watch = _progressed(watch, seen.steps)
    watch = _read(watch, seen.gpus, state)
    if seen.hits:
        watch = _hit(watch, seen, state)
    if watch.pending:
        watch = _settle(watch, state.gpus)
    if state.attempt is not None and state.attempt.gained > watch.gained:
        watch = saved(watch, state.attempt.gained, seen.at.boot_s)
    if seen.done_seen or seen.sigterm_seen:
        watch = replace(
            watch,
            done_seen=watch.done_seen or seen.done_seen,
            sigterm_seen=watch.sigterm_seen or seen.sigterm_seen,
        )
    idle = () if watch.pending else tuple(watch.low_since)
    course = followed(watch.course, seen, state, inside=bool(watch.inside), idle=idle)
    watch = watch if course is watch.course else replace(watch, course=course)
    return _killed(_zeroed(watch, seen, state), seen, state)


def told(before: Watch, after: Watch, state: State) -> tuple[HitSeen, ...]:
    """The records of failure texts that this look found, and of those that the run has refuted since."""
    if state.attempt is None or (before.pending is after.pending and before.dropped is after.dropped):
        return ()
    indices = dict(zip(state.gpus, state.indices, strict=True))
    known = {id(p.hit) for p in before.pending} | {id(p.hit) for p in before.dropped}
    new = [(p, False) for p in after.pending if id(p.hit) not in known]
    gone = [(p, True) for p in after.dropped if p not in before.dropped]
    room = max(0, TOLD_PER_ATTEMPT - before.hits_told)
    return tuple(
        HitSeen(
            attempt=state.attempt.number,
            kind=p.hit.kind,
            where=f"{p.hit.file}:{p.hit.line}",
            text=p.hit.text[:500],
            gpu=indices.get(p.uuid or "", p.hit.gpu),
            dropped=dropped,
        )
        for p, dropped in (new + gone)[:room]
    )


def counted(watch: Watch, told_now: int) -> Watch:
    """The watch after so many records of failure texts were written."""
    return replace(watch, hits_told=watch.hits_told + told_now) if told_now else watch


def _zeroed(watch: Watch, seen: Seen, state: State) -> Watch:
    """While the GPUs are verified: what is empty since the last process was gone."""
    since, spec = state.verify_from, state.spec
    if since is None or spec is None or state.phase not in (Phase.VERIFYING, Phase.BACKOFF):
        return watch if watch.zero is None else replace(watch, zero=None, zero_from=None, holders=())
    zero, began = watch.zero, watch.zero_began_boot_s
    if zero is None or watch.zero_from != since:
        began = seen.at.boot_s
        rules = spec.recovery.verify_zero
        fixed = {} if rules.floor_mib is None else dict.fromkeys(state.gpus, rules.floor_mib)
        zero = ZeroWatch(
            of=state.gpus,
            floors={**state.floors, **fixed},
            allow_mib=rules.foreign.allow_mib,
            from_boot_s=since.boot_s if since.boot_id == seen.at.boot_id else 0.0,
        )
    left = seen.members is not None and bool(seen.members.members)
    holders = watch.holders if seen.holders is None else seen.holders
    zero = zero.seen(seen.gpus.values(), left)
    return replace(watch, zero=zero, zero_from=since, zero_began_boot_s=began, holders=holders)


def _killed(watch: Watch, seen: Seen, state: State) -> Watch:
    """A KILL that the journal only intends may never have been sent: the wait begins with the sending."""
    if state.phase is not Phase.STOPPING:
        return watch if watch.kill_began_boot_s is None else replace(watch, kill_began_boot_s=None)
    if watch.kill_began_boot_s is not None or send_key(KILL, False) not in seen.sent:
        return watch
    return replace(watch, kill_began_boot_s=seen.at.boot_s)


def saved(watch: Watch, gained: int, boot_s: float) -> Watch:
    """The watch after a checkpoint of the attempt appeared: it is progress, though no step."""
    steps = watch.steps if watch.saved_at_steps is None else watch.saved_at_steps
    return replace(_alive(watch, boot_s), gained=gained, saved_boot_s=boot_s, saved_at_steps=steps)


def _looked_at(watch: Watch, boot_s: float) -> Watch:
    """After a gap in which nobody looked, what was about to be concluded from time that passed is forgotten."""
    last = watch.looked_boot_s
    if last is not None and boot_s - last <= GAP_S:
        return replace(watch, looked_boot_s=boot_s)
    work = watch.work if last is None else {uuid: one.anew() for uuid, one in watch.work.items()}
    return replace(watch, looked_boot_s=boot_s, looking_since_boot_s=boot_s, work=work)


def _alive(watch: Watch, boot_s: float) -> Watch:
    """A sign of life: how long the run was silent before it is the slowest so far, unless a phase explains it."""
    last = watch.last_sign_boot_s
    if last is None or watch.inside or boot_s - last <= watch.slowest_s:
        return watch
    return replace(watch, slowest_s=boot_s - last)


def _signed(watch: Watch, seen: Seen) -> Watch:
    """Phases entered and left, bars that grew."""
    for name, entered, boot_s in seen.marks:
        if entered:
            watch = replace(_alive(watch, boot_s), inside=name, inside_boot_s=boot_s)
        elif watch.inside == name:
            watch = replace(watch, inside="", left_boot_s=boot_s)
    for sign in seen.signs:
        watch = replace(_alive(watch, sign.seen_boot_s), bar_boot_s=sign.seen_boot_s, load=sign)
    return watch


def _progressed(watch: Watch, steps: tuple[Step, ...]) -> Watch:
    """Only a growing step is progress; a repeated or smaller one is not."""
    for step in steps:
        if watch.last_step is not None and step.step <= watch.last_step:
            continue
        since = watch.progress_boot_s
        interval = None if since is None else max(0.0, step.seen_boot_s - since)
        watch = _alive(watch, step.seen_boot_s)
        intervals = watch.intervals if interval is None else (*watch.intervals, interval)[-INTERVALS_KEPT:]
        watch = replace(
            watch,
            steps=watch.steps + 1,
            first_step=step.step if watch.first_step is None else watch.first_step,
            last_step=step.step,
            rate=step.rate if step.rate is not None else watch.rate,
            loss=step.loss if step.loss is not None else watch.loss,
            total=step.total if step.total is not None else watch.total,
            progress_boot_s=step.seen_boot_s,
            intervals=intervals,
            pending=tuple(_stepped(pending, watch.steps + 1, step.seen_boot_s) for pending in watch.pending),
        )
    return watch


def _stepped(pending: Pending, steps: int, boot_s: float) -> Pending:
    if pending.second_step_boot_s is None and steps >= pending.steps_at + 2:
        return replace(pending, second_step_boot_s=boot_s)
    return pending


def _read(watch: Watch, gpus: Mapping[Uuid, GpuSeen], state: State) -> Watch:
    if not gpus:
        return watch
    below = util_below(state.spec, {name: role.uuids for name, role in state.roles.items()})
    low, worked = dict(watch.low_since), dict(watch.worked_boot_s)
    for uuid, seen in gpus.items():
        util = seen.util_pct if isinstance(seen, Reading) else None
        if util is not None and util < below.get(uuid, 5.0):
            low.setdefault(uuid, seen.began_boot_s)
        else:
            low.pop(uuid, None)
            if util is not None:
                worked[uuid] = seen.began_boot_s
    watch = _named(watch, gpus)
    work = watch.work
    if state.phase is not Phase.STARTING:
        work = work_seen(work, gpus, worked, low, watch.normal, state.floors, watch.steps)
    return replace(
        watch,
        low_since=low,
        worked_boot_s=worked,
        readings={**watch.readings, **gpus},
        work=work,
        suspects=suspected(work.values(), gpus.values()),
    )


def _named(watch: Watch, gpus: Mapping[Uuid, GpuSeen]) -> Watch:
    """Who holds each GPU, learned while nothing is wrong."""
    lists = {uuid: r.pids for uuid, r in gpus.items() if isinstance(r, Reading) and r.pids is not None}
    if not lists or watch.pending:
        return watch
    asked = {uuid: pids for uuid, pids in lists.items() if pids}
    if not asked:
        return replace(watch, asked_in_vain=watch.asked_in_vain + 1)
    return replace(watch, normal={**watch.normal, **asked})


def _hit(watch: Watch, seen: Seen, state: State) -> Watch:
    new = tuple(
        Pending(
            hit=hit,
            seen_boot_s=seen.at.boot_s,
            uuid=physical(hit, state, seen.printers, watch.normal),
            steps_at=watch.steps,
            holders=dict(watch.normal),
        )
        for hit in seen.hits
    )
    return replace(watch, pending=(*watch.pending, *new)[:PENDING_KEPT], failure_text_at=watch.steps)


def _settle(watch: Watch, gpus: tuple[Uuid, ...]) -> Watch:
    """Learn the holders at the hit, mark the gone, drop what the run has refuted."""
    kept: list[Pending] = []
    dropped: list[Pending] = []
    for pending in watch.pending:
        pending = held(pending, watch.readings, gpus)
        (dropped if is_refuted(pending, watch.readings, gpus) else kept).append(pending)
    if not dropped:
        return replace(watch, pending=tuple(kept))
    refuted = replace(watch, pending=tuple(kept), dropped=(*watch.dropped, *dropped)[-PENDING_KEPT:])
    return refuted if kept else replace(refuted, failure_text_at=None)
