"""Verdicts: what the evidence says is wrong. No opinion here on what to do about it.

Rule 1: a hit is not a verdict; see `Pending` and the contract, "A hit is not a verdict".
Rule 2: how the job ended is known from its exit record, never from a view.
"""

from __future__ import annotations

import signal as signals
from collections.abc import Iterator
from typing import Union

from msgspec import Struct
from msgspec.structs import replace

from supervisor.core.course import amiss, slowed
from supervisor.core.events import Failure
from supervisor.core.evidence import ExitRecord, Hit, Instant
from supervisor.core.kinds import Kind
from supervisor.core.phases import Phase
from supervisor.core.rootcause import Confidence, root_cause
from supervisor.core.seen import Seen
from supervisor.core.sharpen import sharpened
from supervisor.core.silence import in_words, silences
from supervisor.core.spec import RunSpec, Silent
from supervisor.core.stall import elapsed_s as elapsed_s
from supervisor.core.stall import hangs, may_conclude, starts_too_late
from supervisor.core.state import Attempt, State
from supervisor.core.watch import Pending, Watch, physical

GONE_FOR_S = 5.0
"""How long a holder must be gone before its failure text counts: a launcher gets that long to end by itself."""

LOW_FOR_S = 30.0
"""The least time without progress before a failure text of an idle GPU counts."""

_LOW = Confidence.LOW.value
"""Of a verdict that only knows how the job ended."""

CRASHES = frozenset({signals.SIGSEGV, signals.SIGBUS, signals.SIGILL, signals.SIGFPE, signals.SIGABRT})


class Done(Struct, frozen=True):
    """The job ended as the spec says that finished means."""

    because: str


class Wrong(Struct, frozen=True):
    """Something is wrong with the attempt."""

    failure: Failure


Verdict = Union[Done, Wrong]  # noqa: UP007


def judge(state: State, watch: Watch, seen: Seen) -> Iterator[Verdict]:
    """What is wrong with the current attempt, the most certain first; empty where nothing is known to be wrong.

    Asked only while it is starting or running. A later verdict counts where a rule says to let an earlier one be.
    """
    numbers = dict(zip(state.gpus, state.indices, strict=True))
    progress_boot_s = watch.progress_boot_s or watch.began_boot_s
    for verdict in _judged(state, watch, seen):
        if isinstance(verdict, Wrong):
            failure = replace(verdict.failure, phase=watch.inside) if watch.inside else verdict.failure
            yield Wrong(sharpened(failure, seen.aftermath, numbers, progress_boot_s))
        else:
            yield verdict


def _judged(state: State, watch: Watch, seen: Seen) -> Iterator[Verdict]:
    spec, attempt = state.spec, state.attempt
    assert spec is not None
    assert attempt is not None
    if seen.violations:
        first, *more = seen.violations
        sure = Confidence.HIGH.value
        yield Wrong(Failure(kind=Kind.PROTECTED_VIOLATION, because=first, lost=tuple(more), confidence=sure))
    elif attempt.end is not None:
        yield ended(spec, state, _with_ranks(watch, seen, state), attempt.end)
    else:
        yield from _of_the_living(spec, state, attempt, watch, seen)


def _of_the_living(spec: RunSpec, state: State, attempt: Attempt, watch: Watch, seen: Seen) -> Iterator[Verdict]:
    if watch.pending:
        proven = _proven(watch, seen.at)
        if proven is not None:
            yield Wrong(from_hits(state, watch, proven))
    yield from map(Wrong, amiss(state, watch.course))
    yield from _silent(spec, state, watch, seen)
    late = starts_too_late(spec, state, attempt, seen.at)
    if late is not None:
        yield _slow(state, watch, Kind.STARTUP_TIMEOUT, late)
    hanging = hangs(spec, state, watch, seen)
    if hanging is not None:
        yield _slow(state, watch, Kind.HANG, hanging)
    yield from map(Wrong, slowed(state, watch.course))


