"""The kernel's log: who the memory killer ended, what the driver reported, and that it may not be read."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from supervisor.core.aftermath import CouldNotTell, KernelSaid, OomKill, Xid
from supervisor.edges import cgroup_kills
from supervisor.edges.kernel_log import KernelLog, pci_address

MEMCG = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job,task_memcg=/job,"
    "task=python3,pid=4711,uid=0"
)
KILLED = "Memory cgroup out of memory: Killed process 4711 (python3) total-vm:61440kB, anon-rss:30000kB"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python3, GPU has fallen off the bus."


class Ring:
    """A stand-in for /dev/kmsg: a FIFO gives what was written in one piece, so records are read one at a time."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self.reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.writer = os.open(path, os.O_WRONLY)

    def say(self, log: KernelLog, text: str, *, at_s: float = 50.0, priority: int = 4) -> KernelSaid:
        """One record, and what the log knows then."""
        asleep = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
        os.write(self.writer, f"{priority},17,{round((at_s - asleep) * 1e6)},-;{text}\n SUBSYSTEM=pci\n".encode())
        said = log.look({4711}, {"00000000:3B:00": "GPU-b"}, same_namespace=True)
        assert isinstance(said, KernelSaid)
        return said


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    made = Ring(tmp_path / "kmsg")
    yield made
    os.close(made.reader)
    os.close(made.writer)


@pytest.fixture
def log(ring: Ring) -> Iterator[KernelLog]:
    made = KernelLog(10.0, ring.path)
    yield made
    made.close()


def test_a_kill_of_a_member_is_ours_and_told_once_for_both_of_its_lines(ring: Ring, log: KernelLog):
    ring.say(log, MEMCG)
    said = ring.say(log, KILLED)
    assert said.oom_kills == (OomKill(4711, "python3", MEMCG, True, pytest.approx(50.0, abs=1.0)),)


def test_a_kill_of_another_process_is_not_ours(ring: Ring, log: KernelLog):
    assert ring.say(log, KILLED.replace("4711", "99")).oom_kills[0].ours is False


def test_an_old_kernels_wording_counts_too(ring: Ring, log: KernelLog):
    said = ring.say(log, "Out of memory: Kill process 4711 (train) score 917 or sacrifice child")
    assert (said.oom_kills[0].pid, said.oom_kills[0].name) == (4711, "train")


def test_in_another_pid_namespace_nobody_can_tell_whose_a_pid_is(ring: Ring, log: KernelLog):
    ring.say(log, KILLED)
    said = log.look({4711}, {}, same_namespace=False)
    assert isinstance(said, KernelSaid) and said.oom_kills[0].ours is None


def test_an_xid_is_of_the_gpu_at_its_address(ring: Ring, log: KernelLog):
    said = ring.say(log, XID)
    assert said.xids == (Xid(79, XID, "GPU-b", True, pytest.approx(50.0, abs=1.0)),)


@pytest.mark.parametrize("pid", ["pid=<unknown>, ", "", "pid='4712', "])
def test_an_xid_that_names_no_process_of_ours_is_not_ours(ring: Ring, log: KernelLog, pid: str):
    said = ring.say(log, f"NVRM: Xid (PCI:0000:af:00 GPU-I:03): 94, {pid}Contained")
    assert said.xids[0].code == 94 and said.xids[0].gpu is None and said.xids[0].ours is False


def test_what_was_said_before_the_attempt_is_not_of_it(ring: Ring, log: KernelLog):
    assert ring.say(log, XID, at_s=9.0) == KernelSaid()


def test_what_a_program_wrote_there_is_not_the_kernels_word(ring: Ring, log: KernelLog):
    assert ring.say(log, XID, priority=12) == KernelSaid()


def test_a_damaged_record_is_passed_over(ring: Ring, log: KernelLog):
    os.write(ring.writer, b"what is this\n")
    assert log.look((), {}, same_namespace=True) == KernelSaid()


def test_a_log_that_is_not_there_could_not_tell(tmp_path: Path):
    said = KernelLog(0.0, str(tmp_path / "none")).look((), {}, same_namespace=True)
    assert isinstance(said, CouldNotTell) and "No such file" in said.why


@pytest.mark.parametrize("text", ["PCI:0000:3b:00", "0000:3B:00.0", "00000000:3B:00.0", "PCI:3b:00"])
def test_one_address_in_all_its_spellings(text: str):
    assert pci_address(text) == "00000000:3B:00"


# ── the real kernel ──────────────────────────────────────────────────────────────────────────────────────────────────

EATER = """
import os, sys
sys.stdin.readline()
held = []
while True:
    held.append(bytearray(os.urandom(1 << 20)))
"""


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A memory cgroup of 48 MiB, where this box lets us make one."""
    path = cgroup_kills.ROOT / "memory" / f"supervise-test-{os.getpid()}"
    try:
        path.mkdir()
        (path / "memory.limit_in_bytes").write_text(str(48 << 20))
    except OSError:
        pytest.skip("no memory cgroup can be made here")
    yield path
    with suppress(OSError):
        path.rmdir()


@pytest.mark.real
def test_a_real_kill_is_counted_by_the_cgroup_and_named_by_the_kernel(small_cgroup: Path):
    began_s = time.clock_gettime(time.CLOCK_BOOTTIME) - 0.5
    with subprocess.Popen([sys.executable, "-c", EATER], stdin=subprocess.PIPE) as eater:
        (small_cgroup / "cgroup.procs").write_text(str(eater.pid))
        before = cgroup_kills.kills(eater.pid)
        assert before == (str(small_cgroup), 0)
        eater.communicate(b"\n", timeout=60)
    assert eater.returncode == -9
    assert cgroup_kills.count_at(str(small_cgroup)) == 1
    log = KernelLog(began_s)
    said = log.look({eater.pid}, {}, same_namespace=True)
    log.close()
    if isinstance(said, KernelSaid):  # else it may not be read here
        assert [kill.ours for kill in said.oom_kills if kill.pid == eater.pid] == [True]
