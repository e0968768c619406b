"""Which checkpoints another run's journal still has a claim on. What this run makes of that is `core/lineage.py`."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.core.evidence import Checkpoint
from supervisor.core.lineage import Found

LATE_NS = 600 * 10**9
"""How long after a checkpoint was recorded as complete more may come into it and leave it the recorder's."""


def standing_claims(claims: Iterable[tuple[str, Checkpoint]], found: Found) -> dict[str, str]:
    """Path → run, of what is found and is still what that run's journal recorded, in the order of recording.

    A run under a new name may write over what an older one wrote: from then on it isn't the older one's.
    """
    recorded = {checkpoint.real or checkpoint.path: (run, checkpoint) for run, checkpoint in claims}
    standing: dict[str, str] = {}
    for one in found:
        if not isinstance(one, Checkpoint):
            continue
        run, claim = recorded.get(one.real or one.path, ("", one))
        if run and one.inode == claim.inode and one.mtime_ns - claim.mtime_ns <= LATE_NS:
            standing[one.path] = run
    return standing
