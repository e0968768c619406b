"""A few of the nights of `benchmarks/health_nights.py`: all that is sick is found in time, nothing else is ended."""

from __future__ import annotations

import pytest

from benchmarks.health_nights import nights


@pytest.mark.parametrize("seed", [0, 100])
def test_nothing_is_ended_in_a_healthy_night(seed):
    for one in nights(3, sick=False, seed=seed):
        assert (one.false, one.found, one.missed) == ([], [], [])
        assert one.looks > 500


def test_every_sick_state_is_found_within_its_bound():
    found = set()
    for one in nights(6, sick=True):
        assert (one.false, one.missed) == ([], [])
        for what, took_s, bound_s in one.found:
            assert took_s <= bound_s, f"night {one.seed}: {what}"
            found.add(what)
    assert found >= {"silent_gpu: fell", "silent_gpu: gone", "silent_gpu: idle", "hang: spinning"}
    assert not any("taken for" in what for what in found)
