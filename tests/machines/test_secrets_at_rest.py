"""What a supervisor keeps beside the journal holds no secret value, whoever printed it."""

from __future__ import annotations

import json

from msgspec.structs import replace

from supervisor.core.state import State
from supervisor.edges.files import make_private_dir
from supervisor.edges.paths import Home
from supervisor.edges.secrets import REDACTED, Redactor
from supervisor.machines.local import LocalMachine
from supervisor.record import Record

VALUE = "hf_0123456789abcdef"


def home_with_run(tmp_path):
    home = Home(tmp_path / "state")
    make_private_dir(home.root)
    run = home.run("r")
    make_private_dir(run.path)
    return home, run


def test_now_json_holds_none(tmp_path):
    home, run = home_with_run(tmp_path)
    machine = LocalMachine(home, run, Redactor([VALUE]))
    try:
        machine.show({"ranks": [{"rank": 3, "text": f"401 for token {VALUE}"}], "step": 7})
    finally:
        machine.leave()
    told = json.loads(run.now.read_text())
    assert told["ranks"] == [{"rank": 3, "text": f"401 for token {REDACTED}"}]
    assert told["step"] == 7


def test_the_snapshot_holds_none(tmp_path):
    home, run = home_with_run(tmp_path)
    record = Record(home, run)
    try:
        record.redactor.hide([VALUE])
        record.keep(replace(State(run="r"), because=f"401 for token {VALUE}"))
        state, _ = record.begin()
    finally:
        record.close()
    assert VALUE not in run.snapshot.read_text()
    assert state.because == f"401 for token {REDACTED}"
