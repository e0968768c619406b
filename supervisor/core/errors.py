"""The errors that a person meets, one class for each one who must act.

    SuperviseError          exit 1   base; never raised itself
    ├── SpecError           exit 5   the user's spec is wrong; carries every mistake found
    ├── Refusal             exit N   the machine or the run is not in the state asked for; exit code of the contract
    └── Bug                 exit 1   a promise of this program is broken: ours to mend

Every message says what, why and what to do. Nothing here prints.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every verb."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_RUNNING = 3
    NO_SUCH_RUN = 4
    SPEC_INVALID = 5
    PREFLIGHT = 6
    CONFLICT = 7
    NOT_ZERO = 8
    HALTED = 9
    DEGRADED = 10
    TIMEOUT = 124
    INTERRUPTED = 130


class SuperviseError(Exception):
    """Base of all errors that are shown to the user as text, without a traceback."""

    exit: Exit = Exit.ERROR


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a spec: `file:line:col: path: what`; line and column count from 1."""

    file: str
    line: int
    col: int
    path: str
    what: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.col}: "
        return f"{where}{self.path}: {self.what}" if self.path else f"{where}{self.what}"


class SpecError(SuperviseError):
    """The spec is wrong; `mistakes` holds every one found, in the order of the file."""

    exit = Exit.SPEC_INVALID

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


class Refusal(SuperviseError):
    """What was asked for cannot be done now; nothing was changed. `exit` is the verb's exit code."""

    def __init__(self, exit: Exit, text: str) -> None:
        self.exit = exit
        super().__init__(text)


class Bug(SuperviseError):
    """A rule of this program does not hold. Not the user's to mend."""
