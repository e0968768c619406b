"""What the attempt writes: its output and logs followed, turned into hits and steps. No opinion on either."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from supervisor.core.evidence import Hit, Sign, Step, WatchHit
from supervisor.core.spec import Progress, RunSpec, Signature
from supervisor.edges.logs import Follower
from supervisor.edges.paths import AttemptDir
from supervisor.machines.badloss import also_bad
from supervisor.machines.bars import Bars
from supervisor.signatures import Matcher

PROGRESS, BAD_LOSS, DONE = "progress", "progress:bad", "done"
ENTER, LEAVE = "enter:", "leave:"
POLLS_PER_LOOK = 16
"""A burst is read in several looks, so that a stop asked for meanwhile is not kept waiting."""

WARM_AT = 3
"""At this look the automaton for bursts is compiled: the launch is over by then."""

FILES_EVERY_S = 2.0
"""How often progress that is not a log line (files, jsonl, heartbeat) is looked at."""

TAIL_BYTES = 1 << 20


class TrailSeen(Struct, frozen=True):
    """What was read since the look before. `drained`: all that was written has been read."""

    hits: tuple[Hit, ...]
    steps: tuple[Step, ...]
    done_seen: bool
    drained: bool
    last_line: str
    marks: tuple[tuple[str, bool, float], ...] = ()
    signs: tuple[Sign, ...] = ()


class Trail:
    """One attempt's output and logs. `spec` has no substitution left (see `core.render.placed`)."""

    def __init__(self, spec: RunSpec, attempt: AttemptDir, saved: Mapping[str, Any] | None) -> None:
        self.attempt = attempt.n
        watch: dict[str, str] = {}
        progress = spec.health.progress
        if progress is not None and progress.log is not None:
            watch[PROGRESS] = progress.log
            if (bad := also_bad(progress.log)) is not None:
                watch[BAD_LOSS] = bad
        if spec.done is not None and spec.done.log is not None:
            watch[DONE] = spec.done.log
        for phase in spec.health.phases:
            watch[f"{ENTER}{phase['name']}"], watch[f"{LEAVE}{phase['name']}"] = str(phase["from"]), str(phase["to"])
        globs = [*spec.logs, *(progress.in_ if progress else ())]
        self._output = str(attempt.output)
        self._matcher = _matcher(spec.signatures, tuple(watch.items()))
        self._looks = 0
        self._follower = Follower([self._output], self._matcher, saved, globs=globs)
        self._stash: list[Hit | WatchHit] = []
        self._steps: list[Step | None] = []
        self._marks: list[tuple[str, bool, float]] = []
        self._bars = Bars(self._follower) if progress is not None else None
        self._in = _only(progress)
        self._other = Counters(progress) if progress else None
        self._done_file = spec.done.file if spec.done else None

    @property
    def fd(self) -> int:
        """Readable when something was written."""
        return self._follower.wake_fd

    @property
    def fed(self) -> int:
        """How many bytes were read so far: a wake-up may be late, and find nothing new."""
        return self._follower.fed

    def pump(self, now_boot_s: float) -> bool:
        """Read on and keep what was found. True when it is worth a look: a failure text, or what `done` waits for.

        A step alone is not: it is told at the next look, with the time at which it was read.
        """
        found = self._follower.poll()
        self._stash += found
        self._take(found, now_boot_s)
        return any(isinstance(one, Hit) or one.name == DONE for one in found)

    def _take(self, found: Sequence[Hit | WatchHit], now_boot_s: float) -> None:
        """Steps, and phases entered and left, with the time at which they were read."""
        self._steps += [_step(one, now_boot_s) for one in found if self._is_progress(one)]
        for one in found:
            if isinstance(one, WatchHit) and one.name.startswith((ENTER, LEAVE)):
                self._marks.append((one.name[len(ENTER) :], one.name.startswith(ENTER), now_boot_s))

    def look(self, now_boot_s: float, *, ended: bool, quiet: bool = False, loading: bool = False) -> TrailSeen:
        """What was read since the look before. `ended`: nobody writes any more, so an unfinished line counts too.
        `quiet`: no step came for a while: does a bar grow? `loading`: before the first step, also `13 of 47`."""
        self._looks += 1
        if self._looks == WARM_AT:
            self._matcher.warm()
        for _ in range(POLLS_PER_LOOK):
            self.pump(now_boot_s)
            if not self._follower.lagging:
                break
        drained = not self._follower.lagging
        found, self._stash = self._stash, []
        if ended and drained:
            rest = self._follower.flush()
            found += rest
            self._take(rest, now_boot_s)
        steps, self._steps = self._steps, []
        marks, self._marks = self._marks, []
        if self._other is not None:
            steps += self._other.look(now_boot_s)
        done = any(isinstance(one, WatchHit) and one.name == DONE for one in found)
        if self._done_file is not None and ended:
            done = done or Path(self._done_file).exists()
        return TrailSeen(
            hits=tuple(one for one in found if isinstance(one, Hit)),
            steps=tuple(step for step in steps if step is not None),
            done_seen=done,
            drained=drained,
            last_line=self._follower.last_line(self._output),
            marks=tuple(marks),
            signs=tuple(self._bars.look(now_boot_s, loading=loading)) if quiet and self._bars else (),
        )

    @property
    def why_polling(self) -> str | None:
        """Why nothing wakes us when a log grows; None while something does."""
        return self._follower.why_polling

    @property
    def paths(self) -> tuple[str, ...]:
        """The logs that are followed, the job's own output first."""
        return self._follower.paths

    def saved(self) -> dict[str, Any]:
        """The offsets, JSON-ready."""
        return self._follower.saved()

    def close(self) -> None:
        """Let go of descriptors and threads."""
        self._follower.close()

    def _is_progress(self, one: Hit | WatchHit) -> bool:
        if not isinstance(one, WatchHit) or one.name not in (PROGRESS, BAD_LOSS):
            return False
        return not self._in or any(Path(one.file).match(pattern) for pattern in self._in)


