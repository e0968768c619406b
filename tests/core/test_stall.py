"""How long a run may be without progress: the numbers, and what counts as a sign of life."""

from __future__ import annotations

from fake_specs import incident
from msgspec.structs import replace

from supervisor.core.alive import Dumped
from supervisor.core.evidence import Instant, MachineId, Sign, Step
from supervisor.core.kinds import Kind
from supervisor.core.phases import Phase
from supervisor.core.plans import Failure, Plan
from supervisor.core.seen import Seen
from supervisor.core.silence import GpuWork
from supervisor.core.spec import RunSpec
from supervisor.core.stall import hangs, is_quiet, minutes, stall_s, with_dump
from supervisor.core.state import Attempt, State
from supervisor.core.watch import GAP_S, Watch, begun, looked

HERE = MachineId("boot", "machine", "host")


def state(spec: RunSpec | None = None, gained: int = 0) -> State:
    began = Instant("boot", 0.0, 0.0)
    attempt = Attempt(number=1, token="t", argv=(), rungs={}, checkpoint=None, began=began, gained=gained)
    return State(run="r", spec=spec or incident(), phase=Phase.RUNNING, attempt=attempt)


def see(watch: Watch, boot_s: float, of: State | None = None, **what) -> Watch:
    return looked(watch, seen(boot_s, **what), of or state())


def seen(boot_s: float, **what) -> Seen:
    return Seen(at=Instant("boot", boot_s, boot_s), machine=HERE, **what)


def stepped(*times_s: float) -> Watch:
    """A step at each of these times, looked at each minute in between."""
    watch = begun(1, Instant("boot", 0.0, 0.0))
    for n, at in enumerate(times_s):
        while watch.looked_boot_s is not None and at - watch.looked_boot_s > 60.0:
            watch = see(watch, watch.looked_boot_s + 60.0)
        watch = see(watch, at, steps=(Step(n + 1, at),))
    return watch


def test_auto_is_thirty_minutes_then_ten_or_six_times_the_slowest():
    watch = stepped(10, 12, 1512)
    assert stall_s(incident(), watch) == 1800
    slow = stepped(10, 12, 2512)
    assert stall_s(incident(), slow) == 2500, "never less than the longest pause survived"
    saved = see(watch, 1513, state(gained=1))
    assert stall_s(incident(), saved) == 1800, "it has not gone on yet"
    assert stall_s(incident(), see(saved, 1514, state(gained=1), steps=(Step(9, 1514),))) == 6 * 1500
    quick = see(see(stepped(10, 12), 13, state(gained=1)), 14, state(gained=1), steps=(Step(9, 14),))
    assert stall_s(incident(), quick) == 600


def test_what_a_phase_or_a_bar_explains_is_no_slow_interval():
    watch = stepped(10, 12)
    watch = see(watch, 20, marks=(("eval", True, 20.0),))
    for at in range(80, 1200, 60):
        watch = see(watch, at)
    watch = see(watch, 1220, marks=(("eval", False, 1220.0),))
    watch = see(watch, 1225, steps=(Step(3, 1225),))
    assert watch.slowest_s == 8
    watch = see(watch, 1255, signs=(Sign("Evaluating", 5, 10, 1255.0),))
    watch = see(watch, 1295, steps=(Step(4, 1295),))
    assert watch.slowest_s == 40
    assert max(watch.intervals) == 1213


def test_while_output_is_behind_nothing_hangs():
    watch = stepped(10, 12)
    for at in range(60, 2400, 60):
        watch = see(watch, at)
    assert hangs(incident(), state(), watch, seen(2400, lagging=True)) is None
    assert hangs(incident(), state(), watch, seen(2400)) == "no step for 39m48s after step 2 (limit 30m00s)"


def test_a_box_that_slept_is_looked_at_anew():
    watch = replace(stepped(10, 12), work={"GPU-6": GpuWork(worked=True, alone_boot_s=11.0)})
    watch = see(watch, 13 + GAP_S)
    assert watch.looking_since_boot_s == 13 + GAP_S
    assert watch.work["GPU-6"] == GpuWork(worked=True)
    assert hangs(incident(), state(), watch, seen(13 + GAP_S)) is None


def test_a_phase_that_the_spec_no_longer_names_has_the_limit_of_the_run():
    watch = see(stepped(10, 12), 20, marks=(("gone", True, 20.0),))
    for at in range(60, 2400, 60):
        watch = see(watch, at)
    assert hangs(incident(), state(), watch, seen(2400)) == (
        "the phase gone goes on for 39m40s without a step (limit 30m00s)"
    )


def test_a_step_within_a_phase_is_a_sign_of_life():
    watch = see(stepped(10, 12), 20, marks=(("eval", True, 20.0),))
    for at in range(60, 2400, 60):
        watch = see(watch, at, steps=(Step(at, at),) if at == 1200 else ())
    assert hangs(incident(), state(), watch, seen(2400)) is None


def test_bars_are_looked_for_in_quiet_times_only():
    watch = stepped(10, 12)
    assert not is_quiet(state(), watch, seen(20))
    assert is_quiet(state(), watch, seen(60))
    assert is_quiet(state(), begun(1, Instant("boot", 0.0, 0.0)), seen(20))
    spec = incident()
    assert not is_quiet(state(replace(spec, health=replace(spec.health, progress=None))), watch, seen(60))
    assert not is_quiet(State(run="r"), watch, seen(60))


def test_the_dump_stands_in_the_evidence():
    failure = Failure(kind=Kind.HANG, because="no step")
    plan = Plan(ending=None, because="no step; relaunching")
    assert with_dump(failure, plan, None) == (failure, plan)
    found = Dumped(attempt=1, why="hang", path="/d", summary="2 stacks", ranks=(1, 3))
    told, then = with_dump(failure, plan, found)
    assert told.because == "no step; ranks 1, 3 did not report"
    assert then.because == "no step; ranks 1, 3 did not report; relaunching"
    assert told.evidence == ("the job's processes: 2 stacks (/d)",)
    told, then = with_dump(failure, plan, Dumped(attempt=1, why="hang", problem="no answer"))
    assert (told.evidence, then) == (("the job's processes: no answer",), plan)


def test_times_are_told_as_people_say_them():
    assert [minutes(s) for s in (4.5, 61, 1324, 7200)] == ["4.5s", "1m01s", "22m04s", "2h00m"]
