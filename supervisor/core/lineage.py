"""Lineage: which checkpoints belong to this run's one branch, and which of them the next launch starts from.

What is on the disk is not asked here: `found` comes from `edges/checkpoints.py`, the lineage from the journal.
Rule 1: newest is the highest step among the complete ones in play, never the newest file.
Rule 2: in play are those that this run took or wrote; only where all of these are demoted, older ones from before.
Rule 3: what lay above a launch's checkpoint at that launch is a rejected branch: out until it is rewritten.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

from msgspec import Struct, field
from msgspec.structs import replace

from supervisor.core.errors import Exit
from supervisor.core.evidence import Checkpoint, Incomplete
from supervisor.core.newest import BEFORE_ALL, highest_steps, newest_contents, newest_known
from supervisor.core.spec import Resume

NO_STEP = -1
"""`Checkpoint.step` of one that has none: a named path without a number, or `resume.step: none`."""

Identity = tuple[str, int, int]
"""(real path, inode, newest mtime): changes when the checkpoint is rewritten."""

Found = Sequence[Union[Checkpoint, Incomplete]]  # noqa: UP007


def identity(checkpoint: Checkpoint) -> Identity:
    """Which content this is: a link and its target are the same, a rewritten checkpoint is another."""
    return (checkpoint.real or checkpoint.path, checkpoint.inode, checkpoint.mtime_ns)


def is_later(one: Checkpoint, other: Checkpoint) -> bool:
    """True when `one` is further along; without steps the time of writing decides."""
    if one.step == other.step == NO_STEP:
        return one.mtime_ns > other.mtime_ns
    return one.step > other.step


class Known(Struct, frozen=True, kw_only=True):
    """A checkpoint of this run: `attempt` wrote it, or it was taken (None). `real` is where a link led then; `logged`
    is the step that was last logged when it became complete."""

    path: str
    real: str
    step: int
    attempt: int | None = None
    logged: int | None = None


class Lineage(Struct, frozen=True, kw_only=True):
    """What the journal says about checkpoints. Every verb returns a new value.

    `begun`: an attempt was launched. `first`: the one first taken, None for a run that began fresh.
    `out`: rejected branches. `own`: contents taken or written, whoever else claims them.
    `present`: what was there at the last launch. `gained`: (path, step) written since. `first_began`: the first step
    of the run's first attempt. Of `known`, `own`, `out` and `gained` the newest are kept (`core/newest.py`);
    `own_after_ns`, `out_after_ns`: contents up to that time may have been let go, so none of them is told as new, and
    none is in play but `began`, the one taken last.
    """

    begun: bool = False
    first: Checkpoint | None = None
    known: tuple[Known, ...] = ()
    out: frozenset[Identity] = frozenset()
    present: frozenset[Identity] = frozenset()
    gained: frozenset[tuple[str, int]] = frozenset()
    demoted_paths: frozenset[str] = frozenset()
    own: frozenset[Identity] = frozenset()
    first_began: int | None = None
    own_after_ns: int = BEFORE_ALL
    out_after_ns: int = BEFORE_ALL
    began: Identity | None = None

    @property
    def had_one(self) -> bool:
        """True once an attempt of this run took or wrote a checkpoint."""
        return bool(self.known)

    def launched(self, told: Checkpoint | None, present: Iterable[Checkpoint]) -> Lineage:
        """A launch was intended from `told` (None: from nothing) with `present` on the disk."""
        here = tuple(present)
        above = frozenset(identity(c) for c in here if told is None or is_later(c, told))
        return self._without(
            above,
            present=frozenset(identity(c) for c in here),
            gained=frozenset(),
        )

    def _without(self, rejected: frozenset[Identity], **changes: Any) -> Lineage:
        out, let_go_ns = newest_contents(self.out | rejected)
        return replace(self, out=out, out_after_ns=max(self.out_after_ns, let_go_ns), **changes)

    def _with_own(self, checkpoint: Checkpoint, **changes: Any) -> Lineage:
        own, let_go_ns = newest_contents(self.own)
        return replace(
            self, own=own | {identity(checkpoint)}, own_after_ns=max(self.own_after_ns, let_go_ns), **changes
        )

    def rehearsing(self, present: Iterable[Checkpoint]) -> Lineage:
        """A rehearsal was intended with `present` on the disk: it takes nothing and gains nothing."""
        return replace(self, present=frozenset(identity(c) for c in present), gained=frozenset())

    def rejected(self, checkpoint: Checkpoint) -> Lineage:
        """This one was written, and is not the run's: out until it is rewritten."""
        content = frozenset({identity(checkpoint)})
        return self._without(content, present=self.present | content)

    def taken(self, told: Checkpoint | None) -> Lineage:
        """The launch from `told` was made."""
        if told is None:
            return replace(self, begun=True)
        wrote = next((k for k in self.known if k.path == told.path and identity(told) in self.own), None)
        known = _with(self.known, wrote or Known(path=told.path, real=told.real or told.path, step=told.step))
        content, first = identity(told), self.first or told
        return self._with_own(told, begun=True, first=first, known=known, out=self.out - {content}, began=content)

    def began_at(self, attempt: int, step: int | None) -> Lineage:
        """An attempt made its first progress."""
        return replace(self, first_began=step) if attempt == 1 else self

    def written(self, checkpoint: Checkpoint, attempt: int, logged: int | None = None) -> Lineage:
        """`attempt` wrote this one; a demotion of what stood there before is void."""
        real = checkpoint.real or checkpoint.path
        new = Known(path=checkpoint.path, real=real, step=checkpoint.step, attempt=attempt, logged=logged)
        return self._with_own(
            checkpoint,
            known=_with(self.known, new),
            gained=highest_steps(self.gained | {(checkpoint.path, checkpoint.step)}),
            demoted_paths=self.demoted_paths - {checkpoint.path, real},
        )

    def demoted(self, path: str) -> Lineage:
        """This one is not used again in this episode, nor what it leads to."""
        leads_to = {known.real for known in self.known if known.path == path}
        return replace(self, demoted_paths=self.demoted_paths | {path} | leads_to)

    def pruned(self, paths: Iterable[str]) -> Lineage:
        """These were removed by us; their contents stay known as our own, so that a late look finds nothing new."""
        gone = frozenset(paths)
        return replace(self, known=tuple(known for known in self.known if known.path not in gone))

    def episode_opened(self) -> Lineage:
        """Demotions start anew; rejected branches stay rejected."""
        return replace(self, demoted_paths=frozenset())

    def is_out(self, checkpoint: Checkpoint) -> bool:
        """True for a rejected branch and for a demoted one."""
        paths, content = {checkpoint.path, checkpoint.real}, identity(checkpoint)
        forgotten = checkpoint.mtime_ns <= self.out_after_ns and content != self.began
        return forgotten or content in self.out or bool(paths & self.demoted_paths)

    def is_known(self, checkpoint: Checkpoint) -> bool:
        """True for one that this run took or wrote."""
        paths = {checkpoint.path, checkpoint.real}
        return any(known.path in paths or known.real in paths for known in self.known)


