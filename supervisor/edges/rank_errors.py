"""The error files of torch's elastic workers: which are there, and what stands in them. No opinion on the texts.

A worker whose main function is decorated with `record` writes $TORCHELASTIC_ERROR_FILE as it dies:
{"message": {"message": "ValueError: ...", "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1767225600"}}};
some put {"message": "text", "timestamp": ...} there. torchrun's --log-dir is DIR/RUN/attempt_N/RANK/error.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

FILE_MAX = 4 << 20
FILES_MAX = 512
TEXT_MAX = 256 << 10


class ErrorFile(Struct, frozen=True):
    """One worker's last words. `text` is the traceback and the message; `rank` as the file's folder names it."""

    path: str
    rank: int | None
    at_wall_s: float
    message: str
    text: str


def read_all(paths: Iterable[str], since_wall_s: float) -> tuple[ErrorFile, ...]:
    """Those that are there and were written since then, the earliest death first."""
    found = [one for path in islice(dict.fromkeys(paths), FILES_MAX) if (one := read(path, since_wall_s)) is not None]
    return tuple(sorted(found, key=lambda one: (one.at_wall_s, one.path)))


def read(path: str, since_wall_s: float = 0.0) -> ErrorFile | None:
    """One file; None where it is missing, older, cut short, or no such file."""
    try:
        written_s = Path(path).stat().st_mtime
        if written_s < since_wall_s - 1.0:
            return None
        with open(path, "rb") as file:
            plain = json.loads(file.read(FILE_MAX))
    except (OSError, ValueError):
        return None
    given = parsed(plain)
    if given is None:
        return None
    message, stack, at_s = given
    text = f"{stack}\n{message}" if message not in stack else stack
    return ErrorFile(path, _rank_of(path), at_s or written_s, message, text[-TEXT_MAX:])


def parsed(plain: Any) -> tuple[str, str, float | None] | None:
    """(message, traceback, time) of such a document; None for another one."""
    body = plain.get("message") if isinstance(plain, dict) else None
    if isinstance(body, str):
        return body, "", _time(plain.get("timestamp"))
    if not isinstance(body, dict) or not isinstance(body.get("message"), str):
        return None
    extra = body.get("extraInfo")
    extra = extra if isinstance(extra, dict) else {}
    stack = extra.get("py_callstack")
    return body["message"], stack if isinstance(stack, str) else "", _time(extra.get("timestamp"))


def in_log_dir(argv: Sequence[str]) -> tuple[str, ...]:
    """The error files below the --log-dir that a launcher was given, if any."""
    for number, word in enumerate(argv):
        name, _, value = word.partition("=")
        if name not in ("--log-dir", "--log_dir"):
            continue
        folder = value or (argv[number + 1] if number + 1 < len(argv) else "")
        if folder:
            return below(folder)
    return ()


def below(folder: str) -> tuple[str, ...]:
    """The error files of torchrun's tree."""
    return tuple(str(path) for path in islice(Path(folder).glob("*/attempt_*/*/error.json"), FILES_MAX))


def _time(text: Any) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def _rank_of(path: str) -> int | None:
    """The local rank, by the folder's name; the worker's own environment knows better."""
    name = Path(path).parent.name
    return int(name) if name.isdigit() else None
