"""Nights drawn for `policy_nights`: what fails when, how memory varies. Each is the same night everywhere.

What fails is drawn from three published tables, a third of the nights each, by their counts of what a job meets while
it trains; mistakes in scripts and settings, which die at the first launch in the evening, are left out.
  Llama 3 (arXiv 2407.21783, table 5: 419 interruptions in 54 days), read in the paper's text.
  Acme (arXiv 2403.07648, table 3: 281 failures of the infrastructure and 6 killed data loaders), read as others quote
  it row by row: the paper itself was looked for by title, by number and by its rows, and not found.
  ByteRobust (arXiv 2509.16293, table 1: 55,366 incidents): a few figures could be read, as others quote them (38,236
  with an error and 5,948 without, CUDA errors 36.1 %, hangs 9.9 %, 1,104 of a remote file system), and the shares here
  agree with them; the rest is from notes. The paper was found with no more than its abstract. Manual restarts and
  slowness are left out, so the shares here are of less.
What scales with a batch is between 2 % and 80 % of a GPU: 15 % for 4 B parameters of 18 bytes in 85 GB (Hugging Face's
guide to GPU memory), 70 % for GPT-2 (1.5 B parameters of 16 bytes, 60 GB of activations; ZeRO, arXiv 1910.02054), next
to nothing where activations are computed anew. Nights are drawn from the middle; `--sweep` shows the rest.
What no table says is an assumption, marked so; the incident of this project gave the sizes of memory.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from supervisor.core.kinds import Kind

NIGHT_S = 10 * 3600.0
TOTAL_MIB = 97_253.0
RUNGS = tuple(49_152 - 4_096 * n for n in range(7))
"""The incident's token budget and its ladder, drawn out."""

LLAMA3 = {  # GPU 148 + 72 + 19 + 17 + 6; software 54 + 2; network 35 + 7; host 32 + 3 + 3 + 2 + 2 + 2 + 2
    Kind.GPU_FAULT: 262, Kind.EXIT: 56, Kind.COLLECTIVE_ERROR: 42, Kind.KILLED: 46, Kind.HANG: 7, Kind.NUMERIC: 6,
}  # fmt: skip
BYTEROBUST = {
    Kind.CUDA_ERROR: 48, Kind.HOST_OOM: 14, Kind.HANG: 13, Kind.DISK_FULL: 7, Kind.COLLECTIVE_ERROR: 3,
    Kind.NETWORK_ERROR: 7, Kind.EXIT: 6, Kind.GPU_FAULT: 1, Kind.NUMERIC: 1,
}  # fmt: skip
ACME = {  # connections 147 + 12, storage 10; NVLink 54, NCCL remote 3; nodes 16, data loaders 6; NCCL timeouts 6
    Kind.NETWORK_ERROR: 169, Kind.COLLECTIVE_ERROR: 57, Kind.CUDA_ERROR: 21, Kind.KILLED: 22, Kind.GPU_FAULT: 12,
    Kind.HANG: 6,
}  # fmt: skip
STAYS = {Kind.GPU_FAULT: 0.15, Kind.EXIT: 0.15, Kind.DISK_FULL: 1.0, Kind.NUMERIC: 1.0}
"""Assumption: the chance that no relaunch can help: a GPU to be replaced, a bug that comes back."""

PER_NIGHT = 1.0
"""Assumption: failures a night beside memory. The tables are of clusters; a box fails less often, but nights without
a failure compare nothing."""

OOM_NIGHTS = 0.35
"""Assumption: nights whose knobs do not fit from the first launch, or not after the environment drifted."""


@dataclass(frozen=True)
class World:
    """Of what the memory of a night consists: ranges from which each is drawn evenly.

    `scales`: the share of a GPU that scales with the knob; `asked`: the failing allocation's share of that; `later`:
    the share of what does not scale that comes after the load (gradients, optimizer). `read`: loads are watched.
    """

    scales: tuple[float, float] = (0.15, 0.5)
    asked: tuple[float, float] = (0.05, 0.3)
    later: tuple[float, float] = (0.0, 0.67)
    read: bool = True


WORLD = World()


@dataclass
class Night:
    """What will happen. Failures come after so many seconds of training, whatever its speed: who trains slower does not
    meet fewer."""

    load_s: float
    save_s: float
    failures: list[tuple[float, Kind, float]]  # seconds, kind, how long the cause lasts (inf: stays)
    short_mib: float = 0.0  # the true shortfall on the first rung, 0: fits
    varies_mib: float = 30_000.0  # what scales with the knob
    allocation_mib: float = 4_854.0
    loaded_mib: float | None = None  # in use before the first step
    oom_at: float = 0.0  # seconds of training at full speed
    orphan: tuple[float, ...] = ()

    @property
    def fits_at(self) -> int:
        """The oracle's rung."""
        fits = (n for n, v in enumerate(RUNGS) if self.freed_mib(n) >= self.short_mib)
        return next(fits, len(RUNGS))

    def freed_mib(self, rung: int) -> float:
        return self.varies_mib * (1.0 - RUNGS[rung] / RUNGS[0])

    def told_mib(self, share: float) -> float:
        """What the text says is missing with the knob at this share: a step allocates piece by piece, and the first
        piece that finds no room tells what it lacks itself, not what those after it would have."""
        piece = self.allocation_mib * share
        still = TOTAL_MIB + self.short_mib - self.varies_mib
        fitted = math.floor((TOTAL_MIB - still) / piece)
        return min((fitted + 1) * piece, self.varies_mib * share) + still - TOTAL_MIB


def night_of(seed: int, world: World = WORLD) -> Night:
    """Night N is the same night everywhere."""
    draw = random.Random(seed)
    table = draw.choice((LLAMA3, BYTEROBUST, ACME))
    count = _poisson(draw, PER_NIGHT)
    failures = []
    for after_s in sorted(draw.uniform(0.0, NIGHT_S) for _ in range(count)):
        kind = draw.choices(list(table), list(table.values()))[0]
        lasts = 0.0
        if kind is Kind.NETWORK_ERROR:
            lasts = draw.lognormvariate(math.log(60.0), 1.0)  # assumption: a minute, now and then ten
        if draw.random() < STAYS.get(kind, 0.0):
            lasts = math.inf
        failures.append((after_s, kind, lasts))
    load_s = min(1500.0, draw.lognormvariate(math.log(300.0), 0.7))  # assumption: 5 minutes, the incident's 22 at worst
    night = Night(load_s, draw.uniform(600.0, 1800.0), failures, orphan=tuple(draw.random() for _ in range(64)))
    if draw.random() < OOM_NIGHTS:
        night.short_mib = min(12_000.0, draw.lognormvariate(math.log(250.0), 1.2))  # the incident's 174 MiB is typical
        night.varies_mib = draw.uniform(*world.scales) * TOTAL_MIB
        night.allocation_mib = draw.uniform(*world.asked) * night.varies_mib
        night.oom_at = 5.0 if draw.random() < 0.5 else draw.uniform(0.0, NIGHT_S / 2)
        still = TOTAL_MIB + night.short_mib - night.varies_mib
        later = draw.uniform(*world.later)
        night.loaded_mib = still * (1.0 - later) if world.read else None
    return night


def _poisson(draw: random.Random, mean: float) -> int:
    count, left = 0, draw.expovariate(1.0)
    while left < mean:
        count, left = count + 1, left + draw.expovariate(1.0)
    return count
