"""What a launch is told to have run is what stood there at the launch, not what was saved a second later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from supervisor.core.evidence import Instant
from supervisor.core.given import Watched
from supervisor.core.spec import RunSpec
from supervisor.core.state import Attempt, State
from supervisor.edges import environment_probe
from supervisor.edges.files import read_json
from supervisor.edges.paths import Home, RunDir
from supervisor.machines import starting, surroundings
from supervisor.machines.starting import keep_fingerprint

ATTEMPT = Attempt(number=2, token="t", argv=(), rungs={}, checkpoint=None, began=Instant("b", 1.0, 1.0))


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = Home(tmp_path / "state").run("r")
    for number in (1, 2):
        made.attempt(number).path.mkdir(parents=True)
    return made


def spec(tmp_path: Path, *protect: str, strict: bool = True) -> RunSpec:
    (tmp_path / "train.py").write_text("lr = 1\n")
    code = Watched(paths=tuple(str(tmp_path / one) for one in protect), strict=strict)
    return RunSpec(name="r", command=("python", "train.py"), file="r.yaml", workdir=str(tmp_path), code=code)


def launched(run: RunDir, given: RunSpec) -> str:
    state = State(run="r", spec=given, attempt=ATTEMPT, attempts_made=2, episode_first=1)
    return starting._code(run, run.attempt(2), state, given)


def test_a_script_that_was_saved_after_the_launch_is_not_what_ran(run, tmp_path):
    given = spec(tmp_path)
    assert launched(run, given) == ""
    before = surroundings.code_now(given)
    (tmp_path / "train.py").write_text("lr = 2\n")
    state = State(run="r", spec=given, attempt=ATTEMPT)
    keep_fingerprint(run, given, state, ATTEMPT, (), str)
    told = read_json(run.attempt(2).environment)
    assert told is not None and told["code"] == before


def test_what_a_hook_changed_since_it_was_compared_is_not_launched(run, tmp_path):
    given = spec(tmp_path)
    run.attempt(1).environment.write_text(json.dumps({"code": surroundings.code_now(given)}))
    assert launched(run, given) == ""
    (tmp_path / "train.py").write_text("lr = 2\n")
    assert launched(run, given).startswith("the code changed since the run was last launched well: code train.py: ")
    assert launched(run, replace(given, code=Watched(strict=False))) == "", "it is told, as on_change: warn says"
    assert launched(run, replace(given, code=None)) == ""


def test_of_a_folder_of_thousands_of_files_each_one_is_watched(tmp_path, monkeypatch):
    monkeypatch.setattr(environment_probe, "PROTECTED_CAP", 3)
    (tmp_path / "src").mkdir()
    for number in range(6):
        (tmp_path / "src" / f"m{number}.py").write_text("x = 1\n")
    given = spec(tmp_path, "src")
    before = surroundings.code_now(given)
    assert f"{tmp_path}/src/m2.py and 3 more" in before
    assert surroundings.code_changed(given, before, {"code": before}) == ""
    (tmp_path / "src" / "m5.py").write_text("x = 22\n")
    assert "and 3 more" in surroundings.code_changed(given, surroundings.code_now(given), {"code": before})
    (tmp_path / "src" / "m5.py").unlink()
    monkeypatch.setattr(environment_probe, "_all_files", lambda paths: [f"{tmp_path}/src/m{n}.py" for n in range(6)])
    assert surroundings.code_now(given) != before, "one that is gone is another"
