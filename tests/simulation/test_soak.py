"""Two simulated hours of one supervisor: nothing grows, files are bounded. Days: `python -m benchmarks.soak`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # benchmarks, however pytest was started

from benchmarks.soak import KEPT, soak

pytestmark = [pytest.mark.simulation, pytest.mark.many]
HOURS = 2.0


def test_two_hours_with_four_failures_leave_no_descriptor_and_hardly_any_memory(tmp_path: Path):
    out = soak(tmp_path, HOURS, lines_per_s=20)
    assert out.attempts == 5
    assert out.looks > HOURS * 3600
    assert out.growth("fds") == 1.0
    assert out.growth("threads") == 1.0
    assert out.growth("blocks") < 1.03
    assert out.records < 200
    assert max(out.files[name] for name in ("now.json", "watch.json", "snapshot.json")) < 64 << 10
    assert out.files["samples"] < 1 << 20
    assert KEPT == 3
