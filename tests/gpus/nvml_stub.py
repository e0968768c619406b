"""A driver's library for tests: compiles stub/nvml.c, and writes the file that it answers from."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

MIB = 2**20
SOURCE = Path(__file__).parent / "stub" / "nvml.c"


def build_stub(directory: Path, *without: str) -> Path:
    """Compiles libnvidia-ml.so.1 into `directory` (for LD_LIBRARY_PATH); `without`: NO_MEMORY_V2, NO_V3."""
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / "libnvidia-ml.so.1"
    flags = [f"-D{each}" for each in without]
    subprocess.run(
        ["gcc", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", *flags, "-o", str(library), str(SOURCE)],
        check=True,
        timeout=60,
    )
    return directory


@dataclass
class Card:
    """One GPU of the stub, sizes in MiB. `rc` is what calls on it answer with; 1000: they never answer."""

    index: int
    uuid: str
    total_mib: int = 97249
    reserved_mib: int = 600
    used_mib: float = 0
    util: int = 0
    rc: int = 0
    mig: int = 0
    minor: int | None = None
    pids: tuple[int, ...] = ()
    errors: int = 0
    pending: int = 0
    failed: int = 0
    xids: tuple[int, ...] = ()


@dataclass
class StubState:
    """What the stub answers; `write` makes it so, also while the library is in use."""

    path: Path
    cards: list[Card] = field(default_factory=list)
    init_rc: int = 0
    init_ms: int = 0
    v2_rc: int = 0

    @classmethod
    def of(cls, directory: Path, gpus: int = 8) -> StubState:
        cards = [Card(index, uuid_of(index)) for index in range(gpus)]
        state = cls(directory / "nvml-state", cards)
        state.write()
        return state

    @property
    def calls_path(self) -> Path:
        return self.path.with_name("nvml-calls")

    def environ(self, library: Path) -> dict[str, str]:
        """What a process needs in its environment to meet this stub."""
        return {
            "LD_LIBRARY_PATH": str(library),
            "NVML_STUB_STATE": str(self.path),
            "NVML_STUB_CALLS": str(self.calls_path),
        }

    def calls(self) -> list[str]:
        """`NAME INDEX` of every call so far."""
        return self.calls_path.read_text().splitlines() if self.calls_path.exists() else []

    def write(self) -> None:
        lines = [f"init {self.init_rc} {self.init_ms}", f"memory_v2 {self.v2_rc}"]
        for card in self.cards:
            minor = card.index if card.minor is None else card.minor
            sizes = f"{card.total_mib * MIB} {card.reserved_mib * MIB} {round(card.used_mib * MIB)}"
            pids = ",".join(map(str, card.pids)) or "-"
            lines.append(f"gpu {card.index} {card.uuid} {sizes} {card.util} {card.rc} {card.mig} {minor} {pids}")
            lines.append(f"health {card.index} {card.errors} {card.pending} {card.failed}")
            lines += [f"xid {card.index} {code}" for code in card.xids]
        fresh = self.path.with_suffix(".new")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.replace(self.path)


def uuid_of(number: int) -> str:
    return f"GPU-00000000-0000-4000-8000-{number:012d}"
