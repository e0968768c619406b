"""From the write of a failure line to its hit, against `tail -F | grep`, in turns on the same box.

    python benchmarks/log_latency.py [lines]

Prints p50 and p99 of both in milliseconds, and the ratio of the medians.
"""

from __future__ import annotations

import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from supervisor.core.evidence import Hit
from supervisor.edges.logs import Follower
from supervisor.signatures import Matcher

_WRITER = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
for n in range(int(sys.argv[2])):
    time.sleep(0.01)
    os.write(fd, b"RuntimeError: CUDA error: out of memory %d\\n" % time.monotonic_ns())
"""


def followed(log: str, count: int) -> list[float]:
    """Milliseconds from write to hit."""
    follower = Follower([log], Matcher())
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, log, str(count)])
    times: list[float] = []
    while len(times) < count:
        select.select([follower.wake_fd], [], [], 1.0)
        for hit in follower.poll():
            if isinstance(hit, Hit):
                times.append((time.monotonic_ns() - int(hit.text.split()[-1])) / 1e6)
    writer.wait(60)
    follower.close()
    return times


def tailed(log: str, count: int) -> list[float]:
    """The same for `tail -F | grep`."""
    tail = subprocess.Popen(["tail", "-n", "0", "-F", log], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    grep = subprocess.Popen(["grep", "--line-buffered", "memory"], stdin=tail.stdout, stdout=subprocess.PIPE)
    time.sleep(0.5)
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, log, str(count)])
    assert grep.stdout is not None
    times = []
    for _ in range(count):
        line = grep.stdout.readline()
        times.append((time.monotonic_ns() - int(line.split()[-1])) / 1e6)
    writer.wait(60)
    tail.terminate()
    tail.wait(10)
    grep.wait(10)
    return times


def main() -> None:
    """Three rounds of each, in turns."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for n in range(3):
            for name, run, times in (("a", followed, ours), ("b", tailed, theirs)):
                log = Path(folder, f"{name}{n}.log")
                log.touch()
                times += run(str(log), count)
    for name, times in (("follower", ours), ("tail -F | grep", theirs)):
        times.sort()
        print(f"{name}: p50 {statistics.median(times):.2f} ms, p99 {times[int(len(times) * 0.99) - 1]:.2f} ms")
    print(f"ratio of the medians: {statistics.median(ours) / statistics.median(theirs):.1f}")


if __name__ == "__main__":
    main()
