"""Protected values in config files, read where they stand. What differs is said by `core/guard.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from supervisor.core.guard import Violation, WatchedKey, file_violations, watched_keys
from supervisor.core.spec import RunSpec, Value


def violations(spec: RunSpec, rendered: Mapping[str, str] | None) -> tuple[Violation, ...]:
    """Values that differ. `rendered`: the texts of the attempt's own copies by name; None where there are none yet."""
    keys = [key for key in watched_keys(spec) if rendered is not None or not _is_copy(spec, key)]
    return file_violations(spec, {key: _value(spec, key, rendered or {}) for key in keys})


def _is_copy(spec: RunSpec, key: WatchedKey) -> bool:
    return any(file.name == key.file for file in spec.files)


def _value(spec: RunSpec, key: WatchedKey, rendered: Mapping[str, str]) -> Value | None:
    """None where the file or the key in it is gone: then it does not say the value any more."""
    from supervisor.edges import configfile

    path = next((file.from_ for file in spec.files if file.name == key.file), key.file)
    try:
        text = rendered[key.file] if key.file in rendered else Path(path).read_text(encoding="utf-8")
        return configfile.lookup(text, configfile.format_of(path), key.key)
    except (OSError, ValueError):
        return None
