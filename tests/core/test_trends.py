"""What is foretold to run full, and the healthy nights in which nothing is."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core.evidence import Reading, RoomSeen, Unreadable
from supervisor.core.trends import (
    BUCKET_S,
    BUCKETS_MAX,
    BUCKETS_MIN,
    RISE_MIB,
    WARM_S,
    Saves,
    Trends,
    add,
    ahead,
    full_in_s,
    read,
    roomed,
    slope,
    span,
)

LIMIT = 97_000.0


def night(used, minutes: int, limit: float = LIMIT, every_s: float = 20.0):
    """The series of what `used(minute)` says, and every estimate that it led to."""
    series, told = None, []
    for tick in range(int(minutes * 60 / every_s)):
        at = tick * every_s
        series = add(series, used(at / 60.0), limit, at)
        told.append(series.full_in_s)
    return series, [one for one in told if one is not None]


def test_a_leak_is_foretold_when_it_has_risen_for_half_an_hour():
    _, told = night(lambda minute: 50_000 + 400 * minute, 60)
    assert told
    first_minute = (BUCKETS_MIN + 1) * BUCKET_S / 60
    left = (LIMIT - 50_000 - 400 * first_minute) / 400 * 60
    assert told[0] == pytest.approx(left, rel=0.1)


def test_a_leak_that_began_late_is_foretold_too():
    series, told = night(lambda minute: 50_000 + 400 * max(0, minute - 200), 240, every_s=60.0)
    assert len(series.highs) == BUCKETS_MAX
    assert told


def test_what_leads_beyond_a_few_times_what_was_seen_is_not_foretold():
    assert night(lambda minute: 50_000 + 40 * minute, 60)[1] == []


def test_what_rises_by_less_than_a_hundredth_is_no_trend():
    assert night(lambda minute: 96_500 + 2 * minute, 90)[1] == []


def test_an_allocator_that_steps_up_and_stays_is_no_trend():
    assert night(lambda minute: 40_000 + 3000 * min(6, int((minute + WARM_S / 60) / 4)), 120)[1] == []


def test_a_cache_that_fills_up_and_levels_off_is_no_trend():
    assert night(lambda minute: 90_000 - 40_000 * 0.5 ** (minute / 6), 120)[1] == []


def test_one_step_in_a_long_night_is_no_trend():
    assert night(lambda minute: 40_000 + (20_000 if minute > 70 else 0), 120)[1] == []


def test_tops_that_rise_over_a_steady_floor_are_no_leak():
    def used(minute: float) -> float:
        return 40_000 if int(minute) % 3 else 40_000 + 400 * minute

    assert night(used, 90)[1] == []


def test_a_floor_that_rises_below_steady_tops_is_no_trend():
    def used(minute: float) -> float:
        return 90_000 if int(minute) % 3 == 0 else 40_000 + 400 * minute

    assert night(used, 90)[1] == []


def test_a_gap_of_looks_begins_a_new_series():
    series = add(None, 1.0, LIMIT, 0.0)
    for bucket in range(1, 5):
        series = add(series, bucket * 100.0, LIMIT, bucket * BUCKET_S)
    assert len(series.highs) == 4
    assert add(series, 9.0, LIMIT, 4 * BUCKET_S + 2 * BUCKET_S + 1).highs == ()


def test_a_series_stays_short():
    series, _ = night(lambda minute: 1.0, (BUCKETS_MAX + 5) * 3, every_s=60.0)
    assert len(series.highs) == len(series.lows) == BUCKETS_MAX


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), period=st.integers(5, 29), height=st.integers(500, 30_000))
def test_no_sawtooth_with_noise_is_foretold(seed: int, period: int, height: int):
    chance = random.Random(seed)

    def used(minute: float) -> float:
        return 50_000 + height * ((minute % period) / period) + chance.uniform(-300, 300)

    assert night(used, 180, every_s=60.0)[1] == []


def test_a_long_tooth_is_taken_for_a_leak_at_most_once():
    _, told = night(lambda minute: 50_000 + 40_000 * ((minute % 50) / 50), 400, every_s=60.0)
    first, _ = night(lambda minute: 50_000 + 40_000 * ((minute % 50) / 50), 50, every_s=60.0)
    assert len(told) <= 20 * 3
    assert first.full_in_s is not None


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_no_allocator_that_grows_ever_more_rarely_is_foretold(seed: int):
    """Ever longer samples: each new longest one takes a little more, for ever."""
    chance, most = random.Random(seed), 40_000.0

    def used(minute: float) -> float:
        nonlocal most
        most = max(most, 40_000 + 2500 * chance.expovariate(1.0))
        return min(most, LIMIT)

    assert night(used, 240, every_s=60.0)[1] == []


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), leak=st.integers(250, 900), noise=st.integers(0, 600))
def test_every_leak_that_fills_the_gpu_within_hours_is_foretold_before_it_is_full(seed: int, leak: int, noise: int):
    chance = random.Random(seed)
    minutes = int(50_000 / leak) + 1
    _, told = night(lambda m: 46_000 + leak * m + chance.uniform(-noise, noise), minutes, every_s=60.0)
    assert told


def test_a_gpu_that_cannot_be_read_has_no_trend_and_no_value_is_invented():
    trends = read(Trends(), {"GPU-a": Unreadable("GPU-a", 0, 0.0, "lost")}, 0.0)
    assert trends == Trends()
    one = Reading("GPU-a", 0, 0.0, 10.0, LIMIT, 500.0, 90.0)
    known = read(trends, {"GPU-a": one}, 0.0)
    assert known.gpus["GPU-a"].high == 10.0
    assert read(known, {"GPU-a": one}, 1.0) is known


def filled(**changes) -> Trends:
    trends = Trends()
    for bucket in range(12):
        at = bucket * BUCKET_S
        reading = Reading("GPU-a", 5, at, 60_000 + 1500.0 * bucket, LIMIT, None, 90.0)
        trends = read(trends, {"GPU-a": reading}, at)
        room = {"used_mib": 100_000 + 2000.0 * bucket, "limit_mib": 150_000.0, **changes}
        disks = (("/ck", 900_000 - 25_000.0 * bucket, 2_000_000.0),)
        trends = roomed(trends, RoomSeen(at_boot_s=at, disks=disks, **room), 0)
    return trends


def test_all_that_fills_is_told_the_soonest_first():
    texts = [one.text for one in ahead(filled(), {"GPU-a": 5})]
    assert texts == [
        "GPU 5 full in 44 min at this rate",
        "host memory full in 45 min at this rate",
        "disk full in 1 h 18 m at this rate (/ck)",
    ]


def test_a_gpu_of_another_run_and_memory_that_was_not_read_are_not_told():
    texts = [one.what for one in ahead(filled(used_mib=None), {})]
    assert texts == ["disk /ck"]


def saved(*free: float, every_s: float = 1800.0) -> Trends:
    trends = roomed(Trends(), RoomSeen(0.0, disks=(("/ck", free[0] + 50_000, 4_000_000.0),)), 0)
    for n, left in enumerate(free):
        trends = roomed(trends, RoomSeen((n + 1) * every_s, disks=(("/ck", left, 4_000_000.0),)), n + 1)
    return trends


def test_a_disk_is_foretold_by_what_each_checkpoint_takes():
    gib = 1024.0
    trends = saved(*(gib * (590 - 54 * n) for n in range(5)))
    found = ahead(trends, {})
    assert [one.text for one in found] == ["disk full in 3 h 28 m at 54 GiB per checkpoint (/ck)"]


@pytest.mark.parametrize(
    "free_gib",
    [
        (590, 536, 482, 428),  # too few to know that nothing is pruned
        (590, 536, 482, 482, 482),  # three are kept
        (590, 536, 590, 536, 590),
        (590, 589.9, 589.8, 589.7, 589.6),  # next to nothing
        (40_000, 39_946, 39_892, 39_838, 39_784),  # room for weeks
    ],
)
def test_pruned_checkpoints_and_a_large_disk_are_not_foretold(free_gib):
    assert ahead(saved(*(1024.0 * one for one in free_gib)), {}) == ()


def test_a_checkpoint_without_a_look_in_between_counts_once():
    trends = roomed(saved(5000.0), RoomSeen(4000.0, disks=(("/ck", 4000.0, 4_000_000.0),)), 1)
    assert len(trends.saves["/ck"].free) == 1
    assert Saves().free == ()


def test_a_trend_needs_enough_buckets_and_a_rise():
    rising = [float(n) * RISE_MIB for n in range(BUCKETS_MIN)]
    assert full_in_s(rising[:-1], rising[:-1], 4000.0) is None
    assert full_in_s(rising, rising, 4000.0) is not None
    assert full_in_s(rising, [rising[-1]] * BUCKETS_MIN, 4000.0) is None
    assert full_in_s([0.0] * BUCKETS_MIN, rising, 4000.0) is None
    assert full_in_s([one / 10 for one in rising], rising, 4000.0) is None
    assert slope([1.0, 2.0, 3.0, 100.0, 5.0]) == 1.0


def test_spans_are_told_as_people_say_them():
    assert (span(10), span(2400), span(11400)) == ("1 min", "40 min", "3 h 10 m")
