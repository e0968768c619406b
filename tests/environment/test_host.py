"""Disk, shared memory, ports, commands: what the box has left."""

from __future__ import annotations

import mmap
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from supervisor.edges.host import (
    disk_free_mib,
    find_command,
    free_port,
    limits,
    port_holder,
    shm_free_mib,
    shm_leftovers,
)


def test_free_space_is_that_of_the_folder_which_will_hold_it(tmp_path):
    here = os.statvfs(tmp_path)
    free = disk_free_mib(str(tmp_path / "not" / "yet" / "there"))
    assert free == pytest.approx(here.f_bavail * here.f_frsize / 2**20, rel=0.2)
    with pytest.raises(TimeoutError):
        disk_free_mib(str(tmp_path), deadline_s=0.0)


def test_shared_memory_is_told_or_not_there(tmp_path):
    assert (shm_free_mib("/") or 0) > 0
    assert shm_free_mib(str(tmp_path / "none")) is None
    assert shm_leftovers(time.time(), str(tmp_path / "none")) == ()


def test_a_segment_that_nobody_uses_is_a_leftover_and_one_in_use_is_not(tmp_path):
    for name in ("left", "mapped", "open", "new"):
        (tmp_path / name).write_bytes(b"x" * 8192)
        os.utime(tmp_path / name, (1000, 1000))
    (tmp_path / "folder").mkdir()
    os.utime(tmp_path / "new", (5000, 5000))
    with open(tmp_path / "open", "rb"), open(tmp_path / "mapped", "rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        file.close()
        assert [Path(one.path).name for one in shm_leftovers(2000.0, str(tmp_path))] == ["left"]
        mapping.close()
    (left, *_rest) = shm_leftovers(2000.0, str(tmp_path))
    assert left.mib == pytest.approx(8192 / 2**20)


def test_a_segment_whose_owner_was_killed_is_a_leftover():
    text = "from multiprocessing import resource_tracker, shared_memory as s\nimport sys, os\n"
    text += "m = s.SharedMemory(create=True, size=4096)\nresource_tracker.unregister(m._name, 'shared_memory')\n"
    text += "print(m.name, flush=True)\nsys.stdin.read()\n"
    with subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        path = Path("/dev/shm") / child.stdout.readline().decode().strip()
        try:
            assert str(path) not in {one.path for one in shm_leftovers(time.time() + 60)}
            child.kill()
            child.wait()
            assert str(path) in {one.path for one in shm_leftovers(time.time() + 60)}
        finally:
            child.kill()
            path.unlink()


def test_limits_are_those_of_this_process():
    text = (
        subprocess.run(["sh", "-c", "ulimit -Sn"], capture_output=True, check=True, timeout=10).stdout.decode().strip()
    )
    assert limits().open_files == (None if text == "unlimited" else int(text))


def test_a_command_is_found_as_the_job_would_find_it(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n")
    assert find_command("./run.sh", str(tmp_path), {}) is None
    script.chmod(0o755)
    assert find_command("./run.sh", str(tmp_path), {}) == str(script)
    assert find_command(str(script), "/", {}) == str(script)
    assert find_command("run.sh", "/", {"PATH": str(tmp_path)}) == str(script)
    assert find_command("run.sh", "/", {"PATH": "/nowhere"}) is None


def test_a_free_port_is_free_and_outside_the_kernels_own_picks():
    port = free_port()
    assert port_holder(port) is None
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert port < first or first <= 20_064
    assert free_port({port}) != port


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "::1"])
def test_a_listener_is_named_with_its_pid(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind((host, 0))
    except OSError:
        pytest.skip("no IPv6 here")
    with listener:
        listener.listen()
        holder = port_holder(listener.getsockname()[1]) or ""
        assert holder.startswith(f"pid {os.getpid()}: ")


def test_an_orphaned_listener_of_a_killed_run_is_named():
    text = "import socket, sys\ns = socket.socket()\ns.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
    text += "s.bind(('', 0))\ns.listen()\nprint(s.getsockname()[1], flush=True)\nsys.stdin.read()\n"
    with subprocess.Popen(
        [sys.executable, "-c", text, "decoy"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as child:
        assert child.stdout is not None
        try:
            port = int(child.stdout.readline())
            holder = port_holder(port) or ""
            assert holder.startswith(f"pid {child.pid}: ") and "import socket" in holder
        finally:
            child.kill()
            child.wait()
        assert port_holder(port) is None


def test_connections_that_only_wait_out_do_not_hold_a_port():
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=10) as caller:
            served, _ = listener.accept()
            served.close()  # the side that closes first waits out
            assert caller.recv(1) == b""
    until_s = time.monotonic() + 60
    while not waits_out(port):  # the last packet may still be on its way
        assert time.monotonic() < until_s
    assert port_holder(port) is None


def waits_out(port: int) -> bool:
    """Whether a connection of this port is in TIME_WAIT."""
    lines = Path("/proc/net/tcp").read_text().splitlines()
    return any(f":{port:04X} " in line and " 06 " in line for line in lines)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may listen on every port")
def test_a_port_that_is_not_allowed_is_not_free():
    assert "not allowed" in (port_holder(80) or "")
