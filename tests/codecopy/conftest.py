"""A working directory under git, and how its copy is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from repos import ENVIRON
from trees import checkout

from supervisor.edges import codecopy, codetree
from supervisor.edges.codetree import Tree


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return checkout(tmp_path / "work")


@pytest.fixture
def look() -> Callable[..., Tree]:
    def looked(work: Path, *, named: tuple[str, ...] = (), apart: tuple[str, ...] = ()) -> Tree:
        return codetree.look(work, named=named, apart=apart, environ=ENVIRON)

    return looked


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., codecopy.Copied]:
    """Copies a tree as the copy of an episode."""

    def made(tree: Tree, episode: int = 1) -> codecopy.Copied:
        home = tmp_path / "state"
        to = home / "code" / f"{episode:04}"
        return codecopy.make(tree, to, never=str(home), commit=lambda: codetree.head(tree.top, ENVIRON))

    return made
