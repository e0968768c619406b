"""The user's own checks and hooks: run, bounded in time and output, reported. What a failure means isn't said."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

CANCEL_S = 0.2
"""How soon a hook that nobody waits for any more is ended."""

OUTPUT_CAP_BYTES = 16 * 1024
"""The end of the output is kept: that is where a check says what is wrong."""


class CheckResult(Struct, frozen=True):
    """`code` None: it could not be started, was killed or ran out of time; `why` then says so."""

    argv: tuple[str, ...]
    code: int | None
    output: str
    why: str = ""

    @property
    def ok(self) -> bool:
        """True when the check ran and said yes."""
        return self.code == 0


def preflight_checks(
    argvs: Sequence[Sequence[str]], *, workdir: str, environ: Mapping[str, str], deadline_s: float
) -> tuple[CheckResult, ...]:
    """Runs every check, in order, all of them within `deadline_s`. A failed one does not keep the others from
    running. At the deadline the check's process group is killed; what a check leaves running on its own is not."""
    ends_at = time.monotonic() + deadline_s
    return tuple(_run(tuple(argv), workdir, environ, ends_at) for argv in argvs)


def run_hook(
    argv: Sequence[str],
    *,
    workdir: str,
    environ: Mapping[str, str],
    deadline_s: float,
    started: Callable[[int], None],
    cancelled: threading.Event,
) -> CheckResult:
    """Runs a hook within `deadline_s`, or until it is cancelled. Whatever of its process group is left at its end is
    killed; `started` is told its pid."""
    return _run(tuple(argv), workdir, environ, time.monotonic() + deadline_s, started, cancelled)


def _run(
    argv: tuple[str, ...],
    workdir: str,
    environ: Mapping[str, str],
    ends_at: float,
    started: Callable[[int], None] | None = None,
    cancelled: threading.Event | None = None,
) -> CheckResult:
    if time.monotonic() >= ends_at:
        return CheckResult(argv, None, "", "not run: the checks before it took all the time")
    try:
        child = subprocess.Popen(
            argv,
            cwd=workdir,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return CheckResult(argv, None, "", f"cannot be run: {error.strerror}")
    assert child.stdout is not None
    if started is not None:
        started(child.pid)
    with child.stdout as pipe:
        os.set_blocking(pipe.fileno(), False)
        output, in_time = _follow(child, pipe.fileno(), ends_at, cancelled)
        if not in_time or started is not None:
            with suppress(ProcessLookupError):  # it ended in this very moment
                os.killpg(child.pid, signal.SIGKILL)  # our child, not reaped yet: the number is still its own
        child.wait()
    text = output.decode("utf-8", "replace")
    if not in_time and cancelled is not None and cancelled.is_set():
        return CheckResult(argv, None, text, "it was ended: nobody waits for it any more")
    if not in_time:
        return CheckResult(argv, None, text, "did not end in time")
    if child.returncode < 0:
        return CheckResult(argv, None, text, f"killed by signal {-child.returncode}")
    return CheckResult(argv, child.returncode, text)


def _follow(
    child: subprocess.Popen[bytes], pipe: int, ends_at: float, cancelled: threading.Event | None
) -> tuple[bytes, bool]:
    """The end of the output, and whether the child ended before the deadline. Does not reap it."""
    kept = b""
    ended = os.pidfd_open(child.pid)
    try:
        with selectors.DefaultSelector() as waiting:
            waiting.register(ended, selectors.EVENT_READ)
            waiting.register(pipe, selectors.EVENT_READ)
            while (left_s := ends_at - time.monotonic()) > 0 and not (cancelled is not None and cancelled.is_set()):
                ready = {key.fd for key, _ in waiting.select(left_s if cancelled is None else min(left_s, CANCEL_S))}
                if pipe in ready:
                    data = _read(pipe)
                    kept = (kept + (data or b""))[-OUTPUT_CAP_BYTES:]
                    if data == b"":
                        waiting.unregister(pipe)
                    if data:
                        continue  # everything written before its end is read before its end is believed
                if ended in ready:
                    return kept, True
        return kept, False
    finally:
        os.close(ended)


def _read(pipe: int) -> bytes | None:
    """What is there to read; empty at the end, None where nothing is there now."""
    try:
        return os.read(pipe, 65536)
    except BlockingIOError:
        return None
