"""A snapshot is a cache: used when it is beyond doubt, else not there."""

from __future__ import annotations

import json

import pytest

from supervisor.edges.snapshot import read_snapshot, write_snapshot

STATE = {"phase": "running", "rungs": {"token_budget": 1}, "text": "ä"}


def test_a_snapshot_comes_back(tmp_path):
    path = tmp_path / "snapshot.json"
    assert read_snapshot(path, version="1", boot_id="b") is None
    write_snapshot(path, 42, STATE, version="1", boot_id="b")
    assert read_snapshot(path, version="1", boot_id="b") == (42, STATE)


@pytest.mark.parametrize(("version", "boot_id"), [("2", "b"), ("1", "c")])
def test_that_of_other_code_or_another_boot_is_ignored(tmp_path, version, boot_id):
    path = tmp_path / "snapshot.json"
    write_snapshot(path, 42, STATE, version="1", boot_id="b")
    assert read_snapshot(path, version=version, boot_id=boot_id) is None


@pytest.mark.parametrize("change", [{"n": 43}, {"state": "{}"}, {"crc": "00000000"}, {"state": None}, {"n": None}])
def test_a_changed_one_is_ignored(tmp_path, change):
    path = tmp_path / "snapshot.json"
    write_snapshot(path, 42, STATE, version="1", boot_id="b")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert read_snapshot(path, version="1", boot_id="b") is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "3"])
def test_a_torn_one_is_ignored(tmp_path, content):
    path = tmp_path / "snapshot.json"
    path.write_text(content)
    assert read_snapshot(path, version="1", boot_id="b") is None


def test_one_that_cannot_be_read_is_ignored(tmp_path):
    (tmp_path / "snapshot.json").mkdir()
    assert read_snapshot(tmp_path / "snapshot.json", version="1", boot_id="b") is None
