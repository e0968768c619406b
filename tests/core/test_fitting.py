"""Will it fit: recorded peaks against what is free now."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from supervisor.core.drift import diff
from supervisor.core.evidence import Reading, Unreadable
from supervisor.core.fitting import comparable, fits, takes_other_memory
from supervisor.core.peaks import Peaks

CARD = "GPU-5"


def reading(used_mib: float) -> Reading:
    return Reading(
        gpu=CARD, index=5, used_mib=used_mib, reserved_mib=0.0, total_mib=97249.0, util_pct=0, began_boot_s=1.0, v2=True
    )


def peaks(attempt: int, mib: float, **more: Any) -> Peaks:
    known = {"rungs": {"budget": 1}, "progressed": True, **more}
    return Peaks(attempt=attempt, mib={CARD: mib}, **known)


def test_a_launch_with_no_room_is_refused_with_the_numbers():
    (text,) = fits([peaks(1, 92000.0), peaks(2, 91000.0)], {CARD: reading(6000.0)}, {}).problems
    assert text == "GPU 5: attempt 1 took 92000 MiB with these knobs, 91249 MiB are free: short by 751 MiB"


def test_under_one_gibibyte_of_headroom_is_warned_about():
    found = fits([peaks(1, 96500.0)], {CARD: reading(300.0)}, {CARD: 300.0})
    assert found.problems == ()
    assert found.warnings == (
        "GPU 5: attempt 1 took 96500 MiB with these knobs, 97249 MiB are free: 749 MiB of headroom",
    )


def test_room_enough_is_not_worth_a_word():
    assert fits([peaks(1, 60000.0)], {CARD: reading(0.0)}, {}) == fits([peaks(1, 60000.0)], {}, {})


def test_with_no_history_it_says_so():
    assert not fits([], {CARD: reading(0.0)}, {}).known


def test_a_gpu_that_cannot_be_read_or_has_no_peak_is_not_judged():
    assert fits([peaks(1, 99999.0)], {CARD: Unreadable(CARD, 5, 1.0, "lost")}, {}).problems == ()
    assert fits([peaks(1, 99999.0)], {"GPU-6": reading(0.0)}, {}).problems == ()


def test_only_attempts_that_trained_with_these_knobs_count():
    same = peaks(1, 1.0)
    others = (peaks(2, 1.0, progressed=False), peaks(3, 1.0, rungs={"budget": 0}), Peaks(attempt=4, rungs={}))
    assert comparable((same, *others), {"budget": 1, "batch": 0}) == (same,)


def test_one_that_ran_out_of_memory_with_these_knobs_is_warned_about_and_refuses_nothing():
    failed = peaks(3, 96_000.0, progressed=False, wanted={CARD: 97_423.0})
    assert comparable((failed,), {"budget": 1}) == (failed,)
    found = fits([failed, peaks(2, 60_000.0)], {CARD: reading(0.0)}, {})
    text = "GPU 5: attempt 3 ran out of memory with these knobs, it needed at least 97423 MiB, 97249 MiB are free"
    assert (found.problems, found.warnings, found.known) == ((), (text,), True)
    assert not fits([failed], {CARD: reading(0.0)}, {}).known, "nobody has trained with these knobs"
    bigger = replace(reading(0.0), total_mib=143_000.0)
    assert fits([failed], {CARD: bigger}, {}).warnings == ()


def test_another_torch_card_or_allocator_makes_old_peaks_no_measure():
    old = {"torch": {"version": "2.11"}, "variables": {"PYTORCH_CUDA_ALLOC_CONF": "a"}, "packages": {"numpy": "1"}}
    assert not takes_other_memory(diff(old, {**old, "packages": {"numpy": "2"}}))
    assert takes_other_memory(diff(old, {**old, "torch": {"version": "2.12"}}))
    assert takes_other_memory(diff(old, {**old, "variables": {}}))
