"""Processes of a run that is launched from a copy of its code, and that were given the working tree's all the same.

Told of who has it at two looks in a row: a Python that is just starting goes over to the copy by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from supervisor.core.codecopy import named_on
from supervisor.core.evidence import ProcessId
from supervisor.core.given import CodeCopy
from supervisor.edges import proc
from supervisor.edges.ownership import Recorded

EVERY_S = 5.0
TOLD_MAX = 5
MEMBERS_MAX = 64
"""The first of them: launchers, the trainer and its ranks; data loaders have the arguments of their parents."""


class Astray:
    """Of one attempt."""

    def __init__(self, attempt: int, code: CodeCopy) -> None:
        self.attempt = attempt
        self._code = code
        self._looked_s = float("-inf")
        self._before: dict[ProcessId, str] = {}
        self._told: set[str] = set()

    def look(self, members: Iterable[Recorded], now_s: float) -> list[str]:
        """What a person should know, each once."""
        if now_s - self._looked_s < EVERY_S or len(self._told) >= TOLD_MAX:
            return []
        self._looked_s = now_s
        found = dict(self._given(list(members)[:MEMBERS_MAX]))
        same = [(id_, path) for id_, path in found.items() if self._before.get(id_) == path and path not in self._told]
        self._before = found
        self._told |= {path for _, path in same}
        return [
            f"pid {id_.pid} was given {path} of the working tree, not of the copy of the code" for id_, path in same
        ]

    def _given(self, members: Iterable[Recorded]) -> Iterator[tuple[ProcessId, str]]:
        for one in members:
            if not proc.is_alive(one.id):
                continue
            with suppress(OSError):  # it has ended
                cwd = os.readlink(f"/proc/{one.id.pid}/cwd")  # noqa: PTH115
                for path in named_on(self._code, proc.argv(one.id.pid), cwd):
                    if self._is_held(path):
                        yield one.id, path
                        break

    def _is_held(self, path: str) -> bool:
        """True where the copy has a file of its own for it."""
        image = self._code.image_of(path)
        return os.path.isfile(image) and os.path.realpath(image).startswith(f"{self._code.path}/")  # noqa: PTH113
