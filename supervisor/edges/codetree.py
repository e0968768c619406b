"""Which files of a working directory are its code: in a git checkout the tracked and dirty ones, else by their names.

Nothing is copied here, and nothing of the tree is touched: git takes no lock, runs no hook and no monitor.
"""

# Paths are text here: they are compared, and no link in them may be resolved.
# ruff: noqa: PTH113, PTH114

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from msgspec import Struct

GIT_S = 20.0
WALK_S = 30.0
LISTING_CAP_BYTES = 32 * 2**20
WALKED_MAX = 200_000
"""So many names are looked at in a tree without git; one with more of them holds data that the spec does not name."""

FILES_MAX, BYTES_MAX = 20_000, 256 * 2**20
LARGE_BYTES = 16 * 2**20
"""A tracked file of this size that is no script or config is data: it stays where it is."""

UNTRACKED_MAX_BYTES = 2**20
SUFFIXES = (
    ".py", ".pyi", ".pyx", ".pxd", ".sh", ".bash", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".gin", ".json",
    ".jsonnet", ".jinja", ".j2", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp",
)  # fmt: skip
PLACEHOLDERS = (".gitkeep", ".keep", ".gitignore", ".gitattributes")
SKIPPED = (".git", "__pycache__", ".hg", ".svn")


class NotListed(Exception):
    """Why the files of the tree cannot be told, and what to do about it."""


class Tree(Struct, frozen=True):
    """`files`: what is code, relative to `top`, sorted. `dirty`: those that differ from `commit`, deleted ones too.
    `large`: tracked files that are data by their size. Without git `commit` is empty."""

    top: Path
    files: tuple[str, ...]
    commit: str = ""
    dirty: tuple[str, ...] = ()
    large: tuple[str, ...] = ()


def look(workdir: Path, *, named: Iterable[str], apart: Iterable[str], environ: Mapping[str, str]) -> Tree:
    """`workdir` is without links. `named`: files and folders that are code whatever git says of them; `apart`: paths
    below which nothing is (what the run writes, its data, its environment); absolute. Raises NotListed, OSError."""
    top = _top(workdir, environ)
    outside = _Apart(apart)
    if top is None:
        return _walked(workdir, named, outside)
    tracked = _listed(top, environ, "ls-files", "-z", "--cached", "--recurse-submodules")
    inside = os.path.relpath(workdir, top)
    if not any(inside == "." or name.startswith(f"{inside}/") for name in tracked):
        return _walked(workdir, named, outside)  # the tree of another project, of which this folder is no part
    others = _listed(top, environ, "ls-files", "-z", "--others", "--exclude-standard")
    status = _listed(top, environ, "status", "--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=dirty")
    large: list[str] = []
    files = dict.fromkeys(_of_git(top, tracked, outside, large))
    files |= dict.fromkeys(name for name in others if _is_new_code(top, name, outside))
    files |= dict.fromkeys(_named(top, named, outside))
    return Tree(
        top=top,
        files=tuple(sorted(_without_placeholders(files))),
        commit=head(top, environ),
        dirty=tuple(sorted(entry[3:] for entry in status if entry[2:3] == " ")),
        large=tuple(large),
    )


def head(top: Path, environ: Mapping[str, str]) -> str:
    """The commit that is checked out."""
    found = _git(top, environ, "rev-parse", "HEAD")
    return found[1].decode().strip() if found[0] == 0 else "none yet"


