"""How fast `scan` reads a healthy log, against `LC_ALL=C grep -E -c` with as many patterns on the same file.

    python benchmarks/scan_throughput.py [MiB]

Writes a log of eight ranks with progress bars (default 1024 MiB) to a temporary file, reads both ways in turns,
three times each, and prints the ratio of the best times: above 1.0 `scan` is faster. grep gets one plain text of
each signature, the form that it is fastest with; with the signatures' own patterns it is several times slower.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from supervisor.cli.scan import scan_file
from supervisor.signatures import CATALOGUE, Matcher
from supervisor.signatures.literals import split
from supervisor.signatures.marks import MARKS

_BLOCK_STEPS = 400


def write_log(path: Path, size: int) -> None:
    """Eight ranks that log each step, a bar that is redrawn, now and then a line of NCCL or a warning."""
    rng = random.Random(1)
    written = step = 0
    with path.open("wb") as stream:
        while written < size:
            block = "".join(_step(step + n, rng) for n in range(_BLOCK_STEPS)).encode()
            step += _BLOCK_STEPS
            written += stream.write(block)


def _step(step: int, rng: random.Random) -> str:
    at = f"2026-02-11 {step // 3600 % 24:02d}:{step // 60 % 60:02d}:{step % 60:02d},{rng.randint(0, 999):03d}"
    lines = [
        f"{at} [rank{rank}] INFO drafter step {step} | loss {2 + rng.random():.4f} | gnorm {rng.random():.3f} "
        f"| lr 3.00e-05 | tok/s {rng.randint(40000, 47000)} | acc_len {3 + rng.random():.2f}\n"
        for rank in range(8)
    ]
    lines += [
        f"\rTraining:  {p}%|{'█' * (p // 4):25}| {step * 10 + p}/100000 [{p}:02<{100 - p}:00, 1.{p:02d}it/s]"
        for p in range(0, 100, 10)
    ]
    if step % 50 == 0:
        lines.append(f"\ngx-node-03:41234:41901 [{step % 8}] NCCL INFO Channel 0{step % 8} : 0 -> 1 via P2P/CUMEM\n")
        lines.append("WARNING: grad norm spike, no error; retries=0 failed=0 errors=0\n")
    if step % 100 == 0:
        lines.append("[titan] INFO memory: 91.90GiB(96.77%) tps: 4,411 timeout=600s nan_steps: 0 oom_count: 0\n")
    return "".join(lines)


def plain_texts() -> list[str]:
    """One text of each signature, the longest of those that the first pass looks for: none of them is in the log."""
    # /dev/null as output would make grep stop at its first match: hence the pipe in `main`
    texts = (split(text.pattern)[0] or {text.name} for text in CATALOGUE)
    return [max(some, key=len) for some in texts]


def best_s(run: Callable[[], object]) -> float:
    """The shortest of three times."""
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    """Print one line each for grep and scan, and the ratio."""
    size = int(sys.argv[1]) << 20 if len(sys.argv) > 1 else 1 << 30
    with tempfile.TemporaryDirectory() as folder:
        log, patterns = Path(folder, "healthy.log"), Path(folder, "patterns")
        write_log(log, size)
        size = log.stat().st_size
        grep = ["grep", "-E", "-c", "-f", str(patterns), str(log)]
        patterns.write_text("\n".join(_escaped(text) for text in plain_texts()) + "\n")
        matcher = Matcher(watch=MARKS, bulk=True)
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        environment = {**os.environ, "LC_ALL": "C"}
        grep_s = best_s(lambda: subprocess.run(grep, env=environment, stdout=subprocess.PIPE, timeout=600))
        scan_s = best_s(lambda: scan_file(str(log), matcher))
        grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024
    print(f"grep -E, {len(plain_texts())} patterns: {size / grep_s / 1e6:.0f} MB/s")
    print(f"scan, {len(CATALOGUE)} signatures:   {size / scan_s / 1e6:.0f} MB/s, memory grew by {grown_mib:.1f} MiB")
    print(f"ratio: {grep_s / scan_s:.2f}")


def _escaped(text: str) -> str:
    """The text as an extended regular expression."""
    return "".join(f"\\{char}" if char in r"\.[]{}()*+?^$|" else char for char in text)


if __name__ == "__main__":
    main()
