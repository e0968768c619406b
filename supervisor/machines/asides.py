"""Work that takes its time, done beside the loop: one thread per name, its answer fetched when it is there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Asides:
    """Named pieces of work. A piece that was begun is not begun again until its answer was forgotten.

    Threads are daemons: one that hangs in the kernel never keeps the supervisor from ending.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._answers: dict[str, Any] = {}
        self._begun: set[str] = set()

    def ensure(self, name: str, work: Callable[[], Any], *, instead_of: str = "") -> None:
        """See that `work` was begun under this name. `instead_of`: nobody asks for answers any more whose name begins
        so, but this one's: a run of months does not keep them all."""
        if name in self._begun:
            return
        if instead_of:
            self.forget(instead_of)
        self._begun.add(name)
        threading.Thread(target=self._run, args=(name, work), name=name, daemon=True).start()

    def answer(self, name: str) -> Any | None:
        """What the work returned, or None while it is not there. Raises what the work raised."""
        answer = self._answers.get(name)
        if isinstance(answer, _Raised):
            raise answer.error
        return answer

    def forget(self, prefix: str) -> None:
        """Drop all answers whose name begins so; the work may be begun anew."""
        for name in [n for n in self._begun if n.startswith(prefix)]:
            if name in self._answers:
                self._begun.discard(name)
                del self._answers[name]

    def _run(self, name: str, work: Callable[[], Any]) -> None:
        try:
            answer: Any = work()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is raised again where the answer is fetched
            answer = _Raised(error)
        self._answers[name] = answer
        self._wake()


class _Raised:
    def __init__(self, error: Exception) -> None:
        self.error = error
