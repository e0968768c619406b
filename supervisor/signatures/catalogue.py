"""All failure texts, in order: of those that match one line, the heaviest names it, then the first. Data only.

Special texts stand before those that contain them: an NCCL error that is a full GPU before NCCL errors,
a missing module of an installed package before missing modules, known exceptions before exceptions.
"""

from __future__ import annotations

from supervisor.signatures import (
    collectives,
    engine_memory,
    gpu_health,
    host,
    launchers,
    programs,
    storage,
    torch_memory,
    training,
)
from supervisor.signatures.model import Text

CATALOGUE: tuple[Text, ...] = (
    *torch_memory.TEXTS,
    *engine_memory.TEXTS,
    *torch_memory.LAST,
    *gpu_health.TEXTS,
    *host.TEXTS,
    *collectives.TEXTS,
    *storage.TEXTS,
    *training.TEXTS,
    *programs.TEXTS,
    *launchers.TEXTS,
)
