"""The one file with secret values, and keeping them out of every other. Not which names are secret in a spec.

`secrets.json` (0600) holds two sets of environment variables: `job`, what the job gets, and `own`, what supervisors
of the run get. A verb stages its sets under its request's id; they replace the run's only when the supervisor accepts
the request (`commit`), so an `up` that is refused never changes a live run's environment.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from supervisor.edges.files import fsync_dir, make_private_dir, read_json, to_json, write_atomic
from supervisor.edges.locks import Lock
from supervisor.edges.paths import RunDir

REDACTED = "<secret>"
SHORTEST = 6
"""Values below this length are not redacted: they would blot out ordinary words."""
_LOCK_WAIT_S = 5.0
_WORDS = frozenset({"TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL"})

Env = Mapping[str, str]


class Secrets(NamedTuple):
    """Two environments: the job's, and that of the run's supervisors."""

    job: dict[str, str]
    own: dict[str, str]

    def __repr__(self) -> str:
        """Names only: this must be safe to print."""
        return f"Secrets(job={sorted(self.job)}, own={sorted(self.own)})"


def is_secret_name(name: str) -> bool:
    """Whether a variable's name says that its value is secret: one of the five words between underscores."""
    return not _WORDS.isdisjoint(name.upper().split("_"))


def stage(run_dir: RunDir, request_id: str, job: Env, own: Env) -> None:
    """Keep the sets under the id of a request that is put after this. Raises OSError, TimeoutError."""
    make_private_dir(run_dir.path)
    with _changing(run_dir) as content:
        content["pending"][request_id] = {"job": dict(job), "own": dict(own)}


def commit(run_dir: RunDir, request_id: str) -> bool:
    """The request was accepted: its sets are the run's now. False when it has none staged (any more)."""
    with _changing(run_dir) as content:
        staged = content["pending"].pop(request_id, None)
        if staged is None:
            return False
        content["job"], content["own"] = staged["job"], staged["own"]
        return True


def drop(run_dir: RunDir, request_id: str) -> None:
    """The request was refused or answered: what it staged goes."""
    with _changing(run_dir) as content:
        content["pending"].pop(request_id, None)


def load(run_dir: RunDir) -> Secrets | None:
    """The run's sets; None when none were committed. Raises ValueError for damage."""
    content = _read(run_dir)
    if content["job"] is None or content["own"] is None:
        return None
    return Secrets(content["job"], content["own"])


def load_staged(run_dir: RunDir, request_id: str) -> Secrets | None:
    """What a request staged, for judging it before it is accepted."""
    staged = _read(run_dir)["pending"].get(request_id)
    return Secrets(staged["job"], staged["own"]) if staged else None


def own_for_start(run_dir: RunDir) -> dict[str, str] | None:
    """The environment for a supervisor of the run: the committed one, else that of the oldest staged request.

    None when there is neither. Raises ValueError for damage.
    """
    content = _read(run_dir)
    if content["own"] is not None:
        return dict(content["own"])
    oldest = min(content["pending"], default=None)
    return None if oldest is None else dict(content["pending"][oldest]["own"])


def delete(run_dir: RunDir) -> None:
    """The run ended: its values go from the disk. What a request that still waits has staged stays with it."""
    with _changing(run_dir) as content:
        content["job"] = content["own"] = None
        waiting = {path.stem for path in run_dir.requests.glob("*.json")}
        for request_id in set(content["pending"]) - waiting:
            if _is_old(request_id):
                del content["pending"][request_id]
    for leftover in run_dir.path.glob(f".{run_dir.secrets.name}.*.tmp"):
        leftover.unlink(missing_ok=True)  # of a writer that was killed: it holds values too


class Redactor:
    """Replaces secret values in text, also where they are written as JSON or in a URL, and line by line."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values for form in _forms(value) if len(form) >= SHORTEST}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def text(self, text: str) -> str:
        """The text without the values."""
        return self._pattern.sub(REDACTED, text) if self._pattern else text

    def plain(self, value: Any) -> Any:
        """A plain value (JSON-like) with every string in it redacted, keys too."""
        if self._pattern is None:
            return value
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.plain(key): self.plain(item) for key, item in value.items()}
            case list() | tuple():
                return [self.plain(item) for item in value]
        return value


def _forms(value: str) -> Iterator[str]:
    from urllib.parse import quote  # here, because the guardian never needs it and stays small

    yield value
    yield to_json(value)[1:-1].decode("ascii")
    yield quote(value, safe="")
    yield repr(value)[1:-1]
    if "\n" in value:
        yield from (line.strip() for line in value.splitlines())


def _read(run_dir: RunDir) -> dict[str, Any]:
    found = read_json(run_dir.secrets)
    content: dict[str, Any] = {"job": None, "own": None, "pending": {}}
    if found is None:
        return content
    if not isinstance(found, dict) or not isinstance(found.get("pending", {}), dict):
        raise ValueError(f"{run_dir.secrets}: not a file of this program")
    content |= found
    staged = [(one.get("job"), one.get("own")) for one in content["pending"].values() if isinstance(one, dict)]
    if len(staged) < len(content["pending"]) or not all(
        _is_env(env) or env is None for pair in [(content["job"], content["own"]), *staged] for env in pair
    ):
        raise ValueError(f"{run_dir.secrets}: holds something else than environments")
    return content


def _is_env(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


@contextmanager
def _changing(run_dir: RunDir) -> Iterator[dict[str, Any]]:
    """Read, change, write as one step: verbs and the supervisor change the same file."""
    lock = _take(run_dir, time.monotonic, time.sleep)
    try:
        content = _read(run_dir)
        before = to_json(content)
        yield content
        if content["job"] is None and content["own"] is None and not content["pending"]:
            if run_dir.secrets.exists():
                run_dir.secrets.unlink()
                fsync_dir(run_dir.path)
        elif to_json(content) != before:
            write_atomic(run_dir.secrets, to_json(content))
    finally:
        lock.release()


def _take(run_dir: RunDir, now: Callable[[], float], sleep: Callable[[float], None]) -> Lock:
    path = run_dir.path / "secrets.lock"
    deadline = now() + _LOCK_WAIT_S
    while True:
        lock = Lock.try_take(path)
        if lock is not None:
            return lock
        if now() > deadline:
            raise TimeoutError(f"{path}: held for {_LOCK_WAIT_S:g} s by another process")
        sleep(0.002)


def _is_old(request_id: str) -> bool:
    """Staged ten minutes ago or more (ids begin with the time): a verb that never put its request."""
    head = request_id.partition("-")[0]
    return not head.isdigit() or abs(time.time() - int(head) / 1e9) > 600.0
