"""The job's environment and what of it is secret: names, values, and texts with the values taken out.

A secret is a name in `secrets`, anything in `env_file`, or a variable with TOKEN, KEY, SECRET, PASSWORD or CREDENTIAL
as a whole `_`-separated word. Its value counts from six characters on, and never if a param has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from supervisor.core.errors import Mistake
from supervisor.core.render import SECRET
from supervisor.core.scalars import scalars
from supervisor.core.spec import Params

LENGTH_MIN = 6
"""Shorter values are words of everyday text, and taking them out of a log would hide it."""

_WORDS = frozenset({"TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL"})
_BYTES_MAX = 1 << 20
_OWN = ("TMUX", "SUPERVISE_")


def is_secret_name(name: str) -> bool:
    """True for HF_TOKEN and WANDB_API_KEY; not for TOKENIZERS_PARALLELISM."""
    return not _WORDS.isdisjoint(name.upper().split("_"))


def secret_names(environ: Mapping[str, str], named: Iterable[str], params: frozenset[str]) -> tuple[str, ...]:
    """The names of `environ` whose values must never be shown. A value with a `${{` is a template, not a secret."""
    wanted = frozenset(named)
    return tuple(
        name
        for name, value in environ.items()
        if (name in wanted or is_secret_name(name))
        and len(value) >= LENGTH_MIN
        and value not in params
        and "${{" not in value
    )


def param_texts(params: Params) -> frozenset[str]:
    """Every value of every param, as text: none of them is a secret."""
    values = [item.text for value in params.protected.values() for item in scalars(value)]
    return frozenset(values + [one.text for knob in params.knobs for rung in knob.rungs for one in rung.values()])


def redacted(text: str, values: Iterable[str]) -> str:
    """The text with every secret value replaced, longest first."""
    for value in sorted(set(values), key=len, reverse=True):
        text = text.replace(value, SECRET)
    return text


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of `up` less what is tmux's and what is ours."""
    return {name: value for name, value in environ.items() if not name.startswith(_OWN)}


def with_venv(environ: Mapping[str, str], venv: str | None) -> dict[str, str]:
    """The environment with the venv first: PATH, VIRTUAL_ENV, no PYTHONHOME; for conda's, CONDA_PREFIX instead."""
    if venv is None:
        return dict(environ)
    env = {name: value for name, value in environ.items() if name != "PYTHONHOME"}
    env["PATH"] = f"{venv}/bin:{env['PATH']}" if env.get("PATH") else f"{venv}/bin"
    if is_conda(venv):
        env["CONDA_PREFIX"] = venv
        env["CONDA_DEFAULT_ENV"] = venv.rstrip("/").rpartition("/")[2]
        env.pop("VIRTUAL_ENV", None)
    else:
        env["VIRTUAL_ENV"] = venv
    return env


def is_conda(venv: str) -> bool:
    """True for a conda prefix: it has a `conda-meta`."""
    return Path(venv, "conda-meta").is_dir()


def activate_scripts(venv: str | None) -> tuple[str, ...]:
    """What a conda prefix would have sourced on activation, in conda's order."""
    if venv is None or not is_conda(venv):
        return ()
    folder = Path(venv, "etc", "conda", "activate.d")
    return tuple(sorted(str(path) for path in folder.glob("*.sh")))


def read_env_file(path: str) -> tuple[dict[str, str], tuple[Mistake, ...]]:
    """`NAME=value` lines; `export`, comments and quotes as a shell's. Raises OSError where it cannot be read."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read(_BYTES_MAX)
    found: dict[str, str] = {}
    mistakes: list[Mistake] = []
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.strip().removeprefix("export ").strip()
        if not bare or bare.startswith("#"):
            continue
        name, equals, value = bare.partition("=")
        name = name.strip()
        if not equals or not name.replace("_", "a").isalnum() or name[0].isdigit():
            mistakes.append(Mistake(path, number, 1, "", "is no NAME=value"))
            continue
        found[name] = _unquoted(value.strip())
    return found, tuple(mistakes)


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value.split(" #", 1)[0].rstrip()
