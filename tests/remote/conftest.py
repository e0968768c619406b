"""One sshd for the tests of this folder, and one run on its far side."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "e2e"))  # boxes.py
from boxes import Box, Night
from far import Far


@pytest.fixture(scope="session")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    far = Far(tmp_path_factory.mktemp("far") / "far")
    yield far
    far.close()


@pytest.fixture
def box(far: Far, tmp_path: Path) -> Iterator[Box]:
    """The far side's own state directory, cleaned up after the test."""
    box = Box(tmp_path)
    far.home.unlink(missing_ok=True)
    far.home.symlink_to(box.home.root)
    yield box
    far.home.unlink()
    box.close()


@pytest.fixture
def night(box: Box) -> Night:
    """A run there that trains until a file `go` comes, a step ten times a second."""
    progress = "health: {progress: {log: 'step (?P<step>[0-9]+)'}}\n"
    job = 'n=0; while [ ! -e go ]; do n=$((n+1)); echo "step $n"; sleep 0.1; done; echo bye'
    return box.up(box.spec("afar", job, progress))
