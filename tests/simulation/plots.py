"""What happens in a random night, as data: a seed makes it, a list of deeds says it, less deeds say less of it."""

from __future__ import annotations

import random
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from supervisor.core.events import EVENT_TYPES
from supervisor.core.kinds import Kind

LENGTH_S = 400.0
"""How long things happen; what they lead to may take longer."""

KINDS = [kind.value for kind in Kind if kind not in (Kind.NONE, Kind.PROTECTED_VIOLATION)]
RECORDS = [*EVENT_TYPES]


class Deed(Struct, frozen=True):
    """At `at_s` after the evening's begin, this happens (a method of `lives.Life`), with these arguments."""

    at_s: float
    what: str
    args: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([f"{self.at_s:7.1f}", self.what, *(f"{k}={v}" for k, v in self.args.items())])


class Plot(Struct, frozen=True):
    """A night. `box` are what the box, the spec and the trainer are like; `deeds` are in order."""

    seed: int
    box: dict[str, Any]
    deeds: tuple[Deed, ...]

    def without(self, index: int) -> Plot:
        """The same night less one deed."""
        return replace(self, deeds=self.deeds[:index] + self.deeds[index + 1 :])

    def __str__(self) -> str:
        box = " ".join(f"{k}={v}" for k, v in self.box.items())
        return "\n".join([f"seed {self.seed}: {box}", *map(str, self.deeds)])


def plot_of(seed: int) -> Plot:
    """The night of this seed."""
    dice = random.Random(seed)
    box = {
        "drain_s": dice.choice([0.0, 0.4, 2.0, 8.0]),
        "pace_s": dice.choice([1.0, 8.0, 15.0, 15.0]),
        "step_s": dice.choice([3.0, 7.0, 12.0]),
        "save_every": dice.choice([0, 4, 10]),
        "load_s": dice.choice([5.0, 30.0, 90.0]),
        "rungs": dice.choice([1, 2, 3]),
        "rules": dice.random() < 0.7,
        "if_none": dice.choice(["fail", "fresh"]),
        "start": dice.random() < 0.8,
        "steps": dice.choice([10_000, 10_000, 760, 720]),
        "foreign_wait_s": dice.choice([0.0, 60.0]),
        "max_attempts": dice.choice([2, 6, 6]),
        "left_by_others": dice.random() < 0.3,
        "output": dice.choice(["absent", "empty", "full"]),
    }
    deeds = [Deed(0.0, "up")]
    for _ in range(dice.randint(1, 9)):
        at_s = round(dice.uniform(1.0, LENGTH_S), 1)
        deeds += _event(dice, at_s)
    for _ in range(dice.choice([0, 0, 1, 2, 6])):
        deeds.append(Deed(round(dice.uniform(0.0, LENGTH_S), 1), "supervisor_killed"))
    for _ in range(dice.choice([0, 1, 2])):
        deeds.append(Deed(round(dice.uniform(0.0, LENGTH_S), 1), "killed_after", {"record": dice.choice(RECORDS)}))
    return Plot(seed, box, tuple(sorted(deeds, key=lambda deed: deed.at_s)))


def _event(dice: random.Random, at_s: float) -> list[Deed]:
    """One thing that goes wrong, or that somebody asks for; some of them end again."""
    gpu = dice.randrange(2)
    lasts = round(at_s + dice.choice([2.0, 20.0, 200.0]), 1)
    what = dice.choice(_EVENTS)
    match what:
        case "oom":
            return [Deed(at_s, "oom", {"gpu": gpu, "survived": dice.random() < 0.3, "orphans": dice.random() < 0.5})]
        case "text":
            args = {"kind": dice.choice(KINDS), "code": dice.choice([0, 1, 1]), "orphans": dice.random() < 0.5}
            return [Deed(at_s, "text", args)]
        case "ends":
            return [Deed(at_s, "ends", {"code": dice.choice([0, 1, 137]), "orphans": dice.random() < 0.5})]
        case "signalled":
            return [Deed(at_s, "signalled", {"signal": dice.choice([9, 11, 15])})]
        case "worker_dies" | "idles" | "worker_deaf" | "worker_writes":
            return [Deed(at_s, what, {"gpu": gpu})]
        case "stuck":
            return [Deed(at_s, "stuck", {"gpu": gpu, "state": "D"}), Deed(lasts, "unstuck", {"gpu": gpu})]
        case "unreadable":
            return [Deed(at_s, "unreadable", {"gpu": gpu}), Deed(lasts, "readable", {"gpu": gpu})]
        case "foreign":
            return [Deed(at_s, "foreign", {"gpu": gpu}), Deed(lasts, "foreign_gone", {"gpu": gpu})]
        case "journal_full":
            return [Deed(at_s, "journal_full"), Deed(lasts, "journal_room")]
        case "no_runner":
            return [Deed(at_s, "no_runner"), Deed(lasts, "runner_again")]
        case "down":
            return [Deed(at_s, "down"), Deed(lasts, "up")] if dice.random() < 0.6 else [Deed(at_s, "down")]
        case "pause":
            return [Deed(at_s, "pause"), Deed(lasts, "resume")]
        case "refused":
            return [Deed(at_s, "refused"), Deed(lasts, "fit_again")]
        case "clock":
            return [Deed(at_s, "clock", {"by_s": dice.choice([-7200.0, 3600.0])})]
        case _:
            return [Deed(at_s, what)]


_EVENTS = (
    *("oom",) * 6,
    *("text",) * 5,
    *("ends", "signalled", "worker_dies", "hangs", "idles") * 2,
    *("worker_deaf", "worker_writes", "stuck", "unreadable", "foreign", "journal_full", "no_runner", "runner_killed"),
    *("down", "pause", "restart", "up", "refused", "reboot", "clock", "tear", "half_written", "violation"),
)
