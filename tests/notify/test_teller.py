"""Messages on their way out, without a network: what is put into the outbox, and what trouble there costs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.core import events as ev
from supervisor.core import telling
from supervisor.core.around import Notify
from supervisor.core.evidence import Instant, MachineId
from supervisor.core.spec import RunSpec
from supervisor.core.state import State
from supervisor.core.watch import begun
from supervisor.edges.files import read_json, to_json, write_atomic
from supervisor.edges.paths import Home
from supervisor.machines.teller import Teller, id_of

NOW = Instant("b", 1.0, 1.0)
INTENDED = ev.NotifyIntended(key="halted:episode 1", on="halted", title="r: halted", text="token s3cret in a log line")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The couriers that would have been started, by their words."""
    found: list[tuple[str, ...]] = []
    monkeypatch.setattr(Teller, "_start", lambda _self, *words: found.append(words))
    return found


def state(*untold: ev.NotifyIntended, **spec: object) -> State:
    import time

    made = RunSpec(name="r", command=("true",), file="/r.yaml", workdir="/w", **{"notify": Notify(), **spec})
    told = tuple((one.key, time.time()) for one in untold)
    return State(run="r", spec=made, machine=MachineId("b", "m", "h"), untold=untold, told=told)


def teller(folder: Path) -> Teller:
    home = Home(folder)
    home.run("r").path.mkdir(parents=True)
    return Teller(home, home.run("r"), lambda text: text.replace("s3cret", "<secret>"))


def test_a_message_is_put_once_and_redacted_and_a_courier_started_for_it(tmp_path: Path, started: list[object]):
    one = teller(tmp_path)
    for _ in range(3):
        assert one.tell(state(INTENDED), begun(0, NOW)) == ()
    (path,) = (tmp_path / "runs/r/outbox").glob("*.json")
    message = read_json(path)
    assert message is not None
    assert message["notice"]["text"] == "token <secret> in a log line"
    assert message["notify"] == {"urls_from": "SUPERVISE_NOTIFY", "command": [], "cwd": "/w"}
    assert started == [("r",)]


def test_what_came_of_it_is_recorded_before_the_message_is_taken_away(tmp_path: Path, started: list[object]):
    one = teller(tmp_path)
    one.tell(state(INTENDED), begun(0, NOW))
    path = tmp_path / "runs/r/outbox" / f"{id_of(INTENDED.key)}.json"
    write_atomic(path.with_suffix(".done"), to_json({"why": "1 (webhook): HTTP 500"}))
    (came,) = one.tell(state(INTENDED), begun(0, NOW))
    assert came == ev.Notified(key=INTENDED.key, why="1 (webhook): HTTP 500")
    assert path.exists()  # killed here, the next supervisor finds what came of it once more
    assert one.tell(state(), begun(0, NOW)) == ()
    assert list(path.parent.glob("*.json")) + list(path.parent.glob("*.done")) == []


def test_an_outbox_that_cannot_be_written_is_a_warning_said_once(tmp_path: Path, started: list[object]):
    one = teller(tmp_path)
    (tmp_path / "runs/r/outbox").write_text("a file")
    (warned,) = one.tell(state(INTENDED), begun(0, NOW))
    assert isinstance(warned, ev.Warned)
    assert one.tell(state(INTENDED), begun(0, NOW)) == ()


def test_a_fault_of_our_own_costs_no_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one = teller(tmp_path)
    monkeypatch.setattr(telling, "notices", lambda *_: 1 / 0)
    monkeypatch.setattr(telling, "morning", lambda *_: 1 / 0)
    (warned,) = one.about(state(), ev.Warned(text="x"), state(), NOW)
    assert isinstance(warned, ev.Warned)
    (warned,) = one.tell(state(), begun(0, NOW))
    assert isinstance(warned, ev.Warned)


def test_a_simulated_run_sends_no_heartbeat(tmp_path: Path, started: list[object]):
    from supervisor.core.phases import Phase

    beating = Notify(heartbeat_from="PING")
    running = State(run="r", spec=RunSpec(name="r", command=("t",), file="f", workdir="/w", notify=beating))
    running = State(run="r", spec=running.spec, phase=Phase.RUNNING)
    one = teller(tmp_path)
    one.tell(running, begun(0, NOW))
    one.tell(running, begun(0, NOW))
    assert started == [("r", "--beat", "PING")]
    assert running.spec is not None
    started.clear()
    simulated = RunSpec(name="r", command=("t",), file="f", workdir="/w", notify=beating, simulated=True)
    two = Teller(Home(tmp_path), Home(tmp_path).run("r"), str)
    two.tell(State(run="r", spec=simulated, phase=Phase.RUNNING), begun(0, NOW))
    assert started == []


def test_a_run_that_tells_nobody_does_nothing(tmp_path: Path):
    one = teller(tmp_path)
    assert one.tell(State(run="r"), begun(0, NOW)) == ()
    assert os.listdir(tmp_path / "runs/r") == []  # noqa: PTH208
