"""What the stand-in trainer was asked for: its flags and environment, read once. It does nothing with them.

Flags may be written `--k v`, `--k=v` or `k=v`, with - or _; unknown ones are kept and have no effect.

    SUPERVISE_SIM_WORLD         the World's directory; without it no memory is held
    SUPERVISE_SIM_SCENARIO      how the night goes, see `Scenario`; `incident` where it is not set
    SUPERVISE_SIM_TIMES         how many launches go that way (default: all); later ones go well
    SUPERVISE_SIM_SPEED         2 is twice as fast
    SUPERVISE_SIM_CHECKPOINTS   where to save, `*` is the step; default: beside `--resume`, else checkpoints/step_*
    SUPERVISE_SIM_OUTPUT        the output directory, made at the start; default: the flag --output-dir
    SUPERVISE_SIM_ORPHAN_S      how long an orphan stays at most (default 600), so that a broken test leaves none
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path

from msgspec import Struct

from supervisor.simulation.world import TOTAL_MIB, World

TOTAL_GIB = TOTAL_MIB / 1024
FITS_GIB = 1.0  # a wish that every GPU can meet


class Scenario(str, Enum):
    """How the night goes."""

    INCIDENT = "incident"  # out of memory at the first rung, the launcher dies, orphans stay; then well
    SURVIVE = "survive"  # out of memory on two drafters, the job trains on with the third
    HANG = "hang"  # no further step, every GPU busy
    EXIT1 = "exit1"  # ends with 1 and says nothing that explains it
    ALWAYS_OOM = "always_oom"  # no rung fits
    SILENT = "silent"  # one drafter does nothing any more, still holding memory
    FORGETS = "forgets"  # ends with 1; each later launch begins again from nothing
    SLOW = "slow"  # goes well and has no end
    WELL = "well"  # goes well


OUT_OF_MEMORY = frozenset({Scenario.INCIDENT, Scenario.SURVIVE, Scenario.ALWAYS_OOM})


class Need(Struct, frozen=True):
    """What one GPU is asked for, in GiB: held after loading, and wanted on top in the heaviest step."""

    loaded: float
    peak: float


class Job(Struct, frozen=True):
    """One launch of the stand-in. GPUs are ordinals, as the job sees them."""

    flags: Mapping[str, str]
    roles: Mapping[str, tuple[int, ...]]
    scenario: Scenario
    speed: float
    world: Path | None
    resume: Path | None
    checkpoints: str
    output: Path | None
    orphan_s: float

    @property
    def drafters(self) -> tuple[int, ...]:
        """The GPUs that run out of memory first: those of the role `drafter`, else all."""
        return self.roles.get("drafter") or self.gpus

    @property
    def gpus(self) -> tuple[int, ...]:
        """All GPUs, in the order of the ranks."""
        return tuple(sorted(gpu for gpus in self.roles.values() for gpu in gpus))

    def need(self, gpu: int) -> Need:
        """What a GPU is asked for. At 49152 tokens and 64 sequences the first and third drafter are 174 MiB short."""
        if gpu not in self.drafters:
            return Need((70.2, 92.9, 88.4, 91.5, 76.9)[gpu % 5], FITS_GIB)
        place = self.drafters.index(gpu)
        tight = place % 2 == 0 if "drafter" in self.roles else gpu == self.gpus[-1]
        need = self._wanted()
        if self.scenario is Scenario.ALWAYS_OOM and tight:
            return Need(TOTAL_GIB - need.peak + 0.17, need.peak)
        if self.scenario in OUT_OF_MEMORY and tight:
            return need
        return Need(min(need.loaded, TOTAL_GIB - 2 * FITS_GIB), FITS_GIB)

    def _wanted(self) -> Need:
        """By the knobs that are there. The slopes are made up; the point at 49152 and 64 is the incident's."""
        tokens = self._number("token_budget")
        if tokens is not None:
            batch = self._number("max_batch_size") or 64.0
            less = (49152 - tokens) / 4096 + (64 - batch) * 0.02
            return Need(min(93.0, max(1.0, 90.40 - less)), 4.74 * tokens / 49152)
        micro = self._number("micro_batch", "micro_batch_size", "per_device_train_batch_size")
        if micro is not None:
            return Need(90.0, 0.8 * micro)
        batch_size = self._number("batch_size", "max_batch_size")
        return Need(91.0, FITS_GIB if batch_size is None else 0.06 * batch_size)

    def _number(self, *names: str) -> float | None:
        for name in names:
            text = self.flags.get(name, os.environ.get(name.upper(), ""))
            if re.fullmatch(r"\d+(\.\d+)?", text):
                return float(text)
        return None


