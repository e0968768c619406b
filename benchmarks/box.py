"""A box of its own for a measurement: state directory, locks, jobs that stamp the clock. Nothing is measured here."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SUPERVISE = [sys.executable, "-m", "supervisor.cli"]
STAMP = "import sys,time; open(sys.argv[1], 'a').write(f'{time.clock_gettime(time.CLOCK_BOOTTIME)}\\n')"


def boot_s() -> float:
    """CLOCK_BOOTTIME, the clock of the journal."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Box:
    """One state directory under a temporary folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.work = root / "work"
        self.work.mkdir()
        self._read: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        self.environ = {
            # PYTHON*: a shell that forbids bytecode files would have every verb compile what was edited since
            **{k: v for k, v in os.environ.items() if not k.startswith(("SUPERVISE_", "PYTHON"))},
            "SUPERVISE_HOME": str(self.home),
            "SUPERVISE_LOCKS": str(root / "locks"),
        }

    def spec(self, name: str, text: str) -> Path:
        """A spec file; `text` follows version and name."""
        path = self.work / f"{name}.yaml"
        path.write_text(f"version: 1\nname: {name}\n{text}")
        return path

    def script(self, name: str, text: str) -> Path:
        """A Python script that may be executed."""
        path = self.work / name
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(0o755)
        return path

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """One verb, waited for."""
        done = subprocess.run(
            [*SUPERVISE, *argv], env=self.environ, cwd=self.work, capture_output=True, text=True, timeout=120
        )
        if check and done.returncode:
            raise RuntimeError(f"{argv}: exit {done.returncode}: {done.stderr}")
        return done

    def records(self, name: str) -> list[dict[str, Any]]:
        """The journal's records. Only what is new is read: who waits for one must not take the processor from us."""
        path = self.home / "runs" / name / "journal.jsonl"
        at, known = self._read.get(name, (0, []))
        if path.exists():
            with open(path, "rb") as file:
                file.seek(at)
                whole = file.read().rpartition(b"\n")[0]  # the last line may be half written
            if whole:
                known = known + [json.loads(line) for line in whole.splitlines()]
                self._read[name] = at + len(whole) + 1, known
        return known

    def wait_for(self, name: str, kind: str, count: int = 1, timeout_s: float = 60.0) -> dict[str, Any]:
        """The `count`-th record of a type."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            found = [record for record in self.records(name) if record["type"] == kind]
            if len(found) >= count:
                return found[count - 1]
            time.sleep(0.01)
        raise TimeoutError(f"{name}: no {kind} after {timeout_s} s")

    def pids(self) -> list[int]:
        """Processes of ours that belong to this box: they carry its path in argv or environment."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                    if str(self.root).encode() in text:
                        found.append(int(entry.name))
        return found


@contextmanager
def box() -> Iterator[Box]:
    """A box that is gone afterwards, with all that was started in it."""
    root = Path(tempfile.mkdtemp(prefix="supervise-bench-"))
    made = Box(root)
    try:
        yield made
    finally:
        for name in [p.name for p in (made.home / "runs").glob("*")] if made.home.exists() else []:
            made.run("down", name, "-y", check=False)
        for _ in range(3):
            for pid in made.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.2)
        shutil.rmtree(root, ignore_errors=True)


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
