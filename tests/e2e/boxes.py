"""A box of its own for each night: state directory, locks, tmux server and processes; nothing is left of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from supervisor.edges import proc
from supervisor.edges.files import read_json
from supervisor.edges.locks import is_held, read_note
from supervisor.edges.paths import Home, RunDir
from supervisor.edges.tmux import Tmux

T = TypeVar("T")

REPO = Path(__file__).parents[2]
WITHIN_S = 120.0
"""Generous: it ends a test that would hang, it measures nothing."""
LOOK_S = 0.005
MOMENT_S = 30.0
"""For what ends by itself: milliseconds, also where the box is busy with other tests."""


@dataclass(frozen=True)
class Said:
    """How a verb ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def until(fact: Callable[[], T], what: str | Callable[[], str], within_s: float = WITHIN_S) -> T:
    """The first true answer of `fact`."""
    deadline_s = time.monotonic() + within_s
    while not (answer := fact()):
        if time.monotonic() > deadline_s:
            pytest.fail(f"not within {within_s:.0f} s: {what if isinstance(what, str) else what()}")
        time.sleep(LOOK_S)
    return answer


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file that may still grow, without a last one that is half written; none where there is no file."""
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1].splitlines()


def is_alive(pid: int | None) -> bool:
    seen = proc.stat(pid) if pid else None
    return seen is not None and not proc.is_dead(seen)


def kill(*processes: int | None, with_: int = signal.SIGKILL) -> None:
    """One signal to each, as close together as a program can; those that are gone already are fine."""
    fds = []
    for pid in processes:
        if pid is not None and pid > 1:
            with contextlib.suppress(ProcessLookupError):
                fds.append(os.pidfd_open(pid))
    for fd in fds:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, with_)
    for fd in fds:
        os.close(fd)


class Night:
    """One run of a box, as its files, its verbs and its processes show it."""

    def __init__(self, box: Box, name: str) -> None:
        self.box = box
        self.name = name
        self.dir: RunDir = box.home.run(name)

    # -- what is written

    def records(self, *types: str) -> list[dict[str, Any]]:
        """The whole records of the journal, of these types or all; `data` holds the fields."""
        found = [json.loads(line) for line in whole_lines(self.dir.journal)]
        return [one for one in found if not types or one["type"] in types]

    def has(self, type_: str, **fields: Any) -> list[dict[str, Any]]:
        """The records of this type with these fields."""
        return [one for one in self.records(type_) if fields.items() <= one["data"].items()]

    def until(self, type_: str, **fields: Any) -> dict[str, Any]:
        """The first such record, as soon as it is there."""
        return until(lambda: self.has(type_, **fields), lambda: f"{type_} {fields} among {self._seen()}")[0]

    def _seen(self) -> str:
        return " ".join(one["type"] for one in self.records())

    def output(self, attempt: int = 1) -> str:
        path = self.dir.attempt(attempt).output
        return path.read_text(errors="replace") if path.exists() else ""

    # -- what the verbs say

    def status(self) -> dict[str, Any]:
        said = self.box.supervise("status", self.name, "-o", "json", code=0)
        return said.json["runs"][0]

    def history(self) -> dict[str, Any]:
        return self.box.supervise("history", self.name, "-o", "json", code=0).json

    def wait(self, code: int = 0) -> Said:
        return self.box.supervise("wait", self.name, "--timeout", f"{WITHIN_S:.0f}s", code=code)

    def down(self, code: int = 0) -> Said:
        return self.box.supervise("down", self.name, "-y", code=code)

    # -- who lives

    @property
    def supervisor(self) -> int | None:
        """The process that holds the run's lock."""
        if not is_held(self.dir.lock):
            return None
        return _pid(read_note(self.dir.lock))

    def runner(self, attempt: int = 1) -> int | None:
        found = read_json(self.dir.attempt(attempt).claim)
        return found["pid"] if found and found["by"] == "runner" and is_alive(found["pid"]) else None

    def members(self, attempt: int = 1) -> list[int]:
        """Everybody whom the attempt recorded, dead or alive; the leader first."""
        lines = whole_lines(self.dir.attempt(attempt).members)
        return [json.loads(line)["pid"] for line in lines if b'"pid"' in line]

    def leader(self, attempt: int = 1) -> int:
        return until(lambda: self.members(attempt), f"{self.name}: leader of attempt {attempt}")[0]

    def until_supervised(self, but: Iterable[int | None] = ()) -> int:
        """A supervisor that is not one of these."""
        former = set(but)

        def another() -> int | None:
            pid = self.supervisor
            return pid if pid not in former else None

        pid = until(another, f"{self.name}: a new supervisor")
        assert pid is not None
        return pid


