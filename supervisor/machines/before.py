"""What is looked at before a launch, beside the loop: is this box fit, and what does the next launch need to know."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from supervisor.core.decisions import GONE
from supervisor.core.errors import Exit
from supervisor.core.evidence import Checkpoint, Gpu, Incomplete, Instant, MachineId
from supervisor.core.launching import FRESH_S, is_old
from supervisor.core.seen import CheckFit, PreflightSeen, Problem, ReadySeen
from supervisor.core.state import State
from supervisor.edges import secrets
from supervisor.edges.checkpoints import validate
from supervisor.edges.paths import Home, RunDir
from supervisor.machines.asides import Asides
from supervisor.machines.devices import Devices
from supervisor.machines.ending import Ender
from supervisor.machines.marks import Marks
from supervisor.machines.ready import Ready
from supervisor.machines.remains import Remains
from supervisor.machines.requests import Requests


class Before:
    """Of one run. What was begun is not begun again until its answer was forgotten."""

    def __init__(self, home: Home, run: RunDir, redact: Callable[[str], str], devices: Devices, asides: Asides) -> None:
        self._home = home
        self._run = run
        self._redact = redact
        self._devices = devices
        self._asides = asides
        self._told_ready = ""

    def check_fit(self, order: CheckFit, state: State, marks: Marks, requests: Requests, machine: MachineId) -> None:
        """Begin the checks of an episode's first launch."""
        marks.ensure_open()
        up = next((w.request for w in state.waiting if w.verb == "up"), None)
        if up is not None:
            secrets.commit(self._run, up)
            marks.keep_spec(machine, order.spec, requests.raw(up))
        from supervisor.machines.fit import Fit  # a supervisor that takes over a live run never needs it

        gpus = self._devices.helper(state)
        fit = Fit(self._home, self._run, order, gpus, self._devices.lock, self._redact, state)
        self._asides.ensure(f"fit:{state.episodes}", fit.check, instead_of="fit:")

    def fit_answer(self, state: State) -> PreflightSeen | None:
        """What they found; None while they are running."""
        try:
            seen: tuple[PreflightSeen, tuple[Gpu, ...]] | None = self._asides.answer(f"fit:{state.episodes}")
        except Exception as bug:  # noqa: BLE001 - a bug of ours is a refusal with exit 1, not a verb that waits for ever
            text = f"the checks themselves failed: {bug!r}. This is a bug; nothing was launched"
            return PreflightSeen(problems=(Problem(exit=int(Exit.ERROR), text=text),))
        if seen is None:
            return None
        self._devices.inventory = seen[1]
        return seen[0]

    def ready(self, state: State, remains: Remains) -> Ready:
        """The look for the next launch."""
        locked = self._devices.has_locks(state)
        return Ready(self._home, self._run, state, self._devices.inventory, remains, self._redact, locked=locked)

    def prepare(self, state: State, remains: Remains, ender: Ender) -> None:
        """Begin to look at what the next launch needs; tidy up after the attempt before it."""
        if state.attempt is not None:
            self._asides.ensure(f"tidy:{state.attempt.number}", ender.tidy)
        self._asides.ensure(_ready_name(state), self.ready(state, remains).look)

    def look_again(self, state: State, remains: Remains, now: Instant) -> None:
        """Begin to look at the checkpoints once more, where what was seen of them is too old to launch by."""
        with suppress(Exception):  # whatever it is, `ready_answer` tells it
            seen = self._newest(state)
            if seen is not None and is_old(seen.looked_boot_s, now.boot_s, within_s=FRESH_S / 2):
                again = partial(self.ready(state, remains).again, seen)
                self._asides.forget(_again_name(state))
                self._asides.ensure(_again_name(state), again)

    def _newest(self, state: State) -> ReadySeen | None:
        first: ReadySeen | None = self._asides.answer(_ready_name(state))
        again: ReadySeen | None = self._asides.answer(_again_name(state))
        if first is None or again is None:
            return first
        return max(first, again, key=lambda seen: seen.looked_boot_s or 0.0)

    def is_whole(self, state: State, now: Instant) -> str | None:
        """Whether the checkpoint that an attempt was meant to start from is still one, where that was decided a while
        ago: its supervisor was killed before it launched. What is wrong with it, empty where nothing; None: unknown
        yet."""
        attempt, resume = state.attempt, state.spec.resume if state.spec else None
        if attempt is None or attempt.checkpoint is None or resume is None:
            return ""
        if attempt.began.boot_id == now.boot_id and not is_old(attempt.began.boot_s, now.boot_s):
            return ""
        self._asides.ensure(
            f"whole:{attempt.number}", partial(validate, attempt.checkpoint, resume), instead_of="whole:"
        )
        found: Checkpoint | Incomplete | None = self._asides.answer(f"whole:{attempt.number}")
        if isinstance(found, Incomplete):
            return f"{GONE}{found.path} was complete when it was chosen, and is not: {found.why}"
        return None if found is None else ""

    def ready_answer(self, state: State) -> tuple[ReadySeen | None, tuple[str, ...]]:
        """What it found, None while it is being looked at; and what a person should be told, once."""
        try:
            seen = self._newest(state)
        except Exception as bug:  # noqa: BLE001 - as above: a halt that says so
            text = f"the next launch could not be prepared: {bug!r}"
            return ReadySeen(problems=(Problem(exit=int(Exit.ERROR), text=text),)), ()
        if seen is None or self._told_ready == _ready_name(state):
            return seen, ()
        self._told_ready = _ready_name(state)
        return seen, seen.told


def _again_name(state: State) -> str:
    return f"{_ready_name(state)}:again"


def _ready_name(state: State) -> str:
    return f"ready:{state.attempts_made + 1}:{state.episodes}"
