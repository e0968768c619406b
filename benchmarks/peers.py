"""Others that keep one process alive, beside us on the same box: start, a killed child replaced, the cost of waiting.

The child stamps the clock and its pid into a file and sleeps. `floor` is a loop of ten lines: what the machine takes.
torchrun is that of $TORCHRUN or .venv-torch; supervisord is installed into .venv-peers, apart, because it is imported
by the same name as this program. What is not there is left out, and said.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.box import Box, boot_s, box
from benchmarks.core import HAVE_TORCHRUN, TORCHRUN, Row, _cpu_s, _ms, _ours, _rss_mib

ROOT = Path(__file__).parents[1]
VENV = ROOT / ".venv-peers"
SUPERVISORD = "supervisor==4.3.0"
CHILD = (
    "import os,sys,time\n"
    "open(sys.argv[1], 'a').write(f'{time.clock_gettime(time.CLOCK_BOOTTIME)} {os.getpid()}\\n')\n"
    "time.sleep(600)\n"
)
FLOOR = """
import os, subprocess, sys
while True:
    child = subprocess.Popen(sys.argv[1:])
    fd = os.pidfd_open(child.pid)
    import select
    select.select([fd], [], [])
    os.close(fd)
    child.wait()
"""
ROUNDS = 5
IDLE_S = float(os.environ.get("BENCH_IDLE_S", "30"))


def supervisord() -> str | None:
    """Its program; installed once. None where it cannot be had."""
    program = VENV / "bin" / "supervisord"
    if not program.exists():
        pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        for argv in ([sys.executable, "-m", "venv", str(VENV)], [*pip, "setuptools<81", SUPERVISORD]):
            if subprocess.run(argv, capture_output=True, timeout=300, check=False).returncode:
                return None
    return str(program)


def commands(b: Box, child: list[str]) -> dict[str, list[str]]:
    """How each peer is told to keep the child alive."""
    found = {
        "floor": [sys.executable, "-I", "-S", "-c", FLOOR, *child],
        "bash loop": ["bash", "-c", 'while :; do "$@"; sleep 1; done', "bash", *child],
    }
    if HAVE_TORCHRUN:
        found["torchrun"] = [
            TORCHRUN, "--standalone", "--nproc-per-node=1", "--max-restarts=100", "--no-python", *child,
        ]  # fmt: skip
    program = supervisord()
    if program is not None:
        conf = b.work / "supervisord.conf"
        conf.write_text(
            f"[supervisord]\nnodaemon=true\nlogfile={b.work}/sd.log\npidfile={b.work}/sd.pid\n"
            f"childlogdir={b.work}\n"
            f"[program:child]\ncommand={' '.join(child)}\nautorestart=true\nstartsecs=0\n"
        )
        found["supervisord"] = [program, "-n", "-c", str(conf)]
    return found


@contextmanager
def running(b: Box, argv: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A peer in a session of its own; it and its children are gone afterwards."""
    peer = subprocess.Popen(
        argv,
        cwd=b.work,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield peer
    finally:
        peer.kill()
        peer.wait()
        for pid in b.pids():
            if pid != os.getpid():
                os.kill(pid, signal.SIGKILL)


def stamps(path: Path, count: int, timeout_s: float = 60.0) -> list[tuple[float, int]]:
    """The first so many stamps, as soon as they are there."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        whole = [line.split() for line in lines if line.endswith("\n")]
        if len(whole) >= count:
            return [(float(at), int(pid)) for at, pid in whole[:count]]
        time.sleep(0.001)
    raise TimeoutError(f"{path}: fewer than {count} stamps")


def measured(b: Box, argv: list[str], stamp: Path) -> tuple[float, float, float, float]:
    """Median seconds to the child, median seconds to its replacement, MiB resident, ms of CPU a minute."""
    started, replaced = [], []
    for _ in range(ROUNDS):
        stamp.unlink(missing_ok=True)
        began = boot_s()
        with running(b, argv):
            ((at, pid),) = stamps(stamp, 1)
            started.append(at - began)
            time.sleep(0.3)
            killed = boot_s()
            os.kill(pid, signal.SIGKILL)
            replaced.append(stamps(stamp, 2)[1][0] - killed)
    stamp.unlink(missing_ok=True)
    with running(b, argv) as peer:
        stamps(stamp, 1)
        time.sleep(3)
        before = _cpu_s(peer.pid)
        time.sleep(IDLE_S)
        cpu_ms, rss = 1000 * (_cpu_s(peer.pid) - before) * 60 / IDLE_S, _rss_mib(peer.pid)
    return statistics.median(started), statistics.median(replaced), rss, cpu_ms


def ours(b: Box, child: list[str], stamp: Path) -> tuple[float, float, float, float]:
    """The same of a run. The time to a replacement holds a stop, a sweep and the verification of its end."""
    started, replaced = [], []
    more = "recovery: {max_attempts: 100}\n"
    for n in range(ROUNDS):
        stamp.unlink(missing_ok=True)
        spec = b.spec(f"p{n}", f"command: {child!r}\n{more}")
        began = boot_s()
        b.run("up", "-d", str(spec))
        ((at, pid),) = stamps(stamp, 1)
        started.append(at - began)
        time.sleep(0.3)
        killed = boot_s()
        os.kill(pid, signal.SIGKILL)
        replaced.append(stamps(stamp, 2)[1][0] - killed)
        if n < ROUNDS - 1:
            b.run("down", f"p{n}", "-y")
    time.sleep(3)
    pid = _ours(b)["supervisor"]
    before = _cpu_s(pid)
    time.sleep(IDLE_S)
    cpu_ms, rss = 1000 * (_cpu_s(pid) - before) * 60 / IDLE_S, _rss_mib(pid)
    b.run("down", f"p{ROUNDS - 1}", "-y")
    return statistics.median(started), statistics.median(replaced), rss, cpu_ms


def peers() -> list[Row]:
    """Ours over each peer's."""
    with box() as b:
        stamp = b.work / "stamp"
        script = b.script("child.py", CHILD)
        child = [str(script), str(stamp)]
        mine = ours(b, child, stamp)
        theirs = {name: measured(b, argv, stamp) for name, argv in commands(b, child).items()}
    rows: list[Row] = []
    for name, of in theirs.items():
        for what, one, other, show in zip(
            ("start to the child", "killed child replaced", "MiB resident", "CPU of waiting"),
            mine,
            of,
            _SHOWN,
            strict=True,
        ):
            ratio = f"{one / other:.2f}" if other > 0 else "no cost"
            rows.append((f"{what} / {name}", ratio, "", show(one, other)))
    missing = {"torchrun", "supervisord"} - theirs.keys()
    return rows + [(f"{name}", "left out", "", "it is not here") for name in sorted(missing)]


def _plain(unit: str) -> Callable[..., str]:
    return lambda *values: " / ".join(f"{value:.1f}" for value in values) + f" {unit}"


_SHOWN: tuple[Callable[..., str], ...] = (_ms, _ms, _plain("MiB"), _plain("ms a minute"))


def floor() -> list[Row]:
    """What this machine takes for the least: nothing can be faster than these."""
    import tempfile

    def best_ms(work: Callable[[], object], times: int = 20) -> str:
        took = []
        for _ in range(times):
            began = time.perf_counter()
            work()
            took.append(time.perf_counter() - began)
        return f"{1000 * statistics.median(took):.2f} ms"

    true = shutil.which("true") or "/bin/true"
    with tempfile.TemporaryDirectory() as folder, open(Path(folder, "f"), "wb", buffering=0) as file:
        rows = [
            ("floor: a process that ends", best_ms(lambda: subprocess.run([true], check=True))),
            (
                "floor: a Python that ends",
                best_ms(lambda: subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)),
            ),
            ("floor: a line on the disk (fsync)", best_ms(lambda: (file.write(b"x" * 200), os.fsync(file.fileno())))),
            ("floor: a list of all processes", best_ms(lambda: os.listdir("/proc"))),  # noqa: PTH208
        ]
    return [(what, took, "", "") for what, took in rows]
