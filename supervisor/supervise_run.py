"""The supervisor of one run: `python -m supervisor.supervise_run NAME`. Joins journal, machine and loop.

`--warm` reads the name from standard input once everything is imported: `up` starts it so while it reads the spec.
A second supervisor for the same run finds the lock taken and ends at once: 0.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until all is imported: what it would look through lives as long as we; 15 ms of a launch

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from supervisor import __version__
from supervisor.core.events import SupervisorStarted
from supervisor.edges.detached import ensure_guardian
from supervisor.edges.files import read_json, to_json, write_atomic
from supervisor.edges.journal import JournalFull, JournalLost, make_reserve
from supervisor.edges.journal_lines import JournalDamaged
from supervisor.edges.locks import Lock, is_held
from supervisor.edges.log import LateLog
from supervisor.edges.paths import Home, RunDir
from supervisor.edges.secrets import Redactor
from supervisor.loop import Loop
from supervisor.machines.local import LocalMachine
from supervisor.record import Record

if TYPE_CHECKING:
    from supervisor.machines.teller import Teller

FULL_WAIT_S = 5.0
STAND_BY_S = 1.0
GUARDIAN_AFTER_S = 1.0
"""A guardian that is to be started waits until the job had the processor: its start would cost the launch 0.1 s."""
GUARDIAN_EVERY_S = 5.0
LOG_AFTER_S = 2.0
"""So long lines of supervisor.log are kept: structlog is imported when the job is on its way."""
LOCK_WAIT_S = 1.0
"""A supervisor that is just ending still holds the lock when the next request is already there."""


def main(argv: list[str]) -> int:
    """0: the episode is over, or another supervisor is there. 1: the next one must replay."""
    warm = "--warm" in argv
    names = [word for word in argv if not word.startswith("-")]
    if warm:
        line = sys.stdin.readline().strip()
        names = [line] if line else []
    if not names:
        return 0
    home = Home.find(os.environ)
    os.environ["SUPERVISE_HOME"] = str(home.root)
    run = home.run(names[0])
    if not run.path.is_dir() or run.stranger is not None:
        return 0
    lock = _take(run)
    return 0 if lock is None else supervise(home, run)


def _take(run: RunDir) -> Lock | None:
    until = time.monotonic() + LOCK_WAIT_S
    while (lock := Lock.try_take(run.lock)) is None and time.monotonic() < until:
        time.sleep(0.02)
    if lock is not None:
        lock.note(f"{os.getpid()}\n")
    return lock


def supervise(home: Home, run: RunDir) -> int:
    """Supervise the run until its episode is over; the caller holds its lock."""
    os.chdir(home.root)
    over = threading.Event()
    log = LateLog(run.supervisor_log, Redactor(()), run=run.name)
    threading.Thread(target=_keep_a_guardian, args=(home, over, log), name="guardian", daemon=True).start()
    try:
        return _supervise(home, run, log)
    finally:
        over.set()
        if run.open.exists():  # whatever ended this supervisor, the next one is the guardian's to start
            ensure_guardian(home)


def _keep_a_guardian(home: Home, over: threading.Event, log: LateLog) -> None:
    """Whoever kills the guardian and its understudy in one instant leaves nobody else to start another.

    The log is opened here too, once the launch had the processor."""
    if over.wait(0.0 if is_held(home.guardian_lock) else GUARDIAN_AFTER_S):
        return
    ensure_guardian(home)
    if not over.wait(LOG_AFTER_S):
        log.open()
    while not over.wait(GUARDIAN_EVERY_S):
        with suppress(OSError):  # no processes, no room: tried again
            if not is_held(home.guardian_lock):
                ensure_guardian(home)


def _supervise(home: Home, run: RunDir, log: LateLog) -> int:
    make_reserve(home.reserve)
    record: Record | None = None
    try:
        record = Record(home, run)
        record.log, log.redactor = log, record.redactor
        redact = record.redactor.text
        machine = LocalMachine(home, run, record.redactor)
        try:
            started = SupervisorStarted(pid=os.getpid(), version=__version__)
            Loop(record, machine, started, lambda: _teller(home, run, redact)).run()
        finally:
            machine.leave()
    except JournalDamaged as damage:
        log.error("journal_damaged", file=str(damage.file), line=damage.line, why=damage.why)
        _say_damaged(run, str(damage))
        _stand_by(run)
        return 1
    except (JournalFull, JournalLost) as trouble:
        log.error("journal", why=str(trouble))
        _say_damaged(run, str(trouble))
        time.sleep(FULL_WAIT_S if isinstance(trouble, JournalFull) else 0.0)
        return 1
    except BaseException as error:
        log.error("supervisor_ended", error=repr(error), exc_info=error)
        raise
    finally:
        log.open()
        if record is not None:
            record.close()
    return 0


def _teller(home: Home, run: RunDir, redact: Callable[[str], str]) -> Teller:
    """Imported by a run that tells somebody, and by no other."""
    from supervisor.machines.teller import Teller

    return Teller(home, run, redact)


def _stand_by(run: RunDir) -> None:
    """Hold the run's lock and launch nothing until the journal was mended by a person, or the run was given up."""
    before = _stamp(run)
    while run.open.exists() and _stamp(run) == before:
        time.sleep(STAND_BY_S)


def _stamp(run: RunDir) -> tuple[int, int, int]:
    try:
        seen = run.journal.stat()
    except OSError:
        return (0, 0, 0)
    return (seen.st_ino, seen.st_size, seen.st_mtime_ns)


def _say_damaged(run: RunDir, text: str) -> None:
    """What `status` shows where the journal cannot: now.json says it."""
    before = read_json(run.now) if run.now.exists() else None
    plain = {**(before or {"schema": "supervise.now/v1"}), "phase": "halted", "trouble": text, "because": text}
    try:
        write_atomic(run.now, to_json(plain), sync=False)
    except OSError as error:
        print(f"now.json could not be written: {error}", file=sys.stderr)


if __name__ == "__main__":
    gc.enable()
    gc.freeze()
    sys.exit(main(sys.argv[1:]))
