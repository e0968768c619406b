"""Great amounts at once: a log of nothing but redrawn bars, a burst that a follower has to catch up with, 64 files.

    python -m benchmarks.log_burst [bars|burst|ranks]... [--mib N]

Prints the rate, the CPU time, by how much memory grew, and the longest single poll (a stop waits that long at most).
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.scan_throughput import write_log
from supervisor.cli.scan import scan_file
from supervisor.core.evidence import Hit
from supervisor.edges.logs import Follower
from supervisor.signatures import Matcher
from supervisor.signatures.marks import MARKS

FAILURE = b"\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.74 GiB.\n"
RANKS, RANKS_MBS, RANKS_S = 64, 50, 10.0

_WRITER = """
import os, sys, time
folder, ranks, bps, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
fds = [os.open(f"{folder}/rank{n}.log", os.O_WRONLY | os.O_APPEND) for n in range(ranks)]
line = b"2026-02-11 00:00:00,000 [rank0] INFO drafter step 1 | loss 2.1000 | gnorm 0.500 | lr 3.00e-05\\n"
piece = line * (4096 // len(line))
began, written = time.monotonic(), 0
while (now := time.monotonic()) - began < seconds:
    if written > (now - began) * bps:
        time.sleep(0.001)
        continue
    for fd in fds:
        written += os.write(fd, piece)
"""


def peak_mib() -> float:
    """The most memory this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def bars(folder: Path, size: int) -> str:
    """`scan` of one line of that many bytes, redrawn and never ended, with a failure at its end."""
    log = folder / "bars.log"
    bar = "".join(f"\rTraining:  {p}%|{'█' * (p // 4):25}| {p}/100 [00:{p:02}<00:10]" for p in range(100)).encode()
    with log.open("wb") as stream:
        while stream.tell() < size:
            stream.write(bar * 100)
        stream.write(FAILURE)
    matcher = Matcher(watch=MARKS, bulk=True)
    before, began, cpu = peak_mib(), time.perf_counter(), time.process_time()
    report = scan_file(str(log), matcher)
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert report.cause is not None
    kind = report.cause.hit.kind
    size = log.stat().st_size
    return (
        f"bars: {size / 1e6:.0f} MB, {size / took / 1e6:.0f} MB/s ({size / cpu / 1e6:.0f} MB per CPU second), "
        f"memory +{peak_mib() - before:.1f} MiB, {kind}"
    )


def burst(folder: Path, size: int) -> str:
    """A follower that looked away while so much was written."""
    log = folder / "burst.log"
    log.touch()
    follower = Follower([str(log)], Matcher())
    follower.poll()
    write_log(folder / "piece.log", 64 << 20)
    piece = (folder / "piece.log").read_bytes()
    with log.open("ab") as stream:
        while stream.tell() < size:
            stream.write(piece)
        stream.write(FAILURE)
    del piece
    before, began, cpu = peak_mib(), time.perf_counter(), time.process_time()
    longest, hits = 0.0, 0
    while True:
        at = time.perf_counter()
        hits += sum(isinstance(one, Hit) for one in follower.poll())
        longest = max(longest, time.perf_counter() - at)
        if not follower.lagging:
            break
    hits += sum(isinstance(one, Hit) for one in follower.flush())
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    follower.close()
    size = log.stat().st_size
    return (
        f"burst: {size / 1e6:.0f} MB caught up in {took:.1f} s ({size / cpu / 1e6:.0f} MB per CPU second), "
        f"memory +{peak_mib() - before:.1f} MiB, longest poll {longest * 1e3:.0f} ms, {hits} hits"
    )


def ranks(folder: Path, _size: int) -> str:
    """64 rank files at 50 MB/s in total: how far behind, and what it costs."""
    logs = [folder / f"rank{n}.log" for n in range(RANKS)]
    for log in logs:
        log.touch()
    follower = Follower([str(log) for log in logs], Matcher())
    argv = [sys.executable, "-c", _WRITER, str(folder), str(RANKS), str(RANKS_MBS * 1e6), str(RANKS_S)]
    before, cpu, began = peak_mib(), time.process_time(), time.perf_counter()
    behind = 0
    with subprocess.Popen(argv) as writer:
        while writer.poll() is None:
            follower.poll()
            behind = max(behind, sum(file.size - file.at for file in follower._files.values()))
            time.sleep(0.01)
    wrote, ended = sum(log.stat().st_size for log in logs), time.perf_counter()
    while True:
        follower.poll()
        if not follower.lagging:
            break
    late, cpu = time.perf_counter() - ended, time.process_time() - cpu
    follower.close()
    return (
        f"ranks: {RANKS} files, {wrote / (ended - began) / 1e6:.0f} MB/s for {ended - began:.0f} s, at most "
        f"{behind / 1e6:.1f} MB behind, done {late * 1e3:.0f} ms after the last write, "
        f"{cpu / (ended - began):.0%} of a core, memory +{peak_mib() - before:.1f} MiB"
    )


def main() -> None:
    """The named ones, else all."""
    words = sys.argv[1:]
    mib = int(words[words.index("--mib") + 1]) if "--mib" in words else None
    named = [word for word in words if word in ("bars", "burst", "ranks")] or ["bars", "burst", "ranks"]
    for name, run, size in (("bars", bars, mib or 1024), ("burst", burst, mib or 2048), ("ranks", ranks, 0)):
        if name in named:
            with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
                print(run(Path(folder), size << 20), flush=True)


if __name__ == "__main__":
    main()
