"""What verbs ask of a run: read from its folder, taken away once the journal has answered."""

from __future__ import annotations

import os
import time
from typing import Any

from supervisor.core.evidence import MachineId
from supervisor.core.seen import Request
from supervisor.core.spec import RunSpec
from supervisor.core.state import State
from supervisor.edges import requests, secrets
from supervisor.edges.codec import from_plain
from supervisor.edges.paths import RunDir

GRAIN_NS = 100_000_000
"""File times move in jiffies of up to 10 ms; the rest is room for a clock that was set."""


class Requests:
    """The requests of one run. A file is read once; it stays until its answer is in the journal."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._folder = str(run.requests)
        self._read: dict[str, Request] = {}
        self._raw: dict[str, dict[str, Any]] = {}
        self._mtime = self._looked_ns = 0

    def look(self, state: State) -> tuple[tuple[Request, ...], tuple[str, ...]]:
        """Requests without an answer, oldest first, and warnings about files that are none."""
        if self._is_unchanged():
            return (), ()
        found, malformed = requests.look(self._run)
        unanswered: list[Request] = []
        for one in found:
            if one.id in state.answered:
                requests.remove(self._run, one.id)
                secrets.drop(self._run, one.id)
                self._read.pop(one.id, None)
                self._raw.pop(one.id, None)
                continue
            if one.id not in self._read:
                self._raw[one.id] = one.data
                self._read[one.id] = _typed(one.id, one.verb, one.data.get("args") or {})
            unanswered.append(self._read[one.id])
        warnings = tuple(f"not a request, moved to {bad.moved_to}: {bad.why}" for bad in malformed)
        return tuple(unanswered), warnings

    def _is_unchanged(self) -> bool:
        """True when the folder was empty at the last look and nothing was put into it since.

        A change within the clock's grain of that look could hide behind an equal time: then it is looked at again.
        """
        try:
            mtime = os.stat(self._folder).st_mtime_ns  # noqa: PTH116 - at each look; a Path costs more than the call
        except FileNotFoundError:
            return True
        unchanged = mtime == self._mtime and not self._read and self._looked_ns - mtime > GRAIN_NS
        self._mtime, self._looked_ns = mtime, time.time_ns()
        return unchanged

    def raw(self, request_id: str) -> dict[str, Any]:
        """The arguments as they were put."""
        args: dict[str, Any] = self._raw.get(request_id, {}).get("args") or {}
        return args


def _typed(request_id: str, verb: str, args: dict[str, Any]) -> Request:
    typed = dict(args)
    try:
        if verb == "up":
            typed["spec"] = from_plain(args["spec"], RunSpec)
        if verb == "adopt" and "machine" in args:
            typed["machine"] = from_plain(args["machine"], MachineId)
    except (KeyError, ValueError) as error:
        what = "run spec" if verb == "up" else "machine"
        return Request(id=request_id, verb=verb, problem=f"the request holds no {what} of this version: {error}")
    return Request(id=request_id, verb=verb, args=typed)
