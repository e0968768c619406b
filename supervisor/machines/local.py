"""This box, as the verbs of the loop. Each order has one `do` and one `look`; how is in the files beside this one.

Rule 1: an order may be given any number of times, also after a supervisor was killed in the middle of it.
Rule 2: what takes its time (checks, scans, fingerprints) runs beside the loop (`asides.py`), so a stop is never kept
waiting.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from supervisor.core.events import DumpIntended, PruneIntended
from supervisor.core.evidence import Instant, MachineId
from supervisor.core.seen import (
    CheckFit,
    Clean,
    Follow,
    GetReady,
    Hook,
    Launch,
    Order,
    Prune,
    Rest,
    Seen,
    Stop,
    Tidy,
    Verify,
    Wait,
)
from supervisor.core.spec import RunSpec
from supervisor.core.state import Attempt, State
from supervisor.core.watch import Watch
from supervisor.edges import proc, remains, secrets
from supervisor.edges.files import to_json, write_atomic
from supervisor.edges.paths import Home, RunDir
from supervisor.edges.secrets import Redactor
from supervisor.edges.tmux import Tmux
from supervisor.machines import remembered
from supervisor.machines.asides import Asides
from supervisor.machines.before import Before
from supervisor.machines.chatter import Chatter
from supervisor.machines.devices import Devices
from supervisor.machines.ending import Ender
from supervisor.machines.hooks import HookRunner
from supervisor.machines.looks import Looks, dump_name, fingerprint_name, is_calm, prune_name
from supervisor.machines.marks import Marks
from supervisor.machines.parts import Parts
from supervisor.machines.remains import Remains
from supervisor.machines.requests import Requests
from supervisor.machines.starting import Kept, ensure_attempt, keep_fingerprint
from supervisor.machines.view import View
from supervisor.machines.waker import Waker

RUNNING_S, FAST_S, ENDING_S = 1.0, 0.1, 0.002
"""How often GPUs are read: each second while a job runs, ten times a second while they are verified. The last: how
often one looks whether the runner has written down how the job ended, which takes it some milliseconds."""

CALM_S = 4.0
"""The same where no look can find what its wake-ups do not tell at once; see `is_calm`."""

ENSURE_EVERY_S = 0.5
"""How often a launch is ensured again while its claim is not there: each time tmux is asked."""

FINGERPRINT_AFTER_S = 0.1
"""So long a job has the processor to itself before what it runs in is looked at, by an interpreter of its own."""
PAUSES: dict[type, float] = {Launch: 0.02, Stop: FAST_S, Verify: FAST_S, Clean: FAST_S, Tidy: FAST_S}
"""How long until the next look where nothing happens; else as long as between two readings of a running job."""


class LocalMachine:
    """One run's world. Holds the descriptors, the NVML helper and the locks; nothing here outlives the process."""

    def __init__(self, home: Home, run: RunDir, redactor: Redactor) -> None:
        self._home = home
        self._run = run
        self._redactor = redactor
        self._redact = redact = redactor.text
        self._warnings: list[str] = []
        self._boot_id = proc.boot_id()
        self._start_ticks = proc.start_ticks(os.getpid())
        self._machine = MachineId(self._boot_id, proc.machine_id(), os.uname().nodename)
        self._waker = Waker(run.bell)
        self._asides = Asides(self._waker.wake)
        self._requests = Requests(run)
        self._tmux = Tmux(home)
        self._ender = Ender(home, run, self._boot_id)
        self._devices = Devices(home, run, self._warnings.append)
        self._parts = Parts(run, self._devices, self._asides, self._boot_id)
        self._saved = b""
        self._chatter = Chatter()
        self._ensured = (0, float("-inf"))
        self._only_words = self._calm = False
        self._followed_s = float("-inf")
        self._view = View(self._tmux, run.name, self._asides, self._warnings.append)
        self._marks = Marks(run)
        parts, asides = self._parts, self._asides
        self._looks = Looks(home, run, redact, parts, self._ender, self._devices, asides, self._warnings.append)
        self._hooks = HookRunner(run, self._asides, redact)
        self._remains = Remains(run)
        self._before = Before(home, run, redact, self._devices, self._asides)

    # ── do ───────────────────────────────────────────────────────────────────────────────────────────────────────────

    def do(self, order: Order, state: State) -> None:
        """Make it so, or go on making it so."""
        only_words, self._only_words = self._only_words, False
        self._marks.tell_machine(state.machine)
        match order:
            case CheckFit():
                self._before.check_fit(order, state, self._marks, self._requests, self._machine)
            case Launch():
                self._launch(state)
            case Follow(dump=None, prune=None) if only_words and time.monotonic() - self._followed_s < RUNNING_S:
                return  # it was done a moment ago; the failure text that ended the sleep is to be recorded first
            case Follow():
                self._followed_s = time.monotonic()
                self._calm = is_calm(order, state)
                self._devices.ensure_locks(state)
                self._devices.ask(state, RUNNING_S, processes=order.processes)
                if state.spec is not None and state.spec.launch.terminal != "none":
                    self._view.ensure(self._parts.job(state).attempt)
                self._ensure_fingerprint(state)
                self._remains.watch(state, self._now().boot_s)
                if order.dump is not None:
                    self._dump(order.dump, state)
                if order.prune is not None:
                    self._prune(order.prune, state)
            case Stop():
                self._asides.forget("ready")  # who appears while the GPUs are verified may write a checkpoint yet
                since = state.attempt.stop_at.boot_s if state.attempt and state.attempt.stop_at else 0.0
                self._ender.do(order, self._parts.job(state), since)
                self._devices.ask(state, RUNNING_S)
            case Verify():
                self._devices.ensure_locks(state)
                self._devices.ask(state, FAST_S, processes=order.holders)
                self._prepare(state)
            case GetReady():
                self._devices.ensure_locks(state)
                self._prepare(state)
                self._before.look_again(state, self._remains, self._now())
            case Clean():
                self._devices.ensure_locks(state)
                self._prepare(state)  # what a supervisor before this one knew of the next launch
                ready = self._before.ready(state, self._remains)
                self._asides.ensure(f"clean:{order.path}", lambda: ready.clean(order))
            case Tidy():
                self._devices.ensure_locks(state)
                self._prepare(state)
                self._asides.ensure("tidy", lambda: remains.remove(order.leftovers))
            case Prune():
                self._devices.ensure_locks(state)
                self._prepare(state)
                self._prune(order.prune, state)
            case Hook():
                self._devices.ensure_locks(state)
                self._prepare(state)
                self._hooks.do(order, state.spec.workdir if state.spec else "/")
            case Wait():
                self._asides.forget("ready")  # after a wait it may all be different
                self._devices.ensure_locks(state)
                if order.readings:
                    self._devices.ask(state, RUNNING_S)
            case Rest():
                pass

    def _prune(self, intended: PruneIntended, state: State) -> None:
        from supervisor.edges import prune  # what few runs need is not imported before a launch

        resume = state.spec.resume if state.spec else None
        if resume is not None:
            gone = partial(prune.remove, intended.checkpoints, resume)
            self._asides.ensure(prune_name(intended), gone, instead_of="prune:")

    def _launch(self, state: State) -> None:
        self._asides.forget("ready")
        self._asides.forget("clean")
        self._asides.forget("tidy")
        self._devices.ensure_locks(state)
        job = self._parts.job(state)
        broken = self._before.is_whole(state, self._now())
        if broken == "":
            number, now_s = job.attempt.n, time.monotonic()
            if self._ensured[0] != number or now_s - self._ensured[1] >= ENSURE_EVERY_S:
                job.problem = ensure_attempt(self._home, self._run, state, self._tmux) or job.problem
                self._ensured = (number, now_s)
        elif broken is not None:
            job.problem = broken
        self._devices.ask(state, RUNNING_S)

    def _ensure_fingerprint(self, state: State) -> None:
        """environment.json of the attempt, taken beside the loop once the job is on its way."""
        attempt, spec = state.attempt, state.spec
        if attempt is None or spec is None or spec.simulated:
            return
        self._asides.ensure(
            fingerprint_name(attempt.number),
            partial(self._fingerprint, spec, state, attempt),
            instead_of="environment:",
        )

    def _dump(self, asked: DumpIntended, state: State) -> None:
        """What the processes are doing, written down beside the loop: a stop that is asked for does not wait."""
        from supervisor.machines.dumping import dump

        job, trail = self._parts.job(state), self._parts.trail(state)
        venv = state.spec.venv if state.spec else None
        given = (asked, job.attempt, job.members(), self._parts.witnesses(state).printers(), trail.paths, venv)
        self._asides.ensure(dump_name(asked), lambda: dump(*given, self._redact), instead_of="dump:")

    # ── look ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def look(self, order: Order, state: State) -> Seen:
        """What is so now, as far as the order needs it."""
        at = self._now()
        requests, warnings = self._requests.look(state)
        found: dict[str, Any] = {"at": at, "machine": self._machine, "requests": requests}
        match order:
            case CheckFit():
                found["preflight"] = self._before.fit_answer(state)
            case Launch() | Follow():
                found |= self._looks.at_job(order, state, at)
            case Stop():
                found |= self._looks.at_stop(state, at)
            case Verify():
                assert state.spec is not None
                found["gpus"] = self._devices.readings()
                found["members"] = self._ender.look(state.spec, at.boot_s, self._parts.open_job)
                found["early"], told = self._before.ready_answer(state)
                self._warnings += told
                if order.holders:
                    found["holders"] = self._devices.holders(state, at.boot_s)
            case GetReady() | Clean() | Tidy() | Prune():
                found["tidied"] = self._asides.answer("tidy")
                found["ready"], told = self._before.ready_answer(state)
                warnings += told
                if isinstance(order, Clean):
                    found["cleaned"], found["cleaned_path"] = self._asides.answer(f"clean:{order.path}"), order.path
                if isinstance(order, Prune):
                    found["pruned"] = self._looks.pruned(order.prune)
            case Hook():
                found["ready"], told = self._before.ready_answer(state)
                found["hook"] = self._hooks.look(order)
                warnings += told
            case Wait():
                found["gpus"] = self._devices.readings()
            case Rest():
                pass
        found["warnings"] = (*warnings, *self._warnings)
        self._warnings.clear()
        return Seen(**found)

    def _now(self) -> Instant:
        return Instant(self._boot_id, time.clock_gettime(time.CLOCK_BOOTTIME), time.time())

    # ── wait ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def wait(self, order: Order, seen: Seen) -> None:
        """Sleep until something may have changed, or it is time to look again.

        What a job merely prints is read meanwhile, and its GPUs' readings are taken at the next look: a chatty job
        costs no more looks than a silent one, and its words are let gather for a fifth of a second.
        """
        ending = isinstance(order, Follow) and self._parts.open_job is not None and self._parts.open_job.ending
        look_s = CALM_S if isinstance(order, Follow) and self._calm else RUNNING_S
        until = time.monotonic() + (ENDING_S if ending else PAUSES.get(type(order), look_s))
        fds = [] if isinstance(order, Follow) and not self._parts.awaits_witnesses else self._devices.fds()
        trail = self._parts.open_trail if isinstance(order, (Launch, Follow)) else None
        if trail is not None:
            fds.append(trail.fd)
        if isinstance(order, (Launch, Follow, Stop)) and self._parts.open_job is not None:
            fds += self._parts.open_job.fds()
        while True:
            if trail is not None and (rest_s := self._chatter.rests_s(time.monotonic())):
                others = [fd for fd in fds if fd != trail.fd]
                if self._waker.sleep(min(rest_s, until - time.monotonic()), others) or time.monotonic() >= until:
                    return
            ready = self._waker.sleep(until - time.monotonic(), fds)
            if trail is None or ready != {trail.fd}:
                return
            before = trail.fed
            if trail.pump(self._now().boot_s):
                self._only_words = True
                return
            if trail.fed > before:
                self._chatter.was_read(time.monotonic())

    # ── memory, views, end ───────────────────────────────────────────────────────────────────────────────────────────

    def recall(self, state: State) -> Watch | None:
        """What an earlier supervisor remembered of this attempt, where it is of this boot."""
        saved = remembered.load(self._run, state, self._boot_id)
        if saved is None:
            return None
        self._parts.saved_trail = saved.watch.attempt, saved.trail
        return saved.watch

    def remember(self, watch: Watch) -> None:
        """Save the watch together with the log offsets."""
        if self._parts.open_trail is not None and self._parts.open_trail.attempt == watch.attempt:
            self._saved = remembered.save(self._run, watch, self._parts.open_trail.saved(), self._saved)

    def show(self, now: Mapping[str, Any]) -> None:
        """Replace now.json."""
        me = {"pid": os.getpid(), "start_ticks": self._start_ticks}
        with suppress(OSError):  # a full disk must not end a supervisor: the journal is the record
            write_atomic(self._run.now, to_json(self._redactor.plain({**now, "supervisor": me})), sync=False)

    def close(self, state: State) -> None:
        """The episode is over: take back secrets, locks and the mark that it is open."""
        with suppress(Exception):  # the view is cosmetics; whatever tmux says, the run has ended
            self._tmux.kill_session(self._run.name)
        self._ender.tidy()
        secrets.delete(self._run)
        self._run.open.unlink(missing_ok=True)
        self.leave()

    def leave(self) -> None:
        """Let go of descriptors, helper and locks; nothing of the run is touched."""
        self._view.close()
        self._parts.close()
        self._devices.close()

    def _prepare(self, state: State) -> None:
        self._before.prepare(state, self._remains, self._ender)

    def _fingerprint(self, spec: RunSpec, state: State, attempt: Attempt) -> Kept:
        time.sleep(FINGERPRINT_AFTER_S)
        return keep_fingerprint(self._run, spec, state, attempt, self._devices.inventory, self._redact)
