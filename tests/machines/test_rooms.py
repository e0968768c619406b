"""How much of host and disks is in use, read from files as the kernel writes them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from supervisor.core.spec import Output, Resume, RunSpec
from supervisor.edges import room
from supervisor.machines.asides import Asides
from supervisor.machines.rooms import EVERY_S, Rooms, places

GIB = 2**30


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """Writes the files of one cgroup; this process is in `job`."""
    own = tmp_path / "cgroup"
    read = room.proc.read

    def files(path: str, **contents: object) -> None:
        folder = tmp_path / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            (folder / name.replace("__", ".")).write_text(f"{text}\n")

    def of(text: str) -> None:
        own.write_text(text)
        mine = f"/proc/{os.getpid()}/cgroup"
        monkeypatch.setattr(room.proc, "read", lambda path: read(str(own) if path == mine else path))

    return files, of


def meminfo(tmp_path: Path, total_gib: int, left_gib: int) -> str:
    path = tmp_path / "meminfo"
    path.write_text(f"MemTotal: {total_gib * 2**20} kB\nMemFree: 1 kB\nMemAvailable: {left_gib * 2**20} kB\nHuge: x\n")
    return str(path)


def test_a_limited_cgroup_counts_without_the_pages_of_files(cgroups, tmp_path):
    files, of = cgroups
    of("0::/box/job\n")
    stat = f"anon 5\ninactive_file {2 * GIB}\nactive_file {GIB}\nodd line"
    files("box/job", memory__current=40 * GIB, memory__max="max", memory__stat=stat)
    files("box", memory__current=50 * GIB, memory__max=64 * GIB, memory__stat=stat)
    found = room.memory(os.getpid(), tmp_path, meminfo(tmp_path, 512, 400))
    assert found == ((50 - 3) * 1024, 64 * 1024)


def test_the_host_counts_where_it_has_less_left_than_the_cgroup(cgroups, tmp_path):
    files, of = cgroups
    of("0::/job\n")
    files("job", memory__current=GIB, memory__max=64 * GIB, memory__stat="")
    assert room.memory(os.getpid(), tmp_path, meminfo(tmp_path, 512, 8)) == (504 * 1024, 512 * 1024)


def test_version_1_counts_what_is_below_and_knows_a_word_for_no_limit(cgroups, tmp_path):
    files, of = cgroups
    of("9:cpu:/x\n5:memory:/job\n")
    stat = f"inactive_file 0\ntotal_inactive_file {GIB}\ntotal_active_file {GIB}"
    files("memory/job", memory__usage_in_bytes=10 * GIB, memory__limit_in_bytes=16 * GIB, memory__stat=stat)
    files("memory", memory__usage_in_bytes=10 * GIB, memory__limit_in_bytes=9223372036854771712, memory__stat=stat)
    assert room.memory(os.getpid(), tmp_path, "/nowhere") == (8 * 1024, 16 * 1024)


def test_nothing_to_read_is_none(cgroups, tmp_path):
    _, of = cgroups
    of("")
    assert room.memory(os.getpid(), tmp_path, "/nowhere") is None


def test_each_file_system_is_told_once_also_where_a_folder_will_be(tmp_path):
    (path, free, total), *more = room.disks([str(tmp_path / "not" / "yet"), str(tmp_path)])
    assert not more
    assert path == str(tmp_path / "not" / "yet")
    assert 0 <= free <= total


def test_a_dead_mount_is_not_waited_for(tmp_path):
    assert room.disks([str(tmp_path)], deadline_s=0.0) == ()


def spec(tmp_path: Path, **changes) -> RunSpec:
    return RunSpec(name="r", command=("x",), file="r.yaml", workdir=str(tmp_path), **changes)


def test_checkpoints_come_first_by_the_folder_above_the_pattern(tmp_path):
    made = spec(tmp_path, resume=Resume(from_="/ck/run-*/step_*"), output=Output(dir="/out"))
    assert places(made) == ["/ck", "/out"]
    assert places(spec(tmp_path, resume=Resume(from_="/ck/last"))) == ["/ck/last"]
    assert places(spec(tmp_path)) == []


def test_a_look_is_made_beside_the_loop_and_told_once(tmp_path):
    woken = threading.Event()
    rooms = Rooms(Asides(woken.set))
    made = spec(tmp_path, output=Output(dir=str(tmp_path)))
    assert rooms.look(made, None, 0.0) is None
    found = [rooms.look(made, os.getpid(), 100.0)]
    assert woken.wait(60.0)
    found += [rooms.look(made, os.getpid(), 100.0 + after) for after in (0.5, 1.0, EVERY_S - 1)]
    assert [one.at_boot_s for one in found if one is not None] == [100.0]
