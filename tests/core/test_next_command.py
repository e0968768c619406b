"""The command that an answer tells to type next starts the same kind of run again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core.decisions import decide
from supervisor.core.evidence import Instant, MachineId
from supervisor.core.phases import Phase
from supervisor.core.seen import Request, Seen
from supervisor.core.spec import RunSpec
from supervisor.core.state import State
from supervisor.core.watch import begun

NOW = Instant("b", 9.0, 1_000.0)
SPEC = RunSpec(name="r", command=("true",), file="/w/r.yaml", workdir="/w")


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [(SPEC, "supervise up /w/r.yaml"), (replace(SPEC, simulated=True), "supervise up --simulate /w/r.yaml")],
)
def test_a_simulated_run_is_never_started_again_as_a_real_one(spec, wanted):
    state = State(run="r", spec=spec, phase=Phase.STOPPED)
    asked = Seen(at=NOW, machine=MachineId("b", "m", "h"), requests=(Request(id="1", verb="restart"),))
    (answered,) = decide(state, begun(0, NOW), asked)
    assert isinstance(answered, ev.Answered)
    assert answered.exit == 3
    assert answered.text.endswith(f"next: {wanted}")
