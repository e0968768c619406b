"""What of a working directory is code: real repositories, and folders without one."""

from __future__ import annotations

import os

import pytest
from repos import ENVIRON, git
from trees import write

from supervisor.edges import codetree
from supervisor.edges.codetree import NotListed


def test_tracked_and_dirty_files_are_code_and_what_git_ignores_is_not(work, look):
    write(work, "pkg/model.py", "new.py", "notes.txt", "out/log.yaml", text="SIZE = 2\n")
    (work / "conf" / "a.yaml").unlink()
    found = look(work)
    assert found.top == work
    assert found.files == (".gitignore", "new.py", "pkg/__init__.py", "pkg/model.py", "train.py")
    assert found.commit == git(work, "rev-parse", "HEAD")
    assert found.dirty == ("conf/a.yaml", "pkg/model.py")


def test_a_folder_below_the_top_takes_the_whole_checkout(work, look):
    assert look(work / "pkg") == look(work)


def test_nothing_of_the_repository_is_touched_and_no_hook_of_it_runs(work, look, tmp_path):
    monitor = tmp_path / "monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    monitor.chmod(0o755)
    git(work, "config", "core.fsmonitor", str(monitor))
    os.utime(work / "train.py")  # git would refresh its index
    before = (work / ".git" / "index").read_bytes()
    look(work)
    assert (work / ".git" / "index").read_bytes() == before
    assert not (tmp_path / "ran").exists()


def test_submodules_and_names_that_no_shell_likes_are_code_too(work, look, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    write(other, "lib.py")
    git(other, "add", ".")
    git(other, "commit", "-qm", "one")
    git(work, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "sub")
    (work / "a \n\udcff.py").touch()
    found = look(work)
    assert "sub/lib.py" in found.files
    assert "a \n\udcff.py" in found.files


def test_what_the_run_writes_and_reads_as_data_is_no_code(work, look):
    write(work, "data/index.json", "runs/a/conf.yaml")
    git(work, "add", ".")
    found = look(work, apart=(str(work / "data"), str(work / "runs")))
    assert not [name for name in found.files if name.startswith(("data", "runs"))]


def test_a_file_that_the_spec_names_is_code_though_git_ignores_it(work, look):
    write(work, "out/mine.txt", "deep/a/b.txt")
    (work / ".gitignore").write_text("out\ndeep\n")
    found = look(work, named=(str(work / "out" / "mine.txt"), str(work / "deep"), "/etc/passwd"))
    assert {"out/mine.txt", "deep/a/b.txt"} < set(found.files)
    assert not [name for name in found.files if "passwd" in name]


def test_large_tracked_files_are_data_by_their_size(work, look, monkeypatch):
    monkeypatch.setattr(codetree, "LARGE_BYTES", 100)
    write(work, "vocab.bin", "long.py", text="#" * 101)
    git(work, "add", ".")
    found = look(work)
    assert found.large == ("vocab.bin",)
    assert "long.py" in found.files
    assert "vocab.bin" not in found.files


def test_a_folder_of_which_git_only_keeps_that_it_is_there_is_written_into(work, look):
    (work / "runs").mkdir()
    (work / "runs" / ".gitkeep").touch()
    (work / "pkg" / ".gitkeep").touch()
    git(work, "add", "-f", ".")
    files = look(work).files
    assert "runs/.gitkeep" not in files
    assert "pkg/.gitkeep" in files


def test_new_files_are_code_only_as_scripts_and_configs_of_a_sane_size(work, look, monkeypatch):
    monkeypatch.setattr(codetree, "UNTRACKED_MAX_BYTES", 50)
    write(work, "huge.json", text="x" * 51)
    write(work, "tool", "unmarked", text="#!/bin/sh\n")
    (work / "tool").chmod(0o755)
    (work / "words").write_text("plain")
    os.mkfifo(work / "pipe.py")
    git(work, "init", "-q", "inner")
    write(work / "inner", "x.py")
    files = look(work).files
    assert "tool" in files
    assert not {"huge.json", "words", "unmarked", "pipe.py", "inner/x.py"} & set(files)


def test_a_checkout_without_a_commit_is_one(tmp_path, look):
    git(tmp_path, "init", "-q")
    write(tmp_path, "a.py")
    git(tmp_path, "add", ".")
    assert look(tmp_path).commit == "none yet"


def test_without_git_scripts_and_configs_are_told_by_their_names(tmp_path, look, monkeypatch):
    monkeypatch.setattr(codetree, "UNTRACKED_MAX_BYTES", 50)
    write(tmp_path, "train.py", "pkg/m.py", "conf/a.json", "notes.txt", "words.txt")
    write(tmp_path, "kept/x.py", "venv/lib/x.py", "conda/x.py", ".hidden/x.py", "node_modules/x.py")
    write(tmp_path, "data/big.json", text="x" * 51)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    (tmp_path / "conda" / "conda-meta").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "link.py").symlink_to(tmp_path / "train.py")
    found = look(tmp_path, apart=(str(tmp_path / "kept"),), named=(str(tmp_path / "notes.txt"),))
    assert found.files == ("conf/a.json", "link", "link.py", "notes.txt", "pkg/m.py", "train.py")
    assert found.commit == ""


def test_a_folder_in_the_tree_of_another_project_is_not_that_project(work, look):
    inside = work / "out" / "mine"
    write(inside, "a.py")
    found = look(inside)
    assert (found.top, found.files, found.commit) == (inside, ("a.py",), "")


def test_without_a_git_to_ask_a_checkout_is_a_folder(work):
    found = codetree.look(work, named=(), apart=(), environ={"PATH": "/nowhere"})
    assert found.commit == ""
    assert "train.py" in found.files


def test_too_many_files_are_data_that_nobody_named(tmp_path, look, monkeypatch):
    monkeypatch.setattr(codetree, "WALKED_MAX", 2)
    write(tmp_path, "a.py", "b.py", "c.py")
    with pytest.raises(NotListed, match="more than 2 files: name its data"):
        look(tmp_path)


def test_a_tree_on_a_slow_disk_is_not_looked_through_for_ever(tmp_path, look, monkeypatch):
    monkeypatch.setattr(codetree, "WALK_S", -1.0)
    with pytest.raises(NotListed, match="is not looked through in"):
        look(tmp_path)


def test_what_git_says_against_it_is_told(work, look):
    (work / ".git" / "index").write_bytes(b"broken")
    with pytest.raises(NotListed, match="git ls-files"):
        look(work)
    (work / ".git" / "config").write_text("[broken")
    with pytest.raises(NotListed, match="git does not tell"):
        look(work)


def test_a_git_that_does_not_answer_is_given_up_on(tmp_path, monkeypatch):
    monkeypatch.setattr(codetree, "GIT_S", 0.05)
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    with pytest.raises(NotListed, match="did not answer within"):
        codetree.look(tmp_path, named=(), apart=(), environ={**ENVIRON, "PATH": f"{slow.parent}:{ENVIRON['PATH']}"})


def test_a_listing_without_end_is_refused(work, look, monkeypatch):
    write(work, *(f"pkg/a_module_with_a_long_name_{n}.py" for n in range(100)))
    git(work, "add", ".")
    monkeypatch.setattr(codetree, "LISTING_CAP_BYTES", 2000)
    with pytest.raises(NotListed, match="too many files to list"):
        look(work)
