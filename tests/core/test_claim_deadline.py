"""How long a runner may take to claim its attempt, where nobody was there to start one."""

from __future__ import annotations

import pytest

from supervisor.core import events as ev
from supervisor.core.decisions import CLAIM_WITHIN_S, decide
from supervisor.core.evidence import Instant, MachineId
from supervisor.core.phases import Phase
from supervisor.core.seen import JobSeen, Seen
from supervisor.core.spec import RunSpec
from supervisor.core.state import Attempt, State
from supervisor.core.watch import begun

SPEC = RunSpec(name="r", command=("true",), file="r.yaml", workdir="/")


def decided(began: Instant, now: Instant, looking_for_s: float) -> tuple[ev.Event, ...]:
    """What a supervisor says that has looked for so long and has seen no claim."""
    attempt = Attempt(number=1, token="r:1", argv=("true",), rungs={}, checkpoint=None, began=began)
    state = State(run="r", spec=SPEC, phase=Phase.STARTING, attempt=attempt, attempts_made=1)
    watch = begun(1, Instant(now.boot_id, now.boot_s - looking_for_s, now.wall_s))
    return decide(state, watch, Seen(at=now, machine=MachineId(now.boot_id, "m", "h"), job=JobSeen(claim="none")))


@pytest.mark.parametrize("began", [Instant("before", 9.0, 1_000.0), Instant("now", 9.0, 1_000.0)])
def test_a_launch_that_a_reboot_cut_short_is_still_made(began):
    now = Instant("now", 500.0, 50_000.0)
    assert decided(began, now, looking_for_s=1.0) == ()
    said = decided(began, now, looking_for_s=CLAIM_WITHIN_S + 1)
    assert [type(one) for one in said] == [ev.Judged, ev.StopIntended]
