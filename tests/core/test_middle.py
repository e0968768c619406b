"""The median is the one of the standard library."""

from __future__ import annotations

import statistics

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.middle import median


@given(st.lists(st.integers(-1000, 1000) | st.floats(-1e6, 1e6), min_size=1, max_size=12))
def test_the_median_is_what_statistics_says(values):
    assert median(iter(values)) == statistics.median(values)
