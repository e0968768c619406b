"""A spec from its text, in a folder of its own."""

from __future__ import annotations

import pytest

from supervisor.core.errors import SpecError
from supervisor.edges import specfile

HEAD = "version: 1\nname: run\ncommand: [python, train.py]\n"


class Specs:
    """Reads specs; `head` puts the required keys before the text, so the text begins in line 4."""

    def __init__(self, folder):
        self.folder = folder

    def read(self, text, *, head=True, environ=None):
        path = self.folder / "spec.yaml"
        path.write_text((HEAD if head else "") + text, encoding="utf-8")
        return specfile.read(path, environ or {})

    def load(self, text, **options):
        return self.read(text, **options).spec

    def mistakes(self, text, **options):
        """Each mistake without the file's name."""
        try:
            self.read(text, **options)
        except SpecError as error:
            return [str(mistake).removeprefix(f"{self.folder / 'spec.yaml'}:") for mistake in error.mistakes]
        return []


@pytest.fixture
def specs(tmp_path):
    return Specs(tmp_path)
