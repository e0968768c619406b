"""For tests: one reading of some GPUs, waited for."""

from __future__ import annotations

import select
import time

from supervisor.core.evidence import GpuSeen
from supervisor.edges.gpus import Gpus
from supervisor.edges.gpus_link import boot_s

GIVE_UP_S = 60.0


def read(gpus: Gpus, uuids: list[str], processes: bool = False) -> dict[str, GpuSeen]:
    """Asks, and waits until every GPU has an answer that began after the asking."""
    asked_boot_s = boot_s()
    gpus.ask(uuids, processes)
    until = time.monotonic() + GIVE_UP_S
    while time.monotonic() < until:
        seen = gpus.take()
        if all(uuid in seen and seen[uuid].began_boot_s >= asked_boot_s for uuid in uuids):
            return seen
        select.select([gpus], [], [], 0.05)
    raise AssertionError(f"no reading of {uuids} within {GIVE_UP_S} s: {gpus.take()}")
