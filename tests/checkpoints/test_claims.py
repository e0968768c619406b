"""What other runs' journals claim, read from journals as they are written."""

from __future__ import annotations

from pathlib import Path

from supervisor.core.evidence import Checkpoint, Incomplete, Instant
from supervisor.edges.codec import to_plain
from supervisor.edges.journal import Journal
from supervisor.edges.paths import Home
from supervisor.machines.claims import claimed_checkpoints

AT = Instant("boot", 1.0, 2.0)
MINE, OTHERS = Checkpoint("/c/step_5", 5, 50, 1, "/c/step_5"), Checkpoint("/c/step_6", 6, 60, 1, "/c/step_6")


def record(home: Home, run: str, *events: tuple[str, Checkpoint | None]) -> None:
    folder = home.run(run).path
    folder.mkdir(parents=True)
    journal = Journal.open(home.run(run).journal, writer=True)
    for name, checkpoint in events:
        journal.append(name, {"checkpoint": None if checkpoint is None else to_plain(checkpoint)}, AT)
    journal.close()


def test_what_another_run_wrote_or_took_is_claimed_and_ones_own_is_not(tmp_path):
    home = Home(tmp_path)
    record(home, "mine", ("CheckpointWritten", MINE))
    record(home, "other", ("LaunchIntended", None), ("CheckpointWritten", OTHERS), ("Warned", MINE))
    found = (MINE, OTHERS, Incomplete("/c/step_7", 7, "torn"))
    assert claimed_checkpoints(home, "mine", found) == {"/c/step_6": "other"}
    assert claimed_checkpoints(home, "other", found) == {"/c/step_5": "mine"}


def test_a_journal_that_cannot_be_read_claims_nothing(tmp_path):
    home = Home(tmp_path)
    record(home, "other", ("CheckpointWritten", OTHERS))
    Path(home.run("other").journal).write_bytes(b"nonsense\nnonsense\n")
    assert claimed_checkpoints(home, "mine", (OTHERS,)) == {}
