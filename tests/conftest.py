"""Options and paths that all tests share."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).with_name("world")))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what transcripts say now into tests/scenarios")
