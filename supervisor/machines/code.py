"""The copy of the code that an episode runs from: made before its first launch, looked at before each.

Rule 1: it is made once for an episode. A supervisor that was killed in the making makes it anew; nothing ran from it.
Rule 2: what the copy does not hold is said before anything is launched, and again where a live process shows it.
"""

# Paths are text here: they are compared with words of a command.
# ruff: noqa: PTH113, PTH118

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from supervisor.core.codecopy import FOLDER_FLAGS, always_named, from_copy, named_paths, written_paths
from supervisor.core.given import CodeCopy
from supervisor.core.spec import RunSpec, Stale
from supervisor.edges import codecopy, codekept, codetree
from supervisor.edges.paths import Home, RunDir

SCRIPT_MAX_BYTES = 256 * 1024
SHELLS = (".sh", ".bash", ".zsh")
SHOWN = 3
_OWN_FOLDER = re.compile(r"\$\{?0\b|BASH_SOURCE")
_CD = re.compile(r"(?:^|[;&|(]\s*|\s)(?:cd|pushd)\s")
_PYTHONPATH = re.compile(r"\bPYTHONPATH=(?P<to>\S*)")
_STARTS = re.compile(
    r"(?:^|[;&|]\s*|\b(?:exec|source|bash|sh|zsh)\s+|\.\s+)(?P<path>\.{0,2}/?[\w./-]+\.(?:sh|bash|zsh))\b"
)


class Taken(Struct, frozen=True):
    """The copy, or why there is none; and what to know."""

    code: CodeCopy | None = None
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def planned(spec: RunSpec, home: Home, environ: Mapping[str, str]) -> codetree.Tree:
    """What would be copied. Raises NotListed, OSError."""
    workdir = os.path.realpath(spec.workdir)
    apart = [_canonical(path) for path in (*written_paths(spec), *_not_code(spec))]
    inside = [path for path in apart if not f"{workdir}/".startswith(f"{path.rstrip('/')}/")]
    named = [_canonical(path) for path in always_named(spec)]
    return codetree.look(Path(workdir), named=named, apart=(*inside, os.path.realpath(home.root)), environ=environ)


def foreseen(home: Home, spec: RunSpec, environ: Mapping[str, str]) -> tuple[str, str]:
    """What would be copied now, in words; and why it would be refused, empty where it would not."""
    try:
        tree = planned(spec, home, environ)
        size = codecopy.size_of(tree)
    except (codetree.NotListed, codecopy.NotCopied, OSError) as error:
        return "", f"code.snapshot: {error}"
    at = f" at {tree.commit[:10]}, {len(tree.dirty)} dirty" if tree.commit else ", which is no git checkout"
    return f"{len(tree.files)} files, {size / 2**20:.1f} MiB, of {tree.top}{at}", ""


def take(home: Home, run: RunDir, spec: RunSpec, environ: Mapping[str, str], episode: int) -> Taken:
    """Makes the copy of this episode."""
    to = Path(os.path.realpath(run.path), "code", f"{episode:04d}")
    try:
        tree = planned(spec, home, environ)
        never = os.path.realpath(home.root)
        made = codecopy.make(tree, to, never=never, commit=lambda: codetree.head(tree.top, environ))
        told = codekept.manifest(to) or {}
    except (codetree.NotListed, codecopy.NotCopied, OSError, ValueError) as error:
        return Taken(problems=(f"code.snapshot: {error}",))
    try:
        pruned = codekept.prune(to.parent, to.name)
    except (OSError, ValueError) as error:
        pruned = (f"older copies of the code cannot be removed: {error}",)
    image = str(to / "tree")
    held = {os.path.join(str(tree.top), name): os.path.join(image, name) for name in told["files"]}
    named, folders, missed = _named(spec, tree, held, image)
    code = CodeCopy(
        path=image,
        top=str(tree.top),
        hook=str(to / "python"),
        named=named,
        folders=folders,
        files=made.files,
        mib=round(made.mib, 3),
        commit=tree.commit,
        dirty=len(tree.dirty),
    )
    problems, warnings = _scripts(spec, code)
    problems += _not_executable(spec, code)
    if not problems:
        warnings += [
            f"{path} {why}, if the code goes by its own file (`__file__`): it would write into the copy"
            for path, why in _unlinked(spec, code)
            if path != spec.output.dir or "is not there" in why
        ]
    return Taken(code, tuple(problems), (*made.told, *missed, *warnings, *pruned))


def _not_code(spec: RunSpec) -> Iterator[str]:
    yield from spec.data.paths if spec.data is not None else ()
    if spec.venv is not None:
        yield spec.venv
    yield from (value.text for knob in spec.params.knobs if knob.venv for rung in knob.rungs for value in rung.values())


def _canonical(path: str) -> str:
    """Without links in what stands before the last part."""
    folder, name = os.path.split(path.rstrip("/"))
    return os.path.join(os.path.realpath(folder), name)


