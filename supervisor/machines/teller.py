"""Messages of a run on their way out, for the loop: puts them where the courier finds them, reads what came of them.

Rule 1: nothing here waits for anything outside, and nothing that goes wrong here ends a supervisor.
Rule 2: made only for a run whose spec asks for it: others do not even import this.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from supervisor.core import events as ev
from supervisor.core import telling
from supervisor.core.around import Notify
from supervisor.core.evidence import Instant
from supervisor.core.state import State
from supervisor.core.watch import Watch
from supervisor.courier import done_of, outbox
from supervisor.edges import detached
from supervisor.edges.files import make_private_dir, read_json, to_json, write_atomic
from supervisor.edges.locks import is_held
from supervisor.edges.paths import Home, RunDir

START_AGAIN_S = 5.0
"""A courier that ends without having carried what waits is broken for now."""
LOG_CAP_BYTES = 256 * 1024


class Teller:
    """What is to be told of one run, and the heartbeat. Called once at each turn of the loop."""

    def __init__(self, home: Home, run: RunDir, redact: Callable[[str], str]) -> None:
        self._home = home
        self._run = run
        self._redact = redact
        self._children: list[int] = []
        self._started_s = self._beat_s = float("-inf")
        self._trouble = ""
        self._is_swept = False

    def about(self, before: State, event: ev.Event, after: State, at: Instant) -> tuple[ev.Event, ...]:
        """What is to be told because of this record."""
        try:
            return telling.notices(before, event, after, at)
        except Exception as error:  # noqa: BLE001 - a fault in telling must cost no recovery: it is told instead
            return tuple(self._warn(f"what is to be told could not be put into words: {error!r}"))

    def tell(self, state: State, watch: Watch) -> tuple[ev.Event, ...]:
        """See that what is to be told is on its way; what came of it, and the morning's summary, as records."""
        try:
            return self._tell(state, watch)
        except Exception as error:  # noqa: BLE001 - a fault in telling must cost no recovery: it is told instead
            return tuple(self._warn(f"nobody can be told: {error!r}"))

    def _tell(self, state: State, watch: Watch) -> tuple[ev.Event, ...]:
        notify = state.spec.notify if state.spec else None
        if notify is None or state.spec is None:
            return ()
        self._reap()
        now = time.localtime()
        local = telling.Local(time.strftime("%Y-%m-%d", now), now.tm_hour * 60 + now.tm_min, time.time())
        found: list[ev.Event] = [] if state.spec.simulated else [*telling.morning(state, watch, local)]
        if state.untold or not self._is_swept:
            try:
                self._sweep(state)
                found += self._deliver(state, notify) or telling.given_up(state, local.wall_s)
                self._trouble = ""
            except (OSError, ValueError) as error:  # a full disk: the journal says that it was to be told
                found += self._warn(f"messages cannot be written: {error}")
        if notify.heartbeat_from and not state.spec.simulated:
            self._beat(state, notify.heartbeat_from, notify.heartbeat_every_s)
        return tuple(found)

    def _warn(self, text: str) -> list[ev.Event]:
        if text == self._trouble:
            return []
        self._trouble = text
        return [ev.Warned(text=text)]

    def _sweep(self, state: State) -> None:
        """Takes away what the journal has the outcome of; not before it has, or it would be sent again."""
        if self._is_swept:
            return
        self._is_swept = True
        wanted = {id_of(one.key) for one in state.untold}
        for path in (*outbox(self._run).glob("*.json"), *outbox(self._run).glob("*.done")):
            if path.stem not in wanted:
                path.unlink(missing_ok=True)

    def _deliver(self, state: State, notify: Notify) -> list[ev.Event]:
        make_private_dir(outbox(self._run))
        done: list[ev.Event] = []
        for intended in state.untold:
            path = outbox(self._run) / f"{id_of(intended.key)}.json"
            came = read_json(done_of(path))
            if isinstance(came, dict):
                done.append(ev.Notified(key=intended.key, why=str(came.get("why", ""))))
                self._is_swept = False
            elif not path.exists():
                write_atomic(path, to_json(self._message(state, notify, intended)))
                self._started_s = float("-inf")  # the supervisor may be about to end: not later
        if len(done) < len(state.untold):
            self._see_that_it_is_carried()
        return done

    def _message(self, state: State, notify: Notify, intended: ev.NotifyIntended) -> dict[str, Any]:
        told = dict(state.told)
        notice = {
            "id": id_of(intended.key),
            "run": state.run,
            "host": state.machine.host if state.machine else "",
            "event": intended.on,
            "title": self._redact(intended.title),
            "text": self._redact(intended.text),
            "at": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(told.get(intended.key, time.time()))),
        }
        workdir = state.spec.workdir if state.spec else None
        config = {"urls_from": notify.urls_from, "command": list(notify.command), "cwd": workdir}
        return {"notify": config, "notice": notice}

    def _see_that_it_is_carried(self) -> None:
        now_s = time.monotonic()
        if now_s - self._started_s < START_AGAIN_S or is_held(outbox(self._run) / "lock"):
            return
        self._started_s = now_s
        self._start(self._run.name)

    def _beat(self, state: State, variable: str, every_s: float) -> None:
        now_s = time.monotonic()
        if now_s - self._beat_s < every_s or not telling.is_in_order(state):
            return
        self._beat_s = now_s
        self._start(self._run.name, "--beat", variable)

    def _start(self, *words: str) -> None:
        log = self._run.path / "notify.log"
        with contextlib.suppress(OSError):  # not there yet
            if log.stat().st_size > LOG_CAP_BYTES:
                log.replace(log.with_name("notify.log.1"))
        argv = (sys.executable, "-m", "supervisor.courier", *words)
        environ = {name: value for name, value in os.environ.items() if name != "SUPERVISE_TOKEN"}
        environ["SUPERVISE_HOME"] = str(self._home.root)
        with contextlib.suppress(OSError):  # no processes, no memory: tried again when it is due again
            self._children.append(detached.spawn(argv, environ, log))

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):  # whoever waited for it: it is gone
            self._children = [pid for pid in self._children if os.waitpid(pid, os.WNOHANG) == (0, 0)]
            return
        self._children = []


def id_of(key: str) -> str:
    """The message's id: the same for the same message of a run, however often it is sent."""
    return hashlib.sha256(key.encode()).hexdigest()[:16]
