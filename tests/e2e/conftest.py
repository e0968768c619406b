"""The box of each test in this folder; what it can do is in `boxes.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from boxes import Box


@pytest.fixture
def box(tmp_path) -> Iterator[Box]:
    box = Box(tmp_path)
    yield box
    box.close()
