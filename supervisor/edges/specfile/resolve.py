"""From valid sections to the resolved spec: defaults filled in, paths made absolute, GPUs counted out."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

from supervisor.core.scalars import typed
from supervisor.core.spec import (
    ConfigFile,
    Done,
    Health,
    Launch,
    Output,
    Params,
    Preflight,
    Progress,
    Resume,
    Role,
    RunSpec,
    Signature,
    Silent,
    Stale,
    Visible,
)
from supervisor.edges.specfile.around import notify_of, tracking_of
from supervisor.edges.specfile.given import code_of, data_of, hooks_of, rehearsal_of
from supervisor.edges.specfile.params import CONFIGS, params_of
from supervisor.edges.specfile.recovery import recovery_of
from supervisor.edges.specfile.shape import DROPPED
from supervisor.edges.specfile.tree import Path
from supervisor.edges.specfile.validate import Book


class Paths:
    """Makes the paths of a spec absolute: `workdir` starts in the spec's folder, all others in `workdir`."""

    def __init__(self, spec: FilePath, workdir: str | None, home: str | None) -> None:
        self._home = home
        self.workdir = self._from(str(spec.absolute().parent), workdir or ".")

    def __call__(self, path: str) -> str:
        return self._from(self.workdir, path)

    def _from(self, base: str, path: str) -> str:
        if path.startswith("~/") and self._home:
            path = self._home + path[1:]
        if path.startswith("${{"):  # it begins with a folder that only the launch knows
            return path
        return os.path.normpath(path if path.startswith("/") else f"{base}/{path}")


def resolved(
    book: Book, data: Mapping[str, Any], paths: Paths, env: Mapping[str, str], secrets: tuple[str, ...]
) -> RunSpec:
    """The spec, with whatever is wrong left at its default and written into the book."""
    files = _files(book, data, paths)
    copies = frozenset(file.name for file in files)
    pins = dict(data.get("pins", {}))
    params = params_of(book, data, lambda name: name if name in copies else paths(name))
    venv = _venv(book, data, params, paths)
    drift, frozen = _on_drift(book, pins)
    return RunSpec(
        name=data.get("name", "unnamed"),
        command=_words(data.get("command", ())),
        file=os.path.normpath(FilePath(book.source.file).absolute()),
        workdir=paths.workdir,
        venv=venv,
        env=dict(env),
        secrets=secrets,
        topology=_topology(book, data),
        visible=Visible(data.get("visible", "index")),
        launch=Launch(**data.get("launch", {})),
        params=params,
        files=files,
        resume=_resume(book, data["resume"], paths) if "resume" in data else None,
        output=_output(book, data, paths),
        ports={name: "auto" if port is None else str(port) for name, port in data.get("ports", {}).items()},
        pins_warn=drift == "warn",
        pins_freeze=frozen,
        pins_at={name: f"{book.source.file}:{book.source.at(('pins', name))[0]}" for name in data.get("pins", {})},
        code=code_of(data, paths),
        data=data_of(data, paths),
        rehearsal=rehearsal_of(book, data),
        hooks=hooks_of(data),
        pins=_pins(book, pins, has_venv=venv is not None),
        preflight=_preflight(data),
        logs=_logs(data.get("logs", []), paths),
        health=_health(book, data, paths),
        done=_done(book, data, paths),
        recovery=recovery_of(book, data),
        signatures=_signatures(book, data),
        steps=data.get("steps"),
        cost_per_hour=data.get("cost_per_hour"),
        notify=notify_of(book, data),
        tracking=tracking_of(data, paths),
    )


def kept(items: Any) -> Iterator[Any]:
    """The items of a list that were not wrong; a single value is a list of one."""
    for item in items if isinstance(items, list) else [items]:
        if item is not DROPPED:
            yield item


def _venv(book: Book, data: Mapping[str, Any], params: Params, paths: Paths) -> str | None:
    """The job's environment; with a ladder of them, its first rung."""
    said = paths(data["venv"]) if "venv" in data else None
    ladders = [knob for knob in params.knobs if knob.venv and knob.rungs]
    for knob in ladders[1:]:
        book.wrong(("params", "knobs", knob.name), f"{ladders[0].name} is a ladder of venvs already")
    if not ladders:
        return said
    first = ladders[0].rungs[0][ladders[0].name].text
    if said is not None and said != first:
        book.wrong(("venv",), f"{said} is not the first rung of {ladders[0].name} ({first}); leave one of them out")
    return first


def _words(items: Any) -> tuple[str, ...]:
    return tuple(kept(items)) if items else ()


