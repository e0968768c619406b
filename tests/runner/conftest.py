from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from attempts import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "state")
    made.root.mkdir()
    yield made
    made.end_all()
