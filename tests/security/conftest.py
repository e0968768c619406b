"""Runs written by hand, and verbs run in this process, as in tests/cli."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "views"))  # recorded.py

from verbs import home as home
from verbs import supervise as supervise
