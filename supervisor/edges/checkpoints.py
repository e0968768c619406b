"""Checkpoints on the disk: which matches of `resume.from` are complete, and why the others are not.

Which one is taken is decided in `core/lineage.py`. Nothing is ever written into a checkpoint, no pointer file is
believed, and what vanishes while it is read (a trainer pruning) is a candidate less, not an error.
"""

# Paths are text here: globs, and thousands of names in one walk.
# ruff: noqa: PTH110, PTH113, PTH114, PTH116, PTH118, PTH119, PTH120, PTH122, PTH207

from __future__ import annotations

import glob
import os
import re
import stat
import time
from collections.abc import Callable, Container, Iterator
from itertools import islice
from typing import Union

from msgspec import Struct

from supervisor.core.evidence import Checkpoint, Incomplete
from supervisor.core.lineage import NO_STEP
from supervisor.core.spec import Resume
from supervisor.edges.bounded import within
from supervisor.edges.checkpoint_folder import Folder

MATCHES_CAP = 10_000
"""Read from the highest step down; a run that keeps more than this never needs the rest."""

FILES_CAP = 200_000
"""A sharded checkpoint of a large model has thousands of files; one with more than this is not read through."""

DEPTH_CAP = 8
UNFINISHED_ENDS = (".tmp", ".part", ".partial", ".incomplete", "-unfinished", "~")
POINTERS = ("latest", "latest_checkpoint", "latest_iteration", "latest_checkpointed_iteration.txt", "checkpoint")
POINTER_CAP_BYTES = 4096
STEP = re.compile(r"(?:step|iter|global_step|checkpoint)[-_=]?(\d+)")

Found = Union[Checkpoint, Incomplete]  # noqa: UP007


class Memory:
    """What was judged before, by what the walk saw: a checkpoint that did not change is not opened again.

    For the scans while a job runs only; what is launched from is read anew (`validate`).
    """

    def __init__(self) -> None:
        self._judged: dict[str, tuple[tuple[int, ...], str | None]] = {}

    def fault(self, path: str, seen: _Look, judge: Callable[[], str | None]) -> str | None:
        """The fault found before in what looks the same, else what `judge` says now."""
        total = sum(seen.files.values())
        looks = (seen.inode, seen.mtime_ns, total, len(seen.files), len(seen.folders))
        known = self._judged.get(path)
        if known is None or known[0] != looks:
            known = (looks, judge())
            self._judged[path] = known
        return known[1]

    def only(self, paths: Container[str]) -> None:
        """What was judged of others is dropped: they are gone."""
        for path in list(self._judged):
            if path not in paths:
                self._judged.pop(path, None)


def scan(resume: Resume, deadline_s: float = 10.0, memory: Memory | None = None) -> tuple[Found, ...]:
    """Every match of `resume.from`, highest step first.

    Raises OSError where the folder of the matches cannot be listed: that is not the same as no match; TimeoutError
    where not even that came back. Those that were not read in time are Incomplete and say so.
    """
    ends_at = time.monotonic() + deadline_s
    where = f"looking for {resume.from_}"
    paths = within(deadline_s, lambda: _matches(resume), where)
    done: list[Found] = []

    def read_all() -> None:
        for _step, path in paths:
            done.append(_read(path, resume, memory or Memory(), among_matches=True))

    try:
        within(max(0.0, ends_at - time.monotonic()), read_all, where)
    except TimeoutError:
        read = tuple(done)
        unread = paths[len(read) :]
        return (*read, *(Incomplete(path, step, f"not read within {deadline_s:g} s") for step, path in unread))
    if memory is not None:
        memory.only({path for _step, path in paths})
    return tuple(done)


def describe(path: str, resume: Resume, deadline_s: float = 10.0) -> Found:
    """One path that a person named (`resume.start`, --from), whether it matches `resume.from` or not.

    A complete one without a number in its name has the step `NO_STEP`.
    """
    try:
        return within(deadline_s, lambda: _read(path, resume, Memory(), among_matches=False), f"reading {path}")
    except TimeoutError as error:
        return Incomplete(path, None, str(error))


def validate(checkpoint: Checkpoint, resume: Resume, deadline_s: float = 10.0) -> Found:
    """The same path looked at again, right before a launch. Compare `inode` and `mtime_ns` for "unchanged"."""
    return describe(checkpoint.path, resume, deadline_s)


