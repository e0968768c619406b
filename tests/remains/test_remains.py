"""Files of dead members are removed by proof; whatever somebody else may still want is left and told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.events import Leftover
from supervisor.edges import remains

pytestmark = pytest.mark.real

HOLDER = """
import mmap, os, signal, sys
how, path = sys.argv[1:]
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
if how == "mapped":
    os.ftruncate(fd, 4096)
    kept = mmap.mmap(fd, 4096)
    os.close(fd)
    for each in range(3, 64):  # what mmap keeps for itself
        try: os.close(each)
        except OSError: pass
print("up", os.getpid(), flush=True)
signal.pause()
"""


@pytest.fixture
def shm(monkeypatch) -> Iterator[Path]:
    """A folder in the box's shared memory that stands for all of it."""
    if not os.access(remains.SHM, os.W_OK):
        pytest.skip("no shared memory here")
    with tempfile.TemporaryDirectory(dir=remains.SHM, prefix="supervise-test-") as folder:
        monkeypatch.setattr(remains, "SHM", folder)
        yield Path(folder)


@pytest.fixture
def holder() -> Iterator[object]:
    """Starts a process that has a file open or mapped; ends all of them."""
    started: list[subprocess.Popen[bytes]] = []

    def one(how: str, path: Path) -> subprocess.Popen[bytes]:
        made = subprocess.Popen([sys.executable, "-I", "-S", "-c", HOLDER, how, str(path)], stdout=subprocess.PIPE)
        started.append(made)
        assert made.stdout.readline() == b"up %d\n" % made.pid
        return made

    yield one
    for each in started:
        each.kill()
        each.wait()
        each.stdout.close()


def of(*pids: int, held: dict[remains.FileId, int] | None = None, since_s: float = 60.0) -> remains.Of:
    """Members of an attempt that lived until now."""
    now = time.time()
    return remains.Of(frozenset(pids), held or {}, now - since_s, now)


def found(shm: Path, whose: remains.Of) -> tuple[set[str], str]:
    look = remains.find(remains.segments(str(shm)), whose)
    return {Path(one.path).name for one in look.ours}, "\n".join(look.told)


def id_of(path: Path) -> remains.FileId:
    seen = path.stat()
    return seen.st_dev, seen.st_ino


def leftover(path: Path) -> Leftover:
    device, inode = id_of(path)
    return Leftover(path=str(path), what="shared memory", proof="", device=device, inode=inode)


def private(path: Path) -> Path:
    path.touch(mode=0o600)
    return path


@pytest.mark.parametrize("name", ["torch_4711_123_0", "__KMP_REGISTERED_LIB_4711_0", "pym-4711-x0", "torch_4711"])
def test_a_segment_whose_name_carries_a_members_pid_is_ours(shm: Path, name: str):
    private(shm / name)
    assert found(shm, of(4711)) == ({name}, "")
    assert found(shm, of(47110))[0] == set()
    assert found(shm, of(471))[0] == set()


def test_a_segment_from_before_the_attempt_is_not_ours_whatever_its_name(shm: Path):
    private(shm / "torch_4711_1_0")
    os.utime(shm / "torch_4711_1_0", (time.time() - 3600,) * 2)
    assert found(shm, of(4711)) == (set(), "")


def test_a_segment_that_a_member_was_seen_with_is_ours_and_its_twin_is_told(shm: Path):
    ours, other = private(shm / "psm_1a2b"), private(shm / "psm_3c4d")
    names, told = found(shm, of(held={id_of(ours): 4711}))
    assert names == {"psm_1a2b"}
    assert str(other) in told
    assert "no member was seen with it" in told
    assert "rm " in told


def test_data_that_somebody_put_there_by_hand_is_neither_ours_nor_told(shm: Path):
    private(shm / "my-dataset.bin")
    assert found(shm, of(4711)) == (set(), "")


@pytest.mark.parametrize("how", ["open", "mapped"])
def test_a_segment_in_use_is_left_whosever_it_is(shm: Path, holder, how: str):
    path = shm / "torch_4711_1_0"
    user = holder(how, path)
    assert found(shm, of(4711)) == (set(), "")
    left = leftover(path)
    said = remains.remove([left])
    assert said.kept == (f"{path}: somebody uses it now",)
    assert path.exists()
    user.send_signal(signal.SIGKILL)
    user.wait()
    assert found(shm, of(4711))[0] == {"torch_4711_1_0"}
    assert remains.remove([left]).removed == (str(path),)
    assert not path.exists()
    assert remains.remove([left]).removed == (str(path),)  # given again: gone is gone


def test_a_new_file_of_that_name_is_another_file(shm: Path):
    path = private(shm / "torch_4711_1_0")
    (left,) = remains.find(remains.segments(str(shm)), of(4711)).ours
    spare = private(shm / "spare")  # so that the number is not given out again at once
    path.unlink()
    private(path)
    said = remains.remove([left])
    assert said.removed == ()
    assert "another file has its name now" in said.kept[0]
    assert path.exists()
    assert spare.exists()


def test_links_and_folders_are_never_leftovers(shm: Path, tmp_path: Path):
    target = private(tmp_path / "precious")
    (shm / "torch_4711_1_0").symlink_to(target)
    (shm / "torch_4711_1_1").mkdir()
    assert found(shm, of(4711)) == (set(), "")


