"""How a job ended is known by `exit.json`, as soon as it is whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from supervisor.core.evidence import ExitRecord
from supervisor.edges import proc
from supervisor.edges.paths import AttemptDir
from supervisor.machines.job import Job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """One whose runner is gone."""
    claim = {"by": "runner", "pid": 4194305, "start_ticks": 1, "boot_id": proc.boot_id()}
    (tmp_path / "claim").write_text(json.dumps(claim))
    return Job(AttemptDir(1, tmp_path), proc.boot_id())


@pytest.mark.parametrize("torn", ["", "\0\0\0\0", '{"status": 7', "[]", "{}", '{"status": null}'])
def test_an_end_that_a_power_cut_left_torn_is_none(job: Job, torn: str):
    job.attempt.exit_json.write_text(torn)
    assert not job.has_ended()
    seen = job.look(drained=True)
    assert (seen.claim, seen.runner_alive, seen.exit) == ("runner", False, None)


def test_an_end_is_told_once_its_output_was_read(job: Job):
    assert not job.has_ended()
    job.attempt.exit_json.write_text(json.dumps({"status": 3 << 8, "ended_boot_s": 12.5}))
    assert job.has_ended()
    assert job.look(drained=False).exit is None
    assert job.look(drained=True).exit == ExitRecord(code=3, signal=None, ended_boot_s=12.5)
