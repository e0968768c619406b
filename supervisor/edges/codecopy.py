"""A copy of the code of a working directory: made whole or not at all. What became of it later: `codekept.py`.

    NAME/tree/       the image: a file for each file of the code, a link to its place for all else that lies beside it
    NAME/python/     what goes first into PYTHONPATH (`codehook.py`)
    NAME/manifest.json

Rule 1: it is made under a hidden name, flushed, and renamed last; what has a name is whole.
Rule 2: a link leads to the place that it stands for, so data, checkpoints and outputs are reached and never copied.
"""

# Paths are text here: they are compared, and no link in them may be resolved.
# ruff: noqa: PTH104, PTH115, PTH118, PTH120

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from supervisor.edges.codekept import SCHEMA, remove
from supervisor.edges.codetree import BYTES_MAX, FILES_MAX, SKIPPED, Tree
from supervisor.edges.files import fsync_dir, make_private_dir, to_json, write_atomic

WITHIN_S = 120.0
ROUNDS = 3
"""So often a tree that changes while it is copied is copied again: a `git pull` takes a second."""

LINKS_PER_FOLDER_MAX = 1000
SPARE_BYTES = 64 * 2**20
FLUSHERS = 8
CHUNK_BYTES = 2**20
HOOK = Path(__file__).with_name("codehook.py")
_LARGEST_SHOWN = 3


class NotCopied(Exception):
    """Why there is no copy, and what to do about it."""


class Copied(Struct, frozen=True):
    """`told`: what a person should know of what isn't held by the copy."""

    path: Path
    files: int
    mib: float
    told: tuple[str, ...] = ()


class _Making(Struct):
    tree: Tree
    image: Path
    never: str
    until_s: float
    files: dict[str, list[Any]] = field(default_factory=dict)
    seen: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    leading_out: list[str] = field(default_factory=list)
    crowded: list[str] = field(default_factory=list)


def make(tree: Tree, to: Path, *, never: str, commit: Callable[[], str]) -> Copied:
    """Copies the tree to `to`; one of that name is replaced. `never`: a folder that is not linked to (the state
    directory); `commit` tells what is checked out now. Raises NotCopied; what was begun is then gone."""
    size = size_of(tree)
    aside = to.with_name(f".{to.name}.{os.getpid()}.tmp")
    try:
        make_private_dir(to.parent)
        _sweep(to.parent)
        _must_have_room(to.parent, size)
        for folder in (aside, aside / "tree", aside / "python"):
            folder.mkdir(mode=0o700)
        made = _Making(tree, aside / "tree", never, time.monotonic() + WITHIN_S)
        _fill(made, commit)
        _link(made)
        _finish(made, aside, to)
    except OSError as error:
        remove(aside)
        why = f"the code cannot be copied to {to.parent}: {error}"
        raise NotCopied(f"{why}; make room there, or set SUPERVISE_HOME") from error
    except NotCopied:
        remove(aside)
        raise
    mib = sum(one[0] for one in made.files.values()) / 2**20
    return Copied(to, len(made.files), mib, tuple(_told(made)))


def size_of(tree: Tree) -> int:
    """Bytes of all that would be copied. Raises NotCopied where it is too much."""
    sizes = {}
    for name in tree.files:
        with suppress(OSError):  # it went away: so it is not copied
            sizes[name] = os.lstat(tree.top / name).st_size
    total = sum(sizes.values())
    if len(sizes) <= FILES_MAX and total <= BYTES_MAX:
        return total
    largest = sorted(sizes, key=lambda name: -sizes[name])[:_LARGEST_SHOWN]
    shown = ", ".join(f"{name} ({sizes[name] / 2**20:.1f} MiB)" for name in largest)
    raise NotCopied(
        f"the code of {tree.top} is {len(sizes)} files of {total / 2**20:.0f} MiB, more than {FILES_MAX} files or "
        f"{BYTES_MAX // 2**20} MiB; the largest: {shown}. Name what is data under `data`, or take it out of git, "
        "or leave `code.snapshot` out and write on_change: halt"
    )


def _must_have_room(folder: Path, size: int) -> None:
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if free < size + SPARE_BYTES:
        raise NotCopied(
            f"{free / 2**20:.0f} MiB are free at {folder}, and the copy of the code takes {size / 2**20:.0f} MiB; make "
            "room there, or set SUPERVISE_HOME"
        )


