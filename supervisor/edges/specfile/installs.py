"""Commands that may change the job's environment on the way to training: told by `check`, whatever pins say."""

from __future__ import annotations

import re
from pathlib import Path

from supervisor.core.spec import RunSpec
from supervisor.edges.specfile.validate import Book

SCRIPT_MAX_BYTES = 256 * 1024
SCRIPTS = (".sh", ".bash", ".zsh")
NO_SYNC = "UV_NO_SYNC"
_SYNCS = re.compile(r"(?<![\w./-])(?:\S*/)?uv\s+(?:-\S+\s+)*run\b(?![^\n;&|]*--(?:no-sync|no-project)\b)")
_INSTALLS = re.compile(
    r"(?<![\w./-])(?:\S*/)?(?:pip[\d.]*|conda|mamba|micromamba|uv\s+pip|uv|poetry|pdm)\s+(?:-\S+\s+)*(?:install|sync|add)\b"
)


def check(book: Book, spec: RunSpec) -> None:
    """Warns of `uv run` without --no-sync and of installs, in the command and in the script that it names.

    `--frozen` is no excuse: the environment is synced all the same, to what the lock file says by then."""
    quiet = spec.env.get(NO_SYNC, "") not in ("", "0", "false")
    found = _found(" ".join(spec.command), quiet)
    if found:
        book.warn(("command",), found)
    for word in spec.command:
        if "${{" in word or word.startswith("-"):
            continue
        path = Path(spec.workdir, word)
        lines = _lines(path) if word.endswith(SCRIPTS) or _is_shell(path) else []
        for number, line in enumerate(lines, 1):
            found = _found(line, quiet)
            if found:
                book.warn(("command",), f"{path}:{number}: {found}")


def _is_shell(path: Path) -> bool:
    """True for a file that says so in its first line, whatever it is called."""
    try:
        if not path.is_file():
            return False
        with open(path, "rb") as file:
            return re.match(rb"#!.*\b(?:ba|z|da|k)?sh\b", file.readline(256)) is not None
    except OSError:  # a word that is too long for a name, or not to be read: told elsewhere
        return False


def _found(line: str, quiet: bool) -> str:
    code = line.partition(" #")[0]
    if code.lstrip().startswith("#"):
        return ""
    synced, installed = _SYNCS.search(code), _INSTALLS.search(code)
    if synced and not quiet:
        return f"`{synced[0]}` syncs the environment at every launch: a relaunch at night may get other versions; " \
               "write `uv run --no-sync`"  # fmt: skip
    if installed:
        return f"`{installed[0]}` may change the environment at every launch: install before `up`, and use `pins`"
    return ""


def _lines(path: Path) -> list[str]:
    try:
        with open(path, "rb") as file:
            return file.read(SCRIPT_MAX_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:  # not there, or not to be read: told elsewhere
        return []
