"""The spec's hooks as members of the run: begun, ended, and brought to an end where their supervisor was killed.

Rule 1: a hook carries the run's token, so it is found and ended as any member is.
Rule 2: who it is stands in the attempt's folder before it is waited for; a later supervisor ends it and runs it anew.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from supervisor.core.events import HookEnded, HookIntended
from supervisor.core.evidence import ProcessId
from supervisor.core.seen import Hook
from supervisor.edges import proc, secrets
from supervisor.edges.checks import CheckResult, run_hook
from supervisor.edges.files import make_private_dir, read_json, to_json, write_atomic
from supervisor.edges.paths import RunDir
from supervisor.edges.signals import signal_members
from supervisor.machines.asides import Asides

WORDS_MAX = 300


class _Named(Struct, frozen=True):
    id: ProcessId


class HookRunner:
    """Of one run: at most one hook at a time."""

    def __init__(self, run: RunDir, asides: Asides, redact: Callable[[str], str]) -> None:
        self._run = run
        self._asides = asides
        self._redact = redact
        self._cancelled = threading.Event()

    def do(self, order: Hook, workdir: str) -> None:
        """See that the hook was begun; end it where it is not wanted any more."""
        if order.stop:
            self._cancelled.set()
        else:
            self._cancelled.clear()
        self._asides.ensure(_name(order.hook), lambda: self._ran(order, workdir))

    def look(self, order: Hook) -> HookEnded | None:
        """How it ended; None while it runs."""
        try:
            end: HookEnded | None = self._asides.answer(_name(order.hook))
        except Exception as bug:  # noqa: BLE001 - a bug of ours is a hook that failed, not a run that waits for ever
            end = HookEnded(attempt=order.hook.attempt, hook=order.hook.hook, code=None, why=f"not run: {bug!r}")
        return end

    def _ran(self, order: Hook, workdir: str) -> HookEnded:
        asked = order.hook
        folder = self._run.attempt(asked.attempt).path
        make_private_dir(self._run.attempts)
        make_private_dir(folder)
        note = folder / f"hook-{asked.hook}.json"
        with suppress(OSError, ValueError):  # damaged: nobody to be ended
            _end_left(read_json(note) or {})
        known = secrets.load(self._run)
        environ = {**(known.job if known is not None else {}), **asked.env, "SUPERVISE_TOKEN": asked.token}
        began = time.monotonic()

        def started(pid: int) -> None:
            plain = {"pid": pid, "start_ticks": proc.start_ticks(pid), "boot_id": proc.boot_id()}
            write_atomic(note, to_json(plain), sync=False)

        result = run_hook(
            asked.argv,
            workdir=workdir,
            environ=environ,
            deadline_s=order.timeout_s,
            started=started,
            cancelled=self._cancelled,
        )
        output = self._redact(result.output)
        with suppress(OSError):  # a full disk: the last words stand in the journal
            write_atomic(folder / f"hook-{asked.hook}.log", output.encode(), sync=False)
            note.unlink(missing_ok=True)
        took_s = round(time.monotonic() - began, 1)
        why = _why(result, output)
        return HookEnded(attempt=asked.attempt, hook=asked.hook, code=result.code, why=why, took_s=took_s)


def _name(asked: HookIntended) -> str:
    return f"hook:{asked.hook}:{asked.token}"


def _why(result: CheckResult, output: str) -> str:
    words = output.strip().splitlines()
    said = words[-1][:WORDS_MAX] if words and result.code != 0 else ""
    return "; ".join(filter(None, (result.why, said)))


def _end_left(note: dict[str, int | str]) -> None:
    """The hook of a supervisor that was killed, where it still lives."""
    if note:
        left = _Named(ProcessId(int(note["pid"]), int(note["start_ticks"])))
        signal_members([left], signal.SIGKILL, str(note["boot_id"]))
