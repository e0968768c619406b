"""Pace and trends at the limits that they decide by."""

from __future__ import annotations

from changes import replace
from fake_specs import incident

from supervisor.core.events import Paced, Regained
from supervisor.core.evidence import Instant, MachineId, Reading, RoomSeen, Step
from supervisor.core.pace import Pace, each, interrupted, reference, slow, stepped, told
from supervisor.core.phases import Phase
from supervisor.core.placing import RoleGpus
from supervisor.core.state import Attempt, State
from supervisor.core.trends import Saves, Series, Trends, add, ahead, full_in_s, read, roomed, span

HERE = MachineId("b", "m", "h")
MINUTES_3 = 180.0


def at(boot_s: float) -> Instant:
    return Instant("b", boot_s, 1_000.0 + boot_s)


def state(phase: Phase = Phase.RUNNING, **changes) -> State:
    of = changes.pop("of", {})
    attempt = Attempt(
        number=2, token="t", argv=(), rungs={"k": 0}, checkpoint=None, began=at(0.0), progressed_at=at(0.0)
    )
    roles = {"all": RoleGpus((0,), (5,), ("GPU-a",))}
    return State(run="r", spec=incident(), phase=phase, attempt=replace(attempt, **of), roles=roles, **changes)


# ── pace ──


def walked(*steps: tuple[int, float], rate: float | None = None, pace: Pace | None = None) -> Pace:
    return stepped(pace or Pace(), [Step(number, boot_s, rate=rate) for number, boot_s in steps], None)


def test_a_stretch_is_a_minute_and_three_reports_at_least():
    assert walked((0, 0.0), (1, 20.0), (2, 40.0), (3, 59.9)).speeds == ()
    assert walked((0, 0.0), (1, 20.0), (2, 40.0), (4, 60.0)).speeds == (4 / 60,)
    assert walked((0, 0.0), (1, 60.0), (2, 120.0)).speeds == ()
    closed = walked((0, 0.0), (1, 60.0), (2, 120.0), (3, 180.0))
    assert (closed.speeds, closed.step, closed.boot_s, closed.reports) == ((3 / 180,), 3, 180.0, 0)


def test_four_reports_over_ten_seconds_tell_the_pace_roughly():
    assert walked((0, 0.0), (10, 4.0), (20, 9.0), (30, 9.9)).few == 0.0
    rough = walked((0, 0.0), (10, 4.0), (20, 9.0), (30, 10.0))
    assert (rough.few, rough.stride) == (3.0, 10)
    assert walked((0, 0.0), (10, 9.0), (20, 20.0)).few == 0.0
    assert walked((90, 99.0), pace=rough).few == 3.0, "once told it stays"
    assert Pace().stride == 0


def test_an_evaluation_makes_no_stretch():
    pace = walked((0, 0.0), (1, 20.0))
    later = interrupted(pace, 500.0)
    assert (later.step, later.boot_s, later.reports) == (1, 500.0, 0)
    assert walked((2, 520.0), (3, 540.0), (4, 560.0), pace=later).speeds == (3 / 60,)
    assert interrupted(Pace(), 500.0) == Pace()


def stretches(*speeds: float, **changes) -> Pace:
    """A pace whose last stretches had these speeds."""
    return replace(Pace(step=0, speeds=speeds, now_boot_s=10_000.0), **changes)


def test_slow_is_less_than_seven_tenths_of_the_best_for_ten_minutes():
    low = stretches(*(0.5,) * 10, best=1.0, low_since_boot_s=9_400.0)
    failure = slow(state(), low)
    assert failure is not None
    assert failure.because == "throughput is at 50% of its own best for 10 minutes (2 s a step)"
    assert slow(state(), replace(low, now_boot_s=9_999.9)) is None
    assert slow(state(), replace(low, low_since_boot_s=None)) is None
    assert slow(state(), replace(low, speeds=(0.5,) * 9)) is None, "too short to tell"


