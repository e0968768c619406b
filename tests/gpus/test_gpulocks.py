"""One lock for each GPU of the box: between real processes and users."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.errors import Refusal
from supervisor.edges import gpulocks
from supervisor.edges.gpulocks import Conflict, GpuLocks, take, who

FIVE, SIX = "GPU-5", "GPU-6"
ROOT_OF_CODE = str(Path(__file__).parents[2])

TAKE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from supervisor.edges import gpulocks
if sys.argv[4:]:
    os.setuid(int(sys.argv[4]))
print(gpulocks.take([sys.argv[2]], sys.argv[3]), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def locks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where other users may go, too: pytest's own directories are private."""
    with tempfile.TemporaryDirectory(prefix="supervise-locks-") as base:
        Path(base).chmod(0o755)
        monkeypatch.setenv("SUPERVISE_LOCKS", f"{base}/locks")
        yield Path(base) / "locks"


def taken(uuids: list[str], run: str, held: GpuLocks | None = None) -> GpuLocks:
    got = take(uuids, run, held=held)
    assert isinstance(got, GpuLocks)
    return got


def other(uuid: str, run: str, *uid: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", TAKE, ROOT_OF_CODE, uuid, run, *uid]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.first = child.stdout.readline().decode()  # type: ignore[attr-defined]
    return child


def test_a_gpu_belongs_to_one_run_and_the_conflict_names_run_and_user() -> None:
    mine = taken([FIVE, SIX], "dflash")
    got = take([SIX], "other")
    assert isinstance(got, Conflict)
    assert (got.uuid, got.run, got.pid) == (SIX, "dflash", os.getpid())
    assert "belongs to run dflash of" in str(got)
    mine.release()
    taken([SIX], "other").release()


def test_taking_again_what_is_held_changes_nothing() -> None:
    mine = taken([FIVE], "dflash")
    assert taken([FIVE], "dflash", held=mine) is mine
    assert taken([FIVE, SIX], "dflash", held=mine).uuids == {FIVE, SIX}
    mine.release([SIX])
    assert who(SIX) is None and who(FIVE) is not None
    mine.release()


def test_all_or_none_of_the_gpus_are_taken() -> None:
    mine = taken([SIX], "dflash")
    assert isinstance(take([FIVE, SIX], "other"), Conflict)
    assert who(FIVE) is None
    mine.release()


def test_who_has_a_gpu_is_seen_without_taking_it() -> None:
    assert who(FIVE) is None
    mine = taken([FIVE], "dflash")
    for _ in range(2):
        seen = who(FIVE)
        assert seen is not None and seen.run == "dflash"
    mine.release()
    assert who(FIVE) is None


def test_a_lock_ends_with_its_process(locks: Path) -> None:
    child = other(FIVE, "night")
    seen = who(FIVE)
    assert seen is not None and (seen.run, seen.pid) == ("night", child.pid)
    child.kill()
    child.communicate()
    assert who(FIVE) is None
    assert (locks / "GPU-5.lock").exists(), "the file stays: whoever waits for it waits for the same one"
    taken([FIVE], "dflash").release()


def test_a_held_lock_whose_file_says_nothing_is_somebodys() -> None:
    mine = taken([FIVE], "dflash")
    mine.held[FIVE].note("torn {")
    assert who(FIVE) == Conflict(FIVE, "?", "?")
    mine.release()


def test_the_folder_is_sticky_and_its_files_are_everybodys(locks: Path) -> None:
    before = os.umask(0o077)
    try:
        mine = taken([FIVE], "dflash")
    finally:
        os.umask(before)
    assert stat.S_IMODE(locks.stat().st_mode) == 0o1777
    assert stat.S_IMODE((locks / "GPU-5.lock").stat().st_mode) == 0o666
    mine.release()


def test_another_user_meets_the_same_lock() -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, to become somebody else")
    mine = taken([FIVE], "dflash")
    refused = other(FIVE, "theirs", "65534")
    assert "belongs to run dflash of root" in refused.first  # type: ignore[attr-defined]
    refused.communicate(b"")
    mine.release()
    got = other(FIVE, "theirs", "65534")
    seen = who(FIVE)
    assert seen is not None and seen.run == "theirs" and seen.user != "root"
    got.communicate(b"")


def test_where_no_locks_can_be_made_the_refusal_says_how_to_make_them_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SUPERVISE_LOCKS", str(tmp_path / "file" / "locks"))
    with pytest.raises(Refusal, match="install -d -m 1777"):
        take([FIVE], "dflash")


def test_a_uuid_cannot_leave_the_folder(locks: Path) -> None:
    taken(["../../etc/x"], "dflash").release()
    assert [path.name for path in locks.iterdir()] == ["______etc_x.lock"]


def test_by_default_all_users_of_the_box_meet_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUPERVISE_LOCKS")
    assert gpulocks.folder() == Path("/run/lock/supervise")
