"""What it costs to watch eight GPUs and eight chatty logs: CPU of the supervisor, and of its NVML helper.

    python -m benchmarks.watching [SECONDS] [LINES_PER_SECOND]

A simulated run that trains on; beside it this script writes to eight logs, each so many lines a second, with bars.
The helper's figure is that of the simulated NVML, which reads files where a driver answers in microseconds.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.box import Box, box
from benchmarks.core import _cpu_s, _ours

SPEC = """\
topology: {target: 5, drafter: 3}
command: [train.sh, "--target-gpus=${{ topology.target.gpus }}", "--drafter-gpus=${{ topology.drafter.gpus }}"]
resume: {from: "checkpoints/step_*", start: step_690, arg: --resume, if_none: fail}
logs: ["logs/rank*.log"]
health: {progress: {log: 'step (?P<step>\\d+)'}}
"""
LINE = "2026-01-01 00:00:00,123 INFO [rank{0}] train.py:{1} loss 2.2528 grad_norm 0.41 lr 3.00e-05 42.3 Ktok/s\n"
BAR = "\rEvaluating:  45%|####5     | {1}/10000 [00:10<00:12,  4.5it/s]"


def main(argv: list[str]) -> int:
    """Prints per mille of a core."""
    seconds = float(argv[0]) if argv else 60.0
    per_s = int(argv[1]) if len(argv) > 1 else 20
    with box() as b:
        b.environ["SUPERVISE_SIM_SCENARIO"] = "slow"
        b.run("up", "-d", "--simulate", str(b.spec("watch", SPEC)))
        b.wait_for("sim-watch", "FirstProgress")
        supervisor = _ours(b)["supervisor"]
        pids = {"supervisor": supervisor, "NVML helper (simulated)": _helper(b)}
        logs = b.home / "runs" / "sim-watch" / "scratch" / "logs"
        logs.mkdir(exist_ok=True)
        _write(logs, 5.0, per_s)
        before = {name: _cpu_s(pid) for name, pid in pids.items()}
        lines = _write(logs, seconds, per_s)
        for name, pid in pids.items():
            share = (_cpu_s(pid) - before[name]) / seconds
            print(f"{name}: {100 * share:.2f} % of a core (wanted: <= 1 %)")
        print(f"{lines} lines and as many bars in {seconds:.0f} s, {per_s} a second in each of 8 logs")
    return 0


def _helper(b: Box) -> int:
    return next(pid for pid in b.pids() if b"gpus_helper" in Path(f"/proc/{pid}/cmdline").read_bytes())


def _write(logs: Path, seconds: float, per_s: int) -> int:
    """Ten times a second a burst into each log, as buffered output comes."""
    files = [open(logs / f"rank{n}.log", "a", buffering=1 << 20) for n in range(8)]  # noqa: SIM115  # closed below
    began_s, count = time.monotonic(), 0
    while time.monotonic() - began_s < seconds:
        for n, file in enumerate(files):
            for _ in range(per_s // 10):
                count += 1
                file.write(LINE.format(n, count) + BAR.format(n, count))
            file.flush()
        time.sleep(0.1)
    for file in files:
        file.close()
    return count


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