@pytest.mark.skipif(os.geteuid() != 0, reason="files can be given away by root only")
def test_a_segment_of_another_user_is_not_ours(shm: Path):
    os.chown(private(shm / "torch_4711_1_0"), 65534, 65534)
    assert found(shm, of(4711)) == (set(), "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not look")
def test_a_user_whom_we_may_not_look_into_is_still_known_to_the_kernel(shm: Path, holder):
    path = private(shm / "torch_4711_1_0")
    user = holder("mapped", path)
    os.chown(path, 65534, 65534)
    shm.chmod(0o755)
    try:
        os.seteuid(65534)
        with pytest.raises(PermissionError):
            list(Path(f"/proc/{user.pid}/fd").iterdir())
        assert found(shm, of(4711))[0] == set()
        os.seteuid(0)
        user.kill()
        user.wait()
        os.seteuid(65534)
        assert found(shm, of(4711))[0] == {"torch_4711_1_0"}
    finally:
        os.seteuid(0)


# ── locks of builds ──────────────────────────────────────────────────────────────────────────────────────────────────


def locks(root: Path, whose: remains.Of) -> remains.Found:
    return remains.find(remains.build_locks([str(root)], whose.from_wall_s), whose)


def build(root: Path, *folders: str) -> Path:
    folder = root.joinpath(*folders)
    folder.mkdir(parents=True)
    return private(folder / "lock")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setattr(remains, "_file_system", lambda device: "ext4")
    return tmp_path / "cache"


@pytest.mark.parametrize("folders", [("fused_adam",), ("py311_cu128", "fused_adam"), ("a1b2c3",)])
def test_a_lock_made_while_the_attempt_lived_that_nobody_can_own_is_ours(cache: Path, folders: tuple[str, ...]):
    path = build(cache, *folders)
    assert [one.path for one in locks(cache, of()).ours] == [str(path)]


def test_a_lock_that_a_live_builder_has_open_is_left(cache: Path, holder):
    path = build(cache, "py311_cu128", "fused_adam")
    builder = holder("open", path)
    assert locks(cache, of()) == remains.Found()
    builder.kill()
    builder.wait()
    assert [one.path for one in locks(cache, of()).ours] == [str(path)]


def test_a_lock_from_before_the_attempt_is_left(cache: Path):
    path = build(cache, "fused_adam")
    os.utime(path, (time.time() - 3600,) * 2)
    assert locks(cache, of()) == remains.Found()


def test_a_lock_that_another_machine_may_own_is_told_and_left(cache: Path, monkeypatch):
    monkeypatch.setattr(remains, "_file_system", lambda device: "nfs4")
    path = build(cache, "fused_adam")
    look = locks(cache, of())
    assert look.ours == ()
    assert "nfs4" in look.told[0]
    assert str(path) in look.told[0]
    assert remains.remove([leftover(path)]).kept
    assert path.exists()


def test_other_files_of_a_cache_are_not_looked_at(cache: Path):
    build(cache, "py311", "fused_adam", "too", "deep")
    private(cache / "lock")
    private(cache / "py311" / "build.ninja")
    assert locks(cache, of()) == remains.Found()


def test_caches_are_where_the_jobs_environment_says():
    assert remains.build_roots({"HOME": "/h"}) == ("/h/.cache/torch_extensions", "/h/.triton/cache")
    said = {"HOME": "/h", "TORCH_EXTENSIONS_DIR": "/t", "TRITON_CACHE_DIR": "/c", "XDG_CACHE_HOME": "/x"}
    assert remains.build_roots(said) == ("/t", "/c")
    assert remains.build_roots({"HOME": "/h", "XDG_CACHE_HOME": "/x", "TRITON_HOME": "/y"}) == (
        "/x/torch_extensions",
        "/y/.triton/cache",
    )
    assert remains.build_roots({"TORCH_EXTENSIONS_DIR": "relative"}) == ()
    assert remains.build_roots({}) == ()


def test_the_file_system_of_a_path_is_told_by_the_kernels_table():
    assert remains._file_system(Path("/proc").stat().st_dev) == "proc"
    assert remains._file_system(0) == "?"


def test_what_a_member_has_in_hand_is_seen(shm: Path, holder, cache: Path):
    lock = build(cache, "fused_adam")
    opener, mapper = holder("open", lock), holder("mapped", shm / "psm_1a2b")
    segment = id_of(shm / "psm_1a2b")
    assert remains.seen_with(opener.pid, [str(cache)], set()) == {id_of(lock)}
    assert remains.seen_with(mapper.pid, [str(cache)], {segment}) == {segment}
    assert remains.seen_with(mapper.pid, [str(cache)], set()) == set()  # a mapping is looked for where it is asked for
    assert remains.seen_with(2**22 + 1, [str(cache)], {segment}) == set()


def test_leftovers_come_back_equal_through_the_journal():
    from supervisor.core.events import LeftoversIntended
    from supervisor.edges.codec import from_plain, to_plain

    one = Leftover(path="/dev/shm/torch_1_2_3", what="shared memory", proof="made by pid 1", device=5, inode=7, mib=1.5)
    event = LeftoversIntended(leftovers=(one,))
    assert from_plain(json.loads(json.dumps(to_plain(event))), LeftoversIntended) == event
