"""Words for people: text from logs made harmless, times, durations, sizes, values. No opinion on what to show."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

WIDTH = 80
ESCAPE_CAP = 4096
"""An escape sequence longer than this is text: no terminal waits for its end for ever."""

# Category Cc, and what reorders or hides text in a terminal: bidirectional marks, line and paragraph separators,
# zero-width characters, surrogates that stand for undecodable bytes.
_HARMFUL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")
# CSI, OSC/DCS/APC/PM/SOS with their end, and two-character escapes (ECMA-48).
_ESCAPE = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]|\x1b[\\]P_^X][^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\\\|\x9c)|\x1b[ -/]*[0-Z\\\\^-~]"
)


def safe(text: object) -> str:
    """One line that cannot move a cursor: escapes are dropped, other control characters shown as `\\xNN`."""
    return _HARMFUL.sub(_shown, _ESCAPE.sub("", str(text)))


def safe_block(text: str) -> str:
    """Like `safe`, but tabs, newlines and carriage returns stay: the job's output on a terminal."""
    return _HARMFUL.sub(lambda m: m[0] if m[0] in "\n\t\r" else _shown(m), _ESCAPE.sub("", text))


def safe_lines(text: object) -> str:
    """Like `safe`, but tabs and newlines stay: what we say ourselves, in which names and texts of others may stand."""
    return safe_block(str(text)).replace("\r", "\\x0d")


def unfinished_escape(text: str) -> int:
    """Where an escape sequence begins that the next block may end; the length where there is none."""
    at = text.rfind("\x1b")
    return len(text) if at < 0 or _ESCAPE.match(text, at) else at


def cut(text: str, width: int) -> str:
    """At most `width` characters; what was cut off is told by `...`."""
    return text if len(text) <= width else text[: max(0, width - 3)] + "..."


def wrapped(label: str, text: object, *, indent: int = 2, label_width: int = 11, width: int = WIDTH) -> list[str]:
    """`  label      text` over as many lines as it takes, none longer than `width`; a new line in it stays one."""
    import textwrap

    first = " " * indent + label.ljust(label_width) + " "
    rest, lines = " " * len(first), list[str]()
    for part in str(text).split("\n"):
        head = rest if lines else first
        lines += textwrap.wrap(
            safe(part.strip()), width, initial_indent=head, subsequent_indent=rest, break_on_hyphens=False
        )
    return lines or [first.rstrip()]


def hanging(text: str, *, by: int, width: int = WIDTH) -> list[str]:
    """The text over as many lines as it takes, all but the first set in."""
    import textwrap

    return textwrap.wrap(text, width, subsequent_indent=" " * by, break_on_hyphens=False)


def duration(seconds: float | None) -> str:
    """`0.4 s`, `41 s`, `3m 05s`, `2h 04m`, `5d 03h`; `?` for unknown."""
    if seconds is None:
        return "?"
    if seconds < 0:
        return "0 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d {whole % 86400 // 3600:02d}h"


def iso(wall_s: float | None) -> str | None:
    """Unix time as ISO 8601 in UTC with milliseconds, `2026-01-02T03:04:05.678+00:00`; None stays None."""
    if wall_s is None:
        return None
    whole, millis = divmod(round(wall_s * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{millis:03d}+00:00"


def clock(wall_s: float | None) -> str:
    """Local time for people, `2026-01-02 03:04:05`; `?` for unknown."""
    return "?" if wall_s is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall_s))


def gib(mib: float | None) -> str:
    """MiB as GiB with one decimal; `?` for unknown."""
    return "?" if mib is None else f"{mib / 1024:.1f}"


def number(value: float | None) -> str:
    """A rate or a loss in at most five significant digits; `?` for unknown."""
    return "?" if value is None else f"{value:.5g}"


def pattern_of(spec: Mapping[str, Any]) -> str:
    """`health.progress.log` of a spec as it is recorded; empty where it has none."""
    progress = (spec.get("health") or {}).get("progress") or {}
    return str(progress.get("log") or "")


def value_of(text: str, tag: str) -> Any:
    """The JSON value of a YAML 1.2 scalar; text where JSON has no such number (`.nan`, `.inf`)."""
    plain = text.replace("_", "").lower()
    try:
        if tag == "int":
            return int(plain, 0) if plain.lstrip("+-").startswith(("0x", "0o")) else int(plain)
        if tag == "float":
            return text if plain.lstrip("+-") in (".inf", ".nan") else float(plain)
    except ValueError:
        return text
    if tag == "bool":
        return plain == "true"
    return None if tag == "null" else text


def shown(value: Any) -> str:
    """A value as a person writes it: `true`, `null`, lists joined by commas."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, (list, tuple)):
        return ",".join(shown(item) for item in value)
    return safe(value)


def pairs(values: Mapping[str, Any]) -> str:
    """`a=1 b=2`; `none` for nothing."""
    return " ".join(f"{safe(name)}={shown(value)}" for name, value in values.items()) or "none"


def moves(lowered: Mapping[str, Any]) -> str:
    """`a 4 -> 2, b 64 -> 48`."""
    return ", ".join(f"{safe(name)} {shown(old)} -> {shown(new)}" for name, (old, new) in lowered.items())


def time_words(spent: Mapping[str, Any]) -> str:
    """`83.2 % productive of 10h; load 22m04s, lost 5m03s (12 steps)`: what took nothing is left out."""
    names = ("degraded", "load", "lost", "verify", "backoff", "check")
    parts = [f"{name} {duration(spent[f'{name}_s'])}" for name in names if spent[f"{name}_s"] >= 1.0]
    steps = f" ({spent['lost_steps']} steps)" if spent["lost_steps"] else ""
    said = ", ".join(part + steps if part.startswith("lost ") else part for part in parts)
    share = f"{100 * spent['ettr']:.1f} % productive of {duration(spent['wall_s'])}"
    return f"{share}; {said}" if said else share


def failure_words(failure: Mapping[str, Any]) -> str:
    """`gpu_oom in attempt 1 on GPU 5: ... (out.log:120)`."""
    said = str(failure.get("kind"))
    if failure.get("attempt"):
        said += f" in attempt {failure['attempt']}"
    if failure.get("gpu") is not None:
        said += f" on GPU {failure['gpu']}"
    if failure.get("because"):
        said += f": {failure['because']}"
    return said


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