@lru_cache(maxsize=2)
def _matcher(user: tuple[Signature, ...], watch: tuple[tuple[str, str], ...]) -> Matcher:
    """Compiled once for all attempts: a tenth of a second in which nothing else is seen."""
    return Matcher(user, dict(watch))


def _only(progress: Progress | None) -> Sequence[str]:
    return progress.in_ if progress else ()


def _step(one: Hit | WatchHit, now_boot_s: float) -> Step | None:
    assert isinstance(one, WatchHit)
    step = _number(one.groups.get("step"))
    if step is None:
        return None
    total = _number(one.groups.get("total"))
    return Step(
        step=int(step),
        seen_boot_s=now_boot_s,
        rate=_number(one.groups.get("rate")),
        loss=_number(one.groups.get("loss")),
        total=None if total is None else int(total),
    )


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text.replace(",", "").replace("_", ""))
    except ValueError:
        return None


class Counters:
    """Progress that is not a log line: a count of complete files, the last row of a JSON-lines file, a heartbeat."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._looked_s = float("-inf")
        self._beat: int | None = None
        self._beats = 0

    def look(self, now_boot_s: float) -> list[Step | None]:
        """The steps that these tell of now; a step told before is told again, which is no progress."""
        progress = self._progress
        if not (progress.files or progress.jsonl or progress.heartbeat):
            return []
        if now_boot_s - self._looked_s < FILES_EVERY_S:
            return []
        self._looked_s = now_boot_s
        steps: list[Step | None] = []
        if progress.files:
            count = sum(1 for path in glob.iglob(progress.files, recursive=True) if _is_whole(path))  # noqa: PTH207
            steps.append(Step(count, now_boot_s) if count else None)
        if progress.jsonl:
            steps.append(self._row(progress.jsonl, now_boot_s))
        if progress.heartbeat:
            steps.append(self._heartbeat(progress.heartbeat, now_boot_s))
        return steps

    def _row(self, jsonl: Mapping[str, str], now_boot_s: float) -> Step | None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            with open(jsonl["file"], "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - TAIL_BYTES))
                whole = file.read(TAIL_BYTES).rpartition(b"\n")[0]
            row = json.loads(whole.rpartition(b"\n")[2])
            loss = row.get(jsonl.get("loss", "loss"))
            return Step(int(row[jsonl.get("step", "step")]), now_boot_s, loss=None if loss is None else float(loss))
        return None

    def _heartbeat(self, path: str, now_boot_s: float) -> Step | None:
        with suppress(OSError):
            beat = Path(path).stat().st_mtime_ns
            if beat != self._beat:
                self._beat = beat
                self._beats += 1
            return Step(self._beats, now_boot_s)
        return None


def _is_whole(path: str) -> bool:
    name = Path(path).name
    unfinished = name.startswith((".", "tmp")) or name.endswith((".tmp", ".part", ".partial", ".incomplete", "~"))
    with suppress(OSError):
        return not unfinished and Path(path).stat().st_size > 0
    return False
