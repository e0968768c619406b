"""Every transcript in this folder says what the loop says. `pytest tests/scenarios --rewrite` writes them anew.

A transcript is blocks of commands, `----`, and what they led to; lines that begin with `#` are for the reader.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from driver import Night

HERE = Path(__file__).parent
TRANSCRIPTS = sorted(HERE.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_night_goes_as_the_transcript_says(path: Path, request: pytest.FixtureRequest):
    was = path.read_text()
    now = told(was)
    if request.config.getoption("--rewrite"):
        path.write_text(now)
    else:
        assert now == was


def told(text: str) -> str:
    """The transcript with what its commands lead to now."""
    night, out = Night(), []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n")
        if "----" in lines:
            lines = lines[: lines.index("----")]
        commands = [line for line in lines if not line.startswith("#")]
        if not commands:
            out.append(block)
            continue
        said = [word for command in commands for word in night.run(command)]
        out.append("\n".join([*lines, "----", *(said or ["nothing to do"])]))
    return "\n\n".join(out) + "\n"