def test_an_attempt_is_low_where_the_third_best_of_its_stretches_is():
    def low(*speeds: float, **changes) -> bool:
        made = stretches(1.0, *speeds, best=1.0, **changes)
        closed = stepped(
            replace(made, step=0, boot_s=0.0, reports=2, now_boot_s=0.0, last=0), [Step(round(60 * LAST), 60.0)], None
        )
        return closed.low_since_boot_s is not None

    LAST = 0.5
    assert low(*(0.5,) * 9)
    assert low(1.0, *(0.5,) * 7, 1.0), "the first has gone; two fast ones are not enough"
    assert not low(1.0, *(0.5,) * 6, 1.0, 1.0)
    assert not low(*(0.7,) * 9)


def test_earlier_attempts_count_that_are_settled_and_on_the_same_knobs():
    fast = Paced(attempt=1, steps_per_s=2.0, stride=1, settled=True, rungs={"k": 0})
    faster = replace(fast, attempt=0, steps_per_s=3.0)
    assert reference(state(paces=(fast, faster))) == faster
    assert reference(state(paces=(faster, fast))) == faster
    for other in (replace(fast, settled=False), replace(fast, attempt=2), replace(fast, rungs={"k": 1})):
        assert reference(state(paces=(other,))) is None
    low = stretches(*(1.0,) * 10, best=1.5, low_since_boot_s=0.0)
    failure = slow(state(paces=(fast,)), low)
    assert failure is not None
    assert "50% of attempt 1 at the same knobs" in failure.because
    equal = slow(state(paces=(replace(fast, steps_per_s=1.5),)), low)
    assert equal is not None
    assert "its own best" in equal.because


def test_a_pace_is_recorded_roughly_then_settled_then_when_it_is_a_quarter_better():
    of = state().attempt
    assert told(state(), of, Pace()) is None
    rough = told(state(), of, Pace(few=2.0, rate=7.0, strides=(5, 5)))
    assert isinstance(rough, Paced)
    assert (rough.steps_per_s, rough.stride, rough.rate, rough.settled, rough.rungs) == (2.0, 5, 7.0, False, {"k": 0})
    known = state(paces=(rough,))
    assert told(known, of, Pace(few=9.0)) is None
    settled = told(known, of, Pace(few=2.0, best=1.0, rate=7.0, rate_then=6.0))
    assert isinstance(settled, Paced)
    assert (settled.steps_per_s, settled.rate, settled.settled) == (1.0, 6.0, True)
    known = state(paces=(settled,))
    assert told(known, of, Pace(best=1.24)) is None
    assert isinstance(told(known, of, Pace(best=1.25)), Paced)


def test_fast_again_is_eight_tenths_of_the_best_and_nothing_else_wrong():
    known = Paced(attempt=2, steps_per_s=1.0, stride=1, settled=True, rungs={"k": 0})

    def again(speed: float, *, wrong: str = "slow:None", paces=(known,), **changes) -> bool:
        of = state(paces=paces, of={"told": frozenset({wrong})})
        return isinstance(told(of, of.attempt, stretches(*(speed,) * 10, best=1.0, **changes)), Regained)

    assert again(0.8)
    assert not again(0.79)
    assert not again(0.8, wrong="gpu_oom:5")
    assert not again(0.8, low_since_boot_s=1.0)
    faster = Paced(attempt=1, steps_per_s=1.1, stride=1, settled=True, rungs={"k": 0})
    assert not again(0.8, paces=(known, faster))


def test_a_printed_rate_that_stands_says_that_steps_became_longer():
    def low(rate: float) -> bool:
        made = stretches(*(0.5,) * 10, best=1.0, rate_then=100.0, rates=(rate,) * 10, rate=rate, best_rate=rate)
        made = replace(made, speed_then=0.5, step=0, boot_s=0.0, reports=2, last=0)
        return stepped(made, [Step(30, 60.0, rate=rate)], None).low_since_boot_s is not None

    assert not low(100.0)
    assert not low(85.0)
    assert low(84.9)
    assert not low(117.6)
    assert low(117.7)


