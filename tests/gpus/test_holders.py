"""Holders of GPUs, found in the real /proc; regular files stand for the device nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.core.evidence import Gpu, Holder, Owner
from supervisor.edges import proc
from supervisor.edges.holders import HoldersSeen, find_holders, user_of

GPUS = tuple(Gpu(index, f"GPU-{index}", "", 97249.0, minor=7 - index) for index in range(3))
LISTS = {gpu.uuid: () for gpu in GPUS}

HOLD = "import sys; files = [open(path, 'rb') for path in sys.argv[1:]]; print('held', flush=True); sys.stdin.read()"
MAP = """
import mmap, sys
files = [open(path, 'rb') for path in sys.argv[1:]]
maps = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) for file in files]
for file in files:
    file.close()
import os
for fd in range(3, 32):
    try:
        os.close(fd)
    except OSError:
        pass
print('held', flush=True)
sys.stdin.read()
"""


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", *(f"nvidia{minor}" for minor in range(8))):
        (tmp_path / name).write_bytes(b"device")
    return tmp_path


Start = Callable[..., int]


@pytest.fixture
def start(dev: Path) -> Iterator[Start]:
    """`start(how, *device names)`: a process that has them; its pid."""
    made: list[subprocess.Popen[bytes]] = []

    def begin(how: str | list[str], *names: str) -> int:
        argv = [sys.executable, "-c", how] if isinstance(how, str) else how
        argv += [str(dev / name) for name in names]
        made.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        out = made[-1].stdout
        assert out is not None and out.readline() == b"held\n"
        return made[-1].pid

    yield begin
    for each in made:
        each.kill()
        each.communicate()


def nobody_knows(pid: int) -> tuple[Owner, str | None]:
    return Owner.UNKNOWN, None


def seen(
    dev: Path, nvml: dict[str, tuple[int, ...]] | None = None, initial: bool = True, gpus: tuple[Gpu, ...] = GPUS
) -> HoldersSeen:
    return find_holders(gpus, {**LISTS, **(nvml or {})}, nobody_knows, dev=str(dev), initial=initial)


def pids(found: HoldersSeen) -> list[tuple[str, int]]:
    return [(holder.gpu, holder.pid) for holder in found.holders]


def test_nobody_holds_an_idle_gpu(dev: Path) -> None:
    assert seen(dev).holders == ()
    assert HoldersSeen((), ()).sees_all and not HoldersSeen((), ("unknown holder possible",)).sees_all


def test_a_holder_has_uvm_and_is_found_on_the_gpu_whose_node_it_has(dev: Path, start: Start) -> None:
    pid = start(HOLD, "nvidia-uvm", "nvidia7", "nvidiactl")  # minor 7 is index 0
    found = seen(dev)
    assert pids(found) == [("GPU-0", pid)]
    holder = found.holders[0]
    assert holder.user == user_of(os.getpid()) and "sys.stdin.read" in holder.cmdline and holder.owner is Owner.UNKNOWN


def test_an_open_gpu_node_alone_is_a_client_and_no_holder(dev: Path, start: Start) -> None:
    start(HOLD, "nvidia7", "nvidiactl", "nvidia-uvm-tools")
    assert pids(seen(dev)) == []


def test_a_mapped_uvm_counts_though_nothing_is_open(dev: Path, start: Start) -> None:
    pid = start(MAP, "nvidia-uvm", "nvidia6")
    assert pids(seen(dev)) == [("GPU-1", pid)]


def test_uvm_without_any_node_may_hold_every_gpu(dev: Path, start: Start) -> None:
    pid = start(HOLD, "nvidia-uvm")
    assert pids(seen(dev)) == [("GPU-0", pid), ("GPU-1", pid), ("GPU-2", pid)]


def test_a_process_whose_main_thread_has_exited_still_holds(
    dev: Path, start: Start, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program = tmp_path_factory.mktemp("c") / "zombie_leader"
    source = Path(__file__).parent / "stub" / "zombie_leader.c"
    subprocess.run(["gcc", "-pthread", "-o", str(program), str(source)], check=True, timeout=60)
    pid = start([str(program)], "nvidia-uvm", "nvidia7")
    until = time.monotonic() + 60
    while (at := proc.stat(pid)) is not None and at.state != "Z" and time.monotonic() < until:
        os.sched_yield()
    assert at is not None and at.state == "Z" and at.threads == 2
    assert [*Path(f"/proc/{pid}/fd").iterdir()] == []
    assert pids(seen(dev)) == [("GPU-0", pid)]


def test_a_dead_process_that_nobody_has_reaped_holds_nothing(dev: Path) -> None:
    uvm = str(dev / "nvidia-uvm")
    argv = [sys.executable, "-c", f"open({uvm!r})"]
    with subprocess.Popen(argv) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert pids(seen(dev)) == []


def test_whom_nvml_lists_is_a_holder_where_its_pids_are_ours(dev: Path, start: Start) -> None:
    pid = start(HOLD)
    assert pids(seen(dev, {"GPU-2": (pid,)})) == [("GPU-2", pid)]


def test_where_nvml_lists_a_process_that_decides_on_which_gpu(dev: Path, start: Start) -> None:
    pid = start(HOLD, "nvidia-uvm", "nvidia7", "nvidia6", "nvidia5")  # cuInit opens them all
    assert pids(seen(dev, {"GPU-1": (pid,)})) == [("GPU-1", pid)]


def test_a_listed_pid_without_a_process_is_told_as_it_is(dev: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    found = seen(dev, {"GPU-0": (gone.pid,)})
    assert [holder.cmdline for holder in found.holders] == ["gone from /proc, but NVML lists it"]


def test_a_number_of_another_pid_namespace_is_never_taken_for_a_process_here(dev: Path, start: Start) -> None:
    innocent = start(HOLD)
    found = seen(dev, {"GPU-0": (innocent,)}, initial=False)
    assert [(holder.pid, holder.owner) for holder in found.holders] == [(0, Owner.UNKNOWN)]
    assert f"pid {innocent} in the host's PID namespace" in found.holders[0].cmdline
    assert any("PID namespace of its own" in said for said in found.could_not_see)


def test_a_number_that_exists_here_and_has_the_device_is_believed(dev: Path, start: Start) -> None:
    pid = start(HOLD, "nvidia-uvm", "nvidia7")
    assert pids(seen(dev, {"GPU-0": (pid,)}, initial=False)) == [("GPU-0", pid)]


def test_our_own_holder_under_its_host_number_is_one_holder_not_two(dev: Path, start: Start) -> None:
    pid = start(HOLD, "nvidia-uvm", "nvidia7")
    assert pids(seen(dev, {"GPU-0": (900001,)}, initial=False)) == [("GPU-0", pid)]
    assert pids(seen(dev, {"GPU-0": (900001, 900002)}, initial=False)) == [("GPU-0", pid), ("GPU-0", 0)]


def test_the_owner_is_whom_the_caller_says(dev: Path, start: Start) -> None:
    start(HOLD, "nvidia-uvm", "nvidia7")
    found = find_holders(GPUS, LISTS, lambda pid: (Owner.RUN, "dflash"), dev=str(dev), initial=True)
    assert (found.holders[0].owner, found.holders[0].run) == (Owner.RUN, "dflash")


def test_a_list_that_nvml_did_not_give_is_said(dev: Path) -> None:
    found = find_holders(GPUS, {"GPU-0": ()}, nobody_knows, dev=str(dev), initial=True)
    assert "NVML's process list was not to be had for GPU 1, 2" in found.could_not_see


ASK = """
import json, os, sys
sys.path.insert(0, sys.argv[2])
from supervisor.core.evidence import Gpu, Owner
from supervisor.edges.holders import find_holders
if sys.argv[3:]:
    os.setuid(int(sys.argv[3]))
