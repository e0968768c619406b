"""Whoever is killed, alone or with others, at whatever moment: nothing is lost, nothing doubled, and it is told.

More of them: `python -m tests.faults --kills 500`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chaos import Box, Chaos

pytestmark = pytest.mark.real
KILLS, AT_LEAST, WITHIN_S = 40, 10, 80.0
"""A busy box does fewer of them."""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.close()


@pytest.mark.timeout(600)
def test_kills_at_random_lose_nothing_and_double_nothing(box: Box):
    chaos = Chaos(box, seed=3)
    began_s = time.monotonic()
    while chaos.kills < AT_LEAST or (chaos.kills < KILLS and time.monotonic() - began_s < WITHIN_S):
        chaos.round()
    chaos.end()


def test_a_guardian_that_died_with_its_understudy_is_replaced_by_the_supervisor(box: Box):
    from boxes import kill, until

    night = box.up(box.spec("a", "sleep 600"))
    until(lambda: box.guardian and box.understudies(), "both are there")
    supervisor, former = night.supervisor, box.guardian
    kill(*box.understudies(), former)
    until(lambda: box.guardian not in (None, former) and box.understudies(), "another guardian and another understudy")
    kill(supervisor)
    night.until_supervised(but=[supervisor])