def _with(known: tuple[Known, ...], new: Known) -> tuple[Known, ...]:
    return newest_known((*(k for k in known if k.path != new.path), new))


def gained(
    lineage: Lineage, found: Found, claimed: Mapping[str, str], *, final: bool = False
) -> tuple[Checkpoint, ...]:
    """Complete ones that appeared or were rewritten since the last launch and are not recorded yet, oldest first.

    `claimed` maps paths to the other run whose journal claims them: those are not ours. While the job runs one path
    and step is told once; `final` (nobody writes any more) tells it again where more came into it since.
    """
    new = (
        c
        for c in found
        if isinstance(c, Checkpoint)
        and c.mtime_ns > lineage.own_after_ns
        and identity(c) not in lineage.present
        and identity(c) not in lineage.own
        and (final or (c.path, c.step) not in lineage.gained)
        and not _claimant(c, claimed)
    )
    return tuple(sorted(new, key=_order))


class FromCheckpoint(Struct, frozen=True):
    """Start from this one."""

    checkpoint: Checkpoint
    because: str


class Fresh(Struct, frozen=True):
    """Start from nothing: no checkpoint argument is given."""

    because: str


class NoCheckpoint(Struct, frozen=True):
    """Nothing may be started: why, the exit code of the contract, and the next command to type."""

    exit: Exit
    why: str
    next_command: str


Choice = Union[FromCheckpoint, Fresh, NoCheckpoint]  # noqa: UP007


class Asked(Struct, frozen=True, kw_only=True):
    """What was asked for about this launch's checkpoint.

    `named`: given with --from, looked at. `fresh`: `--from none`. `start`: `resume.start`, looked at.
    `older`: a rule wants the one before. `claimed`: path → other run. `up`: the command to repeat, for refusals.
    """

    named: Checkpoint | Incomplete | None = None
    fresh: bool = False
    start: Checkpoint | Incomplete | None = None
    older: bool = False
    claimed: Mapping[str, str] = field(default_factory=dict)
    up: str = "supervise up SPEC"


