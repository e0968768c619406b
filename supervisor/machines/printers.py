"""The processes of an attempt that may print: rank, the GPUs that each sees, error file. Read while they live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from supervisor.core.aftermath import Printer, RankError
from supervisor.core.evidence import Hit, ProcessId, Weight
from supervisor.core.kinds import Kind
from supervisor.edges import proc, rank_errors
from supervisor.edges.ownership import Recorded

if TYPE_CHECKING:
    from supervisor.signatures import Matcher

PRINTERS_MAX = 4096
RANK_NAMES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
VISIBLE = "CUDA_VISIBLE_DEVICES"
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"


class Known(Struct, frozen=True):
    """What the environment of one process said at its start."""

    printer: Printer
    error_file: str | None = None
    log_dir: tuple[str, ...] = ()


class Printers:
    """Everybody of one attempt, also those that are gone by now: each is read once."""

    def __init__(self) -> None:
        self._known: dict[ProcessId, Known] = {}

    def look(self, members: Sequence[Recorded], box: Sequence[int]) -> tuple[Printer, ...]:
        """All known so far. `box`: the indices of all GPUs here, which a process without a choice of its own sees."""
        for one in members:
            if one.id not in self._known and len(self._known) < PRINTERS_MAX:
                environ = proc.environ(one.id.pid)
                if environ and not _is_before_exec(one.id.pid, environ) and proc.is_alive(one.id):
                    self._known[one.id] = _known(one.id.pid, environ, box)
        return tuple(known.printer for known in self._known.values())

    def error_files(self) -> dict[str, int | None]:
        """Path to the rank of its writer, None where only the file's folder tells."""
        everybody = list(self._known.values())  # asked beside the loop, which may learn of more meanwhile
        named = {known.error_file: known.printer.rank for known in everybody if known.error_file}
        trees = {path: None for known in everybody for path in rank_errors.in_log_dir(known.log_dir)}
        return {**trees, **named}


def _is_before_exec(pid: int, environ: Mapping[str, str]) -> bool:
    """True while it is still the runner's fork: what it will see stands in the environment that it gets by exec."""
    return "SUPERVISE_TOKEN" not in environ and any(word.endswith("/supervisor/runner.py") for word in proc.argv(pid))


def _known(pid: int, environ: Mapping[str, str], box: Sequence[int]) -> Known:
    rank = next((int(text) for name in RANK_NAMES if (text := environ.get(name, "")).isdigit()), None)
    chosen = environ.get(VISIBLE)
    visible = tuple(map(str, box)) if chosen is None else tuple(name.strip() for name in chosen.split(",") if name)
    folder = environ.get("PWD", "")
    file = environ.get(ERROR_FILE)  # as relative as the --log-dir that torchrun was given
    argv = tuple(_in(proc.argv(pid), folder))
    return Known(Printer(pid, rank, visible), str(Path(folder, file)) if file else None, argv)


def _in(argv: Sequence[str], folder: str) -> list[str]:
    """The arguments with the value of --log-dir made absolute, and nothing else of them."""
    kept: list[str] = []
    for number, word in enumerate(argv):
        name, glued, value = word.partition("=")
        if name in ("--log-dir", "--log_dir"):
            value = value if glued else (argv[number + 1] if number + 1 < len(argv) else "")
            kept.append(f"--log-dir={Path(folder, value)}" if value else name)
    return kept


def read_errors(files: Mapping[str, int | None], since_wall_s: float, matcher: Matcher) -> tuple[RankError, ...]:
    """What the workers wrote since then, the earliest death first."""
    found = []
    for one in rank_errors.read_all(files, since_wall_s):
        named = files.get(one.path)
        rank = one.rank if named is None else named
        found.append(RankError(rank, one.at_wall_s, one.path, one.message, _hits(one, rank, matcher)))
    return tuple(found)


def _hits(one: rank_errors.ErrorFile, rank: int | None, matcher: Matcher) -> tuple[Hit, ...]:
    """The failure texts in a worker's last words; an exception without a known text is one too."""
    from supervisor.signatures import Scanner

    scanner = Scanner(matcher, one.path)
    data = one.text.encode() + b"\n"
    hits = [hit for hit in (*scanner.feed(data), *scanner.end()) if isinstance(hit, Hit)]
    if not hits:
        text = one.message.strip().rpartition("\n")[2]
        hits = [Hit("rank_error_file", Kind.CODE_ERROR, one.path, 1, 0, text[:2000], weight=Weight.GENERIC)]
    return tuple(replace(hit, rank=rank if hit.rank is None else hit.rank) for hit in hits)
