"""What attempts took before, whether the next will fit, and what may happen to an output directory."""

from __future__ import annotations

import pytest
from changes import replace
from fake_specs import uuid

from supervisor.core.evidence import Reading
from supervisor.core.fitting import HEADROOM_MIB, fits
from supervisor.core.kinds import Kind
from supervisor.core.peaks import Peaks, risen, wanted_mib
from supervisor.core.plans import Failure
from supervisor.core.spec import Stale
from supervisor.core.stale import Archive, Leave, OutputSeen, Remove, decide


def oom(short: float | None = 100.0, tried: float = 1_000.0, **more) -> Failure:
    sizes = {} if short is None else {"short_by_mib": short, "free_mib": tried - short, "total_mib": 10_000.0}
    return Failure(kind=Kind.GPU_OOM, because="oom", gpu=5, uuid=uuid(5), tried_mib=tried, **sizes, **more)


# ── what it took before ──


def test_a_peak_rises_by_a_mib_at_least():
    def reading(used: float) -> dict[str, Reading]:
        return {"GPU-5": Reading("GPU-5", 5, 1.0, used, 10_000.0, None, None)}

    assert risen({}, reading(0.9)) is None
    assert risen({}, reading(1.9)) == {"GPU-5": 1.0}
    assert risen({"GPU-5": 5.0}, reading(5.9)) is None
    assert risen({"GPU-5": 5.0, "GPU-6": 7.0}, reading(6.0)) == {"GPU-5": 6.0, "GPU-6": 7.0}
    assert wanted_mib(oom(100.0)) == 10_100.0
    for unknown in (
        {"kind": Kind.HANG},
        {"leftover": "x"},
        {"total_mib": None},
        {"free_mib": None},
        {"tried_mib": None},
    ):
        assert wanted_mib(replace(oom(100.0), **unknown)) is None


@pytest.mark.parametrize(("used", "problems", "warnings"), [(0.0, 0, 0), (1.0, 0, 1), (1_024.0, 0, 1), (1_025.0, 1, 0)])
def test_a_launch_fits_where_its_peak_does_and_a_gib_is_room_enough(used, problems, warnings):
    assert HEADROOM_MIB == 1_024.0
    known = [Peaks(attempt=1, rungs={}, mib={"GPU-5": 8_976.0}, progressed=True)]
    found = fits(known, {"GPU-5": Reading("GPU-5", 5, 1.0, used + 50.0, 10_000.0, None, None)}, {"GPU-5": 50.0})
    assert (len(found.problems), len(found.warnings)) == (problems, warnings)


def test_each_gpu_is_judged_by_itself_and_by_the_most_that_was_needed():
    two = {f"GPU-{n}": Reading(f"GPU-{n}", n, 1.0, 2_000.0, 10_000.0, None, None) for n in (5, 6)}
    only = [Peaks(attempt=1, rungs={}, mib={"GPU-6": 9_000.0}, progressed=True)]
    (problem,) = fits(only, two, {}).problems
    assert problem.startswith("GPU 6: attempt 1 took 9000 MiB"), "of the first nothing is known, of the second all"
    failed_ = [Peaks(attempt=n, rungs={}, wanted={"GPU-5": wanted}) for n, wanted in ((1, 8_500.0), (2, 7_000.0))]
    (warning,) = fits(failed_, two, {}).warnings
    assert "attempt 1" in warning
    assert "8500 MiB" in warning


# ── stale output ──


def treated(stale: Stale, made: bool = True, **seen):
    return decide(OutputSeen(path="/w/out", **seen), stale, made_by_run=made, attempt=3)


def test_what_may_happen_to_an_output_directory_and_why_not():
    assert treated(Stale.KEEP) == Leave("output.stale is keep")
    for stale in (Stale.REMOVE_IF_EMPTY, Stale.ARCHIVE):
        assert treated(stale, exists=False) == Leave("there is none")
        assert treated(stale, bar="a link", empty=True) == Leave("a link", warn=True)
        assert treated(stale, made=False, empty=True) == Remove("/w/out")
        assert treated(stale, holds="step_7") == Leave("it holds step_7")
    assert treated(Stale.REMOVE_IF_EMPTY) == Leave("it is not empty")
    assert treated(Stale.ARCHIVE, made=False) == Leave("it is not empty and this run did not make it", warn=True)
    assert treated(Stale.ARCHIVE) == Archive("/w/out", "/w/out.stale-3")
    assert treated(Stale.ARCHIVE, beside=frozenset({"out.stale-3"})) == Archive("/w/out", "/w/out.stale-3.2")
    taken = frozenset({"out.stale-3", "out.stale-3.2"})
    assert treated(Stale.ARCHIVE, beside=taken) == Archive("/w/out", "/w/out.stale-3.3")
