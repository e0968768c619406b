"""A thousand nights of one box, lived through by the real policy, by three habits, and by an oracle. No clock, no GPU.

    python -m benchmarks.policy_nights [NIGHTS] [--seed N] [--sweep]

The real core decides (`plan_after`, folded records, sizing); the world is a model on a virtual clock: what fails when,
what a load takes, what a step down frees. Each contender lives through the same nights. All resume from the newest
checkpoint; all that a contender does not know (the true shortfall, how long an outage lasts) only the oracle knows.

What fails, and what of it is an assumption, is in `drawn_nights.py`; who answers it in `contenders.py`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.contenders import SPENT, Contender, Fate, Halve, Life, Oracle, Supervise, Torchrun, Until
from benchmarks.drawn_nights import NIGHT_S, RUNGS, WORLD, Night, World, night_of
from supervisor.core.kinds import Kind

OVERHEAD = 0.25
"""Assumption: what a step costs whatever its size, as a share of a full step. Half the batch trains at 83 %."""

WATCHDOG_S, WATCHED = 600.0, 0.8
"""A hung collective is ended by NCCL's watchdog after its default of ten minutes; assumption: in four of five hangs."""

ORPHANS = {"torchrun": 0.05, "until": 0.2, "halve": 0.2, "supervise": 0.0, "oracle": 0.0}
ORPHANS_FOR_S = 600.0
"""Assumption: after a crash workers stay that hold memory until their own timeout; whoever launches into them dies of
memory at the end of the load. An agent that ends its workers has fewer; whoever verifies has none."""


def speed(rung: float) -> float:
    """Of full speed, on this share of the first rung's value."""
    return rung * (1.0 + OVERHEAD) / (rung + OVERHEAD)


def live(night: Night, contender: Contender) -> Life:
    """The night as this contender lives through it."""
    life, waiting, cause_over = Life(), list(night.failures), 0.0
    stays: Kind | None = None
    blocked_until = 0.0
    while life.t < NIGHT_S:
        life.launches += 1
        if isinstance(contender, Supervise):
            contender.begin(life)
        fate: Fate | None = None
        if stays is not None and (math.isinf(cause_over) or life.t + 60.0 < cause_over):
            life.passes(60.0 if not math.isinf(cause_over) else night.load_s, "load")
            fate = Fate(stays, progressed=False)
        elif life.t + night.load_s < blocked_until:
            life.passes(night.load_s, "load")
            fate = Fate(Kind.GPU_OOM, short_mib=1.0, progressed=False)
        else:
            stays = None
            life.passes(night.load_s, "load")
            fate = _train(life, night, waiting)
        if fate is None or life.t >= NIGHT_S:
            break
        if fate.progressed and fate.kind is not Kind.GPU_OOM:
            _after_s, kind, lasts = waiting.pop(0)
            stays, cause_over = (kind, life.t + lasts) if lasts else (None, 0.0)
        life.oomed |= fate.kind is Kind.GPU_OOM
        if fate.kind is Kind.HANG:
            hung_s = contender.hang_s
            if hung_s is None:
                hung_s = WATCHDOG_S if night.orphan[life.launches % 64] < WATCHED else math.inf
            life.passes(hung_s, "hang")
            if math.isinf(hung_s):
                break
        if night.orphan[(life.launches * 7) % 64] < ORPHANS[contender.name]:
            blocked_until = life.t + ORPHANS_FOR_S
        if isinstance(contender, Oracle) and stays is not None:
            if math.isinf(cause_over):
                break
            life.passes(max(0.0, cause_over - life.t), "wait")
        answer = contender.answer(life, night, fate)
        life.lost_s += sum(seconds for _, seconds in life.kept)
        life.at, life.kept = life.saved, []
        if answer is None:
            break
        life.passes(answer[0], "wait")
        life.share = answer[1]
    life.productive_s += sum(seconds for _, seconds in life.kept)
    return life


def _train(life: Life, night: Night, waiting: list[tuple[float, Kind, float]]) -> Fate | None:
    """Trains until something ends it. What was trained up to the last save is kept."""
    freed = night.varies_mib * (1.0 - life.share)
    missing = night.short_mib - freed
    pace = speed(life.share)
    ooms_at = night.oom_at if missing > 0 else math.inf
    left_s = max(1.0, waiting[0][0] - life.trained_s) if waiting else math.inf
    fails_at = life.at + left_s * pace
    end = min(ooms_at if ooms_at >= life.at else life.at + 5.0, fails_at)
    while True:
        stop = min(end, life.at + night.save_s * pace)
        took = (stop - life.at) / pace
        if life.t + took >= NIGHT_S:
            life.kept.append((life.at, NIGHT_S - life.t))
            life.trained_s += NIGHT_S - life.t
            life.at += (NIGHT_S - life.t) * pace
            life.t = NIGHT_S
            return None
        life.kept.append((stop, took))
        life.trained_s += took
        life.t, life.at = life.t + took, stop
        if stop >= end:
            break
        life.saved = life.at
        life.productive_s += sum(seconds for _, seconds in life.kept)
        life.kept = []
    if missing > 0 and not (waiting and fails_at <= end and fails_at < ooms_at):
        return Fate(Kind.GPU_OOM, short_mib=night.told_mib(life.share))
    return Fate(waiting[0][1])


