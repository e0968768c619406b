"""A folder for nights that are lived through hundreds of times: in memory where there is room; fsync is real too."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = "/dev/shm"


@pytest.fixture
def night_dir() -> Iterator[Path]:
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="nights-", dir=place) as folder:
        yield Path(folder)
