"""Policy: what to do about a failure, by the spec's rules and the built-in table. Decides, never acts.

Rule 1: recovery moves only knobs, only down their rungs, as far as `core/stepping.py` says.
Rule 2: an explicit rule wins for every kind but a changed protected param, which always halts.
Rule 3: budgets count judged attempts from the journal; a gained checkpoint starts them anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from supervisor.core.events import Ending, Failure, Plan
from supervisor.core.evidence import Instant
from supervisor.core.keeping import may_prune
from supervisor.core.kinds import Kind
from supervisor.core.phases import Phase
from supervisor.core.spec import Do, Rule, RunSpec, Silent
from supervisor.core.state import Attempt, Past, State
from supervisor.core.stepping import Stepped, knob_texts, stepped
from supervisor.core.tried import tried
from supervisor.core.verdicts import elapsed_s

MATCHED_TEXT = 4096
"""How much of the deciding line a rule's `match` sees: bounds what a user's pattern can cost."""


class BuiltIn(Struct, frozen=True):
    """One row: how often a kind is relaunched (0: halt), and from where; `tells`: it is only told."""

    times: int
    lower: bool = False
    from_older: bool = False
    tells: bool = False


POLICY: dict[Kind, BuiltIn] = {
    Kind.GPU_OOM: BuiltIn(times=1_000_000, lower=True),
    Kind.HOST_OOM: BuiltIn(3),
    Kind.HANG: BuiltIn(3),
    Kind.SILENT_GPU: BuiltIn(3),
    Kind.COLLECTIVE_TIMEOUT: BuiltIn(3),
    Kind.COLLECTIVE_ERROR: BuiltIn(3),
    Kind.CUDA_ERROR: BuiltIn(3),
    Kind.SEGFAULT: BuiltIn(3),
    Kind.KILLED: BuiltIn(3),
    Kind.SHM_FULL: BuiltIn(3),
    Kind.NETWORK_ERROR: BuiltIn(3),
    Kind.PORT_IN_USE: BuiltIn(3),
    Kind.PREEMPTED: BuiltIn(3),
    Kind.EXIT: BuiltIn(2),
    Kind.STARTUP_TIMEOUT: BuiltIn(1),
    Kind.CHECKPOINT_ERROR: BuiltIn(1, from_older=True),
    Kind.GPU_FAULT: BuiltIn(1),
    Kind.CODE_ERROR: BuiltIn(0),
    Kind.ENV_ERROR: BuiltIn(0),
    Kind.DATA_ERROR: BuiltIn(0),
    Kind.DISK_FULL: BuiltIn(0),
    Kind.NUMERIC: BuiltIn(0),
    Kind.LOST_PROGRESS: BuiltIn(0),
    Kind.SLOW: BuiltIn(0, tells=True),
    Kind.PROTECTED_VIOLATION: BuiltIn(0),
}
"""Design, "Built-in policy". The ladder, not a count, ends `gpu_oom`."""

WAITS = frozenset({Kind.EXIT, Kind.NETWORK_ERROR, Kind.PORT_IN_USE, Kind.PREEMPTED})
"""Kinds that may pass by themselves: their first relaunch waits too."""

SILENT_NOTIFY, LOST_NOTIFY, BUILT_IN = "silent: notify", "health.lost_progress: notify", "the built-in policy"
"""What stands for a rule where a role says only to tell."""

ANY_TIME = 10**9


class Tell(Struct, frozen=True):
    """A rule says: tell, and let the attempt go on."""

    rule: str


def plan_after(state: State, failure: Failure, now: Instant, *, gpus_healthy: bool = True) -> Plan | Tell:
    """What to do about `failure` of the current attempt. A halt says what was tried."""
    plan = _plan_after(state, failure, now, gpus_healthy)
    if isinstance(plan, Tell) or plan.ending is None or failure.kind is Kind.PROTECTED_VIOLATION:
        return plan
    return replace(plan, because=plan.because + tried(state, failure))


def _plan_after(state: State, failure: Failure, now: Instant, gpus_healthy: bool) -> Plan | Tell:
    spec, attempt = state.spec, state.attempt
    assert spec is not None
    assert attempt is not None
    if failure.kind is Kind.PROTECTED_VIOLATION:
        return _halt(spec, failure, f"{failure.because}. Protected params are locked: they shape the training signal")
    if failure.kind is Kind.SILENT_GPU:
        asked = silent_of(state, failure)
        if asked is Silent.NOTIFY:
            return Tell(SILENT_NOTIFY)
        if asked is Silent.HALT:
            return _halt(spec, failure, f"{failure.because}; its role says silent: halt")
    spent = "" if POLICY[failure.kind].tells else _spent(state, attempt, now)
    for rule in spec.recovery.rules:
        if not _applies(rule, state, attempt, failure, now):
            continue
        if rule.do is Do.NOTIFY:
            return Tell(rule.where)
        if rule.do is Do.HALT:
            return _halt(spec, failure, f"{failure.because}; the rule at {rule.where} says halt", rule.where)
        if spent:
            return _halt(spec, failure, f"{failure.because}; {spent}")
        planned = _by_rule(state, rule, failure, now)
        if planned is not None:
            return planned
    if POLICY[failure.kind].tells:
        return Tell(BUILT_IN)
    if failure.kind is Kind.LOST_PROGRESS and spec.health.lost_progress == "notify":
        return Tell(LOST_NOTIFY)
    if spent:
        return _halt(spec, failure, f"{failure.because}; {spent}")
    return _built_in(state, failure, now, gpus_healthy)


def _halt(spec: RunSpec, failure: Failure, because: str, rule: str = "") -> Plan:
    if failure.kind is Kind.PROTECTED_VIOLATION:
        next_command = f"supervise history {spec.name} -v"
    else:
        next_command = f"supervise history {spec.name} -v; then mend the cause and: {spec.up_command}"
    return Plan(ending=Ending.HALTED, because=because, rule=rule, next_command=next_command)


def since_gain(past: Iterable[Past]) -> list[Past]:
    """The judged attempts since a checkpoint was last gained; one that gained a checkpoint starts the count anew."""
    kept: list[Past] = []
    for one in past:
        kept = [] if one.gained else kept
        kept.append(one)
    return kept


def _spent(state: State, attempt: Attempt, now: Instant) -> str:
    """Why no attempt is left, or the empty string. The failing attempt itself counts."""
    spec = state.spec
    assert spec is not None
    recovery = spec.recovery
    if attempt.gained:
        return ""
    failed = [p for p in state.past if not p.gained and elapsed_s(now, p.at) <= recovery.per_s]
    if len(failed) + 1 < recovery.max_attempts:
        return ""
    return f"{len(failed) + 1} attempts failed without gaining a checkpoint (recovery.max_attempts)"


def _applies(rule: Rule, state: State, attempt: Attempt, failure: Failure, now: Instant) -> bool:
    if failure.kind not in rule.on:
        return False
    if rule.role is not None and rule.role != role_of(state, failure):
        return False
    if rule.phase is not None and rule.phase not in (failure.phase, _phase_word(state.phase, attempt)):
        return False
    if rule.match is not None and not re.search(rule.match, (failure.log_line or failure.because)[:MATCHED_TEXT]):
        return False
    if rule.after_s is not None and elapsed_s(now, attempt.launched_at or attempt.began) < rule.after_s:
        return False
    if rule.times is None:
        return True
    past = [] if attempt.gained else since_gain(state.past)
    return sum(p.rule == rule.where for p in past) < rule.times


def role_of(state: State, failure: Failure) -> str | None:
    """The role whose GPU failed, or None where no GPU is known."""
    assert state.spec is not None
    written = {str(failure.gpu), failure.uuid}
    for role in state.spec.topology:
        if written.intersection(role.gpus):
            return role.name
    return None


def silent_of(state: State, failure: Failure) -> Silent:
    """What the role of the silent GPU asks for; it stands before the rules."""
    assert state.spec is not None
    name = role_of(state, failure)
    return next((role.silent for role in state.spec.topology if role.name == name), Silent.RELAUNCH)


def _phase_word(phase: Phase, attempt: Attempt) -> str:
    return "starting" if phase is Phase.STARTING or attempt.progressed_at is None else "running"


def _by_rule(state: State, rule: Rule, failure: Failure, now: Instant) -> Plan | None:
    """A relaunch by this rule, or None where none of its knobs has a rung left."""
    step = Stepped(dict(state.rungs))
    if rule.lower and failure.leftover is None:
        step = stepped(state, failure, rule.lower, one_of=rule.one_of, rule=rule.where)
        if not step.lowered:
            return None
    return _relaunch(state, failure, now, step, rule=rule.where, wait_s=rule.wait_s, older=rule.from_older)


def _built_in(state: State, failure: Failure, now: Instant, gpus_healthy: bool) -> Plan:
    spec, attempt = state.spec, state.attempt
    assert spec is not None
    assert attempt is not None
    row = POLICY[failure.kind]
    if row.lower and failure.leftover is not None:  # what is to be mended is cleaned away before the next launch
        return _relaunch(state, failure, now, Stepped(dict(state.rungs)))
    if row.lower:
        return _lower_all(state, failure, now)
    if failure.kind is Kind.GPU_FAULT and not gpus_healthy:
        return _halt(spec, failure, f"{failure.because}; not every GPU answers healthy")
    done = relaunches(state, attempt, failure.kind)
    times = 1 if failure.kind is Kind.DISK_FULL and may_prune(state) else row.times
    if done >= times:
        again = "1 relaunch" if done == 1 else f"{done} relaunches"
        said = f"{again} for {failure.kind.value} did not help" if times else "no relaunch can mend it"
        return _halt(spec, failure, f"{failure.because}; {said}")
    return _relaunch(state, failure, now, Stepped(dict(state.rungs)), older=row.from_older)


def _lower_all(state: State, failure: Failure, now: Instant) -> Plan:
    """The built-in policy of `gpu_oom`: all knobs that no rule names go down together, but for a ladder of venvs."""
    spec = state.spec
    assert spec is not None
    named = {name for rule in spec.recovery.rules for name in rule.lower}
    free = [knob.name for knob in spec.params.knobs if knob.name not in named and not knob.venv]
    step = stepped(state, failure, free)
    if step.lowered:
        return _relaunch(state, failure, now, step)
    if not spec.params.knobs:
        return _halt(spec, failure, f"{failure.because}; the spec lists no knob that may be lowered")
    stand = ", ".join(f"{name} {text}" for name, text in knob_texts(spec, state.rungs).items())
    return _halt(spec, failure, f"{failure.because}; every ladder is at its last rung ({stand})")


def relaunches(state: State, attempt: Attempt, kind: Kind) -> int:
    """How many relaunches this cause has had since a checkpoint was last gained."""
    if attempt.gained:
        return 0
    return sum(p.kind is kind and p.did == "relaunch" for p in since_gain(state.past))


def _relaunch(
    state: State,
    failure: Failure,
    now: Instant,
    step: Stepped,
    *,
    rule: str = "",
    wait_s: float | None = None,
    older: bool = False,
) -> Plan:
    attempt = state.attempt
    assert attempt is not None
    lowered = step.lowered
    moved = ", ".join(f"{name} {before} -> {after}" for name, (before, after) in lowered.items())
    because = "; ".join(filter(None, (failure.because, step.text, moved or "relaunching as it was")))
    wait = wait_s if wait_s is not None else _backoff_s(state, attempt, failure, bool(lowered))
    return Plan(
        ending=None, because=because, rungs=step.rungs, lowered=lowered, from_older=older, wait_s=wait, rule=rule
    )


def _backoff_s(state: State, attempt: Attempt, failure: Failure, lowered: bool) -> float:
    """Seconds to wait before relaunch n of this cause: first x 4^(n-1), at most cap, up to 10 % jitter."""
    spec = state.spec
    assert spec is not None
    n = relaunches(state, attempt, failure.kind) + 1
    if lowered and failure.kind is Kind.GPU_OOM:
        return 0.0
    if failure.kind not in WAITS and n < 2:
        return 0.0
    recovery = spec.recovery
    wait = min(recovery.backoff_first_s * 4.0 ** (n - 1), recovery.backoff_cap_s)
    spread = crc32(f"{state.run}:{attempt.number}".encode()) / 2**32
    return min(wait * (1.0 + 0.1 * spread), recovery.backoff_cap_s)
