"""One table of ratios against real peers on this box: `python -m benchmarks [NAME...]`; `--list` names the parts.

Below 1.0 we take less than the peer; how to read it is in README.md. Run it alone, on a quiet box: about 30 minutes.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import before_launch, core, log_latency, many_runs, peers, policy_nights, soak, sweep
from benchmarks.core import Row
from benchmarks.drawn_nights import WORLD

SCAN_MIB = 256
LATENCY_LINES = 200


def _scan() -> list[Row]:
    """`scan` of a healthy log against `grep -E`."""
    said = _said([sys.executable, "-m", "benchmarks.scan_throughput", str(SCAN_MIB)])
    grep, scan, ratio = (float(re.findall(r": +([\d.]+)", line)[0]) for line in said.splitlines()[:3])
    return [("time of `scan` / grep -E", f"{1 / ratio:.2f}", "<= 1.0", f"{scan:.0f} / {grep:.0f} MB/s")]


def _latency() -> list[Row]:
    """A line written to its hit against `tail -F | grep`."""
    with tempfile.TemporaryDirectory() as folder:
        took: list[list[float]] = []
        for name, run in (("a", log_latency.followed), ("b", log_latency.tailed)):
            log = Path(folder, f"{name}.log")
            log.touch()
            took.append(run(str(log), LATENCY_LINES))
    mine, theirs = (statistics.median(each) for each in took)
    return [("line to hit / tail -F | grep", f"{mine / theirs:.2f}", "<= 3", f"{mine:.2f} / {theirs:.2f} ms")]


def _sweep() -> list[Row]:
    """One look at all processes against psutil."""
    told = _json([sys.executable, "-m", "benchmarks.sweep"])
    detail = f"{told['sweep_ms']} / {told['psutil_ms']} ms, {told['processes']} processes"
    return [("a sweep of the box / psutil", f"{told['ratio']:.2f}", f"<= {sweep.ALLOWED}", detail)]


def _verify() -> list[Row]:
    told = _json([sys.executable, "-m", "benchmarks.verify"])
    return [("memory at its floor to verified", f"{told['worst_ms']} ms", f"<= {told['allowed_ms']} ms", "the worst")]


def _many() -> list[Row]:
    told = _json([sys.executable, "-m", "benchmarks.many_runs"])
    detail = f"{told['many_ms']} / {told['few_ms']} ms; the first look {told['first_ms']} ms"
    what = f"`status` of {told['runs']:,} runs, {told['records']:,} records / of one"
    return [(what, f"{told['ratio']:.2f}", f"<= {many_runs.ALLOWED}", detail)]


def _soak() -> list[Row]:
    told = _json([sys.executable, "-m", "benchmarks.soak"])
    grown = told["growth"]
    detail = f"{told['rss_first_mib']} to {told['rss_last_mib']} MiB, {told['fds']} descriptors, {told['took_s']} s"
    return [
        (f"memory after {told['days']:.0f} days / first hour", f"{grown['rss_mib']:.3f}", f"<= {soak.ALLOWED}", detail),
        ("descriptors likewise", f"{grown['fds']:.3f}", "<= 1.0", ""),
    ]


def _before() -> list[Row]:
    """The fingerprint of a venv against importlib.metadata and pip list; the preflight without the user's checks."""
    told = _json([sys.executable, "-m", "benchmarks.before_launch"])
    rows = [
        (
            f"fingerprint, {what}, the worst",
            f"{one['worst_ms']} ms",
            f"<= {before_launch.FINGERPRINT_S * 1000:.0f} ms",
            f"{one['ours_ms']} / importlib {one['importlib_ms']}, pip list {one['pip_ms']}, floor {one['floor_ms']} ms",
        )
        for what, one in told["fingerprints"].items()
    ]
    median, worst = told["preflight_ms"]
    limit = f"<= {before_launch.PREFLIGHT_S * 1000:.0f} ms"
    return [*rows, ("preflight of eight GPUs, the worst", f"{worst} ms", limit, f"median {median} ms")]


def _policy() -> list[Row]:
    """A thousand nights decided by the real policy, against an oracle and three habits."""
    told = policy_nights.lived(1000, 0, WORLD, policy_nights.MAKES)
    rows: list[Row] = []
    for what, of in (("ETTR", policy_nights.time_s), ("work", policy_nights.work_s)):
        for where, oom in (("", False), (", OOM nights", True)):
            means = {name: told.mean(name, of, oom=oom) for name in told.lives}
            habits = {name: means[name] for name in means if name not in ("oracle", "supervise")}
            best = max(habits, key=lambda name: habits[name])
            detail = f"{means['supervise']:.1f} %; {best} {habits[best]:.1f} %"
            behind = means["oracle"] - means["supervise"]
            rows.append((f"{what} behind the oracle{where}, points", f"{behind:.1f}", "<= 1.5", detail))
    low = 100 * len(told.too_low()) / len(told.nights)
    return [*rows, ("nights with a knob lower than needed, %", f"{low:.1f}", "<= 5", "")]


PARTS: dict[str, Callable[[], list[Row]]] = {
    "floor": peers.floor, "peers": peers.peers, **core.ALL, "latency": _latency, "scan": _scan, "sweep": _sweep,
    "verify": _verify, "many": _many, "before": _before, "policy": _policy, "soak": _soak,
}  # fmt: skip


def _said(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=3600, check=False, env=_environ())
    if not done.stdout.strip():
        raise RuntimeError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _json(argv: list[str]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(_said(argv).splitlines()[-1])
    return plain


def _environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}


def held(value: str, wanted: str) -> str:
    """`yes` or `NO` where both are figures, else nothing."""
    limit = re.fullmatch(r"<= ([\d.]+)( ms)?", wanted)
    figure = re.match(r"[\d.]+", value)
    if limit is None or figure is None:
        return ""
    return "yes" if float(figure[0]) <= float(limit[1]) else "NO"


def main(argv: list[str]) -> int:
    """1 where a part could not be measured; a figure that misses what is wanted is told, not an error."""
    if "--list" in argv:
        print(
            "\n".join(
                f"{name:10} {(part.__doc__ or '').strip().splitlines()[0] if part.__doc__ else ''}"
                for name, part in PARTS.items()
            )
        )
        return 0
    unknown = [name for name in argv if name not in PARTS]
    if unknown:
        print(f"no such part: {', '.join(unknown)}; there are: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    load = os.getloadavg()[0]
    print(
        f"{os.cpu_count()} cores, load {load:.1f}, Python {sys.version.split()[0]}"
        + (" - NOT QUIET" if load > 0.5 else "")
    )
    print(f"{'measure':52} {'value':>12} {'wanted':>12} {'held':>5}  detail")
    failed = 0
    for name in argv or list(PARTS):
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                rows = PARTS[name]()
        except Exception as error:  # noqa: BLE001 - one part that cannot be measured costs no other
            print(f"{name:52} {'failed':>12} {'':>12} {'':>5}  {type(error).__name__}: {error}", flush=True)
            failed = 1
            continue
        for what, value, wanted, detail in rows:
            print(f"{what:52} {value:>12} {wanted:>12} {held(value, wanted):>5}  {detail}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