MAKES: tuple[Callable[[], Contender], ...] = (Oracle, Supervise, Torchrun, Until, Halve)


SWEEP = {
    "as above": WORLD,
    "2 to 10 % of a GPU scales": World(scales=(0.02, 0.1)),
    "50 to 80 % scales": World(scales=(0.5, 0.8)),
    "1 to 5 % of that asked for": World(asked=(0.01, 0.05)),
    "30 to 80 % asked for": World(asked=(0.3, 0.8)),
    "nothing comes later": World(later=(0.0, 0.0)),
    "all that stays comes later": World(later=(0.9, 1.0)),
    "load not watched": World(read=False),
}


@dataclass(frozen=True)
class Lived:
    """The same nights, as each contender lived through them; `oom`: those with an out-of-memory failure."""

    nights: list[Night]
    lives: dict[str, list[Life]]
    oom: list[int]

    def mean(self, name: str, of: Callable[[Life], float], *, oom: bool) -> float:
        """Percent of a night."""
        lives = [self.lives[name][n] for n in self.oom] if oom else self.lives[name]
        return 100 * sum(map(of, lives)) / max(1, len(lives)) / NIGHT_S

    def too_low(self) -> list[int]:
        """Nights whose knobs end below the oracle's rung. Where no rung fits, none is too low."""
        fits = [n for n, night in enumerate(self.nights) if night.fits_at < len(RUNGS)]
        own, best = self.lives["supervise"], self.lives["oracle"]
        return [n for n in fits if own[n].share < best[n].share - 1e-9]


def lived(count: int, seed: int, world: World, makes: tuple[Callable[[], Contender], ...]) -> Lived:
    """So many nights of this world."""
    nights = [night_of(seed * 1_000_000 + n, world) for n in range(count)]
    lives = {make().name: [live(night, make()) for night in nights] for make in makes}
    return Lived(nights, lives, [n for n, one in enumerate(lives["oracle"]) if one.oomed])


def time_s(life: Life) -> float:
    """Seconds that trained and were kept: over the night, ETTR."""
    return life.productive_s


def work_s(life: Life) -> float:
    """The same, weighed by the speed that the knobs leave."""
    return life.at


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nights", nargs="?", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sweep", action="store_true", help="other worlds of memory, against the oracle only")
    args = parser.parse_args()
    if args.sweep:
        return _swept(args.nights, args.seed)
    told = lived(args.nights, args.seed, WORLD, MAKES)
    print(f"{args.nights} nights, {len(told.oom)} with an out-of-memory failure; percent of the night")
    print(f"{'':10} {'time':>6} {'work':>6} {'time, OOM':>10} {'work, OOM':>10}")
    for name in told.lives:
        row = [told.mean(name, of, oom=oom) for oom in (False, True) for of in (time_s, work_s)]
        print(f"{name:10} {row[0]:>6.1f} {row[1]:>6.1f} {row[2]:>10.1f} {row[3]:>10.1f}")
    print(_shares(told))
    print(f"\nnights with an OOM: where the rest goes\n{'':10}", *(f"{on:>9}" for on in (*SPENT, *REST)))
    for name in told.lives:
        print(f"{name:10}", *(f"{value:>9.2f}" for value in _rest(told, name)))
    return None


REST = ("lost", "given up", "slower")


def _rest(told: Lived, name: str) -> list[float]:
    spent = [told.mean(name, lambda life, on=on: life.spent[on], oom=True) for on in SPENT]  # type: ignore[misc]
    lost, time = told.mean(name, lambda life: life.lost_s, oom=True), told.mean(name, time_s, oom=True)
    return [*spent, lost, 100.0 - sum(spent) - lost - time, time - told.mean(name, work_s, oom=True)]


def _shares(told: Lived) -> str:
    low = told.too_low()
    of_all, of_oom = (100 * (1 - len(low) / max(1, of)) for of in (len(told.nights), len(told.oom)))
    return f"knobs no lower than the oracle's: {of_all:.1f} % of nights, {of_oom:.1f} % of those with an OOM"


def _swept(count: int, seed: int) -> None:
    for what, world in SWEEP.items():
        told = lived(count, seed, world, (Oracle, Supervise))
        gaps = [told.mean("oracle", of, oom=True) - told.mean("supervise", of, oom=True) for of in (time_s, work_s)]
        print(f"{what:28} {_shares(told)}; behind it there by {gaps[0]:.1f} (time), {gaps[1]:.1f} (work)")


if __name__ == "__main__":
    main()
