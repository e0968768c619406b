"""A supervisor reads its own attempt's logs: on from where another stood, and nothing of the attempt before."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.core.evidence import Instant
from supervisor.core.spec import Health, Progress, RunSpec
from supervisor.core.state import Attempt, State
from supervisor.edges.paths import Home, RunDir
from supervisor.machines.parts import Parts
from supervisor.machines.trail import TrailSeen

AT = Instant("b", 1.0, 1.0)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.74 GiB."


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = Home(tmp_path / "state").run("r")
    for number in (1, 2):
        made.attempt(number).path.mkdir(parents=True)
    return made


def state(tmp_path: Path, number: int) -> State:
    health = Health(progress=Progress(log=r"step (?P<step>\d+)"))
    logs = (str(tmp_path / "*.log"),)
    spec = RunSpec(name="r", command=("train",), file="r.yaml", workdir=str(tmp_path), health=health, logs=logs)
    attempt = Attempt(number=number, token="t", argv=("train",), rungs={}, checkpoint=None, began=AT, launched_at=AT)
    return State(run="r", spec=spec, attempt=attempt, attempts_made=number)


def look(parts: Parts, state: State) -> TrailSeen:
    return parts.trail(state).look(2.0, ended=False)


def saved_early(run: RunDir, tmp_path: Path) -> Parts:
    """The parts of a new supervisor; the one before saved its offsets when attempt 1 had written nothing yet."""
    first = Parts(run, None, None, "b")
    run.attempt(1).output.write_bytes(b"")
    look(first, state(tmp_path, 1))
    made = Parts(run, None, None, "b")
    made.saved_trail = 1, first.trail(state(tmp_path, 1)).saved()
    first.close()
    run.attempt(1).output.write_text(f"step 1\nstep 2\n{OOM}\n")
    return made


def test_what_the_attempt_before_wrote_last_is_no_step_and_no_failure_of_the_next(run, tmp_path):
    parts = saved_early(run, tmp_path)
    (tmp_path / "old.log").write_text(f"{OOM}\n")
    run.attempt(2).output.write_text("loading\n")
    seen = look(parts, state(tmp_path, 2))
    assert (seen.steps, seen.hits) == ((), ())
    parts.close()


def test_the_same_attempt_is_read_on_from_where_the_supervisor_before_stood(run, tmp_path):
    parts = saved_early(run, tmp_path)
    assert [one.step for one in look(parts, state(tmp_path, 1)).steps] == [1, 2]
    parts.close()