def test_a_printed_rate_below_one_stands_as_well():
    made = stretches(*(0.5,) * 10, best=1.0, rate_then=0.5, rates=(0.5,) * 10, rate=0.5, best_rate=0.5)
    made = replace(made, speed_then=0.5, step=0, boot_s=0.0, reports=2, last=0)
    assert stepped(made, [Step(30, 60.0, rate=0.5)], None).low_since_boot_s is None
    none = replace(made, rate_then=0.0)
    assert stepped(none, [Step(30, 60.0, rate=0.5)], None).low_since_boot_s is not None


def test_speeds_are_told_as_steps_a_second_from_one_on():
    assert (each(1.0), each(0.999), each(0.0)) == ("1 steps/s", "1 s a step", "1e+09 s a step")


# ── trends ──


def rising(by: float, buckets: int = 10, start: float = 50_000.0) -> list[float]:
    return [start + by * n for n in range(buckets)]


def test_half_an_hour_of_rising_is_a_trend_and_less_is_none():
    lows = rising(1_000.0)
    assert full_in_s(lows, lows, 69_000.0) == 10 * MINUTES_3
    assert full_in_s(lows[:9], lows[:9], 69_000.0) is None


def test_a_rise_is_a_hundredth_of_the_whole_and_256_mib_between_the_first_and_last_three():
    for by, limit, told_ in ((143.0, 100_000.0, True), (142.0, 100_000.0, False)):  # seven moves between the medians
        lows = rising(by, start=98_000.0)
        assert (full_in_s(lows, lows, limit) is not None) is told_
    for by, told_ in ((36.6, True), (36.5, False)):
        lows = rising(by, start=9_000.0)
        assert (full_in_s(lows, lows, 10_000.0) is not None) is told_


def test_nobody_is_told_of_what_lies_beyond_three_times_what_was_seen_or_the_night():
    lows = rising(1_000.0)
    assert full_in_s(lows, lows, 89_000.0) == 30 * MINUTES_3
    assert full_in_s(lows, lows, 89_100.0) is None
    assert full_in_s(lows, lows, 50_000.0) == 0.0, "it is beyond the limit already"
    long = rising(1_000.0, 100)
    assert full_in_s(long, long, 149_000.0 + 240_000.0) == 12 * 3600.0
    assert full_in_s(long, long, 149_000.0 + 240_100.0) is None


def test_what_levels_off_or_falls_back_or_came_in_one_move_is_no_trend():
    levels = [*rising(1_000.0, 6), *(55_000.0 + 100.0 * n for n in range(1, 7))]
    assert full_in_s(levels, levels, 69_000.0) is None
    falls = rising(1_000.0, 12)
    falls[9] -= 3_500.0
    assert full_in_s(falls, falls, 69_000.0) is None
    jump = [50_000.0 + 100.0 * n + (5_000.0 if n > 4 else 0.0) for n in range(12)]
    assert full_in_s(jump, jump, 69_000.0) is None
    tops = rising(1_000.0)
    assert full_in_s([50_000.0] * 10, tops, 69_000.0) is None, "the floor stands"


def test_a_bucket_is_three_minutes_and_a_longer_gap_than_two_begins_anew():
    one = add(None, 5.0, 100.0, 0.0)
    assert (one.low, one.high, one.began_boot_s, one.lows) == (5.0, 5.0, 0.0, ())
    assert add(one, 5.0, 100.0, 10.0) is one
    wide = add(add(one, 7.0, 100.0, 10.0), 3.0, 100.0, 179.9)
    assert (wide.low, wide.high, wide.lows) == (3.0, 7.0, ())
    closed = add(wide, 4.0, 100.0, 180.0)
    assert (closed.lows, closed.highs, closed.low, closed.high) == ((3.0,), (7.0,), 4.0, 4.0)
    assert (closed.began_boot_s, closed.peak) == (180.0, 7.0)
    assert add(wide, 4.0, 100.0, 360.0).lows == (3.0,)
    assert add(wide, 4.0, 100.0, 360.1).lows == ()