class Box:
    """A state directory with its processes, all below one folder that they can be known by."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = Home(root / "state")
        self.work = root / "work"
        self.work.mkdir(parents=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SUPERVISE_", "CUDA_"))}
        self.environ = kept | {
            "SUPERVISE_HOME": str(self.home.root),
            "SUPERVISE_LOCKS": str(root / "locks"),
            "SUPERVISE_DEV": str(root / "dev"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }
        self.nights: dict[str, Night] = {}
        self.verbs: list[subprocess.Popen[str]] = []
        self.closing = contextlib.ExitStack()

    def supervise(self, *argv: str, code: int | None = None, within_s: float = WITHIN_S, **environ: str) -> Said:
        """A verb, ended; `code`: the exit code that is expected of it."""
        done = subprocess.run(
            [sys.executable, "-m", "supervisor.cli", *argv],
            cwd=self.work,
            env=self.environ | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=within_s + 10,
            check=False,
        )
        said = Said(done.returncode, done.stdout, done.stderr)
        assert code is None or said.code == code, f"supervise {' '.join(argv)}: {said}"
        return said

    def start(self, *argv: str, **environ: str) -> subprocess.Popen[str]:
        """A verb that goes on; whatever is left of it is ended with the box."""
        verb = subprocess.Popen(
            [sys.executable, "-m", "supervisor.cli", *argv],
            cwd=self.work,
            env=self.environ | environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self.verbs.append(verb)
        return verb

    def write(self, name: str, text: str, mode: int = 0o644) -> Path:
        """A file in the work folder."""
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def spec(self, name: str, command: str, more: str = "") -> Path:
        """A small spec without GPUs whose job is this /bin/sh text; the journal and verbs call it `name`."""
        script = self.write(f"{name}.sh", f"#!/bin/sh\n{command}\n", 0o755)
        return self.write(f"{name}.yaml", f"version: 1\nname: {name}\ncommand: [{script}]\n{more}")

    def up(self, spec: Path, *flags: str, code: int = 0, **environ: str) -> Night:
        """`up -d`, and the run that it names."""
        self.supervise("up", "-d", *flags, str(spec), code=code, **environ)
        name = next(line.split()[1] for line in spec.read_text().splitlines() if line.startswith("name:"))
        return self.night(f"sim-{name}" if "--simulate" in flags else name)

    def night(self, name: str) -> Night:
        return self.nights.setdefault(name, Night(self, name))

    # -- who lives

    @property
    def guardian(self) -> int | None:
        """The process that holds the guardian's lock."""
        return _pid(read_note(self.home.guardian_lock)) if is_held(self.home.guardian_lock) else None

    @property
    def followed_guardian(self) -> int | None:
        """The guardian, once its understudy is there: killed before, with its supervisor, it leaves nobody behind."""
        guardian = self.guardian
        return guardian if self.understudies() else None

    def understudies(self) -> list[int]:
        """The guardian's own forks, which wait for its lock.

        A second guardian that was started meanwhile is none: it finds the lock taken and ends.
        """
        guardian = self.guardian
        return [pid for pid in self.guardians() if guardian is not None and _parent(pid) == guardian]

    def guardians(self) -> list[int]:
        """Everybody who is a guardian, its understudy, or about to see that there is one."""
        wanted = ("supervisor.guardian", "--home", str(self.home.root))
        return [pid for pid in proc.pids() if all(word in proc.argv(pid) for word in wanted) and is_alive(pid)]

    @property
    def tmux(self) -> int | None:
        return Tmux(self.home).server_pid()

    def everybody(self) -> dict[int, str]:
        """Every process whose arguments, environment or folder name this box."""
        mark = str(self.root)
        found = {}
        for pid in proc.pids():
            if pid == os.getpid() or not is_alive(pid):
                continue
            told = [*proc.argv(pid), *(proc.environ(pid) or {}).values(), _folder(pid)]
            if any(mark in one for one in told):
                found[pid] = proc.cmdline(pid)
        return found

    # -- the end

    def close(self) -> None:
        """Every run down; guardian, supervisors and tmux ended by the pids recorded here; then nobody may be left."""
        for verb in self.verbs:
            verb.kill()  # one that has ended gets nothing
            verb.communicate()
        self.closing.close()
        unended = [name for name in self.home.names() if self._is_unended(name)]
        self._end_guardians()
        kill(self.tmux)
        left = self._left()
        kill(*left)  # so that no later test meets them; this one fails
        assert not unended, f"`down` did not end {unended}"
        assert not left, f"left behind: {left}"
        groups = [path for path in self.cgroups() if path.exists()]
        for path in groups:
            path.rmdir()
        assert not groups, f"cgroups left behind: {groups}"

    def _is_unended(self, name: str) -> bool:
        mark = self.home.run(name).open
        if not mark.exists():
            return False
        self.supervise("down", name, "-y")
        deadline_s = time.monotonic() + MOMENT_S  # it is answered before the supervisor tidies up and ends
        while mark.exists() and time.monotonic() < deadline_s:
            time.sleep(LOOK_S)
        return mark.exists()

    def _end_guardians(self) -> None:
        """And supervisors: each sees to it that the other is there, so together, and again until there is none."""

        def gone() -> bool:
            found = [pid for pid, cmdline in self.everybody().items() if _OURS.search(cmdline)]
            kill(*found)
            return not found

        until(gone, "guardians and supervisors end")

    def _left(self) -> dict[int, str]:
        """Who stays. What was just told to end (tmux, a runner without children, a verb) gets a moment."""
        deadline_s = time.monotonic() + MOMENT_S
        while (left := self.everybody()) and time.monotonic() < deadline_s:
            time.sleep(LOOK_S)
        return left

    def cgroups(self) -> Iterator[Path]:
        """Where the attempts of this box had a cgroup of their own."""
        for name in self.home.names():
            for launch in self.home.run(name).attempts.glob("*/launch.json"):
                if path := (read_json(launch) or {}).get("cgroup"):
                    yield Path(path)


_OURS = re.compile(r" -m supervisor\.(guardian|supervise_run)( |$)")


def _parent(pid: int) -> int | None:
    seen = proc.stat(pid)
    return seen.ppid if seen else None


def _folder(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


def _pid(note: str | None) -> int | None:
    return int(note.split()[0]) if note and note.split() and note.split()[0].isdigit() else None
