"""What must hold after every step of any night. Judged by what the world did, not by what the supervisor says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fake_specs import CHECKPOINTS
from fake_world import Started, World

from supervisor.core import events as ev
from supervisor.core.evidence import Checkpoint, Incomplete, Instant
from supervisor.core.lineage import identity

if TYPE_CHECKING:
    from lives import SimWorld

FLOOR_MIB = 64.0
MOVES = {"--token-budget", "--max-batch-size", "--resume"}


class Broken(AssertionError):
    """A promise was broken."""


def _insist(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


def masked(argv: Sequence[str]) -> list[str]:
    """The command without what recovery may move."""
    kept, skip = [], False
    for word in argv:
        if not skip and word not in MOVES:
            kept.append(word)
        skip = word in MOVES
    return kept


class Promises:
    """Looked at after each step; each start and each record is judged once, when it is new."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self._starts = 0
        self._records = 0
        self._rejected: set[tuple[str, int, int]] = set()
        self._demoted: set[str] = set()
        self._older = False
        self._rungs: dict[str, int] = {}
        self._verified = False

    def look(self, records: Sequence[tuple[ev.Event, Instant]]) -> None:
        """Raises Broken."""
        world = self.world
        alive = {proc.attempt for proc in world.procs.values()}
        _insist(len(alive) <= 1, f"attempts {sorted(alive)} are alive at once")
        _insist(not world.strangers_hit, f"a stranger was signalled: {world.strangers_hit}")
        for event, at in records[self._records :]:
            self._record(event, at)
        self._records = len(records)
        for started in world.started[self._starts :]:
            self._start(started, world.started[0])
        self._starts = len(world.started)

    # ── records ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _record(self, event: ev.Event, at: Instant) -> None:
        match event:
            case ev.EpisodeOpened(rungs=rungs):
                self._rungs, self._verified, self._demoted = dict(rungs), False, set()
            case ev.PreflightPassed() | ev.VerifiedZero():
                self._empty(type(event).__name__, at)
                self._verified = True
            case ev.Judged(plan=plan):
                self._older = plan.from_older
            case ev.CheckpointDemoted(path=path):
                self._demoted.add(path)
            case ev.LaunchIntended():
                _insist(self._verified, f"attempt {event.attempt} was intended and no GPU was verified before")
                self._verified = False
                self._knobs(event)
                self._checkpoint(event.checkpoint, event.attempt)

    def _empty(self, what: str, at: Instant) -> None:
        """When the record says so, the GPUs are empty and can be read: what came in the last second may be unseen."""
        mine = sorted(proc.name for proc in self.world.procs.values())
        _insist(not mine, f"{what} while {mine} lived")
        for index, uuid in enumerate(self.world.uuids):
            since = at.boot_s - self.world.disturbed.get(uuid, float("-inf"))
            if since > self.world.pace_s + 1.0:
                used = self.world.used_mib(uuid)
                _insist(used <= FLOOR_MIB, f"{what} while {used:.0f} MiB were held on GPU {index}")
                _insist(uuid not in self.world.unreadable, f"{what} while GPU {index} could not be read")

    def _knobs(self, event: ev.LaunchIntended) -> None:
        for name, rung in event.rungs.items():
            _insist(rung >= self._rungs.get(name, 0), f"attempt {event.attempt} moved {name} up")
            _insist(rung < self.world.rungs, f"attempt {event.attempt} moved {name} beyond its ladder")
        self._rungs = dict(event.rungs)

    # ── checkpoints ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _checkpoint(self, told: Checkpoint | None, attempt: int) -> None:
        """The newest complete one of this run's branch, or a reason to take an older one."""
        there = [one for one in self.world.checkpoints.values() if isinstance(one, Checkpoint)]
        if told is not None:
            now = self.world.checkpoints.get(told.path)
            _insist(not isinstance(now, Incomplete), f"attempt {attempt} starts from {told.path}, which is torn")
            _insist(now is not None, f"attempt {attempt} starts from {told.path}, which is not there")
            is_ours = identity(told) not in self._rejected
            _insist(is_ours, f"attempt {attempt} starts from a rejected branch: {told.path}")
            better = [one for one in self._in_play(there) if one.step > told.step]
            excused = self._older or (attempt == 1 and told.path == f"{CHECKPOINTS}/step_690")
            _insist(not better or excused, f"attempt {attempt} starts from {told.path}, not from {better}")
        else:
            mine = list(self._in_play(there))
            _insist(not mine or self._older, f"attempt {attempt} starts from nothing while there is {mine}")
        self._rejected |= {identity(one) for one in there if told is None or one.step > told.step}
        self._older = False

    def _in_play(self, there: Iterable[Checkpoint]) -> Iterable[Checkpoint]:
        """Written by this run, complete, not rejected, not demoted."""
        for one in there:
            if one.path in self.world.written and identity(one) not in self._rejected and one.path not in self._demoted:
                yield one

    # ── starts ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, one: Started, first: Started) -> None:
        counts = Counter(each.attempt for each in self.world.started)
        _insist(counts[one.attempt] == 1, f"attempt {one.attempt} was begun twice")
        _insist(one.alive == (), f"attempt {one.attempt} was begun while {one.alive} lived")
        _insist(
            self.world.own_at_start[one.attempt] <= FLOOR_MIB,
            f"attempt {one.attempt} was begun on {self.world.own_at_start[one.attempt]:.0f} MiB of its own",
        )
        _insist(masked(one.argv) == masked(first.argv), f"attempt {one.attempt} was begun with {one.argv}")
        _insist(one.env == first.env, f"attempt {one.attempt} was begun with another environment")


def answered_once(world: World, records: Sequence[tuple[ev.Event, Instant]], asked: Iterable[str]) -> None:
    """Every request has one answer."""
    answers = Counter(event.request for event, _ in records if isinstance(event, ev.Answered))
    for request in asked:
        _insist(answers[request] == 1, f"request {request} was answered {answers[request]} times")
