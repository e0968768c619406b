"""What beside the log knows of an attempt's death, asked beside the loop and in bounded time. Nothing is judged here.

Rule 1: what is compared with the time before (kills of the cgroup, errors of the GPUs) is written down at the
attempt's begin, so that a later supervisor compares with the same.
Rule 2: a witness that has not answered in time could not tell; nobody waits longer for it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.core.aftermath import (
    SHM,
    Aftermath,
    Cgroup,
    CgroupKills,
    CouldNotTell,
    GpuHealth,
    Health,
    Orphan,
    Printer,
    Room,
    Space,
)
from supervisor.core.evidence import Uuid
from supervisor.core.spec import RunSpec, Signature
from supervisor.core.state import State
from supervisor.edges import cgroup_kills, host, proc
from supervisor.edges.files import read_json, to_json, write_atomic
from supervisor.edges.holders import in_initial_pid_namespace
from supervisor.edges.kernel_log import KernelLog, pci_address
from supervisor.edges.ownership import read_members
from supervisor.edges.paths import RunDir
from supervisor.machines.asides import Asides
from supervisor.machines.devices import Devices
from supervisor.machines.job import Job
from supervisor.machines.printers import Printers, read_errors

if TYPE_CHECKING:
    from supervisor.signatures import Matcher

WITHIN_S = 3.0
HEALTH_WITHIN_S = 1.5
LIVE_EVERY_S = 30.0
PENDING_EVERY_S = 5.0
BASELINE = "baseline.json"
NAME = "aftermath"


@lru_cache(maxsize=1)
def _matcher(user: tuple[Signature, ...]) -> Matcher:
    """For what is read after a failed end only, and once for all attempts."""
    from supervisor.signatures import Matcher

    return Matcher(user)


class Witnesses:
    """One attempt's witnesses. `awaited`: the job has ended and they have not answered yet."""

    def __init__(self, run: RunDir, state: State, job: Job, devices: Devices, asides: Asides) -> None:
        assert state.attempt is not None
        assert state.spec is not None
        self.attempt = job.attempt.n
        self._run = run
        self._job = job
        self._devices = devices
        self._asides = asides
        self._spec: RunSpec = state.spec
        self._gpus: tuple[Uuid, ...] = state.gpus
        self._began = state.attempt.began
        self._kernel = KernelLog(self._began.boot_s)
        self._known = Printers()
        self._same_pids = in_initial_pid_namespace()
        self._baseline: dict[str, Any] | None = None
        self._health_asked_s = self._live_s = float("-inf")
        self._end_asked_s: float | None = None
        self._newest: Aftermath | None = None
        self._one_at_a_time = threading.Lock()
        self.awaited = False
        asides.forget(NAME)

    def printers(self) -> tuple[Printer, ...]:
        """Who may have printed, with the GPUs that each of them sees."""
        box = sorted(gpu.index for gpu in self._devices.inventory)
        return self._known.look(self._job.members(), box)

    def begin(self, now_boot_s: float) -> None:
        """Take down how things stand now, once for each attempt."""
        if self._baseline is not None:
            return
        if self._health_asked_s == float("-inf"):
            self._health_asked_s = now_boot_s
            self._devices.ask_health(self._gpus)
        answered = self._devices.health_boot_s >= self._health_asked_s or not self._gpus
        leader = self._leader()
        if leader is None or not (answered or now_boot_s - self._health_asked_s > HEALTH_WITHIN_S):
            return
        path = self._job.attempt.path / BASELINE
        with suppress(OSError, ValueError):  # damaged or not to be read: taken anew
            self._baseline = read_json(path)
        if self._baseline is None:
            self._baseline = self._taken(leader)
            with suppress(OSError):  # a full disk: this supervisor knows it, a later one takes a later one
                write_atomic(path, to_json(self._baseline), sync=False)

    def live(self, now_boot_s: float, *, pending: bool) -> Aftermath | None:
        """The newest answers while the job lives, asked for again now and then."""
        if now_boot_s - self._live_s >= (PENDING_EVERY_S if pending else LIVE_EVERY_S):
            self._live_s = now_boot_s
            self._asides.forget(f"{NAME}:live")
            self._asides.ensure(f"{NAME}:live", self._asked)
        self._newest = self._answer(f"{NAME}:live") or self._newest
        return self._newest

    def at_the_end(self, now_boot_s: float) -> Aftermath | None:
        """The answers once the job has ended; None while they are waited for, at most `WITHIN_S`."""
        if self._end_asked_s is None:
            self._end_asked_s = now_boot_s
            self._devices.ask_health(self._gpus)
        waited_s = now_boot_s - self._end_asked_s
        healthy = self._devices.health_boot_s >= self._end_asked_s or not self._gpus
        if healthy or waited_s > HEALTH_WITHIN_S:
            self._asides.ensure(f"{NAME}:end", self._asked)
        answer = self._answer(f"{NAME}:end")
        self.awaited = answer is None
        if answer is None and waited_s > WITHIN_S:
            return Aftermath(kernel=CouldNotTell(f"the witnesses gave no answer within {WITHIN_S:g} s"))
        return answer

    def is_late(self, now_boot_s: float) -> bool:
        """True where the job has ended and nobody is waited for any more."""
        return self._end_asked_s is not None and now_boot_s - self._end_asked_s > WITHIN_S

    def close(self) -> None:
        """Let go of the kernel's log."""
        self._kernel.close()

    def _answer(self, name: str) -> Aftermath | None:
        try:
            answer: Aftermath | None = self._asides.answer(name)
        except Exception as bug:  # noqa: BLE001 - a bug of ours must not keep a failed run from being judged
            return Aftermath(kernel=CouldNotTell(f"the witnesses could not be asked: {bug!r}"))
        return answer

    def _leader(self) -> int | None:
        members = self._job.members()
        return members[0].id.pid if members else None

    def _taken(self, leader: int) -> dict[str, Any]:
        found = cgroup_kills.kills(leader)
        if isinstance(found, CouldNotTell):
            found = cgroup_kills.kills()  # a job that has ended already was in ours or below it
        cgroup = {"why": found.why} if isinstance(found, CouldNotTell) else {"path": found[0], "kills": found[1]}
        return {"cgroup": cgroup, "errors": {u: h.get("errors") for u, h in self._devices.health.items()}}

    # ── beside the loop ──────────────────────────────────────────────────────────────────────────────────────────────

    def _asked(self) -> Aftermath:
        with self._one_at_a_time:
            return self._all_asked()

    def _all_asked(self) -> Aftermath:
        pids = {one.id.pid for one in read_members(self._job.attempt.members)}
        health = self._devices.health
        places = {pci_address(known["pci"]): uuid for uuid, known in health.items() if known.get("pci")}
        return Aftermath(
            kernel=self._kernel.look(pids, places, same_namespace=self._same_pids),
            cgroup=self._cgroup(),
            gpus=tuple(self._health(uuid, health.get(uuid)) for uuid in self._gpus),
            space=tuple(self._space()),
            ranks=read_errors(self._known.error_files(), self._began.wall_s, _matcher(self._spec.signatures)),
            orphans=self._orphans(),
            own=self._own_pids(),
        )

    def _cgroup(self) -> Cgroup:
        before = (self._baseline or {}).get("cgroup") or {"why": "the memory cgroup: the job was gone too soon"}
        if "why" in before:
            return CouldNotTell(before["why"])
        now = cgroup_kills.count_at(before["path"])
        return now if isinstance(now, CouldNotTell) else CgroupKills(before["path"], now - before["kills"])

    def _health(self, uuid: Uuid, known: dict[str, Any] | None) -> Health:
        if known is None or "why" in known:
            return CouldNotTell(f"the health of {uuid}: {(known or {}).get('why', 'no answer of the driver')}")
        before = ((self._baseline or {}).get("errors") or {}).get(uuid)
        counted = known["errors"] is not None and before is not None
        grown = max(0, known["errors"] - before) if counted else None
        return GpuHealth(uuid, grown, known["unfit"], tuple(known["xids"]))

    def _space(self) -> list[Room]:
        return [_room(what, path) for path, what in _places(self._spec, self._run).items()]

    def _own_pids(self) -> frozenset[int] | None:
        if not self._same_pids:
            return None
        return frozenset(one.id.pid for one in read_members(self._job.attempt.members))

    def _orphans(self) -> tuple[Orphan, ...] | CouldNotTell:
        if not self._same_pids:
            return CouldNotTell("whose the pids in the text are: they are counted in another PID namespace")
        own = {one.id for one in read_members(self._job.attempt.members)}
        found: list[Orphan] = []
        for n in range(1, self.attempt):
            for one in read_members(self._run.attempt(n).members):
                if one.id not in own and proc.is_alive(one.id):
                    found.append(Orphan(one.id.pid, n, proc.cmdline(one.id.pid)[:200]))
        return tuple(found)


def _places(spec: RunSpec, run: RunDir) -> dict[str, str]:
    """Where the attempt writes: path to what it is."""
    wanted: Sequence[tuple[str | None, str]] = (
        (host.SHM, SHM),
        (spec.workdir, "workdir"),
        (spec.output.dir, "output"),
        (os.path.dirname(spec.resume.from_.partition("*")[0]) if spec.resume else None, "checkpoints"),  # noqa: PTH120
        (str(run.path), "state directory"),
        ("/tmp", "temporary files"),
    )
    return {path: what for path, what in reversed(wanted) if path and Path(path).is_absolute()}


def _room(what: str, path: str) -> Room:
    try:
        free_mib, files = host.room_left(path)
    except FileNotFoundError:
        return CouldNotTell(f"the room at {path} ({what}): it is not there")
    except OSError as error:
        return CouldNotTell(f"the room at {path} ({what}): {error.strerror or error}")
    return Space(what, path, free_mib, files)