def _named(
    spec: RunSpec, tree: codetree.Tree, held: Mapping[str, str], image: str
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Files and folders of the copy that the spec names, as it names them; and what it names that is not held."""
    always = frozenset(always_named(spec))
    above = {folder for path in held for folder in _above(path, str(tree.top))}
    read_from = {
        word.partition("=")[2] or after
        for word, after in _pairs(spec.command)
        if word.partition("=")[0] in FOLDER_FLAGS
    }
    named: dict[str, str] = {}
    folders: dict[str, str] = {}
    missed: list[str] = []
    for path in named_paths(spec):
        real = _canonical(path)
        if not real.startswith(f"{tree.top}/"):
            continue
        if real in held and (path in always or codetree.is_code(path)):
            named[path] = held[real]
        elif real in above:
            folders[path] = image + real[len(str(tree.top)) :]
            if not any(os.path.normpath(os.path.join(spec.workdir, one)) == path for one in read_from):
                missed.append(f"{path} is a folder: what the job reads there by that name is the working tree's")
        elif os.path.isfile(real) and real not in held and real.endswith(codetree.SUFFIXES):
            missed.append(f"{path} is named by the spec and not in the copy: git ignores it, or the run writes there")
    return named, folders, missed[: SHOWN * 2]


def _pairs(words: tuple[str, ...]) -> Iterable[tuple[str, str]]:
    return zip(words, (*words[1:], ""), strict=True)


def _above(path: str, top: str) -> Iterator[str]:
    while (path := path.rpartition("/")[0]) and path != top:
        yield path


# ── start scripts ────────────────────────────────────────────────────────────────────────────────────────────────────


def _scripts(spec: RunSpec, code: CodeCopy) -> tuple[list[str], list[str]]:
    """Shell scripts of the command: what they do that leads out of the copy, or into it where it should not."""
    problems: list[str] = []
    warnings: list[str] = []
    moved = from_copy(spec, code).command
    for word, copy in zip(spec.command, moved, strict=True):
        if word == copy or not copy.startswith(f"{code.path}/") or not copy.endswith(SHELLS):
            continue
        text = _script(copy)
        if _OWN_FOLDER.search(text) and _CD.search(text):
            new = _unlinked(spec, code)
            what = f"{word} goes to its own folder, which is that of the copy"
            problems += [
                f"code.snapshot: {what}, and the run writes to {path}, which {why}; or leave the `cd` out, it is "
                "started in workdir"
                for path, why in new
            ]
            if not new:
                warnings.append(
                    f"{what}: what it makes there by a new relative name stays in {code.path}; "
                    "leave the `cd` out, it is started in workdir"
                )
        else:
            started = sorted({one["path"] for one in _STARTS.finditer(text)} - {word})
            there = [one for one in started if os.path.isfile(os.path.join(spec.workdir, one))]
            if there:
                warnings.append(f"{word} starts {', '.join(there[:SHOWN])} by a relative name: the working tree's")
        if any("PYTHONPATH" not in one["to"] for one in _PYTHONPATH.finditer(text)):
            warnings.append(
                f"{word} sets PYTHONPATH anew, so the Python it starts reads the working tree: write "
                "PYTHONPATH=...:$PYTHONPATH"
            )
    return problems, warnings


def _script(path: str) -> str:
    with open(path, "rb") as file:
        text = file.read(SCRIPT_MAX_BYTES).decode("utf-8", "replace")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _unlinked(spec: RunSpec, code: CodeCopy) -> list[tuple[str, str]]:
    """Places of the run in the tree that would not be reached through the copy, each with what to do."""
    found = []
    for path in written_paths(spec):
        real = _canonical(path)
        if not real.startswith(f"{code.top}/"):
            continue
        image = code.path + real[len(code.top) :]
        if os.path.realpath(image).startswith(f"{code.path}/"):
            found.append((path, f"is not there yet: mkdir -p {path}"))
        elif path == spec.output.dir and spec.output.stale is not Stale.KEEP and os.path.islink(image):  # noqa: PTH114
            found.append((path, f"`output.stale: {spec.output.stale.value}` may take away: name a folder in it"))
    return found


def _not_executable(spec: RunSpec, code: CodeCopy) -> list[str]:
    program = from_copy(spec, code).command[0]
    if program.startswith(f"{code.path}/") and os.statvfs(code.path).f_flag & os.ST_NOEXEC:
        return [
            f"code.snapshot: {code.path} is on a file system where nothing may be executed: set SUPERVISE_HOME to "
            f"another, or start {spec.command[0]} by its interpreter (command: [bash, {spec.command[0]}, ...])"
        ]
    return []


# ── each launch ──────────────────────────────────────────────────────────────────────────────────────────────────────


def checked(spec: RunSpec, code: CodeCopy) -> Taken:
    """Before a launch: is the copy as it was made? A change is treated as `on_change` says; without a copy is none."""
    again = f"next: {spec.up_command} (a new `up` copies the code as it is then)"
    try:
        found = codekept.look(Path(code.path).parent)
    except OSError as error:
        return Taken(problems=(f"the copy of the code cannot be read: {error}\n  {again}",))
    if found.gone:
        return Taken(problems=(f"the copy of the code is gone: {found.gone}\n  {again}",))
    said: list[str] = []
    warnings: list[str] = []
    if found.changed:
        said.append(f"the copy of the code was changed: {_some(found.changed)} in {code.path}")
    if found.wrote:
        warnings.append(f"a job wrote into the copy of the code: {_some(found.wrote)} in {code.path}")
    strict = spec.code is not None and spec.code.strict
    problems = tuple(f"{one}\n  {again}" for one in said) if strict else ()
    return Taken(problems=problems, warnings=(*(() if strict else said), *warnings))


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
