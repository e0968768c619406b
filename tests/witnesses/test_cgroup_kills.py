"""The count of the memory killer, in both versions of cgroups, and where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.core.aftermath import CouldNotTell
from supervisor.edges import cgroup_kills, proc


@pytest.fixture
def as_if(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """`as_if(text)`: /proc/self/cgroup says this; files are those below tmp_path."""
    real = proc.read

    def say(text: str) -> Path:
        monkeypatch.setattr(proc, "read", lambda path, *a: text.encode() if path.startswith("/proc/") else real(path))
        return tmp_path

    return say


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_v2_counts_where_the_memory_controller_is_on_which_may_be_further_up(as_if):
    root = as_if("0::/user.slice/job/supervise-1\n")
    put(root / "user.slice" / "memory.events", "low 0\nhigh 3\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n")
    (root / "user.slice" / "job").mkdir()
    assert cgroup_kills.kills("self", root) == (str(root / "user.slice"), 2)


def test_v2_beside_v1_is_looked_for_too(as_if):
    root = as_if("4:memory:/\n0::/job\n")
    put(root / "unified" / "job" / "memory.events", "oom_kill 1\n")
    assert cgroup_kills.kills("self", root) == (str(root / "unified" / "job"), 1)


def test_v1_counts_in_its_own_hierarchy(as_if):
    root = as_if("4:memory:/docker/abc\n0::/\n")
    put(root / "memory" / "docker" / "abc" / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    assert cgroup_kills.kills("self", root) == (str(root / "memory" / "docker" / "abc"), 5)


def test_in_a_container_the_mount_itself_is_our_cgroup(as_if):
    root = as_if("4:memory:/docker/abc\n")
    put(root / "memory" / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    assert cgroup_kills.kills("self", root) == (str(root / "memory"), 0)


def test_an_old_kernel_without_a_count_could_not_tell(as_if):
    root = as_if("4:memory:/\n")
    put(root / "memory" / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n")
    assert isinstance(cgroup_kills.kills("self", root), CouldNotTell)


def test_a_process_that_is_gone_could_not_tell():
    assert isinstance(cgroup_kills.kills(2**22 + 1), CouldNotTell)


def test_on_this_box_there_is_a_count_or_a_reason():
    found = cgroup_kills.kills(os.getpid())
    assert isinstance(found, CouldNotTell) or found[1] >= 0