def test_what_came_down_from_as_high_before_is_awaited_at_that_height():
    lows = tuple(rising(1_000.0, 9))
    series = Series(began_boot_s=0.0, low=59_000.0, high=59_000.0, lows=lows, highs=lows, peak=59_000.0)
    assert add(series, 60_000.0, 69_000.0, MINUTES_3).full_in_s is not None
    before = replace(series, peak=59_000.1)
    after = add(before, 60_000.0, 69_000.0, MINUTES_3)
    assert (after.full_in_s, after.peak) == (None, 59_000.1)


def test_what_the_driver_keeps_is_not_to_be_filled():
    reading = Reading("GPU-a", 5, 0.0, 68_000.0, 97_000.0, 600.0, None)
    lows = tuple(rising(1_000.0, 9))
    series = Series(began_boot_s=0.0, low=59_000.0, high=59_000.0, lows=lows, highs=lows)
    full = {}
    for reserved in (None, 600.0, 28_000.0):
        after = read(Trends(gpus={"GPU-a": series}), {"GPU-a": replace(reading, reserved_mib=reserved)}, MINUTES_3)
        full[reserved] = after.gpus["GPU-a"].full_in_s
    assert full == {None: None, 600.0: None, 28_000.0: 10 * MINUTES_3}


def free(*mib: float, each_s: float = 600.0) -> Saves:
    return Saves(gained=len(mib), free=tuple((n * each_s, one) for n, one in enumerate(mib)))


def disk_full(saves: Saves) -> float | None:
    series = Series(began_boot_s=0.0, low=0.0, high=0.0)
    found = ahead(Trends(disks={"/w": series}, saves={"/w": saves}), {})
    return found[0].full_in_s if found else None


def test_a_disk_is_foretold_after_four_checkpoints_that_took_about_as_much():
    assert disk_full(free(50_000, 40_000, 30_000, 20_000)) is None
    assert disk_full(free(50_000, 40_000, 30_000, 20_000, 10_000)) == 600.0
    assert disk_full(free(50_000, 45_000, 35_000, 25_000, 15_000)) == 900.0
    assert disk_full(free(49_999, 45_000, 35_000, 25_000, 15_000)) is None, "one took less than half of it"
    assert disk_full(free(1_280, 1_024, 768, 512, 256)) == 600.0
    assert disk_full(free(1_276, 1_021, 766, 511, 256)) is None, "so little is nothing"
    assert disk_full(free(160_000, 150_000, 140_000, 130_000, 120_000)) == 7_200.0
    assert disk_full(free(160_100, 150_100, 140_100, 130_100, 120_100)) is None, "it lies too far ahead"


def test_a_checkpoint_is_counted_once_with_the_room_that_it_left():
    room = RoomSeen(at_boot_s=1.0, used_mib=10.0, limit_mib=100.0, disks=(("/w", 900.0, 1_000.0),))
    first = roomed(Trends(), room, 0)
    assert (first.saves["/w"], first.disks["/w"].high, first.host.high) == (Saves(), 100.0, 10.0)
    saved = roomed(first, replace(room, at_boot_s=2.0, disks=(("/w", 800.0, 1_000.0),)), 1)
    assert saved.saves["/w"] == Saves(gained=1, free=((2.0, 800.0),))
    assert roomed(saved, replace(room, at_boot_s=3.0), 1).saves == saved.saves
    late = roomed(Trends(), room, 1)
    assert late.saves["/w"].free == ((1.0, 900.0),)
    assert roomed(Trends(), replace(room, used_mib=None), 0).host is None
    assert roomed(Trends(), replace(room, limit_mib=None), 0).host is None


def test_spans_are_a_minute_at_least():
    assert [span(s) for s in (0.0, 89.0, 91.0, 3_569.0, 3_571.0, 11_400.0)] == [
        "1 min", "1 min", "2 min", "59 min", "1 h 00 m", "3 h 10 m",
    ]  # fmt: skip
