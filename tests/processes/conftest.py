from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "runner"))

from attempts import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="sv") as root:  # short: the path of a Unix socket has 107 bytes
        made = Stage(Path(root).resolve())
        yield made
        made.end_all()
