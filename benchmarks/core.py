"""The figures of the spine, as ratios against real peers in one run: `python -m benchmarks.core [NAME...]`.

torchrun is taken from $TORCHRUN, else .venv-torch/bin/torchrun, else left out. README.md says how to read the table.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.box import STAMP, Box, boot_s, box, percentile

TORCHRUN = os.environ.get("TORCHRUN") or str(Path(__file__).parents[1] / ".venv-torch" / "bin" / "torchrun")
HAVE_TORCHRUN = shutil.which(TORCHRUN) is not None
Row = tuple[str, str, str, str]


def launch() -> list[Row]:
    """`up -d` to the job's first instruction, against torchrun's."""
    rows: list[Row] = []
    with box() as b:
        stamp = b.work / "stamp"
        job = b.script("job.py", STAMP + "\nimport time; time.sleep(60)")
        ours: list[float] = []
        for n in range(10):
            spec = b.spec(f"l{n}", f"command: [{job}, {stamp}]\n")
            stamp.unlink(missing_ok=True)
            began = boot_s()
            b.run("up", "-d", str(spec))
            ours.append(_stamped(stamp) - began)
            b.run("down", f"l{n}", "-y")
        peers: list[float] = []
        if HAVE_TORCHRUN:
            script = b.work / "first.py"
            script.write_text(STAMP)
            for _ in range(5):
                stamp.unlink(missing_ok=True)
                began = boot_s()
                subprocess.run(
                    [TORCHRUN, "--nproc-per-node=1", "--standalone", str(script), str(stamp)],
                    capture_output=True,
                    timeout=120,
                    check=True,
                )
                peers.append(_stamped(stamp) - began)
    mine = statistics.median(ours)
    if peers:
        theirs = statistics.median(peers)
        rows.append(("up -d to first instruction / torchrun", f"{mine / theirs:.2f}", "<= 0.4", _ms(mine, theirs)))
    else:
        rows.append(("up -d to first instruction", _ms(mine), "<= 0.4 x torchrun", "no torchrun here"))
    return rows


def _stamped(path: Path, timeout_s: float = 30.0) -> float:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if path.exists() and path.read_text().endswith("\n"):
            return float(path.read_text().splitlines()[-1])
        time.sleep(0.001)
    raise TimeoutError(f"{path} was never written")


def _ms(*seconds: float) -> str:
    return " / ".join(f"{1000 * one:.1f}" for one in seconds) + " ms"


def ends() -> list[Row]:
    """From a job's last instruction to the record of its end."""
    count = int(os.environ.get("BENCH_ENDS", "200"))
    late: list[float] = []
    lost = 0
    with box() as b:
        stamp = b.work / "stamp"
        job = b.script("job.py", "import os,time\ntime.sleep(0.4)\n" + STAMP + "\nos._exit(3)")
        rules = (
            "recovery:\n  max_attempts: 100000\n  backoff: {first: 1ms, cap: 1ms}\n"
            "  rules: [{on: exit, do: relaunch, wait: 1ms}]\n"
        )
        b.run("up", "-d", str(b.spec("ends", f"command: [{job}, {stamp}]\n{rules}")))
        for n in range(1, count + 1):
            try:
                ended = b.wait_for("ends", "JobEnded", n)
            except TimeoutError:
                lost += 1
                break
            lines = stamp.read_text().splitlines()
            late.append(ended["at"]["boot_s"] - float(lines[n - 1]))
        b.run("down", "ends", "-y", check=False)
    return [
        ("end of the job known, p99", _ms(percentile(late, 0.99)), "<= 10 ms", f"median {_ms(percentile(late, 0.5))}"),
        ("ends lost", f"{lost} of {count}", "0 of 200", ""),
    ]


def lines() -> list[Row]:
    """From the write of a deciding line to the hit in the journal, against `tail -F | grep`."""
    count = 60
    writer = (
        "import sys,time\n"
        f"for n in range({count}):\n"
        "    time.sleep(0.05)\n"
        "    t = time.clock_gettime(time.CLOCK_BOOTTIME)\n"
        "    print(f'torch.OutOfMemoryError: stamp={t:.6f} CUDA out of memory. Tried to allocate 4.74 GiB. GPU 5 has a"
        " total capacity of 94.97 GiB of which 4.57 GiB is free. Including non-PyTorch memory, this process has 90.40"
        " GiB memory in use. Of the allocated memory 90.29 GiB is allocated by PyTorch, and 56.32 MiB is reserved by"
        " PyTorch but unallocated.', flush=True)\n"
        "time.sleep(30)\n"
    )
    with box() as b:
        job = b.script("job.py", writer)
        b.run("up", "-d", str(b.spec("lines", f"command: [{job}]\n")))
        hits = [b.wait_for("lines", "HitSeen", n + 1) for n in range(count)]
        ours = [h["at"]["boot_s"] - float(h["data"]["text"].split("stamp=")[1].split()[0]) for h in hits]
        theirs = _tail_grep(b, writer, count)
    mine, peer = statistics.median(ours), statistics.median(theirs)
    return [
        ("log line to hit, median / tail -F | grep", f"{mine / peer:.1f}", "<= 3", _ms(mine, peer)),
        ("log line to hit, p99", _ms(percentile(ours, 0.99)), "<= 10 ms", f"peer {_ms(percentile(theirs, 0.99))}"),
    ]


