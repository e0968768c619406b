"""How fast an attempt goes, when that is slow, and what is recorded of it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from supervisor.core.events import Paced
from supervisor.core.evidence import Instant, Step
from supervisor.core.kinds import Kind
from supervisor.core.pace import LASTS_S, SLOW_ONLY, Pace, each, interrupted, reference, slow, stepped, told
from supervisor.core.phases import Phase
from supervisor.core.state import Attempt, State

AT = Instant("boot", 0.0, 1000.0)
ATTEMPT = Attempt(number=2, token="t", argv=(), rungs={"k": 0}, checkpoint=None, began=AT)
STATE = State(run="r", phase=Phase.RUNNING, attempt=ATTEMPT)


def paced(*stretches, rate=None, ref: Paced | None = None, pace: Pace | None = None) -> Pace:
    """The pace after stretches of (steps, seconds a step[, printed rate])."""
    pace = pace or Pace()
    at, number = pace.now_boot_s, pace.last
    for stretch in stretches:
        count, each_s, *printed = stretch
        for _ in range(count):
            at, number = at + each_s, number + 1
            pace = stepped(pace, (Step(number, at, rate=printed[0] if printed else rate),), ref)
    return pace


def is_slow(pace: Pace, state: State = STATE) -> bool:
    return slow(state, pace) is not None


def test_half_the_speed_for_a_quarter_of_an_hour_is_slow():
    assert not is_slow(paced((200, 10)))
    assert not is_slow(paced((200, 10), (20, 20)))
    failure = slow(STATE, paced((200, 10), (60, 20)))
    assert failure is not None
    assert failure.kind is Kind.SLOW
    assert failure.because == "throughput is at 50% of its own best for 12 minutes (20 s a step)"


def test_nine_tenths_of_the_speed_is_not_slow():
    assert not is_slow(paced((200, 10), (400, 11)))


def test_steps_that_take_minutes_are_measured_too():
    assert is_slow(paced((30, 240), (30, 480)))
    assert not is_slow(paced((30, 240), (30, 250)))


def test_many_steps_a_second_are_measured_too():
    assert is_slow(paced((20_000, 0.1), (6000, 0.3)))


def test_evaluations_and_saves_in_between_are_not_slow():
    night = []
    for _ in range(12):
        night += [(60, 10), (1, 1500), (20, 10), (1, 400)]
    assert not is_slow(paced(*night))


def test_a_phase_that_is_no_training_counts_for_nothing():
    pace = paced((200, 10))
    before = pace.speeds
    at = pace.now_boot_s + 1500
    later = interrupted(pace, at)
    assert before == later.speeds
    assert paced((3, 30), pace=replace(later, now_boot_s=at)).speeds[-1] == pytest.approx(1 / 30)
    assert interrupted(Pace(), 5.0) == Pace()


def test_longer_steps_at_the_same_printed_throughput_are_not_slow():
    assert not is_slow(paced((200, 10, 40.0), (100, 20, 40.0)))
    assert is_slow(paced((200, 10, 40.0), (100, 20, 20.0)))


def test_less_per_step_at_the_same_speed_is_slow_by_what_is_printed():
    failure = slow(STATE, paced((200, 10, 40.0), (200, 10, 20.0)))
    assert failure is not None
    assert "50% of its own best printed rate" in failure.because


def test_a_printed_time_per_step_that_falls_is_no_drop():
    assert not is_slow(paced((200, 10, 10.0), (400, 5, 5.0)))


def test_a_printed_time_per_step_that_rises_does_not_hide_a_drop():
    assert is_slow(paced((200, 10, 10.0), (100, 20, 20.0)))


def other(number: int, speed: float, **changes) -> Paced:
    return Paced(attempt=number, steps_per_s=speed, stride=1, **{"settled": True, "rungs": {"k": 0}, **changes})


def test_earlier_attempts_count_at_the_same_knobs_only():
    known = (other(1, 0.2), other(2, 9.0), other(3, 9.0, rungs={"k": 1}), other(4, 9.0, settled=False))
    state = replace(STATE, paces=known)
    assert reference(state) == other(1, 0.2)
    assert reference(replace(state, attempt=None)) is None
    failure = slow(state, paced((200, 10), ref=other(1, 0.2)))
    assert failure is not None
    assert "50% of attempt 1 at the same knobs" in failure.because


def test_the_best_of_two_measures_is_named():
    state = replace(STATE, paces=(other(1, 0.01),))
    failure = slow(state, paced((200, 10), (100, 20), ref=other(1, 0.01)))
    assert failure is not None
    assert "its own best" in failure.because


def test_an_attempt_that_prints_its_rate_is_measured_by_what_the_earlier_one_printed():
    known = other(1, 0.2, rate=40.0)
    assert is_slow(paced((200, 10, 20.0), ref=known), replace(STATE, paces=(known,)))
    assert not is_slow(paced((200, 10, 40.0), ref=known), replace(STATE, paces=(known,)))


def test_the_pace_is_recorded_roughly_then_settled_then_only_when_it_becomes_much_better():
    few = paced((4, 10, 7.0))
    first = told(STATE, ATTEMPT, few)
    assert isinstance(first, Paced)
    assert (first.settled, first.stride, first.rate, first.steps_per_s) == (False, 1, 7.0, 0.1)
    state = replace(STATE, paces=(first,))
    assert told(state, ATTEMPT, few) is None
    settled = told(state, ATTEMPT, paced((200, 10)))
    assert isinstance(settled, Paced)
    assert (settled.settled, settled.rungs) == (True, {"k": 0})
    state = replace(STATE, paces=(settled,))
    assert told(state, ATTEMPT, paced((200, 9.5))) is None
    assert isinstance(told(state, ATTEMPT, paced((200, 5))), Paced)
    assert told(STATE, ATTEMPT, Pace()) is None


def test_an_attempt_that_is_as_fast_again_is_said_to_be_if_nothing_else_is_wrong():
    state = replace(STATE, phase=Phase.DEGRADED, paces=(other(2, 0.1),))
    ill = replace(ATTEMPT, told=SLOW_ONLY)
    low = paced((200, 10), (60, 20))
    assert told(state, ill, low) is None
    again = paced((100, 10), pace=low)
    assert told(state, replace(ATTEMPT, told=SLOW_ONLY | {"silent_gpu:6"}), again) is None
    said = told(state, ill, again)
    assert said is not None
    assert said.because == "as fast again as it was (10 s a step)"
    assert told(state, ill, Pace()) is None


def test_longer_steps_at_the_old_throughput_are_as_fast_again():
    state = replace(STATE, paces=(other(2, 0.1),))
    low = paced((200, 10, 40.0), (60, 20, 20.0))
    again = paced((60, 20, 40.0), pace=low)
    assert told(state, replace(ATTEMPT, told=SLOW_ONLY), again) is not None


def test_speeds_are_told_as_people_say_them():
    assert (each(2.125), each(0.05), each(0.0)) == ("2.12 steps/s", "20 s a step", "1e+09 s a step")


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), step_s=st.floats(10.0, 200.0))
def test_a_healthy_night_with_pauses_and_jitter_is_never_slow(seed: int, step_s: float):
    chance, pace, at, number = random.Random(seed), Pace(), 0.0, 0
    while at < 6 * 3600:
        number += 1
        at += step_s * chance.uniform(0.85, 1.2)
        if chance.random() < 0.002:
            at += chance.uniform(30, 1500)  # an evaluation, a save, a stall
        pace = stepped(pace, (Step(number, at),), None)
        assert not is_slow(pace)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), step_s=st.floats(5.0, 60.0), times=st.floats(1.8, 10.0))
def test_every_drop_to_little_more_than_half_is_found(seed: int, step_s: float, times: float):
    chance, pace, at, number = random.Random(seed), Pace(), 0.0, 0
    fell = 3600.0
    bound = LASTS_S + 12 * max(60.0, 3 * step_s * times) * 1.3
    while at < fell + bound:
        number += 1
        at += step_s * (times if at > fell else 1.0) * chance.uniform(0.9, 1.1)
        pace = stepped(pace, (Step(number, at),), None)
    assert is_slow(pace)
