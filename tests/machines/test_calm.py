"""How often a running job is looked at, what a late wake-up is, and how often a launch is ensured again."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from supervisor.core.evidence import Instant
from supervisor.core.phases import Phase
from supervisor.core.placing import RoleGpus
from supervisor.core.seen import Follow, Launch
from supervisor.core.spec import Params, RunSpec, Scalar
from supervisor.core.state import Attempt, State
from supervisor.edges.paths import Home
from supervisor.edges.secrets import Redactor
from supervisor.machines import local
from supervisor.machines.local import LocalMachine
from supervisor.machines.looks import is_calm
from supervisor.machines.parts import Parts

AT = Instant("b", 1.0, 1.0)
ATTEMPT = Attempt(number=1, token="t", argv=("train",), rungs={}, checkpoint=None, began=AT)


def running(tmp_path: Path, **changes: object) -> State:
    spec = RunSpec(name="r", command=("train",), file="r.yaml", workdir=str(tmp_path))
    return replace(State(run="r", spec=spec, phase=Phase.RUNNING, attempt=ATTEMPT), **changes)


def test_a_job_without_gpus_and_protected_params_is_calm_while_nothing_is_suspected(tmp_path):
    assert is_calm(Follow(attempt=1), running(tmp_path))
    assert not is_calm(Follow(attempt=1, processes=True), running(tmp_path))
    assert not is_calm(Follow(attempt=1), running(tmp_path, phase=Phase.STARTING))


@pytest.mark.parametrize("what", ["gpus", "protected"])
def test_gpus_and_protected_params_are_looked_at_each_second(tmp_path, what):
    state = (
        running(tmp_path, roles={"target": RoleGpus(uuids=("GPU-1",), physical=(0,), ordinals=(0,))})
        if what == "gpus"
        else running(tmp_path)
    )
    if what == "protected":
        params = Params(protected={"anchors": Scalar("1024", "int")})
        state = replace(state, spec=replace(state.spec, params=params))
    assert not is_calm(Follow(attempt=1), state)


def test_a_wake_up_that_finds_nothing_new_has_read_nothing(tmp_path):
    run = Home(tmp_path / "state").run("r")
    run.attempt(1).path.mkdir(parents=True)
    run.attempt(1).output.write_text("words\n")
    parts = Parts(run, None, None, "b")
    trail = parts.trail(running(tmp_path))
    assert not trail.pump(1.0)
    assert trail.fed == len("words\n")
    assert not trail.pump(1.1)
    assert trail.fed == len("words\n")
    parts.close()


def test_a_launch_is_ensured_again_only_after_a_while(tmp_path, monkeypatch):
    home = Home(tmp_path / "state")
    run = home.run("r")
    run.attempt(1).path.mkdir(parents=True)
    ensured: list[int] = []
    monkeypatch.setattr(local, "ensure_attempt", lambda home, run, state, tmux: ensured.append(1))
    monkeypatch.setattr(local, "ENSURE_EVERY_S", 600.0)
    machine = LocalMachine(home, run, Redactor(()))
    for _ in range(3):
        machine.do(Launch(attempt=1), running(tmp_path, phase=Phase.STARTING))
    assert len(ensured) == 1
    monkeypatch.setattr(local, "ENSURE_EVERY_S", 0.0)
    machine.do(Launch(attempt=1), running(tmp_path, phase=Phase.STARTING))
    assert len(ensured) == 2
    machine.leave()
