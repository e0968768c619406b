"""The end of a job is written down at once; the verdict waits for the witnesses beside the log."""

from __future__ import annotations

from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core.decisions import decide
from supervisor.core.evidence import ExitRecord, Instant, MachineId, ProcessId
from supervisor.core.phases import Phase
from supervisor.core.seen import JobSeen, Seen
from supervisor.core.spec import RunSpec
from supervisor.core.state import Attempt, State
from supervisor.core.watch import begun

NOW = Instant("b", 99.0, 1_000.0)
END = ExitRecord(code=1, signal=None)
ATTEMPT = Attempt(
    number=1,
    token="r:1",
    argv=("true",),
    rungs={},
    checkpoint=None,
    began=NOW,
    launched_at=NOW,
    runner=ProcessId(2, 1),
    leader=ProcessId(3, 1),
)
STATE = State(
    run="r",
    spec=RunSpec(name="r", command=("true",), file="r.yaml", workdir="/"),
    phase=Phase.RUNNING,
    attempt=ATTEMPT,
    attempts_made=1,
)
JOB = JobSeen(claim="runner", runner=ATTEMPT.runner, runner_alive=True, leader=ATTEMPT.leader, exit=END)
SEEN = Seen(at=NOW, machine=MachineId("b", "m", "h"), job=JOB, awaiting=True)


def test_a_failed_end_is_written_down_before_the_witnesses_have_spoken():
    assert decide(STATE, begun(1, NOW), SEEN) == (ev.JobEnded(attempt=1, end=END),)


def test_it_is_judged_only_once_they_have():
    ended = replace(STATE, attempt=replace(ATTEMPT, end=END))
    assert decide(ended, begun(1, NOW), SEEN) == ()
    said = decide(ended, begun(1, NOW), replace(SEEN, awaiting=False))
    assert [type(one) for one in said] == [ev.Judged, ev.StopIntended]
