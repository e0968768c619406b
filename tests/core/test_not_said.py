"""What nobody has said: a record, a look or a state claims nothing by a default, and a spec means what it promises."""

from __future__ import annotations

import pkgutil
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from importlib import import_module
from typing import Any

import msgspec
import pytest

import supervisor.core
from supervisor.core.around import BY_DEFAULT, ENDS, NOTICES
from supervisor.core.drift import Suspicion
from supervisor.core.errors import Exit
from supervisor.core.evidence import Weight
from supervisor.core.phases import Phase
from supervisor.core.plans import Ending
from supervisor.core.spec import Form, Silent, Stale, Style, Visible

CLASSES = [
    made
    for module in pkgutil.iter_modules(supervisor.core.__path__)
    for made in vars(import_module(f"supervisor.core.{module.name}")).values()
    if isinstance(made, type) and made.__module__ == f"supervisor.core.{module.name}"
]

PROMISED: dict[str, dict[str, Any]] = {
    # the contract, "Every key": what a spec means that does not say it
    "spec.Scalar": {"tag": "str"},
    "spec.Param": {"form": Form.SPACE},
    "spec.Params": {"style": Style.ARGPARSE},
    "spec.Role": {"silent": Silent.RELAUNCH, "util_below": 5.0, "for_s": 120.0},
    "spec.Resume": {"mode": "explicit"},
    "spec.Output": {"stale": Stale.KEEP},
    "spec.Health": {"silent_util_below": 5.0, "silent_for_s": 120.0, "lost_progress": "halt", "numeric_steps": 3},
    "spec.VerifyZero": {"stable_for_s": 2.0, "timeout_s": 300.0},
    "spec.Recovery": {
        "max_attempts": 6,
        "per_s": 12 * 3600.0,
        "stop_signal": "SIGTERM",
        "grace_s": 60.0,
        "backoff_first_s": 5.0,
        "backoff_cap_s": 600.0,
    },
    "spec.Launch": {"terminal": "tmux"},
    "spec.Preflight": {"gpus_empty": True},
    "spec.RunSpec": {"visible": Visible.INDEX},
    "given.Rehearsal": {"steps": 20, "within_s": 900.0},
    "given.Hooks": {"timeout_s": 300.0},
    "around.Notify": {"urls_from": "SUPERVISE_NOTIFY", "on": BY_DEFAULT, "heartbeat_every_s": 300.0},
    "around.Tracking": {"wandb_resume": "allow"},
    # never launched, and that is known
    "state.State": {"phase": Phase.STOPPED, "because": "never launched"},
    # an old record of a refusal ended nothing; an old launch was not the one that made the output
    "events.PreflightRefused": {"ending": Ending.STOPPED},
    "events.LaunchIntended": {"output_there": True},
    "seen.ReadySeen": {"output_there": True},
    "stale.OutputSeen": {"exists": True},
    # a text is taken for a cause, once, and a driver for a new one, until the contrary is known
    "evidence.Hit": {"weight": Weight.CAUSE, "repeats": 1},
    "evidence.Reading": {"v2": True},
    # found out, unless it is said that it was not
    "drift.PinMismatch": {"known": True},
    "fitting.Fits": {"known": True},
    # -1: none yet
    "numeric.Losses": {"reported": -1},
    "lineage.Lineage": {"own_after_ns": -1, "out_after_ns": -1},
    "lineage.Asked": {"up": "supervise up SPEC"},
}


def said_by_default(made: type) -> dict[str, Any]:
    """Each field that may be left out, and what it then is."""
    if is_dataclass(made):
        return {one.name: one.default for one in fields(made) if one.default is not MISSING}
    if issubclass(made, msgspec.Struct):
        found = {one.name: one.default for one in msgspec.structs.fields(made)}
        return {name: value for name, value in found.items() if value is not msgspec.NODEFAULT}
    return {}


def test_what_nobody_has_said_is_not_claimed():
    """So that a record of an older version, which lacks a field, tells nothing that it did not know."""
    for made in CLASSES:
        plain = (bool, int, float, str, tuple)  # what is a value of a class of ours is looked at there
        claimed = {name: value for name, value in said_by_default(made).items() if value and isinstance(value, plain)}
        name = f"{made.__module__.rpartition('.')[2]}.{made.__name__}"
        assert claimed == PROMISED.get(name, {}), name


@pytest.mark.parametrize("made", [one for one in CLASSES if issubclass(one, Enum)], ids=lambda one: one.__name__)
def test_a_word_of_the_journal_is_the_name_it_has_here(made):
    """Journals are replayed for ever: a word that has been written keeps its meaning."""
    words = {one.name: one.value for one in made}
    if made not in (Exit, Suspicion):
        assert words == {name: name.lower() for name in words}


def test_exit_codes_are_those_that_scripts_know():
    assert {one.name: int(one) for one in Exit} == {
        "OK": 0,
        "ERROR": 1,
        "USAGE": 2,
        "NOT_RUNNING": 3,
        "NO_SUCH_RUN": 4,
        "SPEC_INVALID": 5,
        "PREFLIGHT": 6,
        "CONFLICT": 7,
        "NOT_ZERO": 8,
        "HALTED": 9,
        "DEGRADED": 10,
        "TIMEOUT": 124,
        "INTERRUPTED": 130,
    }


def test_the_most_suspect_changes_are_named_first():
    names = [one.name for one in sorted(Suspicion)]
    assert names == ["TORCH", "CUDA_LIBRARY", "DRIVER", "DATA", "IMPORTS_CUDA", "REST"]


def test_a_person_is_told_by_default_of_what_there_is_to_know_in_the_morning():
    assert set(BY_DEFAULT) < set(NOTICES)
    assert set(NOTICES) - set(BY_DEFAULT) == {"started", "failed", "warned", "stopped"}
    assert {"halted", "stopped", "finished"} == ENDS