def _with_ranks(watch: Watch, seen: Seen, state: State) -> Watch:
    """With what the workers wrote into their error files, in the order of their deaths, before what was printed."""
    ranks = seen.aftermath.ranks if seen.aftermath is not None else ()
    wrote = tuple(
        Pending(
            hit=hit,
            seen_boot_s=seen.at.boot_s,
            uuid=physical(hit, state, seen.printers, watch.normal),
            steps_at=watch.steps,
        )
        for rank in ranks
        for hit in rank.hits
    )
    return replace(watch, pending=(*wrote, *watch.pending)) if wrote else watch


def _proven(watch: Watch, now: Instant) -> str | None:
    """Why the pending hits are a verdict now, or None."""
    quiet = now.boot_s - (watch.progress_boot_s or watch.began_boot_s)
    limit = max(LOW_FOR_S, 3.0 * max(watch.intervals, default=0.0))
    for pending in watch.pending:
        since = pending.gone_since_boot_s
        if since is not None and now.boot_s - since >= GONE_FOR_S:
            return "its process has been gone while the job lives"
        low = min(
            (t for uuid, t in watch.low_since.items() if pending.uuid in (None, uuid)),
            default=None,
        )
        waited = now.boot_s - max(low or 0.0, pending.seen_boot_s)
        if low is not None and quiet >= limit and waited >= limit:
            return "the GPU is idle and the run makes no progress"
    return None


def _silent(spec: RunSpec, state: State, watch: Watch, seen: Seen) -> Iterator[Wrong]:
    """GPUs that fell silent, those first whose role asks for more than to tell. A failure text decides the kind."""
    for_s = min((role.for_s for role in spec.topology), default=0.0)
    if state.phase is Phase.STARTING or not watch.work or not may_conclude(watch, seen, for_s):
        return
    roles = {name: role.uuids for name, role in state.roles.items()}
    found = silences(spec, roles, watch.work, watch.steps, seen.at.boot_s, in_phase=bool(watch.inside))
    if not found or _is_over(spec, watch):
        return
    numbers = dict(zip(state.gpus, state.indices, strict=True))
    for group in ([one for one in found if tells is (one.role.silent is Silent.NOTIFY)] for tells in (False, True)):
        if not group:
            continue
        text = in_words(group, roles, numbers)
        first = min(group, key=lambda one: one.role.silent is not Silent.HALT)
        sure = (Confidence.HIGH if first.sure else Confidence.MEDIUM).value
        gpu = numbers[first.uuid]
        silent = Failure(kind=Kind.SILENT_GPU, because=text, gpu=gpu, uuid=first.uuid, confidence=sure)
        yield Wrong(from_hits(state, watch, text) if watch.pending else silent)


def _is_over(spec: RunSpec, watch: Watch) -> bool:
    """True once the last step, or the mark of the end, was reached: workers then end one after the other."""
    knows = spec.done is not None or watch.total is not None
    return knows and _missing(spec, watch) is None


def _slow(state: State, watch: Watch, kind: Kind, text: str) -> Verdict:
    if watch.pending:
        return Wrong(from_hits(state, watch, text))
    return Wrong(Failure(kind=kind, because=text, confidence=Confidence.MEDIUM.value))


def ended(spec: RunSpec, state: State, watch: Watch, end: ExitRecord) -> Verdict:
    """What the end of the job means."""
    if end.code == 0:
        missing = _missing(spec, watch)
        if missing is None:
            return Done("the job ended with exit code 0")
        if watch.pending:
            return Wrong(from_hits(state, watch, missing, end))
        kind = Kind.PREEMPTED if watch.sigterm_seen else Kind.EXIT
        return Wrong(Failure(kind=kind, because=f"exit code 0, but {missing}", code=0, confidence=_LOW))
    if watch.pending:
        return Wrong(from_hits(state, watch, _how(end), end))
    return Wrong(Failure(kind=_kind_of(end), because=_how(end), code=end.code, signal=end.signal, confidence=_LOW))