nvml = json.loads(sys.stdin.readline() or '[]')
gpu = Gpu(0, 'GPU-0', '', 1.0, minor=7)
found = find_holders([gpu], {'GPU-0': tuple(nvml)}, lambda pid: (Owner.UNKNOWN, None), dev=sys.argv[1])
print(json.dumps([[h.pid for h in found.holders], found.could_not_see]))
"""
ROOT_OF_CODE = str(Path(__file__).parents[2])


def test_what_an_unprivileged_user_may_not_look_into_is_an_unknown_holder(dev: Path, start: Start) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, to become somebody else")
    start(HOLD, "nvidia-uvm", "nvidia7")
    argv = [sys.executable, "-c", ASK, str(dev), ROOT_OF_CODE, "65534"]
    done = subprocess.run(argv, input=b"", capture_output=True, check=True, timeout=60)
    found, could_not_see = json.loads(done.stdout)
    assert found == []
    assert any("unknown holder possible" in said and "of root" in said for said in could_not_see)


@pytest.mark.real
def test_in_a_pid_namespace_of_its_own_nvmls_number_of_an_innocent_process_is_not_believed(dev: Path) -> None:
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False, timeout=60).returncode != 0:
        pytest.skip("no PID namespace to be had here (needs root)")
    script = f'sleep 60 & echo "[$!]" | {sys.executable} -c "$0" {dev} {ROOT_OF_CODE}; kill $!'
    done = subprocess.run([*unshare, "sh", "-c", script, ASK], capture_output=True, check=True, timeout=60)
    found, could_not_see = json.loads(done.stdout)
    assert found == [0]
    assert any("PID namespace of its own" in said for said in could_not_see)


def test_a_holder_is_named_by_its_user_and_a_gone_one_is_not() -> None:
    assert user_of(os.getpid()) != "?"
    assert user_of(2**22) == "?"
    assert Holder("GPU-0", 0, "?", "", Owner.UNKNOWN).run is None
