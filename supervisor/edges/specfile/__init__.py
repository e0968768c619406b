"""The run spec as a file: read, checked by every rule of the file, resolved. Nothing is decided or launched here.

    load(path, environ) -> RunSpec      read(path, environ) -> SpecFile (the spec, its source, the job's environment)

Imported only where a spec is read: the supervisor takes the resolved spec from `run.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from supervisor.core.errors import Exit, Refusal, SpecError
from supervisor.core.render import SECRET
from supervisor.core.spec import RunSpec
from supervisor.edges.specfile import around, given, installs, secrets, texts
from supervisor.edges.specfile.resolve import Paths, resolved
from supervisor.edges.specfile.sets import apply_set
from supervisor.edges.specfile.tree import BYTES_MAX, Source, parse
from supervisor.edges.specfile.validate import Book, validated

if TYPE_CHECKING:
    from supervisor.edges.specfile.explain import Row

__all__ = ["SpecFile", "apply_set", "json_schema", "load", "read"]


@dataclass(frozen=True)
class SpecFile:
    """A valid spec and what only its reader may know: `set_env` holds real values, secrets among them."""

    spec: RunSpec
    source: Source = field(repr=False)  # its text may hold a secret
    set_env: dict[str, str] = field(repr=False)
    unread: str = ""  # why `env_file` could not be read

    def job_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment of the job: `environ` less tmux's and ours, then env_file, then env, then the venv.

        A `${{ name }}` in it stays as it is: `Rendered.env` is laid over it at each launch. Raises Refusal (6) where
        the env_file could not be read: a job without it is not the job that was asked for.
        """
        if self.unread:
            raise Refusal(Exit.PREFLIGHT, f"env_file {self.unread}. Mend it or `env_file` in {self.source.file}.")
        return secrets.with_venv(secrets.inherited(environ) | self.set_env, self.spec.venv)

    def secret_values(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Every value that must never be shown, from the spec and from `environ`."""
        known = dict(environ) | self.set_env
        names = secrets.secret_names(known, self.spec.secrets, secrets.param_texts(self.spec.params))
        return tuple(sorted({known[name] for name in names}))

    def explain(self) -> tuple[Row, ...]:
        """Every value of the resolved spec and whence it comes."""
        from supervisor.edges.specfile.explain import explain

        return explain(self.spec, self.source)

    def activate_scripts(self) -> tuple[str, ...]:
        """The activate.d scripts of a conda prefix; they are not run, what they set must stand in `env`."""
        return secrets.activate_scripts(self.spec.venv)

    def redacted_source(self, environ: Mapping[str, str]) -> str:
        """The file's text without secret values."""
        return secrets.redacted(self.source.text, self.secret_values(environ))


def load(path: Path, environ: Mapping[str, str]) -> RunSpec:
    """The resolved spec. Raises SpecError with every mistake of the file, Refusal (5) if it cannot be read."""
    return read(path, environ).spec


def read(path: Path, environ: Mapping[str, str]) -> SpecFile:
    """`load`, with the source and the environment of the job."""
    book = Book(parse(str(path), _bytes(path)))
    data = validated(book)
    paths = Paths(path, data.get("workdir"), environ.get("HOME"))
    set_env, named, unread = _set_env(book, data, paths)
    spec = resolved(book, data, paths, set_env, ())
    if isinstance(book.source.root, dict):
        around.warn_of_unset(book, spec.notify, environ)
        texts.check(book, spec)
        given.check(book, spec)
        installs.check(book, spec)
    if book.mistakes:
        raise SpecError(book.in_order())
    hidden = secrets.secret_names(set_env, named, secrets.param_texts(spec.params))
    shown = {name: SECRET if name in hidden else value for name, value in set_env.items()}
    spec = replace(
        spec,
        env=shown,
        secrets=tuple(dict.fromkeys([*named, *hidden])),
        warnings=tuple(secrets.redacted(warning, (set_env[name] for name in hidden)) for warning in book.warnings),
    )
    return SpecFile(spec, book.source, set_env, unread)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a spec (draft 2020-12)."""
    from supervisor.edges.specfile.keys import SPEC
    from supervisor.edges.specfile.meanings import described

    shapes = described(SPEC.json)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "supervise run spec", **shapes}


def _bytes(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(BYTES_MAX + 1)
    except OSError as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise Refusal(
            Exit.SPEC_INVALID, f"{path}: {why}. Give the path of a run spec; `supervise init` writes one."
        ) from None


def _set_env(book: Book, data: Mapping[str, Any], paths: Paths) -> tuple[dict[str, str], tuple[str, ...], str]:
    """What the spec sets, env_file first; the names it calls secret (all of env_file's); why that was not read."""
    from_file: dict[str, str] = {}
    unread = ""
    if "env_file" in data:
        where = paths(data["env_file"])
        try:
            from_file, mistakes = secrets.read_env_file(where)
            book.mistakes.extend(mistakes)
        except OSError as error:
            unread = f"{where}: {error.strerror}"
            book.warn(("env_file",), f"{unread}; `up` will refuse to launch without it")
    named = tuple(name for name in data.get("secrets", ()) if isinstance(name, str))
    return from_file | data.get("env", {}), tuple(dict.fromkeys([*named, *from_file])), unread
