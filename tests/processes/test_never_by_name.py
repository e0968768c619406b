"""No line of the program or its scripts ends a process by its name, or all processes at once."""

from __future__ import annotations

import re
from pathlib import Path

REPO = Path(__file__).parents[2]
BY_NAME = re.compile(rb"\b(pkill|killall|pgrep|fuser -k|os\.kill\(-|kill -9 -1)")


def test_nobody_is_ended_by_name():
    files = [*(REPO / "supervisor").rglob("*.py"), *(REPO / "scripts").iterdir(), *(REPO / "examples").rglob("*.py")]
    assert len(files) > 50
    found = [f"{path}: {match[0]!r}" for path in files for match in BY_NAME.finditer(path.read_bytes())]
    assert found == []