# ── the files ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _fill(made: _Making, commit: Callable[[], str]) -> None:
    """Every file as it was at one time: what has changed meanwhile is copied again."""
    again: Iterable[str] = made.tree.files
    for _ in range(ROUNDS):
        for name in again:
            _copy(made, name)
        again = [name for name in made.tree.files if made.seen.get(name) != _stamp(made.tree.top / name)]
        if not again and (not made.tree.commit or commit() == made.tree.commit):
            return
    what = f"such as {next(iter(again))}" if again else "another commit was checked out"
    raise NotCopied(f"{made.tree.top} changes while it is copied, {what}: wait until it rests, then `up` again")


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _copy(made: _Making, name: str) -> None:
    if time.monotonic() > made.until_s:
        raise NotCopied(f"copying {made.tree.top} took longer than {WITHIN_S:g} s; is its disk well?")
    source, target = made.tree.top / name, made.image / name
    target.unlink(missing_ok=True)
    made.files.pop(name, None)
    made.seen.pop(name, None)
    stamp = _stamp(source)
    if stamp is None:
        return
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = os.lstat(source).st_mode
    if stat.S_ISLNK(mode):
        target.symlink_to(_leads(made, name))
    elif stat.S_ISREG(mode):
        try:
            made.files[name] = _copy_file(source, target)
        except FileNotFoundError:  # replaced just now: the next round sees to it
            return
    made.seen[name] = stamp


def _copy_file(source: Path, target: Path) -> list[Any]:
    """Size, time, mode and hash of what was copied."""
    digest = hashlib.sha256()
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file, open(target, "xb", opener=_private) as out:
        found = os.fstat(fd)
        size = 0
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            if size > BYTES_MAX:
                raise NotCopied(f"{source} grows while it is copied")
            out.write(chunk)
    mode = 0o700 if found.st_mode & 0o100 else 0o600
    target.chmod(mode)
    os.utime(target, ns=(found.st_mtime_ns, found.st_mtime_ns))
    return [size, found.st_mtime_ns, mode, digest.hexdigest()]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _leads(made: _Making, name: str) -> str:
    """Where the link in the copy leads: to the image of what it named, or out of the tree, to the same place."""
    source = str(made.tree.top / name)
    text = os.readlink(source)
    meant = os.path.normpath(os.path.join(os.path.dirname(source), text))
    top = str(made.tree.top)
    if meant == top or meant.startswith(f"{top}/"):
        return os.path.relpath(f"/{meant[len(top) :]}", f"/{os.path.dirname(name)}")
    made.leading_out.append(f"{name} -> {meant}")
    return meant


# ── the links ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _link(made: _Making) -> None:
    """All that lies beside the code is reached through the copy where it lies."""
    folders = {"": None} | {above: None for name in made.seen for above in _folders_above(name)}
    for folder in folders:
        real = f"{made.tree.top}/{folder}".rstrip("/")
        count = 0
        with suppress(OSError), os.scandir(real) as entries:
            for entry in entries:
                target = f"{made.image}/{folder}/{entry.name}"
                if (
                    entry.name in SKIPPED
                    or os.path.lexists(target)
                    or f"{made.never}/".startswith(f"{real}/{entry.name}/")
                ):
                    continue
                count += 1
                if count > LINKS_PER_FOLDER_MAX:
                    made.crowded.append(folder or ".")
                    break
                Path(target).symlink_to(f"{real}/{entry.name}")


def _folders_above(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def _told(made: _Making) -> Iterator[str]:
    if made.leading_out:
        yield f"links that lead out of {made.tree.top} are not held by the copy: {_some(made.leading_out)}"
    if made.tree.large:
        yield f"large files stay where they are and are not held by the copy: {_some(made.tree.large)}"
    for folder in made.crowded:
        yield f"{folder} holds too many files that are no code: not all of them are reached through the copy"


def _some(names: Iterable[str]) -> str:
    found = list(names)
    more = f" and {len(found) - _LARGEST_SHOWN} more" if len(found) > _LARGEST_SHOWN else ""
    return ", ".join(found[:_LARGEST_SHOWN]) + more


# ── whole, or not there ──────────────────────────────────────────────────────────────────────────────────────────────


def _finish(made: _Making, aside: Path, to: Path) -> None:
    tree = made.tree
    dirty = {name: made.files[name][3][:16] if name in made.files else "deleted" for name in tree.dirty}
    told = {"schema": SCHEMA, "top": str(tree.top), "commit": tree.commit, "dirty": dirty, "files": made.files}
    write_atomic(aside / "manifest.json", to_json(told), sync=False)
    write_atomic(aside / "python" / "sitecustomize.py", HOOK.read_bytes(), sync=False)
    where = b"\0".join(map(os.fsencode, (tree.top, to / "tree")))
    write_atomic(aside / "python" / "where", where, sync=False)
    with ThreadPoolExecutor(FLUSHERS) as pool:  # side by side, so that the disk takes them together
        list(pool.map(_flush, (Path(folder, name) for folder, _, names in os.walk(aside) for name in names)))
    for folder, _, _ in os.walk(aside, topdown=False):
        fsync_dir(Path(folder))
    remove(to)
    os.rename(aside, to)
    fsync_dir(to.parent)


def _flush(path: Path) -> None:
    if path.is_symlink():
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sweep(folder: Path) -> None:
    """What was begun and never finished; its maker held the run's lock and is gone."""
    for one in folder.glob(".*.tmp"):
        remove(one)