def _topology(book: Book, data: Mapping[str, Any]) -> tuple[Role, ...]:
    roles: list[Role] = []
    owners: dict[str, str] = {}
    for name, given in data.get("topology", {}).items():
        options = given if isinstance(given, dict) else {"gpus": given}
        gpus = options["gpus"]
        if isinstance(gpus, int):
            ids = _count_out(gpus, taken=owners)
        else:
            ids = list(kept(gpus))
            if not gpus:
                book.wrong(("topology", name), "has no GPU; leave the role out")
        for n, gpu in enumerate(ids):
            first = owners.setdefault(gpu, name)
            where: Path = ("topology", name, n)
            if isinstance(given, dict):
                where = ("topology", name, "gpus", n)
            if first != name:
                book.wrong(where, f"GPU {gpu} is in {first} already; a GPU is in at most one role")
            elif gpu in ids[:n]:
                book.wrong(where, f"GPU {gpu} stands here twice")
        roles.append(_role(name, tuple(ids), options, data))
    return tuple(roles)


def _count_out(count: int, *, taken: Mapping[str, str]) -> list[str]:
    """The next `count` indices that no role before this one has."""
    ids: list[str] = []
    index = 0
    while len(ids) < count and index < 4096:  # no box has as many
        if str(index) not in taken:
            ids.append(str(index))
        index += 1
    return ids


def _role(name: str, gpus: tuple[str, ...], options: Mapping[str, Any], data: Mapping[str, Any]) -> Role:
    default = data.get("health", {}).get("silent_gpu", {})
    return Role(
        name=name,
        gpus=gpus,
        silent=Silent(options.get("silent", "relaunch")),
        util_below=options.get("util_below", default.get("util_below", 5.0)),
        for_s=options.get("for", default.get("for", 120.0)),
        may_finish=options.get("may_finish", False),
    )


def _files(book: Book, data: Mapping[str, Any], paths: Paths) -> tuple[ConfigFile, ...]:
    for name, given in data.get("files", {}).items():
        if not given["from"].lower().endswith(CONFIGS):
            book.wrong(("files", name, "from"), f"{given['from']}: a copy is made of {', '.join(CONFIGS)} only")
    return tuple(
        ConfigFile(
            name=name,
            from_=paths(given["from"]),
            set={key: value.text for key, value in given.get("set", {}).items()},
            quoted=tuple(
                key
                for key, value in given.get("set", {}).items()
                if value.tag == "str" and typed(value.text).tag != "str"
            ),
        )
        for name, given in data.get("files", {}).items()
    )


def _resume(book: Book, given: Mapping[str, Any], paths: Paths) -> Resume:
    glob = paths(given["from"])
    args = _words(given.get("args", ()))
    if "arg" in given:
        if args:
            book.wrong(("resume", "arg"), "`arg` and `args` say the same thing twice; keep one")
        arg = given["arg"]
        if not arg.startswith(("-", "+")) and not arg.endswith("="):
            book.warn(("resume", "arg"), f"the job gets the bare word {arg}; a flag has its dashes here: --{arg}")
        args = (f"{arg}${{{{ checkpoint.path }}}}",) if arg.endswith("=") else (arg, "${{ checkpoint.path }}")
    for n, inside in enumerate(given.get("complete", ())):
        if inside is not DROPPED and (inside.startswith("/") or ".." in inside.split("/")):
            book.wrong(("resume", "complete", n), "is looked for inside the checkpoint; no leading / and no ..")
    return Resume(
        from_=glob,
        start=_start(book, glob, given["start"], paths) if "start" in given else None,
        args=args,
        complete=_words(given.get("complete", ())),
        step=given.get("step"),
        if_none=given.get("if_none"),
        mode=given.get("mode", "explicit"),
        keep=given.get("keep"),
    )


def _start(book: Book, glob: str, start: str, paths: Paths) -> str:
    """A name stands beside the matches of `from`; anything with a slash is a path."""
    if "/" in start:
        return paths(start)
    folder = glob.rpartition("/")[0]
    if any(char in folder for char in "*?["):
        book.wrong(("resume", "start"), f"{start} could lie in several folders of {glob}; give its path")
    return f"{folder}/{start}"


def _output(book: Book, data: Mapping[str, Any], paths: Paths) -> Output:
    given = data.get("output", {})
    folder = paths(given["dir"]) if given.get("dir") else None
    stale = Stale(given.get("stale", "keep"))
    if stale is not Stale.KEEP:
        if folder is None:
            book.wrong(("output", "stale"), f"{stale.value} of what? There is no `output.dir`")
        elif not folder.startswith((paths.workdir.rstrip("/") + "/", "${{")):
            book.wrong(("output", "dir"), f"{folder} is not inside workdir ({paths.workdir}): nothing outside it is "
                       "ever removed or renamed; write stale: keep")  # fmt: skip
    units = given.get("units")
    return Output(dir=folder, stale=stale, units=paths(units) if units else None)


