"""A supervisor that imports while the spec is still being read, and is told its run when the request is on the disk.

It has no run, no lock and no folder until then; when its input ends without a name, it ends too.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:  # this is imported before anything else of `up`
    from supervisor.edges.paths import Home

MODULE = "supervisor.supervise_run"

_early: WarmSupervisor | None = None


def start_early() -> None:
    """Start one before even the command line was parsed: its imports are the longest part of a launch."""
    global _early
    if os.environ.get("SUPERVISE_HOME", "/").startswith("/"):  # elsewhere it depends on the folder that it starts in
        _early = WarmSupervisor(None)


def take(home: Home) -> WarmSupervisor:
    """The one that was started early, else a new one."""
    global _early
    taken, _early = _early, None
    return WarmSupervisor(home) if taken is None else taken


class WarmSupervisor:
    """`python -m supervisor.supervise_run --warm`, waiting for `NAME\\n` on its input. Started when this is made."""

    def __init__(self, home: Home | None) -> None:
        """`home` None: the one that the environment names, whatever the folder."""
        reads, self._writes = os.pipe()
        try:
            self._pid = self._start(home, reads)
        finally:
            os.close(reads)

    def hand_over(self, name: str) -> None:
        """Give it the run. Fine when it is dead: the guardian starts another."""
        with suppress(BrokenPipeError):
            os.write(self._writes, f"{name}\n".encode())
        self.close()

    def close(self) -> None:
        """Let it go: without a name it ends quietly."""
        if self._writes >= 0:
            os.close(self._writes)
            self._writes = -1

    def _start(self, home: Home | None, reads: int) -> int:
        import signal

        # `-m` looks for modules in the working directory, and the user's may hold a `json.py`: so it starts in /.
        script = 'cd / && exec "$@"'
        argv = ("/bin/sh", "-c", script, "sh", sys.executable, "-m", MODULE, "--warm")
        return os.posix_spawn(
            argv[0],
            argv,
            own_environment(dict(os.environ)) | ({} if home is None else {"SUPERVISE_HOME": str(home.root)}),
            file_actions=(
                (os.POSIX_SPAWN_DUP2, reads, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ),
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD),
        )


def own_environment(environ: dict[str, str]) -> dict[str, str]:
    """What supervisors of the run get: the caller's, less what changes their Python, tmux's, and a run's token."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(("PYTHON", "TMUX")) and name != "SUPERVISE_TOKEN"
    }
