"""`status` in a state directory of 1,000 runs and 1,000,000 records, against one of a single short run.

    python -m benchmarks.many_runs [RUNS] [RECORDS]

One run is open and holds a fifth of all records; three more ended today; the rest rest for longer than a day. The verbs
of both directories take turns. Asked for: at most 1.3 times as long, once the files were read one time. Compared are
lower quartiles: what else the box is doing only makes a time longer.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.box import SUPERVISE
from supervisor.core import events as ev
from supervisor.core.evidence import Checkpoint, ExitRecord, Instant, MachineId
from supervisor.core.spec import RunSpec
from supervisor.edges import proc
from supervisor.edges.codec import to_plain
from supervisor.edges.journal_lines import line_of
from supervisor.edges.paths import Home, RunDir

ROUNDS = 30
ALLOWED = 1.3
RECENT = 3
LONG_AGO_S = 3 * 86400.0
EVERY_S = 0.4


def write_run(run: RunDir, records: int, ended_s: float | None) -> None:
    """A run of so many records that ended then (Unix time), or is open; its checkpoints are most of them."""
    run.path.mkdir(parents=True, mode=0o700)
    run.requests.mkdir()
    run.lock.touch(0o600)
    boot_id, wall_s = proc.boot_id(), (ended_s or time.time()) - records * EVERY_S
    machine = MachineId(boot_id, proc.machine_id(), os.uname().nodename)
    spec = RunSpec(name=run.name, command=("train.sh",), file="/w/a.yaml", workdir="/w")
    opened = ev.EpisodeOpened(request="r1", spec=spec, protected_sha256="", rungs={}, machine=machine)
    launch = ev.LaunchIntended(
        attempt=1, argv=("train.sh",), rungs={}, knobs={}, protected={}, checkpoint=None, token="t", because="up"
    )
    first = [opened, ev.PreflightPassed(roles={}), launch, ev.FirstProgress(attempt=1, step=1, startup_s=9.0)]
    saves = max(0, records - len(first) - 2)
    with open(run.journal, "wb", buffering=1 << 20) as file:
        n = 0

        def put(event: ev.Event) -> None:
            nonlocal n
            n += 1
            at = Instant(boot_id, n * EVERY_S, wall_s + n * EVERY_S)
            file.write(line_of(n, at, type(event).__name__, to_plain(event)))

        for event in first:
            put(event)
        plain = to_plain(ev.CheckpointWritten(attempt=1, checkpoint=Checkpoint("/w/c/step_0", 0, 1, 1), logged_step=1))
        for step in range(saves):
            n += 1
            plain["checkpoint"] |= {"path": f"/w/c/step_{step % 50}", "step": step, "inode": step}
            at = Instant(boot_id, n * EVERY_S, wall_s + n * EVERY_S)
            file.write(line_of(n, at, "CheckpointWritten", plain))
        if ended_s is not None:
            put(ev.JobEnded(attempt=1, end=ExitRecord(0, None), first_step=1, last_step=saves))
            put(ev.EpisodeEnded(ending="finished", because="done"))
    if ended_s is None:
        run.open.touch()
    else:
        os.utime(run.journal, (ended_s, ended_s))


def fill(root: Path, runs: int, records: int) -> None:
    """A state directory."""
    home = Home(root)
    long_run = records // 5 if runs > 1 else records
    write_run(home.run("open-run"), long_run, None)
    for n in range(runs - 1):
        ago_s = 3600.0 if n < RECENT else LONG_AGO_S
        write_run(home.run(f"run-{n}"), (records - long_run) // (runs - 1), time.time() - ago_s)


def status_s(root: Path, *words: str) -> float:
    """How long one `status` takes."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | {"SUPERVISE_HOME": str(root)}
    began_s = time.perf_counter()
    subprocess.run([*SUPERVISE, "status", *words], env=environ, check=True, capture_output=True, timeout=120)
    return time.perf_counter() - began_s


def main(argv: list[str]) -> int:
    """One line of JSON."""
    runs = int(argv[0]) if argv else 1000
    records = int(argv[1]) if len(argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory(prefix="supervise-bench-") as folder:
        few, many = Path(folder, "few"), Path(folder, "many")
        fill(few, 1, 100)
        fill(many, runs, records)
        took: dict[str, list[float]] = {"few": [], "many": []}
        first_s = [status_s(root) for root in (few, many)]
        for _ in range(ROUNDS):
            took["few"].append(status_s(few))
            took["many"].append(status_s(many))
    ms = {name: round(1000 * statistics.quantiles(times)[0], 1) for name, times in took.items()}
    ratio = ms["many"] / ms["few"]
    told = {
        "runs": runs,
        "records": records,
        "first_ms": round(1000 * first_s[1]),
        **{f"{k}_ms": v for k, v in ms.items()},
    }
    print(json.dumps({**told, "ratio": round(ratio, 2), "allowed": ALLOWED, "held": ratio <= ALLOWED}))
    return 0 if ratio <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
