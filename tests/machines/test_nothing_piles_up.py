"""What a supervisor holds besides its state, over a run of months: of what is gone, nothing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from supervisor.core.spec import Param, Params, RunSpec, Scalar
from supervisor.core.state import State
from supervisor.edges import proc, requests
from supervisor.edges.paths import Home
from supervisor.machines import job
from supervisor.machines.asides import Asides
from supervisor.machines.job import Job
from supervisor.machines.requests import Requests


def test_of_work_beside_the_loop_only_the_newest_answer_is_kept():
    asides = Asides(lambda: None)
    for n in range(50):
        name = f"prune:{n}"
        asides.ensure(name, lambda n=n: n, instead_of="prune:")
        while asides.answer(name) is None:
            os.sched_yield()
    assert asides.answer("prune:49") == 49
    assert asides.answer("prune:48") is None
    assert len(asides._answers) == len(asides._begun) == 1


def test_a_request_that_was_answered_is_forgotten(tmp_path: Path):
    run = Home(tmp_path).run("r")
    run.requests.mkdir(parents=True)
    asked = Requests(run)
    for _ in range(5):
        made = requests.put(run, {"verb": "pause", "args": {}})
        unanswered, _ = asked.look(State(run="r"))
        assert [one.id for one in unanswered] == [made]
        asked.look(State(run="r", answered=(made,)))
    assert asked._raw == asked._read == {}


def test_of_members_that_were_checked_only_the_living_are_remembered(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(job, "CHECK_EVERY_S", 0.0)
    spec = RunSpec(
        name="r",
        command=("train.py", "--seed", "7"),
        file="r.yaml",
        workdir=str(tmp_path),
        params=Params(protected={"seed": Scalar("7", "int")}, how={"seed": Param(name="seed", flag="--seed")}),
    )
    attempt = Home(tmp_path).run("r").attempt(1)
    attempt.path.mkdir(parents=True)
    looked_at = Job(attempt, proc.boot_id())
    for _ in range(3):
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as loader:
            os.write(loader.stdin.fileno(), b"x")
            assert os.read(loader.stdout.fileno(), 1) == b"x"
            line = {"pid": loader.pid, "start_ticks": proc.start_ticks(loader.pid), "sid": 1}
            with attempt.members.open("a") as file:
                file.write(json.dumps(line) + "\n")
            looked_at.members()
            assert list(looked_at.violations(spec)) == []
            assert [one.pid for one, _ in looked_at._checked] == [loader.pid]
