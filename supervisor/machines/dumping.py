"""A dump of an attempt's processes, written into its folder. Runs beside the loop; it raises nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from supervisor.core.aftermath import Printer
from supervisor.core.alive import Dumped, DumpIntended
from supervisor.edges import hangdump
from supervisor.edges.files import write_atomic
from supervisor.edges.ownership import Recorded
from supervisor.edges.paths import AttemptDir

KEPT = 8
"""So many dumps of one attempt; the last place is written over."""


def dump(
    asked: DumpIntended,
    attempt: AttemptDir,
    members: Sequence[Recorded],
    printers: Sequence[Printer],
    logs: Sequence[str],
    venv: str | None,
    redact: Callable[[str], str],
) -> Dumped:
    """See what they are doing and write it down; where that fails the answer says why."""
    answer = Dumped(attempt=asked.attempt, why=asked.why, step=asked.step)
    ranks = {one.pid: one.rank for one in printers}
    subjects = [hangdump.Subject(one.id, ranks.get(one.id.pid)) for one in members]
    at = time.strftime("%Y-%m-%d %H:%M:%S %z")
    head = f"{at}: attempt {asked.attempt}, {asked.why}, last step {'none' if asked.step is None else asked.step}"
    try:
        found = hangdump.take(subjects, logs, head=head, py_spy=hangdump.find_py_spy(venv))
        taken = sum(1 for _ in attempt.path.glob("dump-*.txt"))
        path = attempt.path / f"dump-{min(taken + 1, KEPT)}-{asked.why.replace(' ', '_')}.txt"
        write_atomic(path, redact(found.text).encode(), sync=False)
    except Exception as bug:  # noqa: BLE001 - whatever it is, a hanging run must be ended all the same
        return replace(answer, problem=f"it failed: {bug!r}"[:300])
    return replace(answer, path=str(path), summary=found.summary, ranks=found.ranks)
