"""Names, atomic files, plain values."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.core.evidence import Checkpoint, ProcessId, Step
from supervisor.core.spec import Knob, Params, Role, RunSpec, Scalar
from supervisor.edges import files
from supervisor.edges.codec import from_plain, to_plain
from supervisor.edges.files import make_private_dir, read_json, to_json, write_all, write_atomic
from supervisor.edges.paths import Home


@pytest.mark.parametrize(
    ("environ", "root"),
    [
        ({"SUPERVISE_HOME": "/a/b", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/a/b"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/supervise"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/supervise"),
        ({"SUPERVISE_HOME": "", "HOME": "/h"}, "/h/.local/state/supervise"),
        ({}, str(Path.home() / ".local/state/supervise")),
    ],
)
def test_the_state_directory_is_found_in_the_order_of_the_contract(environ, root):
    assert Home.find(environ).root == Path(root)


def test_a_relative_state_directory_is_made_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert Home.find({"SUPERVISE_HOME": "state"}).root == tmp_path / "state"


def test_runs_are_the_folders_under_runs(tmp_path):
    home = Home(tmp_path)
    assert home.names() == []
    for name in ("b", "a", ".hidden"):
        (home.runs / name).mkdir(parents=True)
    (home.runs / "file").touch()
    assert home.names() == ["a", "b"]
    assert home.run("a").attempt(7).path == tmp_path / "runs/a/attempts/0007"
    assert home.run("a").attempt(7).exit_json.name == "exit.json"


def test_every_name_in_a_run_is_its_own(tmp_path):
    run = Home(tmp_path).run("a")
    for thing in (Home(tmp_path), run, run.attempt(1)):
        cls = type(thing)
        names = [getattr(thing, name) for name in vars(cls) if isinstance(vars(cls)[name], property)]
        assert len(set(names)) == len(names)


def test_a_replaced_file_is_whole_private_and_alone(tmp_path):
    path = tmp_path / "now.json"
    write_atomic(path, b"old")
    write_atomic(path, b"new", sync=False)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["now.json"]  # noqa: PTH208


def test_a_failed_replacement_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "now.json"
    write_atomic(path, b"old")

    def full(fd, data):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(files, "write_all", full)
    with pytest.raises(OSError, match="full"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["now.json"]


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:3])))
    fd = os.open(tmp_path / "f", os.O_WRONLY | os.O_CREAT)
    write_all(fd, b"0123456789")
    os.close(fd)
    assert (tmp_path / "f").read_bytes() == b"0123456789"


def test_made_folders_are_private_and_those_that_were_there_are_left(tmp_path):
    tmp_path.chmod(0o755)
    make_private_dir(tmp_path / "a" / "b")
    make_private_dir(tmp_path / "a" / "b")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_missing_is_not_damaged(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    assert read_json(path) is None
    path.write_bytes(b"{")
    with pytest.raises(ValueError, match="not JSON"):
        read_json(path)
    path.write_bytes(b"{}")
    monkeypatch.setattr(files, "READ_CAP_BYTES", 1)
    with pytest.raises(ValueError, match="larger than"):
        read_json(path)


def test_json_of_ours_is_one_line_of_ascii_and_keeps_names_that_are_not_utf8():
    name = os.fsdecode(b"/data/\xff\n")
    line = to_json({"path": name, "loss": float("inf")})
    assert line.isascii()
    assert b"\n" not in line
    import json

    assert json.loads(line) == {"path": name, "loss": float("inf")}


def test_a_spec_comes_back_equal_through_json(tmp_path):
    spec = RunSpec(
        name="dflash",
        command=("bash", "x.sh"),
        file="f",
        workdir="/w",
        topology=(Role(name="target", gpus=("0", "1")),),
        params=Params(
            protected={"anchors": Scalar("1024", "int"), "layers": (Scalar("1"), Scalar("2"))},
            knobs=(Knob(name="token_budget", rungs=({"token_budget": Scalar("49152")},)),),
        ),
    )
    write_atomic(tmp_path / "run.json", to_json(to_plain(spec)))
    assert from_plain(read_json(tmp_path / "run.json"), RunSpec) == spec


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the box may be busy
@given(
    st.builds(
        Step, step=st.integers(), seen_boot_s=st.floats(allow_nan=False), loss=st.none() | st.floats(allow_nan=False)
    ),
    st.builds(Checkpoint, path=st.text(), step=st.integers(), inode=st.integers(), mtime_ns=st.integers()),
)
def test_evidence_comes_back_equal(step, checkpoint):
    import json

    for value in (step, checkpoint):
        assert from_plain(json.loads(to_json(to_plain(value))), type(value)) == value


def test_what_does_not_fit_is_a_value_error_that_names_the_type():
    with pytest.raises(ValueError, match="ProcessId"):
        from_plain({"pid": "x", "start_ticks": 1}, ProcessId)


def test_a_field_of_a_later_version_is_ignored():
    assert from_plain({"pid": 1, "start_ticks": 2, "new": 3}, ProcessId) == ProcessId(1, 2)