def pointed(resume: Resume, deadline_s: float = 10.0) -> str | None:
    """Where a pointer file beside the checkpoints leads, as a path; None where there is none, or it names nothing.

    DeepSpeed's `latest` names a folder, Megatron's `latest_checkpointed_iteration.txt` a number (`iter_0000500`).
    """
    try:
        return within(deadline_s, lambda: _pointed(_base(resume.from_)), "reading the pointer file")
    except (OSError, TimeoutError):
        return None


def _pointed(base: str) -> str | None:
    for name in POINTERS:
        path = os.path.join(base, name)
        if not os.path.isfile(path):
            continue
        with open(path, "rb") as file:
            said = file.read(POINTER_CAP_BYTES + 1).decode(errors="replace").strip()
        if not said or len(said) > POINTER_CAP_BYTES or "\n" in said:
            continue
        target = f"iter_{int(said):07d}" if said.isdigit() and name == POINTERS[3] else said
        return os.path.normpath(os.path.join(base, target))
    return None


def _matches(resume: Resume) -> list[tuple[int | None, str]]:
    base = _base(resume.from_)
    try:
        with os.scandir(base) as entries:
            next(entries, None)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = islice(glob.iglob(resume.from_, recursive=True), FILES_CAP)
    steps = [(_step(path, resume), path) for path in map(os.path.normpath, found)]
    steps.sort(key=lambda one: (NO_STEP if one[0] is None else one[0], one[1]), reverse=True)
    return steps[:MATCHES_CAP]


def _base(pattern: str) -> str:
    """The folder above the first wildcard of a pattern."""
    pattern = os.path.normpath(pattern)
    if not glob.has_magic(pattern):
        return os.path.dirname(pattern)
    while glob.has_magic(pattern):
        pattern = os.path.dirname(pattern)
    return pattern


def _below_base(path: str, resume: Resume) -> list[str]:
    """The parts of the path that the wildcards stand for; of a path from elsewhere its name."""
    base = _base(resume.from_).rstrip("/") + "/"
    return path[len(base) :].split("/") if path.startswith(base) else [path.rsplit("/", 1)[-1]]


def _step(path: str, resume: Resume) -> int | None:
    """The step in a path; None where it cannot be told. What a link leads to is asked where its name says nothing."""
    if resume.step == "none":
        return NO_STEP
    step = _step_in(_below_base(path, resume), resume)
    if step is None and os.path.islink(path):
        step = _step_in([os.path.basename(os.path.realpath(path))], resume)
    return step


def _step_in(parts: list[str], resume: Resume) -> int | None:
    if resume.step is not None:
        import re2  # linear time whatever the user's pattern; only needed where one is given

        match = re2.search(resume.step, parts[-1]) or re2.search(resume.step, "/".join(parts))
        return int(match.group(1)) if match and match.group(1) else None
    for part in reversed(parts):
        match = STEP.search(part)
        if match:
            return int(match[1])
    for text in (parts[-1], "/".join(parts)):
        stem, suffix = os.path.splitext(text)
        numbers = re.findall(r"\d+", stem if re.search("[a-zA-Z]", suffix) else text)
        if len(numbers) == 1:
            return int(numbers[0])
    return None


def _read(path: str, resume: Resume, memory: Memory, *, among_matches: bool) -> Found:
    step = _step(path, resume)
    try:
        fault = _name_fault(path, resume)
        if fault is None and step is None and among_matches:
            fault = "no step in its name: say where it stands with resume.step"
        if fault is not None:
            return Incomplete(path, step, fault)
        seen = _look(path)
        fault = memory.fault(path, seen, lambda: _fault(path, seen, step, resume))
    except FileNotFoundError as error:
        dangling = os.path.islink(path) and not os.path.exists(path)
        why = f"leads to {os.path.realpath(path)}, which is not there" if dangling else f"gone: {error.filename}"
        return Incomplete(path, step, why)
    except OSError as error:
        return Incomplete(path, step, f"cannot be read: {error}")
    if fault is not None:
        return Incomplete(path, step, fault)
    real = os.path.realpath(path)
    return Checkpoint(path, NO_STEP if step is None else step, seen.inode, seen.mtime_ns, real)


