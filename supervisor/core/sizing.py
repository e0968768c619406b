"""How far down a step must go: the fewest rungs that are predicted to free what was missing. Moves nothing itself.

Rule 1: what was measured speaks first: attempts with different values, per GPU and role, least squares.
Rule 2: else the failing allocation speaks: it scales with the knob, so what it loses is the least that a step frees.
Rule 3: what came after the load is the most that scales. Where it is known, a step frees the geometric mean of least
        and most: the middle of two bounds that may be orders apart. It is an estimate, and told as one.
Rule 4: where not even the last rung is known to suffice, the fewest rungs that may: that teaches what a rung frees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, sqrt

from msgspec import Struct

from supervisor.core.evidence import Uuid
from supervisor.core.peaks import Peaks, failed
from supervisor.core.plans import Failure
from supervisor.core.spec import Knob, RunSpec
from supervisor.core.state import State

ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
EXPANDABLE = "expandable_segments:True"

TWO_POINTS_ERROR = 0.25
"""Two points leave no residual: a quarter of what they predict is taken for their error."""

LEAST_ERROR = 0.05
"""Replicas that agree to the MiB still share what none of them shows: a twentieth at least."""

T_90 = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383, 1.372)
"""Student's t for a one-sided bound of 90 %, for 1 to 10 degrees of freedom; 1.282 beyond."""

KEPT_COST = 0.05
"""What a rung of a set that keeps its product may cost of the throughput: the work stays, the kernels are smaller."""


class Sized(Struct, frozen=True):
    """So many rungs down for each knob, and the arithmetic. `covers`: predicted to free what was missing."""

    rungs: int
    text: str = ""
    covers: bool = False


def sized(state: State, failure: Failure, names: Sequence[str]) -> Sized:
    """How far these knobs go down together."""
    spec, short = state.spec, failure.short_by_mib
    assert spec is not None
    left = {knob.name: len(knob.rungs) - 1 - state.rungs.get(knob.name, 0) for knob in spec.params.knobs}
    knobs = [knob for knob in spec.params.knobs if knob.name in names and left[knob.name] > 0]
    if short is None or not knobs:
        return Sized(1)
    most = max(left[knob.name] for knob in knobs)
    measured = _slope(state, failure, knobs)
    if measured is not None:
        return _by_measure(state, knobs, most, short, *measured)
    return _by_allocation(state, failure, knobs, most, short)


def _by_measure(
    state: State, knobs: list[Knob], most: int, short: float, slope: float, error: float, attempts: tuple[int, ...]
) -> Sized:
    """`slope`: MiB for the whole load of the knobs, `error` of it; a step takes a share of both."""
    told = ", ".join(map(str, attempts))
    freed, may_err = 0.0, 0.0
    for n in range(1, most + 1):
        share = 1.0 - _remains(state, knobs, n)[1]
        freed, may_err = slope * share, error * share
        if freed - may_err >= short:
            text = f"{_rungs(n)} {freed:.0f} +- {may_err:.0f} MiB, measured in attempts {told}"
            return Sized(n, text, covers=True)
    text = f"as measured in attempts {told} not even the last rung frees enough: {freed:.0f} +- {may_err:.0f} MiB"
    return Sized(most, text)


def _by_allocation(state: State, failure: Failure, knobs: list[Knob], most: int, short: float) -> Sized:
    tried, came = failure.tried_mib or 0.0, _came(failure)
    whole = tried + (failure.in_use_mib or 0.0)
    may = None
    for n in range(1, most + 1):
        least, most_share = (1.0 - remains for remains in _remains(state, knobs, n))
        low, high = tried * least, (tried + came) * most_share
        if low >= short:
            text = f"{_rungs(n)} >= {int(low)} MiB of the {tried:.0f} MiB asked for"
            return Sized(n, text, covers=True)
        if came and sqrt(low * high) >= short:
            bounds = f">= {int(low)} MiB of the {tried:.0f} MiB asked for, <= {int(high)} MiB with the {came:.0f} MiB"
            text = f"{_rungs(n)} about {int(sqrt(low * high))} MiB, an estimate: {bounds} that came after the load"
            return Sized(n, text, covers=True)
        if may is None and whole * most_share >= short:
            may = n
    if not _remains(state, knobs, most)[1] < 1.0:
        return Sized(1)
    n = may or most
    least = 1.0 - _remains(state, knobs, most)[0]
    text = f"all rungs free >= {int(tried * least)} MiB, which may not be enough; {n} of {most} taken to learn it"
    return Sized(n, text)


