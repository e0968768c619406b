"""A web server to be told things."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "e2e"))  # boxes.py
from boxes import Box
from listening import Listening


@pytest.fixture
def listening() -> Iterator[Listening]:
    with Listening() as server:
        yield server


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path)
    yield box
    box.close()
