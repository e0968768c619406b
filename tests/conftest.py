"""Options and paths that all tests share."""

import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).with_name("world")))

# A shell starts what runs in its background with Ctrl-C ignored, and that is inherited: it is part of what is tested.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what transcripts say now into tests/scenarios")