def _tail_grep(b: Box, writer: str, count: int) -> list[float]:
    log = b.work / "peer.log"
    log.touch()
    pipe = subprocess.Popen(
        ["sh", "-c", f"exec tail -n +1 -F {log} 2>/dev/null | exec grep --line-buffered 'out of memory'"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with open(log, "ab") as out:
        job = subprocess.Popen([sys.executable, "-c", writer], stdout=out)
    late: list[float] = []
    assert pipe.stdout is not None
    for line in pipe.stdout:
        late.append(boot_s() - float(line.split("stamp=")[1].split()[0]))
        if len(late) == count:
            break
    job.kill()
    job.wait()
    os.killpg(pipe.pid, signal.SIGKILL)
    pipe.wait()
    pipe.stdout.close()
    return late


def idle() -> list[Row]:
    """Memory and CPU of a supervisor that watches a job which does nothing, against torchrun's agent."""
    rows: list[Row] = []
    watch_s = float(os.environ.get("BENCH_IDLE_S", "30"))
    with box() as b:
        b.run("up", "-d", str(b.spec("idle", "command: [sleep, '600']\n")))
        b.wait_for("idle", "FirstProgress")
        time.sleep(5)
        pids = _ours(b)
        before = {name: _cpu_s(pid) for name, pid in pids.items()}
        time.sleep(watch_s)
        cpu = {name: (_cpu_s(pid) - before[name]) * 60 / watch_s for name, pid in pids.items()}
        rss = {name: _rss_mib(pid) for name, pid in pids.items()}
        b.run("down", "idle", "-y")
        limits = {"supervisor": "<= 42", "guardian": "<= 16", "runner": "<= 16"}
        rows += [
            (f"{name}, MiB resident", f"{rss[name]:.1f}", limits[name], f"{1000 * cpu[name]:.0f} ms CPU/min")
            for name in limits
            if name in rss
        ]
        if HAVE_TORCHRUN:
            script = b.work / "sleep.py"
            script.write_text("import time; time.sleep(600)")
            agent = subprocess.Popen(
                [TORCHRUN, "--nproc-per-node=1", "--standalone", str(script)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            time.sleep(8)
            began = _cpu_s(agent.pid)
            time.sleep(watch_s)
            theirs = (_cpu_s(agent.pid) - began) * 60 / watch_s
            os.killpg(agent.pid, signal.SIGTERM)
            agent.wait()
            ratio = cpu["supervisor"] / theirs
            rows.append(("supervisor's own CPU / torchrun's", f"{ratio:.2f}", "<= 0.2", _ms(cpu["supervisor"], theirs)))
    return rows


def _ours(b: Box) -> dict[str, int]:
    found: dict[str, int] = {}
    for pid in b.pids():
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        text = b" ".join(argv)
        for name, mark in (("supervisor", b"supervise_run"), ("guardian", b"guardian"), ("runner", b"runner.py")):
            if mark in text and b"sh" not in argv[:1]:
                found.setdefault(name, pid)
    return found


def _cpu_s(pid: int) -> float:
    """From schedstat: nanoseconds on the CPU of the main thread, and of the others."""
    return sum(int(p.read_text().split()[0]) for p in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def relaunch() -> list[Row]:
    """From the record of verified zero to the relaunched job's first instruction."""
    with box() as b:
        stamp = b.work / "stamp"
        job = b.script("job.py", STAMP + "\nimport time; time.sleep(0.3); sys.exit(3)")
        rules = "recovery: {max_attempts: 1000, rules: [{on: exit, do: relaunch, wait: 1ms}]}\n"
        b.run("up", "-d", str(b.spec("again", f"command: [{job}, {stamp}]\n{rules}")))
        b.wait_for("again", "Launched", 45, timeout_s=120)
        b.run("down", "again", "-y")
        # with a wait in the rule zero is verified twice; the second one is the one before the launch
        stamps = [float(line) for line in stamp.read_text().splitlines()]
        zeros = [r["at"]["boot_s"] for r in b.records("again") if r["type"] == "VerifiedZero"]
    late = [min(after) for after in ([s - zero for s in stamps if s > zero] for zero in zeros) if after]
    gaps = [one for one in late if one < 0.3]
    return [
        (
            "verified zero to first instruction, median",
            _ms(statistics.median(gaps)),
            "<= 150 ms",
            f"p99 {_ms(percentile(gaps, 0.99))}",
        )
    ]


def verbs() -> list[Row]:
    """Wall time of the verbs that read."""
    rows: list[Row] = []
    with box() as b:
        b.run("up", "-d", str(b.spec("verbs", "command: [sleep, '600']\n")))
        for verb in (["status"], ["logs", "verbs"], ["history", "verbs"]):
            times = []
            for _ in range(15):
                began = time.perf_counter()
                b.run(*verb)
                times.append(time.perf_counter() - began)
            limit = "" if verb[0] == "history" else "<= 120 ms"
            rows.append((f"`{verb[0]}`, wall", _ms(statistics.median(times)), limit, ""))
        b.run("down", "verbs", "-y")
    return rows


ALL: dict[str, Callable[[], list[Row]]] = {
    "launch": launch, "ends": ends, "lines": lines, "idle": idle, "relaunch": relaunch, "verbs": verbs,
}  # fmt: skip


def main(names: list[str]) -> int:
    """One table."""
    print(f"{'measure':48} {'value':>16} {'wanted':>18}  detail")
    for name in names or list(ALL):
        for what, value, wanted, detail in ALL[name]():
            print(f"{what:48} {value:>16} {wanted:>18}  {detail}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
