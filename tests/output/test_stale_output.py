"""The Output rule: a stale directory goes, the only good thing never does."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import pytest

from supervisor.core.spec import Stale
from supervisor.core.stale import Archive, Leave, OutputSeen, Remove, decide
from supervisor.edges.output import Cleaned, ensure_clean, look

STEPS = "out/dflash/step_*"


class Desk:
    """A workdir with an output directory in it."""

    def __init__(self, root: Path) -> None:
        self.root = root / "work"
        self.root.mkdir()
        self.out = self.root / "out" / "dflash"

    def holds(self, name: str, data: bytes = b"x") -> Path:
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def look(self, *patterns: str) -> OutputSeen:
        return look(str(self.out), str(self.root), [f"{self.root}/{p}" for p in patterns])

    def decide(self, stale: Stale, *patterns: str, made: bool = True) -> Leave | Remove | Archive:
        return decide(self.look(*patterns), stale, made_by_run=made, attempt=3)

    def clean(self, how: str, *patterns: str, to: str | None = None) -> Cleaned:
        return ensure_clean(str(self.out), how, to, str(self.root), [f"{self.root}/{p}" for p in patterns])


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


@pytest.mark.parametrize("stale", [Stale.REMOVE_IF_EMPTY, Stale.ARCHIVE])
@pytest.mark.parametrize("made", [True, False])
def test_an_empty_directory_is_removed_whoever_made_it(desk, stale, made):
    desk.out.mkdir(parents=True)
    assert desk.decide(stale, STEPS, made=made) == Remove(str(desk.out))
    assert desk.clean("remove", STEPS).did == "removed"
    assert not desk.out.exists()
    assert desk.clean("remove", STEPS) == Cleaned("", "there is none")


def test_keep_keeps_even_an_empty_one(desk):
    desk.out.mkdir(parents=True)
    assert isinstance(desk.decide(Stale.KEEP), Leave)


def test_none_is_nothing_to_do(desk):
    assert isinstance(desk.decide(Stale.ARCHIVE), Leave)


def test_one_with_anything_in_it_is_left_alone_by_remove_if_empty(desk):
    (desk.out / "rank0").mkdir(parents=True)
    assert isinstance(desk.decide(Stale.REMOVE_IF_EMPTY), Leave)
    assert desk.clean("remove").did == ""
    assert (desk.out / "rank0").is_dir()


def test_what_this_run_made_is_renamed_and_what_it_did_not_make_is_left(desk):
    desk.holds("log.txt")
    to = f"{desk.out}.stale-3"
    assert desk.decide(Stale.ARCHIVE) == Archive(str(desk.out), to)
    left = desk.decide(Stale.ARCHIVE, made=False)
    assert isinstance(left, Leave) and left.warn
    assert desk.clean("archive", to=to).did == "archived"
    assert Path(to, "log.txt").exists() and not desk.out.exists()
    assert desk.clean("archive", to=to).did == "archived", "a second call finds it done"


def test_an_archive_is_never_overwritten(desk):
    desk.holds("log.txt")
    Path(f"{desk.out}.stale-3").mkdir()
    Path(f"{desk.out}.stale-3.2").mkdir()
    assert desk.decide(Stale.ARCHIVE) == Archive(str(desk.out), f"{desk.out}.stale-3.3")
    assert "already" in desk.clean("archive", to=f"{desk.out}.stale-3").why
    assert desk.out.exists()


@pytest.mark.parametrize("pattern", [STEPS, "out/*/step_*", "**/step_*", "out/dflash/**/*.pt"])
def test_a_directory_with_one_checkpoint_is_never_stale(desk, pattern):
    desk.holds("step_5/model.pt")
    left = desk.decide(Stale.ARCHIVE, "nothing/*", pattern)
    assert isinstance(left, Leave)
    assert "step_5" in left.why
    assert desk.clean("archive", pattern, to=f"{desk.out}.stale-3").did == ""
    assert desk.out.exists()


def test_a_checkpoint_elsewhere_protects_nothing(desk):
    desk.holds("log.txt")
    (desk.root / "out" / "dflash2" / "step_5").mkdir(parents=True)
    assert isinstance(desk.decide(Stale.ARCHIVE, "out/dflash2/step_*", "out/*/step_*"), Archive)


def test_a_directory_that_is_itself_a_match_is_not_stale(desk):
    desk.holds("model.pt")
    assert isinstance(desk.decide(Stale.ARCHIVE, "out/*"), Leave)


def test_a_match_counts_by_where_it_really_is(desk):
    desk.holds("step_5/model.pt")
    (desk.root / "alias").symlink_to(desk.out)
    assert isinstance(desk.decide(Stale.ARCHIVE, "alias/step_*"), Leave)


def test_a_checkpoint_that_appears_after_the_decision_is_safe(desk):
    desk.out.mkdir(parents=True)
    assert isinstance(desk.decide(Stale.REMOVE_IF_EMPTY, STEPS), Remove)
    desk.holds("step_5/model.pt")
    assert desk.clean("remove", STEPS).did == ""
    assert desk.clean("archive", STEPS, to=f"{desk.out}.stale-3").did == ""
    assert (desk.out / "step_5" / "model.pt").exists()


@pytest.mark.parametrize("target", ["/", "elsewhere"])
def test_a_symlinked_output_directory_is_never_touched(desk, tmp_path, target):
    desk.out.parent.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    desk.out.symlink_to(target if target == "/" else tmp_path / target)
    for path in (str(desk.out), f"{desk.out}/"):
        seen = look(path, str(desk.root), [])
        assert "link" in (seen.bar or "")
        assert ensure_clean(path, "remove", None, str(desk.root), []).did == ""
        assert ensure_clean(path, "archive", f"{desk.out}.x", str(desk.root), []).did == ""
    assert desk.out.is_symlink() and (tmp_path / "elsewhere").is_dir()


def test_nothing_outside_workdir_is_touched_nor_workdir_itself(desk, tmp_path):
    (tmp_path / "other" / "out").mkdir(parents=True)
    (desk.root / "way_out").symlink_to(tmp_path / "other")
    near = tmp_path / "work2"
    near.mkdir()
    for path in (
        tmp_path / "other" / "out",
        desk.root / "way_out" / "out",
        desk.root,
        tmp_path,
        near,
        desk.root / ".." / "work2",
    ):
        seen = look(str(path), str(desk.root), [])
        assert "inside workdir" in (seen.bar or ""), path
        assert isinstance(decide(seen, Stale.ARCHIVE, made_by_run=True, attempt=1), Leave)
        assert ensure_clean(str(path), "remove", None, str(desk.root), []).did == ""
        assert path.is_dir()


def test_a_file_in_its_place_is_left(desk):
    desk.holds("log.txt")
    assert "not a directory" in (look(str(desk.out / "log.txt"), str(desk.root), []).bar or "")


@pytest.fixture
def mount(desk):
    """Mounts something at a folder of the desk, and takes it away again."""
    libc = ctypes.CDLL(None, use_errno=True)
    mounted: list[bytes] = []

    def put(at: Path, kind: str, source: Path | None = None) -> None:
        at.mkdir(parents=True, exist_ok=True)
        flags = 4096 if kind == "bind" else 0  # MS_BIND
        if libc.mount(os.fsencode(source or "none"), os.fsencode(at), kind.encode(), flags, None) != 0:
            pytest.skip(f"mounting is not allowed here: {os.strerror(ctypes.get_errno())}")
        mounted.append(os.fsencode(at))

    yield put
    for at in reversed(mounted):
        libc.umount2(at, 2)  # MNT_DETACH


@pytest.mark.parametrize("kind", ["tmpfs", "bind"])
def test_a_mount_point_is_never_touched(desk, mount, tmp_path, kind):
    (tmp_path / "source dir").mkdir()
    mount(desk.out, kind, tmp_path / "source dir")
    assert desk.look().bar == "it is a mount point"
    assert desk.clean("remove").did == ""
    assert desk.clean("archive", to=f"{desk.out}.x").did == ""


def test_a_directory_with_a_mount_in_it_is_never_touched(desk, mount):
    mount(desk.out / "a b", "tmpfs")
    assert "is mounted in it" in (desk.look().bar or "")


def test_a_disk_that_does_not_answer_is_not_an_empty_directory(desk):
    desk.out.mkdir(parents=True)
    seen = look(str(desk.out), str(desk.root), [], deadline_s=0.0)
    assert isinstance(decide(seen, Stale.REMOVE_IF_EMPTY, made_by_run=True, attempt=1), Leave)


def test_a_busy_empty_directory_is_left(desk):
    desk.out.mkdir(parents=True)
    try:
        subprocess.run(["chattr", "+i", str(desk.out.parent)], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("chattr is not allowed here")
    try:
        assert "could not be removed" in desk.clean("remove").why
    finally:
        subprocess.run(["chattr", "-i", str(desk.out.parent)], check=True, timeout=10)
