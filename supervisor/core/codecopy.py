"""A run that is launched from a copy of its code: what of its spec names the copy then. Nothing is copied here.

Rule 1: what the job starts and what it is configured by lies in the copy; where it stands and what it writes does not:
the working directory, data, checkpoints, outputs and logs stay where the spec says.
Rule 2: only a word that is the path of a copied script or config file is changed (also behind `=` or `@`). A bare word
without a suffix is no path: it may be a subcommand or a program in PATH.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from supervisor.core.given import CodeCopy
from supervisor.core.spec import Knob, RunSpec, Scalar, Value

FOLDER_FLAGS = ("--config-dir", "--config_dir", "-cd")
"""What stands behind them is only read, from the working directory on (hydra). Another folder may be written into."""

WORKDIR = "${{ workdir }}"

SUFFIXES = (".py", ".sh", ".bash", ".yaml", ".yml", ".toml", ".json", ".ini", ".cfg", ".conf", ".gin")


def from_copy(spec: RunSpec, code: CodeCopy | None) -> RunSpec:
    """The spec of a launch from the copy; the spec itself where there is none."""
    if code is None:
        return spec
    moves = _Moves(spec.workdir, code)
    how = {name: replace(one, file=moves.path(one.file)) for name, one in spec.params.how.items()}
    params = replace(
        spec.params,
        protected={name: _value(value, moves) for name, value in spec.params.protected.items()},
        knobs=tuple(knob if knob.venv else _knob(knob, moves) for knob in spec.params.knobs),
        how=how,
    )
    rehearsal, hooks = spec.rehearsal, spec.hooks
    if rehearsal is not None:
        changed = {name: moves(text) for name, text in rehearsal.params.items()}
        rehearsal = replace(rehearsal, args=tuple(map(moves, rehearsal.args)), params=changed)
    if hooks is not None:
        before, after = moves.argv(hooks.before_launch), moves.argv(hooks.after_stop)
        hooks = replace(hooks, before_launch=before, after_stop=after)
    return replace(
        spec,
        command=moves.argv(spec.command),
        env={name: moves(text) for name, text in spec.env.items()},
        params=params,
        files=tuple(replace(file, from_=moves.path(file.from_) or file.from_) for file in spec.files),
        rehearsal=rehearsal,
        hooks=hooks,
    )


def launch_env(code: CodeCopy | None, environ: Mapping[str, str]) -> dict[str, str]:
    """What a launch from the copy has in its environment besides."""
    if code is None:
        return {}
    before = environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": f"{code.hook}:{before}" if before else code.hook}


def named_on(code: CodeCopy, argv: Sequence[str], cwd: str) -> Iterator[str]:
    """Scripts and configs of the working tree on the command line of a process that runs in `cwd`."""
    for word in argv:
        for _, path in _candidates(word, cwd):
            if path.endswith(SUFFIXES) and path.startswith(f"{code.top}/") and not path.startswith(f"{code.path}/"):
                yield path


def named_paths(spec: RunSpec) -> tuple[str, ...]:
    """Every absolute path that the spec may name code by: of scripts, configs, and of much that is none."""
    rehearsal, hooks = spec.rehearsal, spec.hooks
    texts = [*spec.command, *spec.env.values()]
    if rehearsal is not None:
        texts += [*rehearsal.args, *rehearsal.params.values()]
    if hooks is not None:
        texts += [*hooks.before_launch, *hooks.after_stop]
    texts += [text for value in spec.params.protected.values() for text in _texts(value)]
    texts += [
        value.text for knob in spec.params.knobs if not knob.venv for rung in knob.rungs for value in rung.values()
    ]
    found = [path for text in texts for _, path in _candidates(text, spec.workdir)]
    return tuple(dict.fromkeys((*found, *always_named(spec))))


def always_named(spec: RunSpec) -> tuple[str, ...]:
    """Files that are copied whatever they look like: those of `files`, of `file:key`, and of `code.protect`."""
    files = [file.from_ for file in spec.files]
    files += [how.file for how in spec.params.how.values() if how.file is not None and how.file.startswith("/")]
    return tuple(dict.fromkeys((*files, *(spec.code.paths if spec.code is not None else ()))))


def written_paths(spec: RunSpec) -> tuple[str, ...]:
    """Where the run writes, as far as the spec says: folders and files, absolute."""
    progress, found = spec.health.progress, [spec.output.dir, spec.output.units, *spec.logs]
    if spec.resume is not None:
        found += [spec.resume.from_, spec.resume.start]
    if progress is not None:
        found += [progress.files, progress.heartbeat, progress.jsonl.get("file"), *progress.in_]
    if spec.done is not None:
        found.append(spec.done.file)
    if spec.tracking is not None:
        found.append(spec.tracking.tensorboard)
    return tuple(dict.fromkeys(_fixed(path) for path in found if path and path.startswith("/")))


def _fixed(path: str) -> str:
    """The part of a glob before its first wildcard or substitution: a whole folder where it has one."""
    cut = min((n for n in map(path.find, ("*", "?", "[", "${{")) if n >= 0), default=len(path))
    return path if cut == len(path) else path[:cut].rpartition("/")[0] or "/"


def _candidates(text: str, workdir: str) -> Iterator[tuple[str, str]]:
    """What a word may name, each with what stands before it: the word, what is behind its first `=`, or behind `@`."""
    head, equals, tail = text.partition("=")
    parts = [("", text), *([(head + equals, tail)] if equals else []), *([("@", text[1:])] if text[:1] == "@" else [])]
    for before, word in parts:
        if word.startswith(WORKDIR + "/"):
            word = workdir + word[len(WORKDIR) :]
        if "${{" not in word and ("/" in word or "." in word):
            yield before, posixpath.normpath(posixpath.join(workdir, word))


class _Moves:
    """Puts the path in the copy where a text names a file of the tree."""

    def __init__(self, workdir: str, code: CodeCopy) -> None:
        self._workdir = workdir
        self._code = code

    def __call__(self, text: str) -> str:
        return self._moved(text, self._code.named)

    def _moved(self, text: str, to: Mapping[str, str]) -> str:
        for before, path in _candidates(text, self._workdir):
            if path in to:
                return before + to[path]
        return text

    def argv(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Each word; folders too, behind the flags that only read from one."""
        moved: list[str] = []
        before = ""
        for n, word in enumerate(words):
            flag, equals, folder = word.partition("=")
            if before in FOLDER_FLAGS:
                moved.append(self._folder(word))
            elif equals and flag in FOLDER_FLAGS:
                moved.append(f"{flag}={self._folder(folder)}")
            elif n == 0 and "/" not in word:  # looked up in PATH
                moved.append(word)
            else:
                moved.append(self(word))
            before = word
        return tuple(moved)

    def _folder(self, word: str) -> str:
        if word.startswith(WORKDIR):
            word = self._workdir + word[len(WORKDIR) :]
        path = posixpath.normpath(posixpath.join(self._workdir, word))
        return self._code.folders.get(path, word)

    def path(self, path: str | None) -> str | None:
        """An absolute path of a file."""
        return path if path is None else self._code.named.get(path, path)


def _texts(value: Value) -> tuple[str, ...]:
    return (value.text,) if isinstance(value, Scalar) else tuple(one.text for one in value)


def _value(value: Value, moves: Callable[[str], str]) -> Value:
    if isinstance(value, Scalar):
        return replace(value, text=moves(value.text))
    return tuple(replace(one, text=moves(one.text)) for one in value)


def _knob(knob: Knob, moves: Callable[[str], str]) -> Knob:
    rungs = tuple({name: replace(one, text=moves(one.text)) for name, one in rung.items()} for rung in knob.rungs)
    return replace(knob, rungs=rungs)
