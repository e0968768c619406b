"""supervisor.log: what the supervisor did, for the person watching. The journal is the record, this is not.

Events with keys, one a line (logfmt), secret values redacted, capped in size. A log that cannot be written is no
reason to end: lines are dropped and counted, and the count is told by the next line that gets through.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import MutableMapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from supervisor.edges.secrets import Redactor

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

CAP_BYTES = 8 * 2**20
"""One old file is kept beside it, so a run's log takes at most twice this."""

KEPT_LINES = 200
"""So many lines wait for a log that is opened late; one more opens it."""


class LogFile:
    """A file that lines are appended to and that is set aside when it is full."""

    def __init__(self, path: Path, *, cap_bytes: int = CAP_BYTES) -> None:
        self.path = path
        self.dropped = 0
        self._cap_bytes = cap_bytes
        self._fd = -1

    def msg(self, line: str) -> None:
        """Append a line; counted instead where the disk does not take it."""
        note = f"dropped_lines={self.dropped}\n" if self.dropped else ""
        try:
            self._open()
            os.write(self._fd, (note + line + "\n").encode("utf-8", "replace"))
        except OSError:
            self.dropped += 1
            return
        self.dropped = 0

    log = debug = info = warning = warn = error = critical = exception = fatal = msg

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        if self._fd >= 0 and os.fstat(self._fd).st_size < self._cap_bytes:
            return
        self.close()
        if self.path.exists() and self.path.stat().st_size >= self._cap_bytes:
            self.path.replace(self.path.with_name(self.path.name + ".1"))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self.path, flags, 0o600)


class LateLog:
    """A log that keeps its lines, with their times, until `open`: importing structlog takes as long as a third of a
    launch. An error opens it at once. May be used by two threads."""

    def __init__(self, path: Path, redactor: Redactor, **bound: Any) -> None:
        self.redactor = redactor
        self._path = path
        self._bound = bound
        self._lock = threading.Lock()
        self._kept: list[tuple[str, str, dict[str, Any]]] = []
        self._log: FilteringBoundLogger | None = None

    def info(self, event: str, **keys: Any) -> None:
        """What was done."""
        self._say("info", event, keys)

    def error(self, event: str, **keys: Any) -> None:
        """What went wrong; `exc_info` as in structlog."""
        self._say("error", event, keys)
        self.open()

    def open(self) -> None:
        """Write what was kept; from now on each line is written as it comes."""
        with self._lock:
            if self._log is None:
                self._log = open_log(self._path, self.redactor, **self._bound)
            kept, self._kept = self._kept, []
            for method, event, keys in kept:
                getattr(self._log, method)(event, **keys)

    def _say(self, method: str, event: str, keys: dict[str, Any]) -> None:
        with self._lock:
            if self._log is not None:
                getattr(self._log, method)(event, **keys)
                return
            self._kept.append((method, event, {"timestamp": _utc(time.time()), **keys}))
            full = len(self._kept) > KEPT_LINES
        if full:
            self.open()


def _utc(wall_s: float) -> str:
    """As structlog's `iso` writes it."""
    whole_s, us = divmod(round(wall_s * 1e6), 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole_s))}.{us:06d}Z"


def open_log(path: Path, redactor: Redactor, **bound: Any) -> FilteringBoundLogger:
    """A logger that writes to `path`; `bound` is on every line. Nothing global is configured.

    The first call imports structlog, which takes about as long as a launch: not before one.
    """
    structlog = _structlog()
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)

    def stamped(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        kept: MutableMapping[str, Any] = event if "timestamp" in event else stamp(logger, method, event)
        return kept

    def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {key: _plain(redactor, value) for key, value in event.items()}

    logger: FilteringBoundLogger = structlog.wrap_logger(
        LogFile(path),
        processors=[
            structlog.processors.add_log_level,
            stamped,
            structlog.processors.format_exc_info,
            redact,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], bool_as_flag=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(0),
        cache_logger_on_first_use=True,
        **bound,
    )
    return logger


def _structlog() -> ModuleType:
    """structlog without rich, which it would import for tracebacks on a terminal: 40 ms and 6 MiB for nothing."""
    absent = "rich" not in sys.modules
    if absent:
        sys.modules["rich"] = None  # type: ignore[assignment]  # the documented way to make an import fail
    try:
        import structlog
    finally:
        if absent:
            del sys.modules["rich"]
    return structlog


def _plain(redactor: Redactor, value: Any) -> Any:
    """Numbers and booleans as they are; everything else as redacted text, on one line."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return redactor.text(str(value)).replace("\n", "\\n")
