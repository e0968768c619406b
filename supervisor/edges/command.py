"""Where a command is on this disk: found as execvp would, with the venv first. Starts nothing."""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.core.errors import Exit, Refusal


def command_path(argv0: str, workdir: str, search: str) -> str:
    """The absolute path of the program that `argv0` names; `search` is the job's PATH (its venv is in it already).

    A name with a slash is looked up from `workdir`. Raises Refusal (6): not there, a directory, or not executable.
    """
    if "/" in argv0:
        path = Path(workdir, argv0)
        _must_be_executable(argv0, path)
        return str(path)
    blocked: Path | None = None
    for folder in search.split(":"):
        path = Path(workdir, folder or ".", argv0)
        if path.is_file():
            if os.access(path, os.X_OK):
                return str(path)
            blocked = blocked or path
    if blocked is not None:
        _must_be_executable(argv0, blocked)
    raise Refusal(
        Exit.PREFLIGHT,
        f"command {argv0} is not there: no folder of the job's PATH has it ({search or 'PATH is empty'}). "
        f"Give its path, or set `venv`.",
    )


def _must_be_executable(argv0: str, path: Path) -> None:
    if path.is_dir():
        raise Refusal(Exit.PREFLIGHT, f"command {argv0} is a directory ({path}). Name a program in it.")
    if not path.exists():
        raise Refusal(
            Exit.PREFLIGHT, f"command {argv0} is not there ({path}). Relative names start in `workdir`; mend `command`."
        )
    if not os.access(path, os.X_OK):
        raise Refusal(Exit.PREFLIGHT, f"command {argv0} is not executable ({path}). Run: chmod +x {path}")