def read_job(argv: Sequence[str], environ: Mapping[str, str]) -> Job:
    """The launch that these flags and this environment ask for."""
    flags = read_flags(argv)
    world = environ.get("SUPERVISE_SIM_WORLD")
    resume = next((Path(value) for key, value in flags.items() if key.startswith("resume") and value), None)
    output = environ.get("SUPERVISE_SIM_OUTPUT") or flags.get("output_dir")
    return Job(
        flags=flags,
        roles=_roles(flags, environ, Path(world) if world else None),
        scenario=Scenario(environ.get("SUPERVISE_SIM_SCENARIO") or "incident"),
        speed=float(environ.get("SUPERVISE_SIM_SPEED") or 1),
        world=Path(world) if world else None,
        resume=resume,
        checkpoints=environ.get("SUPERVISE_SIM_CHECKPOINTS") or _beside(resume),
        output=Path(output) if output else None,
        orphan_s=float(environ.get("SUPERVISE_SIM_ORPHAN_S") or 600),
    )


def read_flags(argv: Sequence[str]) -> dict[str, str]:
    """Flag names in their _ form; a flag without a value is `true`; what is no flag is left out."""
    flags: dict[str, str] = {}
    waiting = None
    for word in argv:
        found = re.fullmatch(r"(?:--?)?([A-Za-z][\w.-]*)=(.*)", word, re.DOTALL)
        if found:
            flags[_plain(found[1])] = found[2]
            waiting = None
        elif re.match(r"--?[A-Za-z]", word):
            waiting = _plain(word.lstrip("-"))
            flags[waiting] = "true"
        elif waiting is not None:
            flags[waiting] = word
            waiting = None
    return flags


def physical(ordinal: int, environ: Mapping[str, str], world: World) -> int:
    """The world's index of a GPU that the job calls `ordinal`. IndexError where it sees no such GPU."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    cards = world.gpus()
    if visible is None:
        return cards[ordinal].index
    name = [word for word in visible.split(",") if word][ordinal]
    return int(name) if name.isdigit() else next(card.index for card in cards if card.uuid.startswith(name))


def stand_in_environment(world: Path) -> dict[str, str]:
    """What makes scripts/start_training.sh run the stand-in in this world."""
    return {
        "TRAIN_SCRIPT": str(Path(__file__).with_name("trainer.py")),
        "TRAIN_PYTHON": sys.executable,
        "SUPERVISE_SIM_WORLD": str(world),
    }


def _plain(name: str) -> str:
    return name.replace("-", "_").lower()


def _roles(flags: Mapping[str, str], environ: Mapping[str, str], world: Path | None) -> dict[str, tuple[int, ...]]:
    """Roles from flags such as `--drafter-gpus=5,6,7`; without any, one role of all visible GPUs."""
    roles = {}
    for key, value in flags.items():
        if key.endswith("_gpus") and re.fullmatch(r"\d+(,\d+)*", value):
            roles[key.removesuffix("_gpus")] = tuple(int(word) for word in value.split(","))
    if roles:
        return roles
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return {"all": tuple(range(len([word for word in visible.split(",") if word])))}
    return {"all": tuple(range(len(World(world).gpus())))} if world else {}


def _beside(resume: Path | None) -> str:
    """Where checkpoints are saved: like the one resumed from, with another number."""
    if resume is None:
        return "checkpoints/step_*"
    name = re.sub(r"\d+(?=\D*$)", "*", resume.name)
    return str(resume.with_name(name if "*" in name else "step_*"))
