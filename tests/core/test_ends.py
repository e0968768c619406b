"""What the end of a job means, and what a halt says was tried."""

from __future__ import annotations

import pytest
from changes import replace
from fake_specs import incident

from supervisor.core.evidence import ExitRecord, Instant, MachineId
from supervisor.core.kinds import Kind
from supervisor.core.phases import Phase
from supervisor.core.placing import RoleGpus
from supervisor.core.plans import Failure
from supervisor.core.seen import Seen
from supervisor.core.spec import Done, Rule
from supervisor.core.state import Attempt, Past, State
from supervisor.core.tried import TOLD, tried
from supervisor.core.verdicts import Done as Finished
from supervisor.core.verdicts import Wrong, ended
from supervisor.core.watch import Watch, begun


def at(boot_s: float) -> Instant:
    return Instant("b", boot_s, boot_s)


def state(*rules: Rule, phase: Phase = Phase.RUNNING, past: tuple[Past, ...] = (), **of) -> State:
    """An attempt that was launched at 100 s and made progress; changes of `of` are its."""
    spec = incident()
    spec = replace(spec, recovery=replace(spec.recovery, rules=rules))
    made = Attempt(
        number=4,
        token="t",
        argv=(),
        rungs={},
        checkpoint=None,
        began=at(90.0),
        launched_at=at(100.0),
        progressed_at=at(110.0),
    )
    roles = {"all": RoleGpus(ordinals=(4, 5), physical=(4, 5), uuids=("GPU-4", "GPU-5"))}
    rungs = {"token_budget": 0, "max_batch_size": 0}
    return State(run="r", spec=spec, phase=phase, attempt=replace(made, **of), past=past, rungs=rungs, roles=roles)


def failed(kind: Kind = Kind.HANG, **changes) -> Failure:
    return replace(Failure(kind=kind, because="it hangs"), **changes)


def before(number: int, kind: Kind = Kind.HANG, **changes) -> Past:
    made = Past(attempt=number, kind=kind, at=at(50.0), gained=False, rule="", did="relaunch", lowered=False)
    return replace(made, **changes)


def test_what_was_tried_is_told_by_answer_and_the_same_answer_not_again():
    of = state(past=(before(1), before(2, Kind.EXIT), before(3), before(4, did="halt")))
    assert tried(of, failed(Kind.SEGFAULT)) == (
        "; tried: relaunched as it was after hang (attempts 1, 3), relaunched as it was after exit (attempt 2)"
    )
    assert tried(state(past=(before(1), before(2))), failed()) == "", "that count is told already"
    assert tried(state(), failed()) == ""
    moved = state(past=(before(1, Kind.GPU_OOM, moved=("a 4 -> 2", "b 2 -> 1")),))
    assert tried(moved, failed(Kind.GPU_OOM)) == "; tried: a 4 -> 2, b 2 -> 1 after gpu_oom (attempt 1)"


def test_of_many_answers_the_newest_six_are_told():
    past = tuple(before(n, Kind.GPU_OOM, moved=(f"a {n} -> {n - 1}",)) for n in range(1, TOLD + 2))
    said = tried(state(past=past), failed(Kind.GPU_OOM))
    assert said.count("attempt ") == TOLD == 6
    assert "a 1 -> 0" not in said
    assert f"a {TOLD + 1} -> {TOLD}" in said


def test_a_gpu_that_every_failure_came_from_is_suspected_where_there_are_others():
    two = (before(1, gpu=5), before(2, gpu=5))
    suspect = ". Every time it was GPU 5: look at that GPU first"
    assert tried(state(past=two), failed(gpu=5)) == suspect
    assert tried(state(past=two), failed(gpu=4)) == ""
    assert tried(state(past=(two[0], before(2, gpu=4))), failed(gpu=5)) == ""
    assert tried(state(past=two[:1]), failed(gpu=5)) == "", "twice is not every time"
    alone = {"all": RoleGpus(ordinals=(5,), physical=(5,), uuids=("GPU-5",))}
    assert tried(replace(state(past=two), roles=alone), failed(gpu=5)) == ""
    assert tried(state(past=(before(1), before(2))), failed()) == ""


# ── what an end means ──


def watch(**changes) -> Watch:
    return replace(begun(4, at(90.0)), **changes)


def ends(code: int | None = None, signal: int | None = None, done: Done | None = None, **of) -> Finished | Wrong:
    spec = replace(incident(), done=done)
    return ended(spec, state(), watch(**of), ExitRecord(code=code, signal=signal))


@pytest.mark.parametrize(
    ("code", "signal", "kind", "said"),
    [
        (None, 9, Kind.KILLED, "the job was killed by SIGKILL"),
        (137, None, Kind.KILLED, "the job ended with exit code 137 (SIGKILL)"),
        (None, 15, Kind.PREEMPTED, "the job was killed by SIGTERM"),
        (143, None, Kind.PREEMPTED, "the job ended with exit code 143 (SIGTERM)"),
        (None, 11, Kind.SEGFAULT, "the job was killed by SIGSEGV"),
        (134, None, Kind.SEGFAULT, "the job ended with exit code 134 (SIGABRT)"),
        (None, 2, Kind.EXIT, "the job was killed by SIGINT"),
        (None, 90, Kind.EXIT, "the job was killed by signal 90"),
        (128, None, Kind.EXIT, "the job ended with exit code 128"),
        (129, None, Kind.EXIT, "the job ended with exit code 129 (SIGHUP)"),
        (255, None, Kind.EXIT, "the job ended with exit code 255"),
        (1, None, Kind.EXIT, "the job ended with exit code 1"),
        (None, None, Kind.KILLED, "the job is gone, exit status unknown"),
    ],
)
def test_the_kind_of_an_end_without_a_word_is_in_its_exit_status(code, signal, kind, said):
    found = ends(code, signal)
    assert isinstance(found, Wrong)
    failure = found.failure
    assert (failure.kind, failure.because, failure.code, failure.signal) == (kind, said, code, signal)
    assert failure.confidence == "low"


def test_exit_code_0_is_a_finish_where_nothing_is_missing():
    assert isinstance(ends(0), Finished)
    assert isinstance(ends(0, total=100, last_step=100), Finished)
    assert isinstance(ends(0, total=100), Finished), "a total without a step says nothing"
    short = ends(0, total=100, last_step=99)
    assert isinstance(short, Wrong)
    assert short.failure.because == "exit code 0, but only step 99 of 100 was reached"
    assert (short.failure.kind, short.failure.code) == (Kind.EXIT, 0)
    asked = ends(0, total=100, last_step=99, sigterm_seen=True)
    assert isinstance(asked, Wrong)
    assert asked.failure.kind is Kind.PREEMPTED


def test_done_says_what_a_finish_is_and_then_a_total_does_not():
    assert isinstance(ends(0, done=Done(step=100), last_step=100, total=1000), Finished)
    assert isinstance(ends(0, done=Done(step=100), last_step=99), Wrong)
    assert isinstance(ends(0, done=Done(step=100)), Wrong)
    for done in (Done(file="/w/DONE"), Done(log="all done")):
        assert isinstance(ends(0, done=done), Wrong)
        assert isinstance(ends(0, done=done, done_seen=True), Finished)
    named = ends(0, done=Done(log="all done"))
    assert isinstance(named, Wrong)
    assert named.failure.because == "exit code 0, but 'all done' was not seen"


def test_a_look_at_nothing_knows_nothing():
    nothing = Seen.nothing()
    assert (nothing.at, nothing.machine) == (Instant("", 0.0, 0.0), MachineId("", "", ""))
