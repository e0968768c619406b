"""What members of an attempt had in hand while they lived, and which files they left: joined from edges for the loop.

A file in shared memory does not say who made it. So who has which open or mapped is looked at while the job runs:
at once when a segment appears, each second while it starts (that is when it builds), else now and then.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from supervisor.core.phases import Phase
from supervisor.core.state import Attempt, State
from supervisor.edges import proc, remains, secrets
from supervisor.edges.files import read_json, to_json, write_atomic
from supervisor.edges.ownership import read_members
from supervisor.edges.paths import AttemptDir, RunDir
from supervisor.edges.remains import FileId
from supervisor.machines.asides import Asides

WATCH_S = 0.9
EVERY_S = 10.0
LOOKS_EACH = 5
"""So often a segment that nobody of the run has mapped is looked for anew: it may be mapped a moment later."""

HELD_MAX = 4096
FILE = "held-files.json"


@dataclass
class _Known:
    """What was learned of one attempt. `asked`: how often each unexplained segment was looked for."""

    number: int
    held: dict[FileId, int]
    asked: dict[FileId, int] = field(default_factory=dict)
    looked_s: float = float("-inf")


class Remains:
    """One run's."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._known: _Known | None = None
        self._asides = Asides(lambda: None)  # nobody waits for what is seen: it wakes no loop
        self._watched_s = float("-inf")
        self._stamp: int | None = None
        self._fresh = True

    # ── while it runs ────────────────────────────────────────────────────────────────────────────────────────────────

    def watch(self, state: State, now_boot_s: float) -> None:
        """Look once a second, beside the loop, where a segment came or may yet be mapped. Not at simulated runs."""
        attempt, spec = state.attempt, state.spec
        if attempt is None or spec is None or spec.simulated or now_boot_s - self._watched_s < WATCH_S:
            return
        self._watched_s = now_boot_s
        starting = state.phase is Phase.STARTING
        known, stamp = self._known, remains.stamp()
        looked = known is not None and known.number == attempt.number and now_boot_s - known.looked_s < EVERY_S
        if looked and not starting and not self._fresh and stamp == self._stamp:
            return
        self._stamp = stamp
        self._asides.forget("witness")
        self._asides.ensure("witness", lambda: self.witness(attempt, now_boot_s, starting=starting))

    def witness(self, attempt: Attempt, now_boot_s: float, *, starting: bool) -> bool:
        """One look at what the attempt's members have in hand; kept in its folder. Takes milliseconds."""
        folder = self._run.attempt(attempt.number)
        if self._known is None or self._known.number != attempt.number:
            self._known = _Known(attempt.number, _held_in(folder))
        known = self._known
        fresh = {one.id for one in remains.segments() if known.asked.get(one.id, 0) < LOOKS_EACH} - set(known.held)
        self._fresh = bool(fresh)
        if not fresh and not starting and now_boot_s - known.looked_s < EVERY_S:
            return False
        known.looked_s = now_boot_s
        known.asked = {each: known.asked.get(each, 0) + 1 for each in fresh} | {
            each: count for each, count in known.asked.items() if each not in fresh
        }
        roots = remains.build_roots(self._environ(folder))
        found = dict(known.held)
        for one in read_members(folder.members):
            if proc.is_alive(one.id):
                for each in remains.seen_with(one.id.pid, roots, fresh):
                    found.setdefault(each, one.id.pid)
        if len(found) > len(known.held):
            known.held = dict(list(found.items())[-HELD_MAX:])
            _keep(folder, known.held)
        return True

    # ── after its end ────────────────────────────────────────────────────────────────────────────────────────────────

    def find(self, state: State) -> remains.Found:
        """What the last attempt left and the next launch would meet. Nothing of a simulated run: it touches nothing."""
        attempt, spec = state.attempt, state.spec
        if attempt is None or spec is None or spec.simulated or attempt.gone_at is None:
            return remains.Found()
        folder = self._run.attempt(attempt.number)
        same_boot = attempt.began.boot_id == proc.boot_id()
        of = remains.Of(
            pids=frozenset(one.id.pid for one in read_members(folder.members)) if same_boot else frozenset(),
            held=_held_in(folder) if same_boot else {},
            from_wall_s=attempt.began.wall_s,
            to_wall_s=attempt.gone_at.wall_s,
        )
        roots = remains.build_roots(self._environ(folder))
        locks = remains.build_locks(roots, of.from_wall_s)
        return remains.find([*remains.segments(), *locks], of)

    def _environ(self, folder: AttemptDir) -> Mapping[str, str]:
        """The job's environment, as far as the places of caches need it."""
        known = None
        with suppress(Exception):  # damaged: told by whoever launches with it; only caches are not looked into
            known = secrets.load(self._run)
        return {**(known.job if known is not None else {}), **(_object(folder.launch_json).get("env") or {})}


def _keep(folder: AttemptDir, held: Mapping[FileId, int]) -> None:
    plain = {"boot_id": proc.boot_id(), "held": [[device, inode, pid] for (device, inode), pid in held.items()]}
    with suppress(OSError):  # a full disk: what is not known for sure is left alone later
        write_atomic(folder.path / FILE, to_json(plain), sync=False)


def _held_in(folder: AttemptDir) -> dict[FileId, int]:
    plain = _object(folder.path / FILE)
    if plain.get("boot_id") != proc.boot_id():
        return {}
    return {(int(device), int(inode)): int(pid) for device, inode, pid in plain.get("held") or ()}


def _object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where it is missing or damaged: it then proves nothing."""
    try:
        plain = read_json(path)
    except (OSError, ValueError):
        return {}
    return plain if isinstance(plain, dict) else {}
