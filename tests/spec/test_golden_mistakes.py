"""All mistakes of a file in one message, each at its place; reviewed like prose, rewritten with REWRITE_GOLDEN=1."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.core.errors import SpecError
from supervisor.edges import specfile

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.yaml")))
def test_every_mistake_is_told_at_once_with_its_place(name, monkeypatch):
    monkeypatch.chdir(GOLDEN)
    with pytest.raises(SpecError) as caught:
        specfile.load(Path(f"{name}.yaml"), {})
    said = f"{caught.value}\n".replace(str(GOLDEN), "WORKDIR")
    wanted = GOLDEN / f"{name}.txt"
    if os.environ.get("REWRITE_GOLDEN"):
        wanted.write_text(said, encoding="utf-8")
    assert said == wanted.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.yaml")))
def test_mistakes_stand_in_the_order_of_the_file(name):
    with pytest.raises(SpecError) as caught:
        specfile.load(GOLDEN / f"{name}.yaml", {})
    places = [(mistake.line, mistake.col) for mistake in caught.value.mistakes]
    assert places == sorted(places)
