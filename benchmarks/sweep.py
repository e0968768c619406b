"""How long one sweep of a box with 500 processes takes, against psutil reading the same environments in the same run.

    python benchmarks/sweep.py [PROCESSES]

Asked for: at most 0.5 of psutil's time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from supervisor.edges import proc, processes
from supervisor.edges.paths import Home

ROUNDS = 15
MEMBERS = 40
ALLOWED = 0.5


def medians_ms(*works: Callable[[], object]) -> list[float]:
    """The works take turns, so that whatever else the box does meets all of them."""
    took: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for mine, work in zip(took, works, strict=True):
            began = time.perf_counter()
            work()
            mine.append((time.perf_counter() - began) * 1000)
    return [statistics.median(mine) for mine in took]


def main() -> int:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    token = processes.new_token("bench")
    tagged = {**os.environ, "SUPERVISE_TOKEN": token}
    count = max(MEMBERS, wanted - len(proc.pids()))
    trainer = [sys.executable, "-I", "-S", "-c", "import os, signal; [os.dup(0) for _ in range(40)]; signal.pause()"]
    started = [subprocess.Popen(trainer, env=tagged, start_new_session=True) for _ in range(MEMBERS)]
    started += [subprocess.Popen(["sleep", "1000"]) for _ in range(count - MEMBERS)]
    try:
        with tempfile.TemporaryDirectory() as root:
            home = Home(Path(root))
            ownership = processes.Ownership("bench", token)
            found = len(processes.sweep(ownership, home).members)
            ours, theirs = medians_ms(
                lambda: processes.sweep(ownership, home), lambda: list(psutil.process_iter(["environ"]))
            )
        seen = len(proc.pids())
    finally:
        for one in started:
            one.kill()
        for one in started:
            one.wait()
    assert found == MEMBERS, f"{found} members found, {MEMBERS} are there"
    ratio = ours / theirs
    result = {"processes": seen, "members": found, "sweep_ms": round(ours, 2), "psutil_ms": round(theirs, 2)}
    print(json.dumps({**result, "ratio": round(ratio, 3), "allowed": ALLOWED, "held": ratio <= ALLOWED}))
    return 0 if ratio <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
