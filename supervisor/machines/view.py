"""The tmux session, which is only a view: it is brought back when its server dies. The job does not notice either."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

from supervisor.edges import signals
from supervisor.edges.paths import AttemptDir
from supervisor.edges.tmux import Tmux
from supervisor.machines.asides import Asides

TRY_EVERY_S = 2.0


class View:
    """Of one run. That the server lives is known by a pidfd, so that a look costs no file."""

    def __init__(self, tmux: Tmux, session: str, asides: Asides, warn: Callable[[str], None]) -> None:
        self._tmux = tmux
        self._session = session
        self._asides = asides
        self._warn = warn
        self._server = -1
        self._told_gone = False
        self._tried_s = float("-inf")

    def ensure(self, attempt: AttemptDir) -> None:
        """See that the session is there, or on its way; it shows the output of `attempt`."""
        if self._is_up():
            self._told_gone = False
            return
        if time.monotonic() - self._tried_s < TRY_EVERY_S:
            return
        self._tried_s = time.monotonic()
        if not self._told_gone:  # once, though it may not come back for days
            self._told_gone = True
            self._warn("the tmux server was gone: the session is brought back as a view; the job went on")
        self._asides.forget("view")
        self._asides.ensure("view", lambda: self._tmux.ensure_view(self._session, attempt.output))

    def close(self) -> None:
        """Give the descriptor back; the session stays."""
        if self._server >= 0:
            os.close(self._server)
            self._server = -1

    def _is_up(self) -> bool:
        if self._server >= 0 and not signals.has_ended(self._server):
            return True
        self.close()
        server = self._tmux.server.process()
        if server is None:
            return False
        with suppress(OSError):  # no descriptors left: then it is asked again each time
            self._server = fd if (fd := signals.watch(server)) is not None else -1
        return True
