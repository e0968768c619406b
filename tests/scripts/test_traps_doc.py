"""docs/traps.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

REPO = Path(__file__).parents[2]


def test_every_trap_names_tests_that_are_there():
    rows = [line for line in (REPO / "docs" / "traps.md").read_text().splitlines() if line.startswith("| ")]
    facts = [row for row in rows if not row.startswith("| fact |")]
    named = [(row, re.findall(r"`(test_\w+)`", row)) for row in facts]
    assert [row for row, tests in named if not tests] == []
    there = set()
    for path in (REPO / "tests").rglob("test_*.py"):
        there |= set(re.findall(r"^def (test_\w+)", path.read_text(), re.M))
    assert sorted({test for _, tests in named for test in tests} - there) == []
