"""The copy of a tree: whole, private, reaching all else where it lies; and what becomes of one never finished."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from repos import ENVIRON, git
from trees import write

from supervisor.edges import codecopy, codekept
from supervisor.edges.codecopy import NotCopied

REPO = Path(__file__).parents[2]


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def test_the_copy_holds_the_code_and_reaches_all_else_where_it_lies(work, look, make):
    (work / "train.py").chmod(0o755)
    write(work, "dirty.py", "notes.txt", "pkg/extension.so")
    (work / ".venv").mkdir()
    made = make(look(work))
    tree = made.path / "tree"
    assert (tree / "train.py").read_text() == "import pkg.model\n"
    assert not (tree / "train.py").is_symlink()
    assert (tree / "dirty.py").is_file()
    assert made.files == 6
    for name in ("out", ".venv", "notes.txt", "pkg/extension.so"):
        assert (tree / name).readlink() == work / name
    assert not (tree / ".git").exists()
    assert (tree / "train.py").stat().st_mtime_ns == (work / "train.py").stat().st_mtime_ns


def test_an_edit_of_the_tree_is_none_of_the_copy(work, look, make):
    copy = make(look(work)).path
    write(work, "pkg/model.py", "pkg/newer.py", text="SIZE = 2\n")
    git(work, "rm", "-qf", "train.py")
    assert (copy / "tree" / "pkg" / "model.py").read_text() == "SIZE = 1\n"
    assert (copy / "tree" / "train.py").exists()
    assert not (copy / "tree" / "pkg" / "newer.py").exists()
    assert codekept.look(copy) == codekept.Looked()


def test_the_copy_is_private(work, look, make):
    (work / "conf" / "a.yaml").chmod(0o644)
    copy = make(look(work)).path
    for folder, _, names in os.walk(copy):
        assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
        files = [os.lstat(f"{folder}/{name}").st_mode for name in names]
        assert {stat.S_IMODE(mode) for mode in files if stat.S_ISREG(mode)} <= {0o600, 0o700}


def test_without_git_links_lead_to_the_copy_too(look, make, tmp_path):
    work = tmp_path / "plain"
    write(work, "v2/train.py", "v2/lib/model.py", text="SIZE = 1\n")
    write(tmp_path, "common/helper.py")
    (work / "train.py").symlink_to("v2/train.py")
    (work / "lib").symlink_to(work / "v2" / "lib")
    (work / "helper.py").symlink_to(tmp_path / "common" / "helper.py")
    (work / "runs").symlink_to(tmp_path)
    (work / "gone.py").symlink_to("nowhere.py")
    made = make(look(work, apart=(str(work / "runs"),)))
    write(work, "v2/train.py", "v2/lib/model.py", text="SIZE = 2\n")
    tree = made.path / "tree"
    assert (tree / "train.py").read_text() == (tree / "lib" / "model.py").read_text() == "SIZE = 1\n"
    assert made.told == (
        f"links that lead out of {work} are not held by the copy: helper.py -> {tmp_path}/common/helper.py",
    )


def test_links_lead_to_the_copy_of_what_they_name_or_out_of_the_tree_and_that_is_told(work, look, make, tmp_path):
    write(tmp_path, "common/lib.py")
    (work / "main.py").symlink_to("train.py")
    (work / "pkg" / "conf").symlink_to(work / "conf")
    (work / "common").symlink_to("../common")
    (work / "gone").symlink_to("/nowhere/at/all")
    git(work, "add", ".")
    made = make(look(work))
    tree = made.path / "tree"
    assert (tree / "main.py").resolve() == tree / "train.py"
    assert (tree / "pkg" / "conf" / "a.yaml").resolve() == tree / "conf" / "a.yaml"
    assert (tree / "common").resolve() == tmp_path / "common"
    (told,) = made.told
    assert f"common -> {tmp_path}/common" in told
    assert "gone -> /nowhere/at/all" in told
    assert codekept.look(made.path) == codekept.Looked()


def test_the_state_directory_is_not_reached_through_its_own_copy(work, look, make, tmp_path, monkeypatch):
    write(work, "state/x.log")
    home = work / "state"
    made = codecopy.make(look(work, apart=(str(home),)), home / "0001", never=str(home), commit=lambda: _head(work))
    assert not os.path.lexists(made.path / "tree" / "state")


def _head(work):
    return git(work, "rev-parse", "HEAD")


def test_a_copy_that_was_begun_by_a_process_that_died_is_swept_away(work, look, make, tmp_path):
    write(tmp_path / "state" / "code", ".0001.4711.tmp/tree/half.py")
    made = make(look(work))
    assert names(made.path.parent) == ["0001"]
    write(made.path, "tree/train.py", text="of a supervisor that died before anything ran from it")
    make(look(work))
    assert codekept.look(made.path) == codekept.Looked()


MAKING = """
import os, pathlib, sys, time
from supervisor.edges import codecopy, codetree
work, to = map(pathlib.Path, sys.argv[1:])
copy_file = codecopy._copy_file
def slow(source, target):
    told = copy_file(source, target)
    if source.name == "model.py":
        print("half", flush=True)
        time.sleep(600)
    return told