def choose(lineage: Lineage, found: Found, resume: Resume | None, asked: Asked) -> Choice:
    """The checkpoint of the next launch. Total: every lineage and every disk has an answer."""
    if resume is None:
        return Fresh("the spec has no resume section")
    if asked.fresh:
        return Fresh("--from none")
    if asked.named is not None:
        return _exactly(asked.named, "named with --from", found, asked)
    if not lineage.begun and asked.start is not None:
        return _exactly(asked.start, "resume.start", found, asked)
    if not lineage.begun:
        return _first(lineage, found, resume, asked)
    return _next(lineage, found, resume, asked)


def _exactly(one: Checkpoint | Incomplete, what: str, found: Found, asked: Asked) -> Choice:
    if isinstance(one, Checkpoint):
        return FromCheckpoint(one, what)
    complete = _complete(found)
    if not complete:
        return NoCheckpoint(
            Exit.PREFLIGHT,
            f"{one.path} ({what}) is not a complete checkpoint: {one.why}. There is no complete one.",
            f"{asked.up} --from none",
        )
    newest = max(complete, key=_order)
    return NoCheckpoint(
        Exit.PREFLIGHT,
        f"{one.path} ({what}) is not a complete checkpoint: {one.why}. The newest complete one is {newest.path}.",
        f"{asked.up} --from {shlex.quote(newest.path)}",
    )


def _first(lineage: Lineage, found: Found, resume: Resume, asked: Asked) -> Choice:
    """A run that was never launched and names no start: the newest on the disk, unless it is another run's."""
    pool = [c for c in _complete(found) if not lineage.is_out(c)]
    if not pool:
        return _none(lineage, found, resume, asked)
    newest = max(pool, key=_order)
    run = _claimant(newest, asked.claimed)
    if run:
        return NoCheckpoint(
            Exit.CONFLICT,
            f"{newest.path} belongs to run {run}. Name it to start from it all the same.",
            f"{asked.up} --from {shlex.quote(newest.path)}",
        )
    return FromCheckpoint(newest, "the newest complete checkpoint")


def _next(lineage: Lineage, found: Found, resume: Resume, asked: Asked) -> Choice:
    """A run that was launched before: the newest of its own branch."""
    pool = _in_play(lineage, found, asked)
    if not pool:
        return _none(lineage, found, resume, asked)
    newest = max(pool, key=_order)
    if not asked.older:
        return FromCheckpoint(newest, "the newest complete checkpoint in play")
    before = [c for c in pool if is_later(newest, c)]
    before = before or [c for c in _in_play(_without(lineage, pool), found, asked) if is_later(newest, c)]
    if not before:
        return NoCheckpoint(
            Exit.PREFLIGHT,
            f"there is no complete checkpoint in play before {newest.path}",
            f"{asked.up} --from {shlex.quote(newest.path)}",
        )
    return FromCheckpoint(max(before, key=_order), f"the one before {newest.path}")


def _in_play(lineage: Lineage, found: Found, asked: Asked) -> list[Checkpoint]:
    usable = [
        c
        for c in _complete(found)
        if not lineage.is_out(c) and (identity(c) in lineage.own or not _claimant(c, asked.claimed))
    ]
    own = [c for c in usable if lineage.is_known(c)]
    if own or not lineage.demoted_paths or lineage.first is None:
        return own
    return [c for c in usable if is_later(lineage.first, c)]


def _without(lineage: Lineage, pool: list[Checkpoint]) -> Lineage:
    for checkpoint in pool:
        lineage = lineage.demoted(checkpoint.path)
    return lineage


def _none(lineage: Lineage, found: Found, resume: Resume, asked: Asked) -> Choice:
    if resume.if_none == "fresh" or (resume.if_none is None and not lineage.had_one):
        return Fresh(
            "there is no checkpoint yet" if not lineage.had_one else "no checkpoint is left: resume.if_none is fresh"
        )
    why = f"no complete checkpoint in play matches {resume.from_}"
    torn = [one for one in found if isinstance(one, Incomplete)]
    if torn:
        last = max(torn, key=lambda one: (NO_STEP if one.step is None else one.step, one.path))
        why += f"; {last.path} is incomplete: {last.why}"
    complete = _complete(found)
    if not complete:
        return NoCheckpoint(Exit.PREFLIGHT, why, f"{asked.up} --from none")
    newest = max(complete, key=_order)
    why += f"; {newest.path} is complete but not in play"
    return NoCheckpoint(Exit.PREFLIGHT, why, f"{asked.up} --from {shlex.quote(newest.path)}")


def _complete(found: Found) -> list[Checkpoint]:
    return [c for c in found if isinstance(c, Checkpoint)]


def _order(checkpoint: Checkpoint) -> tuple[int, int, str]:
    return (checkpoint.step, checkpoint.mtime_ns, checkpoint.path)


def _claimant(checkpoint: Checkpoint, claimed: Mapping[str, str]) -> str:
    return claimed.get(checkpoint.path) or claimed.get(checkpoint.real) or ""
