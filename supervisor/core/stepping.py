"""A step down the ladders: which of the named knobs move, how far, and the arithmetic. What follows is policy's.

Rule 1: only down, only along rungs, never onto rungs that failed of the same cause in this episode.
Rule 2: fragmentation moves the knob that sets the allocator first, where the spec has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from supervisor.core.kinds import Kind
from supervisor.core.plans import Failure
from supervisor.core.sizing import advice, allocator, cheapest, is_fragmented, sized
from supervisor.core.spec import Knob, RunSpec
from supervisor.core.state import State


class Stepped(Struct, frozen=True):
    """Where all knobs stand after the step, what it lowers (param → from, to, as texts), and why so far."""

    rungs: dict[str, int]
    lowered: dict[str, tuple[str, str]] = field(default_factory=dict)
    text: str = ""


def stepped(state: State, failure: Failure, names: Sequence[str], *, one_of: bool = False, rule: str = "") -> Stepped:
    """The step that this failure asks for; nothing lowered where no knob has a rung left. `rule`: whose names."""
    assert state.spec is not None
    first = _allocator_first(state, failure, names, rule)
    if first is not None:
        rungs, lowered = lower(state, (first,))
        text = f"{failure.reserved_mib:.0f} MiB lay reserved but unallocated: fragmentation, the allocator goes first"
        return Stepped(rungs, lowered, text)
    movable = [name for name in names if has_rung(state, name)]
    if one_of and movable:
        movable = [cheapest(state, failure, movable) if failure.kind is Kind.GPU_OOM else movable[0]]
    if not movable:
        return Stepped(dict(state.rungs))
    size = sized(state, failure, movable) if failure.kind is Kind.GPU_OOM else None
    n = size.rungs if size else 1
    rungs, lowered = lower(state, movable, n)
    while _failed_there(state, failure.kind, rungs) and any(rungs[name] < _last(state, name) for name in movable):
        n += 1
        rungs, lowered = lower(state, movable, n)
    said = filter(None, (size.text if size else "", advice(state.spec, failure, state.rungs)))
    return Stepped(rungs, lowered, "; ".join(said))


def _allocator_first(state: State, failure: Failure, names: Sequence[str], rule: str) -> str | None:
    """The allocator's knob, where fragmentation is to blame and nobody else's rule names it."""
    assert state.spec is not None
    name = allocator(state.spec) if failure.kind is Kind.GPU_OOM and is_fragmented(failure) else None
    if name is None or not has_rung(state, name):
        return None
    elsewhere = any(name in one.lower and one.where != rule for one in state.spec.recovery.rules)
    return name if name in names or not elsewhere else None


def _failed_there(state: State, kind: Kind, rungs: dict[str, int]) -> bool:
    """True where an attempt of this episode failed of this cause on exactly these rungs."""
    return any(past.kind is kind and past.rungs == rungs for past in state.past)


def has_rung(state: State, name: str) -> bool:
    """True while the knob can go down."""
    return state.rungs.get(name, 0) < _last(state, name)


def _last(state: State, name: str) -> int:
    return len(_knob(state, name).rungs) - 1


def lower(state: State, names: Iterable[str], n: int = 1) -> tuple[dict[str, int], dict[str, tuple[str, str]]]:
    """The rungs after `n` steps down of each named knob, each of which has one, and what changed (from, to)."""
    rungs = dict(state.rungs)
    lowered: dict[str, tuple[str, str]] = {}
    for name in names:
        knob = _knob(state, name)
        at = rungs.get(name, 0)
        to = min(at + n, len(knob.rungs) - 1)
        rungs[name] = to
        for param, before in knob.rungs[at].items():
            after = knob.rungs[to][param]
            if before != after:
                lowered[param] = (before.text, after.text)
    return rungs, lowered


def _knob(state: State, name: str) -> Knob:
    assert state.spec is not None
    return next(knob for knob in state.spec.params.knobs if knob.name == name)


def knob_texts(spec: RunSpec, rungs: dict[str, int]) -> dict[str, str]:
    """Every knob param's value as text, where the knobs stand on `rungs`."""
    return {
        name: scalar.text
        for knob in spec.params.knobs
        for name, scalar in knob.rungs[min(rungs.get(knob.name, 0), len(knob.rungs) - 1)].items()
    }