codecopy._copy_file = slow
tree = codetree.look(work, named=(), apart=(), environ=os.environ)
codecopy.make(tree, to, never="/nowhere", commit=lambda: tree.commit)
"""


def test_a_supervisor_killed_while_it_copies_leaves_nothing_that_looks_like_a_copy(work, look, make, tmp_path):
    code = tmp_path / "state" / "code"
    command = [sys.executable, "-c", MAKING, str(work), str(code / "0001")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(ENVIRON, PYTHONPATH=str(REPO))) as dying:
        assert dying.stdout.readline() == b"half\n"
        dying.kill()
    (left,) = names(code)
    assert left.startswith(".0001.")
    made = make(look(work))
    assert names(code) == ["0001"]
    assert codekept.look(made.path) == codekept.Looked()


@pytest.mark.parametrize("step", ["open", "rename"])
def test_a_disk_that_fills_in_the_copying_leaves_nothing_behind(work, look, make, tmp_path, monkeypatch, step):
    def full(*args, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    tree = look(work)
    monkeypatch.setattr(codecopy, "_copy_file", full) if step == "open" else monkeypatch.setattr(os, "rename", full)
    with pytest.raises(NotCopied, match="No space left on device; make room there, or set SUPERVISE_HOME"):
        make(tree)
    assert names(tmp_path / "state" / "code") == []


def test_no_room_is_told_before_anything_is_copied(work, look, make, monkeypatch):
    monkeypatch.setattr(codecopy, "SPARE_BYTES", 2**70)
    with pytest.raises(NotCopied, match=r"MiB are free at .* make room there"):
        make(look(work))


@pytest.mark.parametrize(("cap", "at"), [("FILES_MAX", 3), ("BYTES_MAX", 10)])
def test_too_much_code_is_refused_with_what_is_largest_and_what_to_do(work, look, make, tmp_path, monkeypatch, cap, at):
    write(work, "wide.py", text="#" * 2000)
    monkeypatch.setattr(codecopy, cap, at)
    with pytest.raises(NotCopied, match=r"the largest: wide.py .*Name what is data under `data`"):
        make(look(work))
    assert not (tmp_path / "state").exists()


def test_what_is_edited_while_it_is_copied_is_copied_as_it_is_then(work, look, make, monkeypatch):
    copy_file, edits = codecopy._copy_file, iter([1])

    def edited(source, target):
        told = copy_file(source, target)
        if source.name == "train.py" and next(edits, None):
            write(work, "pkg/model.py", text="SIZE = 33\n")
            (work / "conf" / "a.yaml").unlink()
        return told

    monkeypatch.setattr(codecopy, "_copy_file", edited)
    copy = make(look(work)).path
    assert (copy / "tree" / "pkg" / "model.py").read_text() == "SIZE = 33\n"
    assert codekept.look(copy).changed == ()


def test_a_tree_that_does_not_rest_is_refused(work, look, make, tmp_path, monkeypatch):
    copy_file, n = codecopy._copy_file, iter(range(1000))

    def edited(source, target):
        told = copy_file(source, target)
        write(work, "pkg/model.py", text="#" * next(n))
        return told

    tree = look(work)
    monkeypatch.setattr(codecopy, "_copy_file", edited)
    with pytest.raises(NotCopied, match=r"changes while it is copied, such as pkg/model\.py"):
        make(tree)
    assert names(tmp_path / "state" / "code") == []


def test_another_commit_checked_out_meanwhile_is_another_tree(work, look, make):
    tree = look(work)
    git(work, "commit", "-q", "--allow-empty", "-m", "two")
    with pytest.raises(NotCopied, match="another commit was checked out"):
        make(tree)


def test_a_file_that_went_away_before_it_was_copied_is_none(work, look, make):
    tree = look(work)
    (work / "conf" / "a.yaml").unlink()
    copy = make(tree).path
    assert "conf/a.yaml" not in codekept.manifest(copy)["files"]


def test_a_disk_that_takes_for_ever_is_given_up_on(work, look, make, monkeypatch):
    monkeypatch.setattr(codecopy, "WITHIN_S", -1.0)
    with pytest.raises(NotCopied, match="is its disk well"):
        make(look(work))


def test_a_folder_full_of_data_is_not_linked_file_by_file(work, look, make, monkeypatch):
    monkeypatch.setattr(codecopy, "LINKS_PER_FOLDER_MAX", 10)
    write(work, *(f"conf/{n}.txt" for n in range(20)))
    made = make(look(work))
    assert "conf holds too many files" in made.told[-1]
    assert len(names(made.path / "tree" / "conf")) == 11


def test_large_files_that_stay_where_they_are_are_told(work, look, make, monkeypatch):
    monkeypatch.setattr("supervisor.edges.codetree.LARGE_BYTES", 100)
    write(work, *(f"vocab{n}.bin" for n in range(5)), text="x" * 101)
    git(work, "add", ".")
    made = make(look(work))
    assert "are not held by the copy: vocab0.bin, vocab1.bin, vocab2.bin and 2 more" in made.told[0]
    assert (made.path / "tree" / "vocab0.bin").is_symlink()


def test_what_was_changed_in_the_copy_and_what_a_job_wrote_there_is_seen(work, look, make):
    copy = make(look(work)).path
    write(copy / "tree", "new/result.txt", "pkg/__pycache__/model.pyc", "conf/a.yaml", text="anchors: 9999\n")
    (copy / "tree" / ".gitignore").unlink()
    (copy / "tree" / "pkg" / "model.py").unlink()
    (copy / "tree" / "pkg" / "model.py").symlink_to(work / "pkg" / "model.py")
    found = codekept.look(copy)
    assert set(found.changed) == {"conf/a.yaml", ".gitignore", "pkg/model.py"}
    assert found.wrote == ("new/result.txt",)


def test_a_copy_that_is_gone_or_damaged_is_none(work, look, make, tmp_path):
    assert "is not there" in codekept.look(tmp_path / "absent").gone
    copy = make(look(work)).path
    for text in ("{", '{"schema": "another"}', "[]"):
        (copy / "manifest.json").write_text(text)
        assert "manifest.json" in codekept.look(copy).gone


def test_a_copy_without_one_of_its_scripts_is_gone_and_not_only_changed(work, look, make):
    copy = make(look(work)).path
    (copy / "tree" / "pkg" / "model.py").unlink()
    found = codekept.look(copy)
    assert found.gone == f"1 of its files are not there, such as pkg/model.py in {copy}/tree"


def test_old_copies_go_but_for_those_that_a_job_wrote_into(work, look, make):
    copies = [make(look(work), episode).path for episode in range(1, 7)]
    write(copies[1] / "tree", "best.pt", text="weights")
    (told,) = codekept.prune(copies[0].parent, copies[-1].name)
    assert "0002 is kept: a job wrote into it, such as best.pt" in told
    assert names(copies[0].parent) == ["0002", "0004", "0005", "0006"]
    assert (work / "out" / "step_1.pt").read_text() == "weights"


def test_a_link_in_the_place_of_a_copy_is_removed_and_not_followed(work, tmp_path):
    (tmp_path / "link").symlink_to(work)
    codekept.remove(tmp_path / "link")
    codekept.remove(tmp_path / "link")
    assert (work / "train.py").exists()
