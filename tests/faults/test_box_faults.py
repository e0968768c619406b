"""A box without descriptors, inotify, cgroups, room or an answer from tmux: survived, told, and nothing doubled."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chaos import Box, Night, kill, until

pytestmark = pytest.mark.real
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do this to a box")
STEPS = 'echo "begun" >> starts; n=0; while :; do n=$((n+1)); echo step $n; sleep 0.1; done'
AGAIN = """\
health: {progress: {log: 'step (?P<step>\\d+)'}}
recovery: {max_attempts: 1000, stop: {grace: 2s}, rules: [{on: [killed, exit], do: relaunch, wait: 1ms}]}
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.close()


def begun(box: Box) -> int:
    """How often the job says that it began."""
    path = box.work / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def relaunched_once(box: Box, night: Night, attempt: int) -> None:
    """That attempt trains, and as many jobs began as were launched."""
    night.until("FirstProgress", attempt=attempt)
    assert [one["data"]["attempt"] for one in night.records("LaunchIntended")] == list(range(1, attempt + 1))
    assert begun(box) == attempt


def told(night: Night, text: str) -> None:
    """Among the warnings, and so in `history -v`."""
    until(lambda: [w for w in night.records("Warned") if text in w["data"]["text"]], f"{text!r} is told")
    assert text in night.box.supervise("history", night.name, "-v", code=0).out


def test_without_descriptors_nothing_is_launched_twice_and_later_it_goes_on(box: Box) -> None:
    night = box.up(box.spec("a", STEPS, AGAIN))
    night.until("FirstProgress", attempt=1)
    supervisor = night.supervisor
    assert supervisor is not None
    had = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
    resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (3, had[1]))  # what is open stays; nothing more can be opened
    kill(night.leader())
    until(
        lambda: night.has("JobEnded", attempt=1) or night.supervisor != supervisor,
        "its end is known, or it is replaced",
    )
    if night.supervisor == supervisor:
        assert begun(box) == 1
        with contextlib.suppress(ProcessLookupError):  # it is being replaced
            resource.prlimit(supervisor, resource.RLIMIT_NOFILE, had)
    relaunched_once(box, night, 2)


def test_a_tmux_server_that_stands_still_holds_up_a_relaunch_and_doubles_nothing(box: Box) -> None:
    night = box.up(box.spec("a", STEPS, AGAIN))
    night.until("FirstProgress", attempt=1)
    server = box.tmux
    assert server is not None
    os.kill(server, signal.SIGSTOP)
    try:
        kill(night.leader())
        night.until("LaunchIntended", attempt=2)
        kill(night.supervisor)
        assert begun(box) == 1
    finally:
        os.kill(server, signal.SIGCONT)
    relaunched_once(box, night, 2)


def test_a_removed_socket_costs_nothing(box: Box) -> None:
    night = box.up(box.spec("a", STEPS, AGAIN))
    night.until("FirstProgress", attempt=1)
    server = box.tmux
    box.home.tmux_sock.unlink()
    kill(night.leader())
    relaunched_once(box, night, 2)
    assert box.tmux == server


@pytest.fixture
def full(box: Box) -> Iterator[Path]:
    """A disk of one MiB for outputs."""
    disk = box.work / "out"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", str(disk)], check=False).returncode:
        pytest.skip("no disk can be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@as_root
def test_a_full_output_disk_halts_the_run_with_the_reason_and_is_not_tried_again(box: Box, full: Path) -> None:
    job = box.write(
        "save.py", "f = open('out/shard', 'wb', buffering=0)\nwhile True: assert f.write(b'x' * 4096) == 4096\n"
    )
    night = box.up(box.spec("a", f"echo begun >> starts; echo step 1; {sys.executable} {job}", AGAIN))
    night.wait(9)
    assert begun(box) == 1
    assert night.history()["attempts"][0]["end"]["kind"] == "disk_full"
    assert night.status()["phase"] == "halted"


def entered(box: Box, before: str, *flags: str) -> Night:
    """`up -d` of a run in namespaces of its own, in which this was done before."""
    spec = box.spec("a", STEPS, AGAIN)
    argv = ["unshare", *flags, "sh", "-c", f'{before} && exec "$@"', "sh", sys.executable, "-m", "supervisor.cli"]
    done = subprocess.run(
        [*argv, "up", "-d", str(spec)], cwd=box.work, env=box.environ, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.stderr.startswith(("unshare:", "mount:", "sh:")):
        pytest.skip(f"not to be had here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return box.night("a")


@as_root
def test_where_no_cgroup_can_be_made_the_run_does_without(box: Box) -> None:
    mounts = "$(awk '$3 ~ /^cgroup2?$/ {print $2}' /proc/mounts)"
    night = entered(box, f'for at in {mounts}; do mount -o remount,ro,bind "$at" || exit; done', "-m")
    night.until("FirstProgress", attempt=1)
    assert [*box.cgroups()] == []
    kill(night.leader())
    relaunched_once(box, night, 2)


@as_root
def test_without_inotify_logs_are_read_all_the_same_and_it_is_told(box: Box) -> None:
    night = entered(box, "echo 0 > /proc/sys/user/max_inotify_instances", "-U", "-r")
    night.until("FirstProgress", attempt=1)
    told(night, "logs are looked at once a second only")
    kill(night.leader())
    relaunched_once(box, night, 2)
