"""What one look at an attempt finds: its job, logs, GPUs, checkpoints and witnesses, as values for the loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from supervisor.core.events import DumpIntended, Pruned, PruneIntended
from supervisor.core.evidence import ExitRecord, Instant
from supervisor.core.given import CodeCopy
from supervisor.core.phases import Phase
from supervisor.core.seen import Follow, JobSeen, Order
from supervisor.core.state import State
from supervisor.edges.paths import Home, RunDir
from supervisor.machines.asides import Asides
from supervisor.machines.claims import CheckpointScanner, CheckpointsSeen
from supervisor.machines.devices import Devices
from supervisor.machines.ending import Ender
from supervisor.machines.job import Job
from supervisor.machines.parts import Parts
from supervisor.machines.rooms import Rooms
from supervisor.machines.samples import Samples
from supervisor.machines.starting import Kept

if TYPE_CHECKING:
    from supervisor.machines.astray import Astray

CHECKPOINTS_EVERY_S = 3.0


class Looks:
    """Looks at one run's attempts. What takes its time is begun beside the loop and answered at a later look."""

    def __init__(
        self,
        home: Home,
        run: RunDir,
        redact: Callable[[str], str],
        parts: Parts,
        ender: Ender,
        devices: Devices,
        asides: Asides,
        warn: Callable[[str], None],
    ) -> None:
        self._redact = redact
        self._parts = parts
        self._ender = ender
        self._devices = devices
        self._asides = asides
        self._warn = warn
        self._samples = Samples(run.samples)
        self._rooms = Rooms(asides)
        self._scanner = CheckpointScanner(home, run.name)
        self._scanned_s = float("-inf")
        self._told_polling = 0
        self._astray: Astray | None = None

    def at_job(self, order: Order, state: State, at: Instant) -> dict[str, Any]:
        """Fields of Seen, of an attempt that is being launched or runs."""
        job, trail = self._parts.job(state), self._parts.trail(state)
        if trail.why_polling is not None and self._told_polling != trail.attempt:
            self._told_polling = trail.attempt
            self._warn(f"logs are looked at once a second only: {trail.why_polling}")
        ended = job.has_ended()
        quiet = isinstance(order, Follow) and order.quiet
        read = trail.look(at.boot_s, ended=ended, quiet=quiet, loading=state.phase is Phase.STARTING)
        seen = job.look(drained=read.drained and ended)
        meanwhile = not ended and job.has_ended()
        if meanwhile:
            job.ending = True  # while the logs were read: its last words are read at the next look, which is at once
        found: dict[str, Any] = {
            "hits": tuple(replace(hit, text=self._redact(hit.text)) for hit in read.hits),  # now.json tells them too
            "steps": read.steps,
            "done_seen": read.done_seen,
            "last_line": self._redact(read.last_line),
            "gpus": self._devices.readings(),
            "violations": tuple(job.violations(state.spec, state.code)) if state.spec else (),
            "marks": read.marks,
            "signs": read.signs,
            "lagging": not read.drained,
        }
        if isinstance(order, Follow) and order.dump is not None:
            found["dumped"] = self._asides.answer(dump_name(order.dump))
        if isinstance(order, Follow) and order.prune is not None:
            found["pruned"] = self.pruned(order.prune)
        if state.code is not None:
            self._tell_astray(job, state.code, at)
        for text in job.differences:
            self._warn(text)
        job.differences.clear()
        seen = self._maybe_gone(state, seen, at) if read.drained and not (ended or meanwhile) else seen
        found |= self._witnessed(order, state, seen, at)
        kept = self._kept(state)
        found["drift"] = kept.drift if kept is not None else None
        if kept is None and found.get("awaiting") is False and state.good is not None:  # it may name the suspects
            found["awaiting"] = not self._parts.witnesses(state).is_late(at.boot_s)
        checkpoints = self._checkpoints(state, at, now=ended)
        if checkpoints is not None:
            found |= {"found": checkpoints.found, "claimed": checkpoints.claimed}
        if isinstance(order, Follow):
            self._samples.keep(at, found["gpus"], read.steps)
            if state.spec is not None and not ended:
                found["room"] = self._rooms.look(state.spec, seen.leader.pid if seen.leader else None, at.boot_s)
        return found

    def _tell_astray(self, job: Job, code: CodeCopy, at: Instant) -> None:
        from supervisor.machines.astray import Astray  # only for runs that are launched from a copy

        if self._astray is None or self._astray.attempt != job.attempt.n:
            self._astray = Astray(job.attempt.n, code)
        for text in self._astray.look(job.known, at.boot_s):
            self._warn(text)

    def _kept(self, state: State) -> Kept | None:
        """The fingerprint of the attempt, None while it is being taken; one that failed is not waited for."""
        assert state.attempt is not None
        if state.spec is None or state.spec.simulated:
            return Kept(None)
        try:
            kept: Kept | None = self._asides.answer(fingerprint_name(state.attempt.number))
        except Exception as bug:  # noqa: BLE001 - it only explains; a bug of ours must not keep a failed run waiting
            return Kept(None, why=repr(bug))
        return kept

    def _witnessed(self, order: Order, state: State, seen: JobSeen, at: Instant) -> dict[str, Any]:
        """The job, and what else is known of it; `awaiting` while the witnesses of a failed end have not spoken."""
        witnesses = self._parts.witnesses(state)
        witnesses.begin(at.boot_s)
        found: dict[str, Any] = {"job": seen, "printers": witnesses.printers()}
        if seen.exit is not None and seen.exit.code != 0:
            found["aftermath"] = witnesses.at_the_end(at.boot_s)
            found["awaiting"] = found["aftermath"] is None
        elif isinstance(order, Follow):
            found["aftermath"] = witnesses.live(at.boot_s, pending=order.processes)
        return found

    def _maybe_gone(self, state: State, seen: JobSeen, at: Instant) -> JobSeen:
        """Where the runner is dead without a record of the end: the attempt has ended when no member lives."""
        if seen.claim != "runner" or seen.runner_alive or seen.exit is not None or state.spec is None:
            return seen
        job = self._parts.job(state)
        left = self._ender.look(state.spec, at.boot_s, job)
        if left.empty_looks >= 2:
            return job_gone(seen)
        if left.members and not job.told_orphaned:
            job.told_orphaned = True
            text = "the job goes on, how it ends cannot be known"
            self._warn(f"the runner of attempt {job.attempt.n} was killed: {text}")
        return seen

    def at_stop(self, state: State, at: Instant) -> dict[str, Any]:
        """Fields of Seen, of an attempt that is being ended."""
        assert state.spec is not None
        job = self._parts.job(state)
        read = self._parts.trail(state).look(at.boot_s, ended=False)
        return {
            "job": job.look(drained=True),
            "members": self._ender.look(state.spec, at.boot_s, self._parts.open_job),
            "gpus": self._devices.readings(),
            "sent": self._ender.sent,
            "last_line": self._redact(read.last_line),
        }

    def _checkpoints(self, state: State, at: Instant, *, now: bool) -> CheckpointsSeen | None:
        """Looked at beside the loop every few seconds; at once where the job has ended."""
        resume = state.spec.resume if state.spec else None
        if resume is None:
            return None
        with suppress(OSError, TimeoutError):  # not to be listed now: the next look tries again
            if now:
                return self._scanner.look(resume)
            if at.boot_s - self._scanned_s >= CHECKPOINTS_EVERY_S:
                self._scanned_s = at.boot_s
                self._asides.forget("scan")
                self._asides.ensure("scan", lambda: self._scanner.look(resume))
            seen: CheckpointsSeen | None = self._asides.answer("scan")
            return seen
        return None

    def pruned(self, intended: PruneIntended) -> tuple[PruneIntended, Pruned] | None:
        answer: Pruned | None = self._asides.answer(prune_name(intended))
        return None if answer is None else (intended, answer)


def is_calm(order: Follow, state: State) -> bool:
    """A running job without GPUs and without protected params, in which nothing is suspected: its end, its words and
    whatever is asked wake us; limits for hangs are minutes."""
    watched = bool(state.gpus) or state.spec is None or bool(state.spec.params.protected)
    return state.phase is Phase.RUNNING and not watched and not order.processes


def fingerprint_name(attempt: int) -> str:
    return f"environment:{attempt}"


def dump_name(asked: DumpIntended) -> str:
    """The name of the work beside the loop."""
    return f"dump:{asked.attempt}:{asked.why}:{asked.step}"


def prune_name(intended: PruneIntended) -> str:
    """The name of the work beside the loop: other contents are other work."""
    return f"prune:{','.join(str(one.inode) for one in intended.checkpoints)}"


def job_gone(seen: JobSeen) -> JobSeen:
    """The job whose runner was killed and of which nobody is left: how it ended cannot be known."""
    return replace(seen, exit=ExitRecord(code=None, signal=None))