def _missing(spec: RunSpec, watch: Watch) -> str | None:
    """What exit code 0 lacks to be a finish, or None."""
    done = spec.done
    if done is not None:
        if done.step is not None and (watch.last_step is None or watch.last_step < done.step):
            return f"step {done.step} was not reached (last step {watch.last_step})"
        if (done.file is not None or done.log is not None) and not watch.done_seen:
            return f"{done.file or done.log!r} was not seen"
        return None
    if watch.total is not None and watch.last_step is not None and watch.last_step < watch.total:
        return f"only step {watch.last_step} of {watch.total} was reached"
    if watch.pending and watch.failure_text_at == watch.steps:
        return "it followed straight after a failure text"
    return None


def _kind_of(end: ExitRecord) -> Kind:
    number = end.signal
    if number is None and end.code is not None and end.code > 128:
        number = end.code - 128
    if number is None:
        return Kind.EXIT if end.code is not None else Kind.KILLED
    if number == signals.SIGKILL:
        return Kind.KILLED
    if number == signals.SIGTERM:
        return Kind.PREEMPTED
    return Kind.SEGFAULT if number in CRASHES else Kind.EXIT


def _how(end: ExitRecord) -> str:
    if end.signal is not None:
        return f"the job was killed by {_signal_name(end.signal)}"
    if end.code is None:
        return "the job is gone, exit status unknown"
    if end.code > 128 and _signal_name(end.code - 128).startswith("SIG"):
        return f"the job ended with exit code {end.code} ({_signal_name(end.code - 128)})"
    return f"the job ended with exit code {end.code}"


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def from_hits(state: State, watch: Watch, why: str, end: ExitRecord | None = None) -> Failure:
    """The failure that the undropped hits tell of; `why` is what made a verdict of them."""
    cause = root_cause([pending.hit for pending in watch.pending])
    pending = watch.pending[0]
    if cause is not None:  # its hit is completed from others, so it is found by its place
        place = (cause.hit.file, cause.hit.offset)
        pending = next(p for p in watch.pending if (p.hit.file, p.hit.offset) == place)
        pending = replace(pending, hit=cause.hit)
    hit = pending.hit
    index = dict(zip(state.gpus, state.indices, strict=True)).get(pending.uuid or "", hit.gpu)
    return Failure(
        kind=hit.kind,
        because=_sentence(pending, index, why),
        code=end.code if end else None,
        signal=end.signal if end else None,
        gpu=index,
        uuid=pending.uuid,
        rank=hit.rank,
        tried_mib=hit.tried_mib,
        free_mib=hit.free_mib,
        total_mib=hit.total_mib,
        short_by_mib=hit.short_by_mib,
        log_line=hit.text,
        where=f"{hit.file}:{hit.line}",
        signature=hit.signature,
        lost=tuple(_lost(other, why_not) for other, why_not in (cause.lost if cause else ())),
        confidence=(cause.confidence if cause else Confidence.LOW).value,
        printed_gpu=hit.gpu,
        in_use_mib=hit.in_use_mib,
        reserved_mib=hit.reserved_mib,
        others=hit.others,
        loaded_mib=watch.course.loaded.get(pending.uuid or "") if hit.kind is Kind.GPU_OOM else None,
    )


def _lost(hit: Hit, why: str) -> str:
    """What else was seen, where, and why it lost."""
    return f"{hit.kind.value} at {hit.file.rpartition('/')[2]}:{hit.line} ({hit.signature}): {why}"


def _sentence(pending: Pending, index: int | None, why: str) -> str:
    hit = pending.hit
    place = f"{hit.file.rpartition('/')[2]}:{hit.line}"
    if hit.kind is Kind.GPU_OOM:
        who = "a GPU" if index is None else f"GPU {index}"
        short = hit.short_by_mib
        by = "" if short is None else f", short by {short:.0f} MiB"
        return f"{who} ran out of memory{by} ({place})"
    where = "" if hit.rank is None else f" on rank {hit.rank}"
    return f"{hit.kind.value}{where}: {hit.text.strip()[:160]} ({place}; {why})"
