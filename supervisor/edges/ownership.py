"""What a run can prove its processes by, read from its folder. Who they are now: processes.py.

A token is `NAME:RANDOM`, one per run and episode, so that a process can be told to be another run's, and which one's,
even where that run's folder is elsewhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from supervisor.core.evidence import Member, ProcessId
from supervisor.edges import proc
from supervisor.edges.paths import Home, RunDir

HIDDEN = "<secret>"
SHORTEST_HIDDEN = 6
FILE_MAX = 32 << 20
CACHE_MAX = 256
_cache: dict[str, tuple[tuple[int, int, int], tuple[Recorded, ...]]] = {}


class Recorded(Struct, frozen=True):
    """A process that the runner saw below itself, and the session that it was in."""

    id: ProcessId
    sid: int


@dataclass(frozen=True, slots=True)
class Ownership:
    """The proofs of one run. Pids and ticks mean something in the boot `boot_id` only ("" is this one).

    `earlier` are runners of attempts before, `earlier_tokens` theirs. `hide` are the values that no one may see.
    """

    run: str
    token: str
    runner: ProcessId | None = None
    runner_alive: bool = False
    cgroup: str | None = None
    recorded: tuple[Recorded, ...] = ()
    boot_id: str = ""
    earlier: tuple[ProcessId, ...] = ()
    earlier_tokens: tuple[str, ...] = ()
    hide: tuple[str, ...] = field(default=(), repr=False)

    @property
    def tokens(self) -> frozenset[str]:
        """All tokens that are this run's."""
        return frozenset(filter(None, (self.token, *self.earlier_tokens)))

    @property
    def runners(self) -> tuple[ProcessId, ...]:
        """All runners of this run, the latest first."""
        return ((self.runner,) if self.runner else ()) + self.earlier

    def shown(self, cmdline: str) -> str:
        """A command line that may be written down."""
        values = sorted(map(re.escape, self.hide), key=len, reverse=True)  # the longest first: one may hold another
        return re.sub("|".join(values), HIDDEN, cmdline) if values else cmdline


def new_token(run: str) -> str:
    """A token that no process has."""
    return f"{run}:{os.urandom(8).hex()}"


def run_of(token: str) -> str | None:
    """The run that a token names, None where it is not one of ours."""
    name, colon, _ = token.rpartition(":")
    return name if colon and name else None


def ownership_of(run: RunDir) -> Ownership | None:
    """The proofs in a run's folder; None where nothing was launched in this boot."""
    boot_id = proc.boot_id()
    runners: list[ProcessId] = []
    tokens: list[str] = []
    recorded: list[Recorded] = []
    cgroup: str | None = None
    hide: set[str] = set()
    for attempt in _attempts(run):
        launch = _object(attempt / "launch.json")
        claim = _object(attempt / "claim")
        if launch is None or claim is None or claim.get("by") != "runner" or claim.get("boot_id") != boot_id:
            continue
        runners.append(ProcessId(int(claim["pid"]), int(claim["start_ticks"])))
        tokens.append(str(launch.get("token", "")))
        recorded += read_members(attempt / "members.jsonl")
        cgroup = cgroup or launch.get("cgroup")
        hide.update(launch.get("redact", ()))
    if not runners:
        return None
    return Ownership(
        run=run.name,
        token=tokens[0],
        runner=runners[0],
        runner_alive=proc.is_alive(runners[0]),
        cgroup=cgroup,
        recorded=tuple(recorded),
        boot_id=boot_id,
        earlier=tuple(runners[1:]),
        earlier_tokens=tuple(dict.fromkeys(tokens[1:])),
        hide=_values(run, hide),
    )


def ownerships(home: Home) -> Iterator[Ownership]:
    """The proofs of every run of the state directory that launched something in this boot."""
    for name in home.names():
        found = ownership_of(home.run(name))
        if found is not None:
            yield found


def read_members(path: Path | str) -> tuple[Recorded, ...]:
    """Whom a runner recorded, the last line of each counts; torn lines are left out. Cached until the file changes."""
    try:
        seen = os.stat(path)  # noqa: PTH116 - at each look; a Path costs more than the call
    except OSError:
        return ()
    stamp = (seen.st_ino, seen.st_size, seen.st_mtime_ns)
    cached = _cache.get(str(path))
    if cached is not None and cached[0] == stamp:
        return cached[1]
    found: dict[tuple[int, int, int], Recorded] = {}
    for line in (proc.read(str(path), FILE_MAX) or b"").splitlines():
        try:
            entry = json.loads(line)
            one = Recorded(ProcessId(int(entry["pid"]), int(entry["start_ticks"])), int(entry["sid"]))
        except (ValueError, KeyError, TypeError):
            continue
        found[one.id.pid, one.id.start_ticks, one.sid] = one
    if len(_cache) >= CACHE_MAX:
        _cache.clear()
    _cache[str(path)] = (stamp, tuple(found.values()))
    return _cache[str(path)][1]


def record(path: Path, members: Iterable[Member], recorded: Iterable[Recorded]) -> None:
    """Adds to `members.jsonl` who is not in it yet. For the supervisor, and only where the runner is dead: what a
    sweep proved once must not be lost with the process that proved it. Raises OSError."""
    known = {(one.id, one.sid) for one in recorded}
    fresh = [m for m in members if (m.id, m.sid) not in known]
    lines = [json.dumps({**asdict(m.id), "pgid": m.pgid, "sid": m.sid, "cmdline": m.cmdline}) for m in fresh]
    if lines:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, ("\n" + "\n".join(lines) + "\n").encode())  # a line that the runner left torn ends here
        finally:
            os.close(fd)


def _attempts(run: RunDir) -> list[Path]:
    """The attempts' folders, the latest first."""
    try:
        return sorted((p for p in run.attempts.iterdir() if p.name.isdigit()), reverse=True)
    except OSError:
        return []


def _values(run: RunDir, names: set[str]) -> tuple[str, ...]:
    """The values of secret names in the run's environment."""
    job = ((_object(run.secrets) or {}).get("job") or {}) if names else {}
    values = {str(job[name]) for name in names if name in job}
    return tuple(sorted(v for v in values if len(v) >= SHORTEST_HIDDEN))


def _object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None where it is missing or damaged: it then proves nothing."""
    try:
        value = json.loads(proc.read(str(path), FILE_MAX) or b"")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