def _came(failure: Failure) -> float:
    """MiB in use at the failure that were not yet when the load was done; 0 where that is not known."""
    if failure.loaded_mib is None or failure.total_mib is None or failure.free_mib is None:
        return 0.0
    used = failure.total_mib - failure.free_mib - (failure.reserved_mib or 0.0)
    return max(0.0, used - failure.loaded_mib)


def _rungs(n: int) -> str:
    return "one rung frees" if n == 1 else f"{n} rungs free"


def _remains(state: State, knobs: list[Knob], n: int) -> tuple[float, float]:
    """Of an allocation that scales with one of these knobs: the share that remains `n` rungs down, at most and on
    the mean of the knobs. 1: nothing is known to shrink."""
    shares = [share for knob in knobs if (share := remaining(knob, state.rungs.get(knob.name, 0), n)) is not None]
    return (max(shares), sum(shares) / len(shares)) if shares else (1.0, 1.0)


def remaining(knob: Knob, at: int, n: int) -> float | None:
    """The share of the value that remains `n` rungs below `at`; None where no number falls, or no rung is left."""
    to = min(at + n, len(knob.rungs) - 1)
    if knob.up or to <= at:
        return None
    before, after = _numbers(knob, at), _numbers(knob, to)
    falling = [after[name] / value for name, value in before.items() if value > 0 and 0 <= after[name] < value]
    return min(falling) if falling else None


def _numbers(knob: Knob, at: int) -> dict[str, float]:
    values = {name: scalar.value for name, scalar in knob.rungs[at].items() if scalar.tag in ("int", "float")}
    return {name: float(value) for name, value in values.items() if isinstance(value, (int, float))}


# ── what was measured ────────────────────────────────────────────────────────────────────────────────────────────────


def _slope(state: State, failure: Failure, knobs: list[Knob]) -> tuple[float, float, tuple[int, ...]] | None:
    """MiB by which the failing GPU's need falls if the load of the knobs fell by all that it is now, the error of
    that, and the attempts it is from; None where no two attempts with different values were measured."""
    assert state.attempt is not None
    names = {knob.name for knob in knobs}
    needs: dict[Uuid, dict[float, float]] = {}
    used: set[int] = set()
    trained = False
    for one in failed(state.peaks, state.attempt.number, state.attempt.rungs, failure):
        load = _load(state, knobs, one)
        if load is None or any(state.rungs.get(k, 0) != rung for k, rung in one.rungs.items() if k not in names):
            continue
        for uuid in _role(state, failure.uuid):
            need = one.wanted.get(uuid, one.mib.get(uuid) if one.progressed else None)
            if need is not None:
                at = needs.setdefault(uuid, {})
                at[load] = max(need, at.get(load, 0.0))
                used.add(one.attempt)
                trained = trained or uuid not in one.wanted
    found = least_squares([tuple(at.items()) for at in needs.values()])
    if found is None or not (trained or _may_be(found[0], failure)):
        return None
    return (*found, tuple(sorted(used)))


def _may_be(slope: float, failure: Failure) -> bool:
    """Whether a slope between failures alone lies within what is known to bound it. Each tells what was needed at
    least, and two that came at different places of a step do not compare."""
    tried, came = failure.tried_mib or 0.0, _came(failure)
    return slope >= tried and (not came or slope <= tried + came)


def _role(state: State, uuid: Uuid | None) -> tuple[Uuid, ...]:
    """The GPUs of the failing one's role: its replicas behave alike, each on its own level."""
    roles = (role.uuids for role in state.roles.values())
    return next((uuids for uuids in roles if uuid in uuids), () if uuid is None else (uuid,))


def _load(state: State, knobs: list[Knob], one: Peaks) -> float | None:
    """The knobs' values in that attempt against those of now, on the mean."""
    shares: list[float] = []
    for knob in knobs:
        top, low = _numbers(knob, 0), _numbers(knob, len(knob.rungs) - 1)
        now, then = _numbers(knob, _at(knob, state.rungs)), _numbers(knob, _at(knob, one.rungs))
        shares += [then[name] / value for name, value in now.items() if value > 0 and low[name] < top[name]]
    return sum(shares) / len(shares) if shares else None


