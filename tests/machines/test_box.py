"""What a launch needs of the box beside GPUs, each no with its fix."""

from __future__ import annotations

import pytest
from fake_specs import incident

from supervisor.core.evidence import Checkpoint, Incomplete
from supervisor.core.spec import Output, Resume
from supervisor.edges import host
from supervisor.edges.host import Limits
from supervisor.machines import box

MANY = Limits(open_files=65536, processes=None, locked_mib=None, address_space_mib=None)


@pytest.fixture(autouse=True)
def roomy(monkeypatch):
    monkeypatch.setattr(host, "shm_free_mib", lambda: 64_000.0)
    monkeypatch.setattr(host, "limits", lambda: MANY)
    monkeypatch.setattr(box, "SIZE_WITHIN_S", 60.0)  # a busy box is no dead disk


def saved(tmp_path, step: int, mib: int) -> Checkpoint:
    folder = tmp_path / "ck" / f"step_{step}" / "shards"
    folder.mkdir(parents=True)
    with open(folder / "model.bin", "wb") as file:
        file.truncate(mib * box.MIB)
    return Checkpoint(path=str(folder.parent), step=step, inode=step, mtime_ns=step)


@pytest.mark.parametrize(
    ("free", "problem", "warning"),
    [(99.0, "no room for one more checkpoint", ""), (150.0, "", "room for 1 of 2 more checkpoints"), (500.0, "", "")],
)
def test_the_disk_must_have_room_for_checkpoints_of_the_size_of_the_last_one(
    tmp_path, monkeypatch, free, problem, warning
):
    monkeypatch.setattr(host, "disk_free_mib", lambda path, deadline_s: free)
    spec = incident(resume=Resume(from_=f"{tmp_path}/ck/step_*"), output=Output())
    torn = Incomplete(path="/x", step=9, why="torn")
    found = box.found(spec, [saved(tmp_path, 10, 7), saved(tmp_path, 20, 100), torn])
    assert all(problem in text for text in found.problems)
    assert len(found.problems) == bool(problem)
    assert all("step_20 is, which has 100 MiB" in text and "df -h" in text for text in found.problems)
    assert [text for text in found.warnings if warning in text] == list(found.warnings)
    assert len(found.warnings) == bool(warning)


def test_a_disk_that_does_not_answer_refuses_nothing_and_is_told(tmp_path, monkeypatch):
    def dead(path: str, deadline_s: float) -> float:
        raise TimeoutError("the free space at /x: no answer within 1 s")

    monkeypatch.setattr(host, "disk_free_mib", dead)
    found = box.found(incident(output=Output()), [saved(tmp_path, 20, 1)])
    assert found.problems == ()
    assert found.warnings == ("room for checkpoints: the free space at /x: no answer within 1 s",)


def test_small_shared_memory_and_limits_are_told_with_their_fix(monkeypatch):
    monkeypatch.setattr(host, "shm_free_mib", lambda: 64.0)
    monkeypatch.setattr(host, "limits", lambda: Limits(256, 100, 0.06, 4096.0))
    said = box.found(incident(output=Output(), resume=None), []).warnings
    assert ["--shm-size=16g" in said[0], "ulimit -n" in said[1], "ulimit -u" in said[2], "ulimit -v" in said[3]] == [
        True
    ] * 4
    monkeypatch.setattr(host, "shm_free_mib", lambda: None)
    assert "there is no /dev/shm" in box.found(incident(output=Output(), resume=None), []).warnings[0]


def test_an_empty_output_directory_that_nothing_will_be_done_about_is_told(tmp_path):
    made = tmp_path / "out"
    made.mkdir()
    spec = incident(workdir=str(tmp_path), output=Output(dir=str(made)), resume=None)
    (said,) = box.found(spec, []).warnings
    assert "remove_if_empty" in said
    (made / "x").touch()
    assert box.found(spec, []).warnings == ()