def is_code(path: str) -> bool:
    """True for a script or config, by its name or its first two bytes."""
    if path.endswith(SUFFIXES):
        return True
    try:
        with open(path, "rb", opener=_no_wait) as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def _no_wait(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


class _Apart:
    """Below these nothing is code."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(path.rstrip("/") for path in paths)

    def has(self, path: str) -> bool:
        return any(path == one or path.startswith(f"{one}/") for one in self._paths)


# ── git ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _top(workdir: Path, environ: Mapping[str, str]) -> Path | None:
    """The top of the checkout; None where there is none, or no git to ask."""
    try:
        code, out, err = _git(workdir, environ, "rev-parse", "--show-toplevel")
    except FileNotFoundError:
        return None
    if code == 0:
        return Path(os.fsdecode(out.rstrip(b"\n")))
    if "not a git repository" in err or "must be run in a work tree" in err:
        return None
    raise NotListed(f"git does not tell the files of {workdir}: {err.strip()[:300]}")


def _listed(top: Path, environ: Mapping[str, str], *words: str) -> list[str]:
    code, out, err = _git(top, environ, *words)
    if code != 0:
        raise NotListed(f"git {words[0]} in {top}: {err.strip()[:300]}")
    if len(out) > LISTING_CAP_BYTES:
        raise NotListed(f"{top} has too many files to list; ignore its data (.gitignore)")
    return [os.fsdecode(name) for name in out.split(b"\0") if name]


def _git(folder: Path, environ: Mapping[str, str], *words: str) -> tuple[int, bytes, str]:
    """Its exit code, output and words. Raises NotListed past the deadline, FileNotFoundError where there is no git."""
    env = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    quiet = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *quiet, *words],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, timeout=GIT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NotListed(f"git {words[0]} in {folder} did not answer within {GIT_S:g} s") from None
        out.seek(0)
        err.seek(0)
        return done.returncode, out.read(LISTING_CAP_BYTES + 1), err.read(4096).decode("utf-8", "replace")


def _of_git(top: Path, names: Iterable[str], apart: _Apart, large: list[str]) -> Iterator[str]:
    for name in names:
        path = f"{top}/{name}"
        if apart.has(path):
            continue
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):  # deleted and not committed: the code is without it
            continue
        if found.st_size > LARGE_BYTES and not path.endswith(SUFFIXES):
            large.append(name)
        else:
            yield name


def _is_new_code(top: Path, name: str, apart: _Apart) -> bool:
    """A script or config that nobody has added to git yet; a repository inside (`name/`) is not looked into."""
    path = f"{top}/{name}"
    if name.endswith("/") or apart.has(path) or not os.path.isfile(path):
        return False
    found = os.lstat(path)
    may_be = name.endswith(SUFFIXES) or found.st_mode & 0o100  # so that not every image is opened
    return found.st_size <= UNTRACKED_MAX_BYTES and bool(may_be) and is_code(path)


def _without_placeholders(files: Iterable[str]) -> Iterator[str]:
    """A folder of which git only keeps that it is there is one that the job writes into: it's no code."""
    names = list(files)
    real = {folder for name in names if _base(name) not in PLACEHOLDERS for folder in _above(name)}
    yield from (name for name in names if _base(name) not in PLACEHOLDERS or name.rpartition("/")[0] in real)


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _above(name: str) -> Iterator[str]:
    while name:
        name = name.rpartition("/")[0]
        yield name


# ── no git ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _walked(workdir: Path, named: Iterable[str], apart: _Apart) -> Tree:
    """Scripts, sources and configs by their names; folders of an environment and hidden ones are left out. Links of
    such names and links to folders are told as links: what they lead to in the tree is the copy's."""
    found: list[str] = []
    seen, until_s = 0, time.monotonic() + WALK_S
    for folder, folders, names in os.walk(workdir):
        kept = sorted(one for one in folders if not _is_left_out(f"{folder}/{one}", apart))
        folders[:] = [one for one in kept if not os.path.islink(f"{folder}/{one}")]
        links = [one for one in (*kept, *names) if os.path.islink(f"{folder}/{one}")]
        found += (
            os.path.relpath(f"{folder}/{one}", workdir) for one in links if _is_code_link(f"{folder}/{one}", apart)
        )
        seen += len(names) + len(kept)
        if seen > WALKED_MAX or time.monotonic() > until_s:
            what = (
                f"holds more than {WALKED_MAX} files" if seen > WALKED_MAX else f"is not looked through in {WALK_S:g} s"
            )
            raise NotListed(f"{workdir} {what}: name its data under `data`, or make it a git checkout")
        for name in names:
            path = f"{folder}/{name}"
            is_small = name.endswith(SUFFIXES) and os.lstat(path).st_size <= UNTRACKED_MAX_BYTES
            if is_small and not os.path.islink(path) and not apart.has(path):
                found.append(os.path.relpath(path, workdir))
    found += _named(workdir, named, apart)
    return Tree(top=workdir, files=tuple(sorted(dict.fromkeys(found))))


def _is_code_link(path: str, apart: _Apart) -> bool:
    return not apart.has(path) and (Path(path).is_dir() or (path.endswith(SUFFIXES) and os.path.isfile(path)))


def _is_left_out(path: str, apart: _Apart) -> bool:
    name = _base(path)
    if name.startswith(".") or name in (*SKIPPED, "node_modules", "site-packages"):
        return True
    return apart.has(path) or any(os.path.lexists(f"{path}/{mark}") for mark in ("pyvenv.cfg", "conda-meta"))


def _named(top: Path, named: Iterable[str], apart: _Apart) -> Iterator[str]:
    """What the spec names, where it lies in the tree: a file, or all files of a folder."""
    for path in named:
        below = (f"{folder}/{name}" for folder, _, names in os.walk(path) for name in names)
        inside = (one for one in below if not any(part in SKIPPED for part in one.split("/")))
        for one in [path, *islice(inside, FILES_MAX + 1)]:
            if one.startswith(f"{top}/") and not apart.has(one) and os.path.isfile(one):
                yield os.path.relpath(one, top)
