"""Matches of resume.from: names, steps, links, and what happens while somebody prunes."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest
from layouts import hf, safetensors, torch_zip, write

from supervisor.core.evidence import Checkpoint, Incomplete
from supervisor.core.lineage import NO_STEP, identity
from supervisor.core.spec import Resume
from supervisor.edges import checkpoints
from supervisor.edges.bounded import within
from supervisor.edges.checkpoints import Memory, describe, scan, validate

MODEL = {"model.pt": torch_zip()}


def made(root: Path, *names: str) -> Path:
    for name in names:
        write(root / name, MODEL)
    return root


def resume(root: Path, pattern: str = "step_*", **more: object) -> Resume:
    return Resume(from_=f"{root}/{pattern}", **more)  # type: ignore[arg-type]


def names(found: tuple[Checkpoint | Incomplete, ...], kind: type) -> list[str]:
    return [Path(one.path).name for one in found if isinstance(one, kind)]


def test_matches_come_highest_step_first_whatever_was_written_last(tmp_path):
    made(tmp_path, "step_9", "step_100", "step_20")
    found = scan(resume(tmp_path))
    assert [one.step for one in found] == [100, 20, 9]
    assert all(isinstance(one, Checkpoint) for one in found)


@pytest.mark.parametrize(
    "name",
    ["tmp_step_5", "step_5.tmp", "step_5.part", "step_5.partial", "step_5.incomplete", "step_5-unfinished", "step_5~"],
)
def test_a_name_of_an_unfinished_one_is_never_a_checkpoint(tmp_path, name):
    made(tmp_path, name)
    assert names(scan(resume(tmp_path, "*")), Incomplete) == [name]


def test_a_hidden_one_is_never_a_checkpoint(tmp_path):
    made(tmp_path, ".step_5")
    assert isinstance(describe(str(tmp_path / ".step_5"), resume(tmp_path)), Incomplete)
    assert scan(resume(tmp_path, "*")) == ()


def test_a_file_inside_an_unfinished_folder_is_no_checkpoint(tmp_path):
    made(tmp_path, "step_5.tmp", "step_4")
    found = scan(resume(tmp_path, "*/model.pt"))
    assert [(type(one), one.step) for one in found] == [(Incomplete, 5), (Checkpoint, 4)]


def test_where_the_run_lives_says_nothing_about_a_name(tmp_path):
    root = made(tmp_path / "tmp_work" / ".hidden~", "step_5")
    assert names(scan(resume(root)), Checkpoint) == ["step_5"]


@pytest.mark.parametrize(
    ("name", "marker"), [("step_5", "step_5-unfinished"), ("m--step=5.ckpt", "m--step=5-unfinished")]
)
def test_a_marker_beside_it_means_unfinished(tmp_path, name, marker):
    made(tmp_path, name)
    assert isinstance(describe(str(tmp_path / name), resume(tmp_path)), Checkpoint)
    (tmp_path / marker).touch()
    assert "beside" in describe(str(tmp_path / name), resume(tmp_path)).why  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step_690", 690),
        ("step-690", 690),
        ("step=690", 690),
        ("step690", 690),
        ("global_step690", 690),
        ("iter_0000690", 690),
        ("checkpoint-690", 690),
        ("checkpoint-690-epoch-3", 690),
        ("epoch=3-step=690", 690),
        ("ckpt_690", 690),
        ("690", 690),
        ("epoch_3_690", None),
        ("best", None),
    ],
)
def test_the_step_is_read_from_the_name(tmp_path, name, step):
    made(tmp_path, name)
    (found,) = scan(resume(tmp_path, "*"))
    assert found.step == step
    assert isinstance(found, Checkpoint if step else Incomplete)


def test_a_suffix_with_a_digit_is_not_a_step(tmp_path):
    (tmp_path / "model_690.h5").write_bytes(b"x")
    assert describe(str(tmp_path / "model_690.h5"), resume(tmp_path)).step == 690


def test_the_folder_says_the_step_where_the_file_does_not(tmp_path):
    made(tmp_path, "run/step_7")
    (found,) = scan(resume(tmp_path, "*/*/model.pt"))
    assert found.step == 7


def test_a_pattern_of_the_users_says_where_the_step_stands(tmp_path):
    made(tmp_path, "epoch_3_at_690", "epoch_4_at_none")
    found = scan(resume(tmp_path, "*", step=r"at_(\d+)"))
    assert [one.step for one in found] == [690, None]


def test_without_steps_every_match_counts(tmp_path):
    made(tmp_path, "best", "v1_2_3")
    assert {one.step for one in scan(resume(tmp_path, "*", step="none"))} == {NO_STEP}


def test_a_named_path_needs_no_step(tmp_path):
    made(tmp_path, "release")
    found = describe(str(tmp_path / "release"), resume(tmp_path))
    assert isinstance(found, Checkpoint)
    assert found.step == NO_STEP


def test_an_empty_folder_or_file_is_incomplete(tmp_path):
    (tmp_path / "step_1").mkdir()
    (tmp_path / "step_2" / "sub").mkdir(parents=True)
    (tmp_path / "step_3").touch()
    write(tmp_path / "step_4", {"a": b"", "b": b""})
    write(tmp_path / "step_5", {"model.safetensors": b""})
    found = scan(resume(tmp_path))
    assert [type(one) for one in found] == [Incomplete] * 5


def test_a_link_is_resolved_and_a_dangling_one_is_incomplete(tmp_path):
    made(tmp_path, "step_5")
    (tmp_path / "last").symlink_to("step_5")
    found = describe(str(tmp_path / "last"), resume(tmp_path, "*"))
    target = describe(str(tmp_path / "step_5"), resume(tmp_path))
    assert isinstance(found, Checkpoint) and isinstance(target, Checkpoint)
    assert (found.step, found.real) == (5, str(tmp_path / "step_5"))
    assert identity(found) == identity(target)
    shutil.rmtree(tmp_path / "step_5")
    (gone,) = scan(resume(tmp_path, "*"))
    assert isinstance(gone, Incomplete)
    assert "step_5, which is not there" in gone.why


def test_a_link_in_a_circle_is_incomplete(tmp_path):
    (tmp_path / "step_5").symlink_to("step_5")
    write(tmp_path / "step_6", MODEL)
    (tmp_path / "step_6" / "again").symlink_to(".")
    assert [type(one) for one in scan(resume(tmp_path))] == [Incomplete, Incomplete]


def test_rewriting_in_place_changes_the_identity(tmp_path):
    made(tmp_path, "step_5")
    old = describe(str(tmp_path / "step_5"), resume(tmp_path))
    file = tmp_path / "step_5" / "model.pt"
    os.utime(file, ns=(1, file.stat().st_mtime_ns + 10**9))
    new = describe(str(tmp_path / "step_5"), resume(tmp_path))
    assert isinstance(old, Checkpoint) and isinstance(new, Checkpoint)
    assert identity(old) != identity(new)


def test_what_was_complete_is_looked_at_again_before_a_launch(tmp_path):
    made(tmp_path, "step_5")
    (found,) = scan(resume(tmp_path))
    assert isinstance(found, Checkpoint)
    assert validate(found, resume(tmp_path)) == found
    (tmp_path / "step_5" / "model.pt").write_bytes(torch_zip()[:300])
    assert isinstance(validate(found, resume(tmp_path)), Incomplete)
    shutil.rmtree(tmp_path / "step_5")
    assert isinstance(validate(found, resume(tmp_path)), Incomplete)


def test_pruning_while_it_is_read_costs_only_the_pruned_one(tmp_path):
    steps = range(100, 160)
    for step in steps:
        write(tmp_path / f"checkpoint-{step}", hf(step))
    kept = {f"checkpoint-{step}" for step in steps if step % 10 == 0}

    def prune() -> None:
        for step in steps:
            if step % 10:
                shutil.rmtree(tmp_path / f"checkpoint-{step}")

    pruner = threading.Thread(target=prune)
    pruner.start()
    while pruner.is_alive():
        assert kept <= set(names(scan(resume(tmp_path, "checkpoint-*")), Checkpoint))
    pruner.join()
    assert set(names(scan(resume(tmp_path, "checkpoint-*")), Checkpoint)) == kept


def test_nothing_is_written_into_a_checkpoint(tmp_path):
    write(tmp_path / "checkpoint-70", hf(70))

    def state() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    before = state()
    scan(resume(tmp_path, "checkpoint-*"))
    assert state() == before


def test_no_folder_yet_is_no_match_but_a_folder_that_cannot_be_read_is_an_error(tmp_path):
    assert scan(resume(tmp_path / "later")) == ()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="loop"):
        scan(resume(tmp_path / "loop"))


def test_a_folder_without_permission_is_an_error_and_not_no_match(tmp_path):
    (tmp_path / "shut").mkdir(mode=0)
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(PermissionError):
            scan(resume(tmp_path / "shut"))
    finally:
        os.seteuid(me)


def test_a_disk_that_does_not_answer_is_an_error_and_not_no_match(tmp_path):
    with pytest.raises(TimeoutError):
        scan(resume(tmp_path), deadline_s=0.0)
    assert "no time" in describe(str(tmp_path), resume(tmp_path), deadline_s=0.0).why  # type: ignore[union-attr]


def test_what_was_not_read_in_time_is_incomplete_and_says_so(tmp_path, monkeypatch):
    made(tmp_path, "step_1", "step_2")
    hang, read = threading.Event(), checkpoints._read
    stuck: list[threading.Thread] = []

    def slow(path: str, *args: object, **kwargs: object) -> object:
        if path.endswith("step_1"):
            stuck.append(threading.current_thread())
            hang.wait()
        return read(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoints, "_read", slow)
    found = scan(resume(tmp_path), deadline_s=3.0)
    hang.set()
    stuck[0].join()
    assert [type(one) for one in found] == [Checkpoint, Incomplete]
    assert "not read within" in found[1].why  # type: ignore[union-attr]


def test_what_did_not_change_is_not_opened_again(tmp_path, monkeypatch):
    write(tmp_path, {"step_5.safetensors": safetensors()})
    memory, opened = Memory(), []
    judge = checkpoints.file_fault
    monkeypatch.setattr(checkpoints, "file_fault", lambda *args: opened.append(args) or judge(*args))
    for _ in range(3):
        scan(resume(tmp_path), memory=memory)
    assert len(opened) == 1
    (tmp_path / "step_5.safetensors").write_bytes(safetensors()[:-1])
    (found,) = scan(resume(tmp_path), memory=memory)
    assert isinstance(found, Incomplete)


def test_what_was_removed_is_not_remembered(tmp_path):
    memory = Memory()
    for step in range(20):
        write(tmp_path, {f"step_{step}.safetensors": safetensors()})
        scan(resume(tmp_path), memory=memory)
        (tmp_path / f"step_{step}.safetensors").unlink()
    assert scan(resume(tmp_path), memory=memory) == ()
    assert memory._judged == {}


def test_an_error_of_a_bounded_call_reaches_the_caller():
    with pytest.raises(KeyError):
        within(5.0, lambda: {}["x"], "nothing")
