"""`recovery`: budget, stop, verified zero, backoff and the rules."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from supervisor.core.kinds import Kind
from supervisor.core.spec import Do, Foreign, Recovery, Rule, VerifyZero
from supervisor.edges.specfile.leaves import did_you_mean
from supervisor.edges.specfile.params import names_of
from supervisor.edges.specfile.shape import DROPPED
from supervisor.edges.specfile.tree import Path
from supervisor.edges.specfile.validate import Book

OF_ANY_ATTEMPT = ("starting", "running")
"""Phases that a rule may name without `health.phases`: before the first step of an attempt, and from then on."""


def recovery_of(book: Book, data: Mapping[str, Any]) -> Recovery:
    """The section with its defaults."""
    given = data.get("recovery", {})
    stop, zero, backoff = given.get("stop", {}), given.get("verify_zero", {}), given.get("backoff", {})
    foreign = zero.get("foreign", {})
    first, cap = backoff.get("first", 5.0), backoff.get("cap", 600.0)
    if cap < first:
        book.wrong(("recovery", "backoff", "cap" if "cap" in backoff else "first"), "cap is below first")
    return Recovery(
        max_attempts=given.get("max_attempts", 6),
        per_s=given.get("per", 12 * 3600.0),
        stop_signal=_signal(book, stop.get("signal", "SIGTERM")),
        grace_s=stop.get("grace", 60.0),
        verify_zero=VerifyZero(
            stable_for_s=zero.get("stable_for", 2.0),
            timeout_s=zero.get("timeout", 300.0),
            floor_mib=zero.get("floor"),
            foreign=Foreign(wait_s=foreign.get("wait", 0.0), allow_mib=foreign.get("allow", 0.0)),
        ),
        backoff_first_s=first,
        backoff_cap_s=cap,
        rules=tuple(_rule(book, n, rule, data) for n, rule in enumerate(given.get("rules", [])) if rule is not DROPPED),
    )


def _signal(book: Book, said: str) -> str:
    name = said if said.startswith("SIG") else f"SIG{said}"
    if name not in signal.Signals.__members__:
        book.wrong(("recovery", "stop", "signal"), f"{said} is no signal of this system")
    return name


def _rule(book: Book, n: int, given: Mapping[str, Any], data: Mapping[str, Any]) -> Rule:
    path: Path = ("recovery", "rules", n)
    kinds = given["on"] if isinstance(given["on"], list) else [given["on"]]
    do = Do(given["do"])
    _check_selectors(book, path, given, data, tuple(kinds))
    lower, one_of = _lower(book, path, given.get("lower", []))
    for key in ("lower", "from", "wait"):
        if key in given and do is not Do.RELAUNCH:
            book.wrong((*path, key), f"goes with do: relaunch, not with {do.value}")
    return Rule(
        on=tuple(kind for kind in kinds if kind is not DROPPED),
        do=do,
        lower=lower,
        one_of=one_of,
        role=given.get("role"),
        phase=given.get("phase"),
        match=given.get("match"),
        after_s=given.get("after"),
        times=given.get("times"),
        from_older=given.get("from") == "older",
        wait_s=given.get("wait"),
        where=f"{book.source.file}:{book.source.at(path)[0]}",
    )


def _check_selectors(
    book: Book, path: Path, given: Mapping[str, Any], data: Mapping[str, Any], kinds: tuple[Kind, ...]
) -> None:
    roles = book.source.section("topology")
    if "role" in given and given["role"] not in roles:
        book.wrong((*path, "role"), f"{given['role']} is no role of the topology{did_you_mean(given['role'], roles)}")
    phases = [phase["name"] for phase in data.get("health", {}).get("phases", []) if phase is not DROPPED]
    if "phase" in given and given["phase"] not in (*phases, *OF_ANY_ATTEMPT):
        close = did_you_mean(given["phase"], (*phases, *OF_ANY_ATTEMPT))
        book.wrong((*path, "phase"), f"{given['phase']} is no phase of `health.phases`{close}")
    if Kind.PROTECTED_VIOLATION in kinds:
        book.warn((*path, "on"), "protected_violation always halts; a rule does not change that")


def _lower(book: Book, path: Path, given: Any) -> tuple[tuple[str, ...], bool]:
    """The knobs of a rule, and whether only one of them is to move."""
    one_of = isinstance(given, dict)
    where: Path = (*path, "lower", "one_of") if one_of else (*path, "lower")
    items = given["one_of"] if isinstance(given, dict) else given
    names = items if isinstance(items, list) else [items]
    protected, knobs, inside = names_of(book)
    for n, name in enumerate(names):
        here = (*where, n) if isinstance(items, list) else where
        if name is DROPPED or name in knobs:
            continue
        if name in protected:
            book.wrong(here, f"{name} is locked: it shapes the training signal. Recovery may only lower the knobs "
                       "listed under `params.knobs`")  # fmt: skip
        elif name in inside:
            book.wrong(here, f"{name} is moved by a set of knobs; name the set")
        else:
            book.wrong(here, f"{name} is no knob of `params.knobs`{did_you_mean(name, knobs)}")
    return tuple(name for name in names if name is not DROPPED), one_of
