"""Stale output: what may happen to the output directory before a launch. Nothing is looked at or touched here.

Rule 1: an empty one is removed whoever made it; one with anything in it is at most renamed, and only if this run
made it; nothing is ever deleted that has content.
Rule 2: one that holds a checkpoint, a progress file or an output unit is never stale.
Rule 3: no symlink, no mount point, nothing outside workdir, nothing that could not be read.
"""

from __future__ import annotations

from typing import Union

from msgspec import Struct

from supervisor.core.spec import Stale


class OutputSeen(Struct, frozen=True, kw_only=True):
    """The output directory as it was found.

    `bar`: why it must not be touched whatever is in it (a link, a mount point, outside workdir, unreadable).
    `holds`: the first match of a protecting pattern in it. `beside`: names beside it that begin with its own.
    """

    path: str
    exists: bool = True
    empty: bool = False
    bar: str | None = None
    holds: str | None = None
    beside: frozenset[str] = frozenset()


class Leave(Struct, frozen=True):
    """It stays as it is. `warn`: a person who asked for more should know why."""

    why: str
    warn: bool = False


class Remove(Struct, frozen=True):
    """rmdir: it is empty."""

    path: str


class Archive(Struct, frozen=True):
    """Rename: this run made it and nothing in it is needed."""

    path: str
    to: str


Treatment = Union[Leave, Remove, Archive]  # noqa: UP007


def decide(seen: OutputSeen, stale: Stale, *, made_by_run: bool, attempt: int) -> Treatment:
    """What to do before the launch that follows `attempt`."""
    if stale is Stale.KEEP:
        return Leave("output.stale is keep")
    if not seen.exists:
        return Leave("there is none")
    if seen.bar is not None:
        return Leave(seen.bar, warn=True)
    if seen.empty:
        return Remove(seen.path)
    if seen.holds is not None:
        return Leave(f"it holds {seen.holds}")
    if stale is Stale.REMOVE_IF_EMPTY:
        return Leave("it is not empty")
    if not made_by_run:
        return Leave("it is not empty and this run did not make it", warn=True)
    return Archive(seen.path, _free_name(seen, attempt))


def _free_name(seen: OutputSeen, attempt: int) -> str:
    """`DIR.stale-N`; with `.2`, `.3` behind it where that is taken."""
    folder, _, name = seen.path.rpartition("/")
    wanted, number = f"{name}.stale-{attempt}", 1
    while wanted in seen.beside:
        number += 1
        wanted = f"{name}.stale-{attempt}.{number}"
    return f"{folder}/{wanted}"