def _on_drift(book: Book, pins: dict[str, str]) -> tuple[str, bool]:
    """Takes `on_drift` and `freeze` out of the pins."""
    on_drift, freeze = pins.pop("on_drift", "fail"), pins.pop("freeze", "false")
    if on_drift not in ("fail", "warn"):
        book.wrong(("pins", "on_drift"), f"must be fail or warn, not {on_drift}")
    if freeze.lower() not in ("true", "false"):
        book.wrong(("pins", "freeze"), f"must be true or false, not {freeze}")
    return on_drift, freeze.lower() == "true"


def _pins(book: Book, pins: dict[str, str], *, has_venv: bool) -> dict[str, str]:
    for package, version in pins.items():
        path: Path = ("pins", package)
        if any(char in version for char in "<>=!~*, ") or not version[:1].isalnum():
            book.wrong(path, f"{version} is a range; a pin is one version, such as 2.11.0+cu128")
        elif "+" not in version:
            book.warn(path, f"{version} has no local part: any build of it matches, +cu128 as well as +cu130")
    if pins and not has_venv:
        book.warn(("pins",), "there is no `venv`: versions are read with the python that the job's PATH has first")
    return pins


def _preflight(data: Mapping[str, Any]) -> Preflight:
    given = data.get("preflight", {})
    return Preflight(
        gpus_empty=given.get("gpus_empty", True),
        disk_free_mib=given.get("disk_free"),
        checks=tuple(_words(argv) for argv in kept(given.get("checks", []))),
    )


def _logs(given: Any, paths: Paths) -> tuple[str, ...]:
    """Globs; `ranks: DIR` is the tree that torchrun's --log-dir makes: DIR/RUN/attempt_N/RANK/{stdout,stderr}.log."""
    parts = [given] if isinstance(given, dict) else list(kept(given))
    globs: list[str] = []
    for part in parts:
        if isinstance(part, str):
            globs.append(paths(part))
            continue
        globs.extend(paths(glob) for glob in kept(part.get("globs", [])))
        if "ranks" in part:
            globs.extend(f"{paths(part['ranks'])}/*/attempt_*/*/{name}.log" for name in ("stdout", "stderr"))
    return tuple(globs)


def _health(book: Book, data: Mapping[str, Any], paths: Paths) -> Health:
    given = data.get("health", {})
    silent = given.get("silent_gpu", {})
    if given.get("phases") and "progress" not in given:
        book.warn(("health", "phases"), "there is no `health.progress`, so there is no limit that a phase could change")
    return Health(
        startup_timeout_s=given.get("startup_timeout"),
        progress=_progress(book, given["progress"], paths) if "progress" in given else None,
        phases=tuple(
            {"name": phase["name"], "from": phase["from"], "to": phase["to"], "limit_s": phase["limit"]}
            for phase in kept(given.get("phases", []))
        ),
        silent_util_below=silent.get("util_below", 5.0),
        silent_for_s=silent.get("for", 120.0),
        lost_progress=given.get("lost_progress", "halt"),
        numeric_steps=given.get("numeric", {}).get("steps", 3),
    )


def _progress(book: Book, given: Mapping[str, Any], paths: Paths) -> Progress:
    ways = [way for way in ("log", "files", "jsonl", "heartbeat") if way in given]
    if not ways and not any(one.path.startswith("health.progress") for one in book.mistakes):
        book.wrong(("health", "progress"), "says nothing to go by: give log, files, jsonl or heartbeat")
    if "in" in given and "log" not in given:
        book.wrong(("health", "progress", "in"), "is where `log` is looked for, and there is no `log`")
    jsonl = given.get("jsonl", {})
    return Progress(
        log=given.get("log"),
        in_=tuple(paths(glob) for glob in kept(given.get("in", []))),
        stall_s=given.get("stall"),
        files=paths(given["files"]) if "files" in given else None,
        jsonl={key: paths(text) if key == "file" else text for key, text in jsonl.items()},
        heartbeat=paths(given["heartbeat"]) if "heartbeat" in given else None,
    )


def _done(book: Book, data: Mapping[str, Any], paths: Paths) -> Done | None:
    given = data.get("done")
    if given is None:
        return None
    if len(given) != 1 and not any(one.path.startswith("done") for one in book.mistakes):
        book.wrong(("done",), "is one of {step: N}, {file: path} and {log: pattern}")
    return Done(step=given.get("step"), file=paths(given["file"]) if "file" in given else None, log=given.get("log"))


def _signatures(book: Book, data: Mapping[str, Any]) -> tuple[Signature, ...]:
    seen: set[str] = set()
    found: list[Signature] = []
    for n, given in enumerate(data.get("signatures", [])):
        if given is DROPPED:
            continue
        if given["name"] in seen:
            book.wrong(("signatures", n), f"{given['name']} is the name of an earlier signature")
        seen.add(given["name"])
        found.append(Signature(**given))
    return tuple(found)
