"""Which checkpoints other runs of this state directory claim: those that their journals say they took or wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from supervisor.core.evidence import Checkpoint, Incomplete
from supervisor.core.lineage import Found
from supervisor.core.spec import Resume
from supervisor.core.standing import standing_claims
from supervisor.edges.checkpoints import Memory, scan
from supervisor.edges.codec import from_plain
from supervisor.edges.journal import Journal
from supervisor.edges.journal_lines import JournalDamaged
from supervisor.edges.paths import Home


class CheckpointsSeen(Struct, frozen=True):
    """What is on the disk, and which of it other runs claim."""

    found: tuple[Checkpoint | Incomplete, ...]
    claimed: Mapping[str, str]


class CheckpointScanner:
    """Looks while a job runs: what did not change is neither opened nor looked up in other journals again."""

    def __init__(self, home: Home, run: str) -> None:
        self._home = home
        self._run = run
        self._memory = Memory()
        self._last: CheckpointsSeen | None = None

    def look(self, resume: Resume) -> CheckpointsSeen:
        """One look. Raises OSError and TimeoutError where the folder cannot be listed."""
        found = scan(resume, memory=self._memory)
        last = self._last
        if last is None or last.found != found:
            last = self._last = CheckpointsSeen(found, claimed_checkpoints(self._home, self._run, found))
        return last


def claimed_checkpoints(home: Home, but: str, found: Found) -> dict[str, str]:
    """Path of a checkpoint in `found` → the other run that claims it. A journal that cannot be read claims nothing."""
    return standing_claims(_claims(home, but), found)


def _claims(home: Home, but: str) -> Iterator[tuple[str, Checkpoint]]:
    for name in home.names():
        if name == but:
            continue
        try:
            for record in Journal.open(home.run(name).journal, writer=False).read():
                if record.type in ("CheckpointWritten", "LaunchIntended") and record.data.get("checkpoint"):
                    yield name, from_plain(record.data["checkpoint"], Checkpoint)
        except (JournalDamaged, OSError, ValueError):
            continue
