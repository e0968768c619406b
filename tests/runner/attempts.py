"""Runs with real runners for tests, and the end of every process that they started, by pid."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from supervisor import runner
from supervisor.core.evidence import ProcessId
from supervisor.edges import proc, processes
from supervisor.edges.paths import AttemptDir, Home

ACTOR = str(Path(__file__).with_name("actor.py"))
DEADLINE_S = 60.0


def actor(*args: str) -> list[str]:
    return [sys.executable, "-I", "-S", ACTOR, *args]


def until(what: str, fact: Callable[[], Any]) -> Any:
    """The fact, as soon as it is true."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        value = fact()
        if value:
            return value
        assert time.monotonic() < deadline, f"did not come true: {what}"
        time.sleep(0.005)


@dataclass
class Attempt:
    dir: AttemptDir
    runner: subprocess.Popen[bytes]

    def text(self) -> str:
        """The output so far."""
        return self.dir.output.read_text() if self.dir.output.exists() else ""

    def said(self) -> dict[str, int]:
        """Who is in place: name to pid."""
        return said_in(self.dir.output)

    def wait_for(self, *names: str) -> dict[str, int]:
        return until(f"{names} are in place", lambda: self.said() if set(names) <= set(self.said()) else None)

    def end(self) -> dict[str, Any]:
        return until("the end is on the disk", lambda: read(self.dir.exit_json))

    def members(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.dir.members.read_text().splitlines()]

    def wait(self) -> int:
        return self.runner.wait(DEADLINE_S)


@dataclass
class Stage:
    """A state directory of the test's own."""

    root: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)
    number: int = field(default_factory=itertools.count(1).__next__)

    def token(self, run: str = "r1") -> str:
        """This stage's alone: other tests may be running on this box."""
        return f"{run}:{os.getpid()}.{self.number}"

    @property
    def home(self) -> Home:
        return Home(self.root)

    def prepare(self, argv: list[str], run: str = "r1", n: int = 1, job: dict[str, str] | None = None, **more: Any):
        folder = self.home.run(run).attempt(n)
        folder.path.mkdir(parents=True)
        secrets = {"job": {"PATH": os.environ["PATH"], **(job or {})}, "own": {}}
        self.home.run(run).secrets.write_text(json.dumps(secrets))
        launch = {"argv": argv, "cwd": str(self.root), "token": self.token(run), **more}
        folder.launch_json.write_text(json.dumps(launch))
        return folder

    def runner(self, folder: AttemptDir, stdout: Any = subprocess.DEVNULL, **more: Any) -> Attempt:
        argv = runner.command(str(folder.path))
        quiet = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": subprocess.PIPE, "cwd": "/"}
        started = subprocess.Popen(argv, **{**quiet, **more})
        self.started.append(started)
        return Attempt(folder, started)

    def launch(self, argv: list[str], run: str = "r1", n: int = 1, **more: Any) -> Attempt:
        return self.runner(self.prepare(argv, run, n, **more))

    def decoy(self, argv: list[str], **more: Any) -> subprocess.Popen[bytes]:
        """A process of somebody else, once its arguments and its environment are its own."""
        started = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **more)
        self.started.append(started)
        pid = started.pid
        until("the decoy runs its program", lambda: proc.argv(pid)[:1] == (argv[0],) and proc.environ(pid))
        return started

    def own(self, run: str = "r1") -> processes.Ownership:
        found = processes.ownership_of(self.home.run(run))
        assert found is not None
        return found

    def sweep(self, run: str = "r1") -> dict[int, Any]:
        return {m.id.pid: m for m in processes.sweep(self.own(run), self.home).members}

    def is_of_the_test(self, pid: int) -> bool:
        token = (proc.environ(pid) or {}).get("SUPERVISE_TOKEN", "")
        return ACTOR in proc.argv(pid) or token.endswith(f":{os.getpid()}.{self.number}")

    def end_all(self) -> None:
        """KILL to everybody who was started here, by pid: through the proofs, and whoever said its number."""
        for run in self.home.names():
            own = processes.ownership_of(self.home.run(run))
            while own and (members := processes.sweep(own, self.home).members):
                processes.signal_members(members, signal.SIGKILL)
            for folder in sorted(self.home.run(run).attempts.iterdir()):
                self.pids += filter(self.is_of_the_test, said_in(folder / "output.log").values())
        for pid in self.pids:
            if (ticks := proc.start_ticks(pid)) is not None:
                end(ProcessId(pid, ticks))
        for one in self.started:
            one.kill()
            one.wait(DEADLINE_S)
            if one.stderr:
                one.stderr.close()


def said_in(output: Path) -> dict[str, int]:
    """Who said its name and number."""
    words = (line.split() for line in (output.read_text().splitlines() if output.exists() else []))
    return {w[0]: int(w[1]) for w in words if len(w) == 2 and w[1].isdigit()}


def end(process: ProcessId) -> None:
    if proc.is_alive(process):
        os.kill(process.pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    seen = proc.stat(pid)
    return seen is not None and not proc.is_dead(seen)


def read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None