def _at(knob: Knob, rungs: Mapping[str, int]) -> int:
    return min(rungs.get(knob.name, 0), len(knob.rungs) - 1)


def least_squares(groups: Iterable[Sequence[tuple[float, float]]]) -> tuple[float, float] | None:
    """The common slope of groups of (x, y), each on a level of its own, and its error bound (90 %, one-sided).

    None where x never differs within a group, or where y does not rise with it.
    """
    sxx = sxy = syy = 0.0
    freedom = -1
    for points in groups:
        mean_x = sum(x for x, _ in points) / len(points)
        mean_y = sum(y for _, y in points) / len(points)
        sxx += sum((x - mean_x) ** 2 for x, _ in points)
        sxy += sum((x - mean_x) * (y - mean_y) for x, y in points)
        syy += sum((y - mean_y) ** 2 for _, y in points)
        freedom += len(points) - 1
    if sxx <= 1e-12 or sxy <= 0:
        return None
    slope = sxy / sxx
    if freedom < 1:
        return slope, TWO_POINTS_ERROR * slope
    spread = sqrt(max(0.0, syy - slope * sxy) / freedom)
    t = T_90[freedom - 1] if freedom <= len(T_90) else 1.282
    return slope, max(LEAST_ERROR * slope, t * spread / sqrt(sxx))


# ── which knob ───────────────────────────────────────────────────────────────────────────────────────────────────────


def cheapest(state: State, failure: Failure, names: Sequence[str]) -> str:
    """Of these knobs, each with a rung left, the one whose step costs least of the run's throughput.

    One that is predicted to free enough goes before one that is not; of equals the first.
    """
    assert state.spec is not None
    by_name = {knob.name: knob for knob in state.spec.params.knobs}

    def price(name: str) -> tuple[bool, float]:
        step = sized(state, failure, (name,))
        return not step.covers, cost(state, by_name[name], step.rungs)

    return min(names, key=price)


def cost(state: State, knob: Knob, n: int) -> float:
    """The share of the throughput that `n` rungs down cost: as printed rates of earlier attempts tell, else as much as
    the value falls; infinite where neither is known."""
    at = state.rungs.get(knob.name, 0)
    now, then = _rate(state, knob, at), _rate(state, knob, at + n)
    if now and then:
        return max(0.0, 1.0 - then / now)
    share = remaining(knob, at, n)
    if share is None:
        return inf
    return KEPT_COST * n if knob.keep else 1.0 - share


def _rate(state: State, knob: Knob, at: int) -> float | None:
    """The best printed rate with this knob there and every other one where it is now."""
    want = {**state.rungs, knob.name: at}
    return max((p.rate for p in state.paces if p.settled and p.rate and _same(p.rungs, want)), default=None)


def _same(rungs: Mapping[str, int], want: Mapping[str, int]) -> bool:
    return all(rungs.get(name, 0) == rung for name, rung in want.items())


# ── fragmentation ────────────────────────────────────────────────────────────────────────────────────────────────────


def is_fragmented(failure: Failure) -> bool:
    """True where what the allocator keeps without using it would have been enough."""
    short, kept = failure.short_by_mib, failure.reserved_mib
    return short is not None and kept is not None and kept > short


def allocator(spec: RunSpec) -> str | None:
    """The knob that sets the allocator, if there is one."""
    for knob in spec.params.knobs:
        for name in knob.rungs[0]:
            how = spec.params.how.get(name)
            if how is not None and how.env in ALLOCATOR:
                return knob.name
    return None


def advice(spec: RunSpec, failure: Failure, rungs: Mapping[str, int]) -> str:
    """What fragmentation asks for, where no knob can answer it; empty where the job has it already."""
    if not is_fragmented(failure) or any(EXPANDABLE in spec.env.get(name, "") for name in ALLOCATOR):
        return ""
    name = allocator(spec)
    knob = next((knob for knob in spec.params.knobs if knob.name == name), None)
    if knob is not None and any(EXPANDABLE in scalar.text for scalar in knob.rungs[_at(knob, rungs)].values()):
        return ""
    kept = f"{failure.reserved_mib:.0f} MiB lay reserved but unallocated"
    return f"{kept}: fragmentation, try env: {{{ALLOCATOR[0]}: {EXPANDABLE}}}"
