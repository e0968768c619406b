"""Carries a run's messages out: `python -m supervisor.courier NAME`, and the heartbeat: `... NAME --beat VARIABLE`.

A process of its own, started by the run's supervisor only when there is something to carry; it tries again for some
minutes and ends. It lives on when the supervisor ends, so the last words of a run get out too, and nothing that hangs
out there can hold up a recovery. Rule: addresses come from the environment and go nowhere else.

The outbox: the supervisor puts `outbox/ID.json`; what became of it is written to `outbox/ID.done`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from supervisor.edges import notify
from supervisor.edges.files import read_json, to_json, write_atomic
from supervisor.edges.locks import Lock
from supervisor.edges.paths import Home, RunDir

TRIES_AT_S = (0.0, 5.0, 20.0, 60.0, 180.0, 420.0)
"""When a delivery is tried, from the first try on: a network that is down for five minutes loses no message."""
LIFE_S = 900
LOOK_S = 0.5
"""How often a courier that waits for its next try looks for new messages."""
BEAT_S = 15.0


@dataclass
class _Carried:
    """What this courier knows of a message: who took it, how often it was tried, when it is due again."""

    began_s: float = field(default_factory=time.monotonic)
    taken: set[str] = field(default_factory=set)
    tries: int = 0
    due_s: float = 0.0


def main(argv: list[str]) -> int:
    """0 when nothing is left to carry, or another courier is there."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LIFE_S)
    run = Home.find(os.environ).run(argv[0])
    if "--beat" in argv:
        return beat(argv[argv.index("--beat") + 1])
    while _waiting(run):  # looked at again without the lock: whoever saw it held started no other courier
        lock = Lock.try_take(outbox(run) / "lock")
        if lock is None:
            return 0
        try:
            carry_all(run)
        finally:
            lock.release()
    return 0


def outbox(run: RunDir) -> Path:
    """Where messages of a run wait."""
    return run.path / "outbox"


def beat(variable: str) -> int:
    """One GET to the address in this variable."""
    url = os.environ.get(variable, "")
    why = notify.get(url, BEAT_S) if url.startswith(("http://", "https://")) else f"{variable} holds no http address"
    if why:
        _say(f"heartbeat: {why}")
    return 1 if why else 0


def carry_all(run: RunDir, tries_at_s: tuple[float, ...] = TRIES_AT_S) -> None:
    """Until no message waits. A new one is carried at once, whatever waits for its next try."""
    carried: dict[Path, _Carried] = {}
    while waiting := _waiting(run):
        for path in waiting:
            carry(path, carried.setdefault(path, _Carried()), tries_at_s)
        dues = [one.due_s for path, one in carried.items() if not done_of(path).exists()]
        if dues:
            time.sleep(min(LOOK_S, max(0.0, min(dues) - time.monotonic())))


def _waiting(run: RunDir) -> list[Path]:
    """Messages without an outcome, oldest first."""
    found: dict[Path, int] = {}
    for path in outbox(run).glob("*.json"):
        with contextlib.suppress(FileNotFoundError):  # taken away since: its outcome was read
            found[path] = path.stat().st_mtime_ns
    return [path for path in sorted(found, key=lambda one: found[one]) if not done_of(path).exists()]


def done_of(path: Path) -> Path:
    """The file that says what became of a message."""
    return path.with_suffix(".done")


def carry(path: Path, at: _Carried, tries_at_s: tuple[float, ...] = TRIES_AT_S) -> None:
    """Try to deliver one message where it was not taken yet, if that is due; at the end write down what came of it."""
    if time.monotonic() < at.due_s:
        return
    message = read_json(path)
    if not isinstance(message, dict):
        _done(path, "the message cannot be read")
        return
    config = message.get("notify", {})
    urls = os.environ.get(str(config.get("urls_from", "")), "")
    places = notify.places(urls, tuple(config.get("command", ())), config.get("cwd"))
    if not places:
        _done(path, f"nobody to tell: {config.get('urls_from')} is empty and there is no command")
        return
    why = notify.deliver_all((one for one in places if one.name not in at.taken), message["notice"])
    at.taken |= {name for name, text in why.items() if not text}
    at.tries += 1
    if len(at.taken) == len(places) or at.tries == len(tries_at_s):
        _done(path, "; ".join(f"{name}: {text}" for name, text in why.items() if text))
    else:
        at.due_s = at.began_s + tries_at_s[at.tries]


def _done(path: Path, why: str) -> None:
    plain: dict[str, Any] = {"why": why, "at": time.time()}
    write_atomic(done_of(path), to_json(plain))
    if why:
        _say(f"{path.stem}: {why}")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # a log that is full or closed is no reason to end
        os.write(2, f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}\n".encode("utf-8", "replace"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
