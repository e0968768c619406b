"""How a verb asks: the request on the disk, a supervisor to read it, the record that answers it.

Rule 1: a verb never writes the journal and never acts on a run itself.
Rule 2: once the request is on the disk it stands, whatever becomes of the verb: Ctrl-C only stops the waiting.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from supervisor.cli.common import StateUnusable, is_full, leave, must_be_ours, say
from supervisor.core.errors import Exit, SuperviseError
from supervisor.edges import detached, requests
from supervisor.edges.journal_lines import Record
from supervisor.edges.journal_tail import Tail
from supervisor.edges.locks import is_held
from supervisor.edges.paths import Home, RunDir
from supervisor.views.words import safe_block

LOOK_EVERY_S = 0.01
"""A look takes 0.2 ms of the processor that the launch is waiting for."""

NOBODY_S = 30.0
"""So long there may be no supervisor while a request waits: the guardian has one within two seconds."""
STARTS_MAX = 15
"""So many supervisors may come and go while a request waits; more, and they end by a fault of their own."""
HANDOVER_S = 0.1
GUARDIAN_AFTER_S = 1.0
ALONE_S = 0.3
"""A guardian is started once the launch had the processor for this long, or the request nobody to read it."""


class NobodyAnswers(SuperviseError):
    """No supervisor came for a request. The request stands."""


class Answer(Struct, frozen=True):
    """What the journal says to a request: the verb's exit code, and its text for stderr."""

    exit: int
    text: str


def ask(
    home: Home,
    run: RunDir,
    verb: str,
    args: dict[str, Any],
    *,
    request_id: str | None = None,
    hand_over: Callable[[], None] | None = None,
    heard: Callable[[Record], None] | None = None,
) -> Answer:
    """Put the request, see that a supervisor and a guardian are there, wait for the answer.

    `hand_over` gives the run to a supervisor that was started in advance. `heard` gets every new record.
    Raises Refusal 7 for another user's run, NobodyAnswers, StateUnusable, JournalDamaged, OSError.
    """
    must_be_ours(run)
    tail = Tail(run.journal, from_end=True)
    asked = request_id or requests.new_id()
    stands = False
    try:
        _put(home, run, {"verb": verb, "args": args}, asked)
        stands = True
        _see_that_it_is_read(home, run, hand_over)
        answer = _answer(home, run, tail, asked, heard)
        detached.ensure_guardian(home)
        return answer
    except KeyboardInterrupt:
        if not stands and not requests.is_waiting(run):
            raise  # before anything was asked
        detached.ensure_guardian(home)  # Ctrl-C may have come before that
        say(f"stopped waiting; `{verb}` stands and goes on. See: supervise status {run.name}")
        leave(Exit.INTERRUPTED)


def _put(home: Home, run: RunDir, request: dict[str, Any], asked: str) -> None:
    """On a full disk the reserve goes for it, so that a run can be ended; never for a launch."""
    try:
        try:
            requests.put(run, request, id=asked)
        except OSError as error:
            if not is_full(error) or request["verb"] == "up":
                raise
            home.reserve.unlink(missing_ok=True)
            requests.put(run, request, id=asked)
    except OSError as error:
        raise StateUnusable(home, error) from error


def ask_and_leave(home: Home, run: RunDir, verb: str, args: dict[str, Any]) -> None:
    """Ask, tell the answer, end the verb with its exit code."""
    answer = ask(home, run, verb, args)
    tell(answer)
    leave(answer.exit)


def tell(answer: Answer) -> None:
    """The answer's text on stderr."""
    if answer.text:
        say(safe_block(answer.text))


def _see_that_it_is_read(home: Home, run: RunDir, hand_over: Callable[[], None] | None) -> None:
    os.chdir(home.root)  # supervisors inherit it; a folder of the user's may hold modules or be unmounted
    if hand_over is not None:
        hand_over()
        # The guardian would start a second one, which is harmless, but takes the processor from the first.
        deadline_s = time.monotonic() + HANDOVER_S
        while not is_held(run.lock) and time.monotonic() < deadline_s:
            time.sleep(LOOK_EVERY_S)
    elif not is_held(run.lock):
        detached.start_supervisor(home, run)


def _answer(home: Home, run: RunDir, tail: Tail, asked: str, heard: Callable[[Record], None] | None) -> Answer:
    guarded = False
    guardian_s = time.monotonic() + (0.0 if is_held(home.guardian_lock) else GUARDIAN_AFTER_S)
    alone_since_s: float | None = None
    starts = 0
    while True:
        for record in tail.poll():
            if heard is not None:
                heard(record)
            if record.type == "Answered" and record.data.get("request") == asked:
                return Answer(int(record.data["exit"]), str(record.data["text"]))
            starts += record.type == "SupervisorStarted"
        now_s = time.monotonic()
        if is_held(run.lock):
            alone_since_s = None
        elif alone_since_s is None:
            alone_since_s = now_s
        if not guarded and (now_s > guardian_s or now_s - (alone_since_s or now_s) > ALONE_S):
            guarded = True
            detached.ensure_guardian(home)
        if starts > STARTS_MAX or (alone_since_s is not None and now_s - alone_since_s > NOBODY_S):
            raise NobodyAnswers(
                f"{run.name}: no supervisor stays up for this run; the request stands. Why is in "
                f"{run.supervisor_log}; then: supervise adopt --all"
            )
        time.sleep(LOOK_EVERY_S)
