"""Checkpoints that are kept no longer are renamed, then removed; what is not what was recorded is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from supervisor.core.evidence import Checkpoint
from supervisor.core.spec import Resume
from supervisor.edges.checkpoints import describe, pointed
from supervisor.edges.prune import aside, remove


@pytest.fixture
def resume(tmp_path: Path) -> Resume:
    return Resume(from_=f"{tmp_path}/step_*")


def made(resume: Resume, step: int) -> Checkpoint:
    folder = Path(resume.from_).parent / f"step_{step}"
    folder.mkdir()
    (folder / "weights.bin").write_bytes(b"w" * 2**20)
    found = describe(str(folder), resume)
    assert isinstance(found, Checkpoint)
    return found


def test_a_checkpoint_that_is_given_up_is_gone_with_all_that_is_in_it(resume: Resume, tmp_path: Path):
    one = made(resume, 100)
    other = made(resume, 200)
    done = remove([one], resume)
    assert done.removed == (one.path,)
    assert done.freed_mib >= 1.0
    assert [one.name for one in tmp_path.iterdir()] == [Path(other.path).name]


def test_one_that_was_rewritten_since_is_left_alone(resume: Resume):
    one = made(resume, 100)
    done = remove([replace(one, mtime_ns=one.mtime_ns - 1)], resume)
    assert done.kept == (f"{one.path}: it is not what was recorded any more",)
    assert Path(one.path).is_dir()


def test_a_removal_that_was_cut_short_is_finished(resume: Resume, tmp_path: Path):
    one = made(resume, 100)
    Path(one.path).rename(aside(one.path))
    assert remove([one], resume).removed == (one.path,)
    assert [*tmp_path.iterdir()] == []
    assert remove([one], resume).removed == (one.path,)


def test_a_link_is_never_followed_and_never_removed(resume: Resume, tmp_path: Path):
    one = made(resume, 100)
    link = tmp_path / "step_300"
    link.symlink_to(one.path)
    done = remove([replace(one, path=str(link))], resume)
    assert done.kept == (f"{link}: it is no folder and no file",)
    assert Path(one.path).is_dir()


def test_links_inside_are_removed_and_not_followed(resume: Resume, tmp_path: Path):
    one = made(resume, 100)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("keep")
    (Path(one.path) / "link").symlink_to(precious)
    now = describe(one.path, resume)
    assert isinstance(now, Checkpoint)
    assert remove([now], resume).removed == (one.path,)
    assert (precious / "data").read_text() == "keep"


def test_a_single_file_is_a_checkpoint_too(tmp_path: Path):
    resume = Resume(from_=f"{tmp_path}/step_*.weights")
    path = tmp_path / "step_5.weights"
    path.write_bytes(b"x" * 100)
    one = describe(str(path), resume)
    assert isinstance(one, Checkpoint)
    assert remove([one], resume).removed == (str(path),)
    assert not path.exists()


def test_where_the_name_aside_is_taken_nothing_is_touched(resume: Resume):
    one = made(resume, 100)
    Path(aside(one.path)).mkdir()
    assert remove([one], resume).kept == (f"{one.path}: {aside(one.path)} is there already",)
    assert Path(one.path).is_dir()


@pytest.mark.parametrize(
    ("name", "text", "target"),
    [
        ("latest", "global_step500", "global_step500"),
        ("latest_checkpointed_iteration.txt", "500\n", "iter_0000500"),
        ("latest_checkpointed_iteration.txt", "release", "release"),
    ],
)
def test_a_pointer_leads_to_a_path(tmp_path: Path, name: str, text: str, target: str):
    (tmp_path / name).write_text(text)
    assert pointed(Resume(from_=f"{tmp_path}/*")) == f"{tmp_path}/{target}"


def test_an_empty_pointer_leads_nowhere(tmp_path: Path):
    (tmp_path / "latest").write_text("")
    assert pointed(Resume(from_=f"{tmp_path}/*")) is None
    assert pointed(Resume(from_=f"{tmp_path}/nowhere/*")) is None