def _name_fault(path: str, resume: Resume) -> str | None:
    for part in _below_base(path, resume):
        if part.startswith(("tmp", ".")) or part.endswith(UNFINISHED_ENDS):
            return f"{part} is the name of an unfinished one"
    stem, suffix = os.path.splitext(path)
    for beside in {path, stem} if suffix in (".ckpt", ".nemo") else {path}:
        if os.path.lexists(f"{beside}-unfinished"):
            return f"{beside}-unfinished stands beside it"
    return None


class _Look(Struct):
    """What a walk found: sizes by path relative to the checkpoint (`""`: a checkpoint that is a file)."""

    inode: int
    mtime_ns: int
    is_folder: bool
    files: dict[str, int]
    folders: set[str]


def _look(path: str) -> _Look:
    """Walks the checkpoint, links followed. Raises OSError."""
    top = os.stat(path)
    seen = _Look(top.st_ino, top.st_mtime_ns, stat.S_ISDIR(top.st_mode), {}, set())
    if not seen.is_folder:
        seen.files[""] = top.st_size
        return seen
    for name, status in _walk(path, "", 0):
        seen.mtime_ns = max(seen.mtime_ns, status.st_mtime_ns)
        if stat.S_ISDIR(status.st_mode):
            seen.folders.add(name)
        else:
            seen.files[name] = status.st_size
        if len(seen.files) > FILES_CAP:
            raise OSError(f"{path} holds more than {FILES_CAP} files")
    return seen


def _walk(top: str, below: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    if depth > DEPTH_CAP:
        raise OSError(f"{top} is more than {DEPTH_CAP} folders deep")
    with os.scandir(os.path.join(top, below)) as entries:
        for entry in entries:
            name = f"{below}/{entry.name}" if below else entry.name
            status = entry.stat()
            yield name, status
            if stat.S_ISDIR(status.st_mode):
                yield from _walk(top, name, depth + 1)


def _fault(path: str, seen: _Look, step: int | None, resume: Resume) -> str | None:
    if not seen.is_folder:
        return _lone_file_fault(path, seen.files[""], resume)
    if not seen.files:
        return "is an empty folder" if not seen.folders else "holds no file"
    for pattern in resume.complete:
        fault = _complete_fault(path, pattern)
        if fault:
            return fault
    for name, size in seen.files.items():
        fault = file_fault(os.path.join(path, name), size)
        if fault:
            return fault
    if not any(seen.files.values()):
        return "holds only empty files"
    for folder in _folders(path, seen, step, strict=not resume.complete):
        from supervisor.edges.checkpoint_layouts import layout_fault

        fault = layout_fault(folder)
        if fault:
            return fault
    return None


def file_fault(path: str, size: int) -> str | None:
    """As in `checkpoint_formats`, which brings zipfile, tarfile and pickle: only where there is one to be opened."""
    from supervisor.edges import checkpoint_formats

    return checkpoint_formats.file_fault(path, size)


def _lone_file_fault(path: str, size: int, resume: Resume) -> str | None:
    if resume.complete:
        return "is a file, and resume.complete asks for files inside it"
    if size == 0:
        return "is empty"
    if os.path.basename(path) in POINTERS and size <= POINTER_CAP_BYTES:
        return "is a pointer to a checkpoint: a hint, not one"
    return file_fault(path, size)


def _complete_fault(path: str, pattern: str) -> str | None:
    """`resume.complete`: at least one match that is a file, and none of its matches empty."""
    files = 0
    for match in islice(glob.iglob(os.path.join(glob.escape(path), pattern), recursive=True), FILES_CAP):
        status = os.stat(match)
        if stat.S_ISREG(status.st_mode):
            files += 1
            if status.st_size == 0:
                return f"{os.path.relpath(match, path)} is empty"
    return None if files else f"nothing in it matches {pattern} of resume.complete"


def _folders(path: str, seen: _Look, step: int | None, *, strict: bool) -> Iterator[Folder]:
    """The checkpoint's folder and each one below it, as the layouts want them."""
    files: dict[str, dict[str, int]] = {"": {}, **{name: {} for name in seen.folders}}
    folders: dict[str, set[str]] = {name: set() for name in files}
    for name, size in seen.files.items():
        below, _, base = name.rpartition("/")
        files[below][base] = size
    for name in seen.folders:
        below, _, base = name.rpartition("/")
        folders[below].add(base)
    for name in sorted(files):
        full = os.path.join(path, name) if name else path
        known = None if step in (None, NO_STEP) else step
        yield Folder(full, files[name], frozenset(folders[name]), known, strict, top=not name)
