"""What a launch would run in, against pins, code, data and the last attempt that made progress."""

from __future__ import annotations

from typing import Any

import pytest
from fake_specs import incident
from msgspec.structs import replace

from supervisor.core.given import Watched
from supervisor.edges.files import to_json
from supervisor.edges.paths import Home, RunDir
from supervisor.machines import surroundings
from supervisor.machines.surroundings import compared, drifted

OLD: dict[str, Any] = {
    "packages": {"torch": "2.11.0+cu128", "numpy": "2.1"},
    "torch": {"version": "2.11.0+cu128", "cuda": "12.8"},
    "code": {"train.py": "aa"},
    "data": {"/d": "3 files"},
    "unknown": {},
}
NEW = {
    **OLD,
    "packages": {"torch": "2.12.0+cu130", "numpy": "2.1"},
    "torch": {"version": "2.12.0+cu130", "cuda": "13.0"},
}


@pytest.fixture
def run(tmp_path) -> RunDir:
    return Home(tmp_path).run("dflash")


def written(run: RunDir, attempt: int, told: Any) -> None:
    folder = run.attempt(attempt).path
    folder.mkdir(parents=True)
    run.attempt(attempt).environment.write_bytes(to_json(told))


def test_a_pin_refuses_with_the_line_of_the_spec_the_diff_and_the_fix():
    spec = incident(pins={"torch": "2.11.0+cu128"}, pins_at={"torch": "dflash.yaml:38"}, venv="/w/.venv")
    text = "\n".join(compared(spec, NEW, OLD, None).problems)
    assert "dflash.yaml:38: torch is pinned to 2.11.0+cu128, and 2.12.0+cu130 is installed" in text
    assert "next: /w/.venv/bin/python -m pip install 'torch==2.11.0+cu128'" in text
    assert "torch cuda: 12.8 -> 13.0; torch version: 2.11.0+cu128 -> 2.12.0+cu130" in text


def test_a_pin_that_only_warns_refuses_nothing():
    found = compared(incident(pins={"numpy": "2.0"}, pins_warn=True), NEW, None, None)
    assert found.problems == ()
    assert "numpy is pinned to 2.0, and 2.1 is installed" in found.warnings[-1]


def test_freeze_holds_on_to_all_that_the_last_good_attempt_had():
    spec = incident(pins_freeze=True, pins_at={"freeze": "dflash.yaml:40"})
    text = "\n".join(compared(spec, NEW, OLD, None).problems)
    assert "dflash.yaml:40: torch is pinned to 2.11.0+cu128" in text
    assert "numpy" not in text
    assert compared(spec, OLD, OLD, None).problems == ()
    (said,) = compared(spec, NEW, None, None).warnings
    assert "nothing to hold on to" in said


@pytest.mark.parametrize(("what", "word"), [("code", "halt"), ("data", "fail")])
def test_changed_code_or_data_warns_or_refuses_as_the_spec_says(what, word):
    changed = {**OLD, what: {"train.py" if what == "code" else "/d": "other"}}
    strict = replace(incident(), **{what: Watched(strict=True)})
    (problem,) = compared(strict, changed, OLD, OLD).problems
    assert f"the {what} changed" in problem
    assert "on_change: warn" in problem
    lenient = replace(incident(), **{what: Watched()})
    found = compared(lenient, changed, OLD, OLD)
    assert found.problems == ()
    assert found.warnings
    assert compared(strict, OLD, OLD, OLD) == compared(strict, changed, None, None)


def test_data_that_does_not_answer_is_told_and_is_no_difference():
    silent = {**OLD, "data": None, "unknown": {"data": "not told within 10 s"}}
    (said,) = compared(incident(data=Watched(paths=("/d",))), silent, OLD, OLD).warnings
    assert said == "the data: not told within 10 s; is its disk well?"


def test_what_changed_since_the_last_attempt_that_made_progress_is_named_the_most_suspicious_first(run):
    written(run, 1, OLD)
    drift = drifted(run, 3, 1, {**NEW, "data": {"/d": "4 files"}})
    assert drift is not None
    assert drift.changes[0].startswith("torch cuda: 12.8 -> 13.0")
    assert drift.suspects.endswith("(not separable)")
    assert drift.words.startswith("changed since attempt 1, the last that made progress: torch cuda")


def test_nothing_drifted_where_nothing_changed_or_nobody_made_progress(run):
    written(run, 1, OLD)
    run.attempt(2).path.mkdir()
    run.attempt(2).environment.write_text("{torn")
    for since in (None, 1, 2, 3):
        assert drifted(run, 3, since, OLD) is None


def test_the_fingerprint_has_the_sources_of_config_files_and_the_data(run, tmp_path):
    (tmp_path / "train.py").write_text("print()")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.yaml").write_text("a: 1")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("12345")
    spec = incident(
        command=("python3", "train.py"),
        workdir=str(tmp_path),
        code=Watched(paths=(str(tmp_path / "conf"),)),
        data=Watched(paths=(str(tmp_path / "data"), str(tmp_path / "gone"))),
    )
    told = surroundings.take(spec, {}, {"PATH": "/usr/bin:/bin"}, (), str)
    assert set(told["code"]) == {"train.py", str(tmp_path / "conf" / "a.yaml")}
    assert told["data"][str(tmp_path / "data")].startswith("1 files, 5 bytes, newest 20")
    assert told["data"][str(tmp_path / "gone")] == "not there"


def test_data_that_is_not_there_is_told_before_the_first_launch():
    now = {"data": {"/data/a": "not there", "/data/b": "1 files"}}
    for strict in (False, True):
        found = compared(incident(data=Watched(paths=("/data/a", "/data/b"), strict=strict)), now, None, None)
        (said,) = found.problems if strict else found.warnings
        assert said.startswith("data /data/a is not there; ")
    assert compared(incident(data=Watched(paths=("/data/a",), strict=True)), now, now, now).problems == ()
