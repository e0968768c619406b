"""A state directory of one's own, runs written by hand, and a supervisor that only answers."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "views"))  # recorded.py

from verbs import home as home
from verbs import supervise as supervise

from supervisor.core import events as ev
from supervisor.edges import proc, requests
from supervisor.edges.codec import to_plain
from supervisor.edges.journal import Journal
from supervisor.edges.locks import Lock
from supervisor.edges.paths import RunDir


class Answering:
    """Holds a run's lock and answers each request: first these records, then the exit code and text."""

    def __init__(self, run: RunDir, exit: int = 0, text: str = "done", before: tuple[ev.Event, ...] = ()) -> None:
        self.run, self.exit, self.text, self.before = run, exit, text, before
        self.asked: list[requests.Request] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._answer_all)

    def __enter__(self) -> Answering:
        self.run.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = Lock.wait(self.run.lock)  # a supervisor that an `up` before had ready may just look at it
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._lock.release()

    def _answer_all(self) -> None:
        while not self._over.wait(0.005):
            for request in requests.unread(self.run):
                self.asked.append(request)
                journal = Journal.open(self.run.journal, writer=True)
                answer = ev.Answered(request=request.id, verb=request.verb, exit=self.exit, text=self.text)
                for event in (*self.before, answer):
                    journal.append(type(event).__name__, to_plain(event), proc.now())
                journal.close()
                requests.remove(self.run, request.id)


@pytest.fixture
def answering() -> type[Answering]:
    """The supervisor that only answers, as a context manager."""
    return Answering
