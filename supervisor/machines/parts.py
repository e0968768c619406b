"""What the machine holds open for the attempt that it looks at: its job, its logs, its witnesses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from supervisor.core.state import State
from supervisor.edges.paths import RunDir
from supervisor.machines.asides import Asides
from supervisor.machines.devices import Devices
from supervisor.machines.job import Job
from supervisor.machines.starting import placed_spec
from supervisor.machines.witnesses import Witnesses

if TYPE_CHECKING:
    from supervisor.machines.trail import Trail


class Parts:
    """One of each, for the attempt of the state. Those of an attempt before it are let go of."""

    def __init__(self, run: RunDir, devices: Devices, asides: Asides, boot_id: str) -> None:
        self._run = run
        self._devices = devices
        self._asides = asides
        self._boot_id = boot_id
        self.open_job: Job | None = None
        self.open_trail: Trail | None = None
        self.open_witnesses: Witnesses | None = None
        self.saved_trail: tuple[int, Mapping[str, Any]] | None = None
        """An attempt, and what an earlier supervisor knew of its log offsets; its trail goes on from there. No other's:
        to that the logs of the one before are no news."""

    def job(self, state: State) -> Job:
        """The job of the state's attempt."""
        assert state.attempt is not None
        if self.open_job is None or self.open_job.attempt.n != state.attempt.number:
            if self.open_job is not None:
                self.open_job.close()
            self.open_job = Job(self._run.attempt(state.attempt.number), self._boot_id)
        return self.open_job

    def witnesses(self, state: State) -> Witnesses:
        """Those who may know more of its end than the logs do."""
        job = self.job(state)
        if self.open_witnesses is None or self.open_witnesses.attempt != job.attempt.n:
            if self.open_witnesses is not None:
                self.open_witnesses.close()
            self.open_witnesses = Witnesses(self._run, state, job, self._devices, self._asides)
        return self.open_witnesses

    @property
    def awaits_witnesses(self) -> bool:
        """True while a witness that was asked has not answered."""
        return self.open_witnesses is not None and self.open_witnesses.awaited

    def trail(self, state: State) -> Trail:
        """Its logs, read on from where an earlier supervisor stood."""
        assert state.attempt is not None
        job = self.job(state)
        if self.open_trail is None or self.open_trail.attempt != job.attempt.n:
            if self.open_trail is not None:
                self.open_trail.close()
            from supervisor.machines.trail import Trail  # the signatures: read while the job starts, not before it

            spec = placed_spec(self._run, state, state.attempt)
            saved, self.saved_trail = self.saved_trail, None
            known = saved[1] if saved is not None and saved[0] == job.attempt.n else None
            self.open_trail = Trail(spec, job.attempt, known)
        return self.open_trail

    def close(self) -> None:
        """Let go of all descriptors."""
        for part in (self.open_trail, self.open_job, self.open_witnesses):
            if part is not None:
                part.close()
        self.open_trail = self.open_job = self.open_witnesses = None
