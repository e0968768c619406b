"""The nights of `benchmarks/` are found also where pytest is not started as a module."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
