"""What a job's interpreter sees: run as a script by that interpreter, prints JSON documents. Imports no package.

Standard library only, and nothing newer than Python 3.7: the job's interpreter may be old. Each part is looked at
on its own; one that fails is named under `unknown` with the reason, and the others are still told. The data may lie on
a slow disk, so it is told last, in a line of its own.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # the folder of this script is no place to import from, for it or for what it looks at
    _here = __file__.rpartition("/")[0]
    sys.path[:] = [_place for _place in sys.path if _place not in ("", _here)]

import hashlib
import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from typing import Any

HASH_CAP_BYTES = 8 * 2**20
"""A script or config is smaller; a data file named in argv is told by its size."""

DIRTY_CAP = 200
PROTECTED_CAP = 2000
"""So many protected files are told one by one; of the rest one hash tells that one of them changed."""

METADATA_HEAD_BYTES = 4096
CODE_SUFFIXES = (".py", ".sh", ".bash", ".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".gin", ".jsonnet")
BUILD_IN_VERSION_FILE = ("torch", "torchvision", "torchaudio")
"""Their wheels may be named without the CUDA build that `version.py` inside names."""


def main() -> None:
    """Prints the answers to the request in argv[1]."""
    request = json.loads(sys.argv[1])
    began = time.monotonic()
    told: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for name, part in PARTS.items():
        try:
            told[name] = part(request, told)
        except Exception as error:  # noqa: BLE001 - whatever is odd about one part must not hide the others
            told[name] = None
            unknown[name] = f"{type(error).__name__}: {error}"
    told["unknown"] = unknown
    told["took_s"] = round(time.monotonic() - began, 3)
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    if request["data"]:
        sys.stdout.write(json.dumps({"data": {path: data(path) for path in request["data"]}}) + "\n")


def data(path: str) -> str:
    """How many files lie below a path, how large and how new they are, and a hash of their names and sizes."""
    count = size = newest_ns = 0
    names: list[str] = []
    for folder, folders, files in os.walk(path):
        folders.sort()
        for name in files:
            full = os.path.join(folder, name)  # noqa: PTH118
            found = os.stat(full) if os.path.exists(full) else os.lstat(full)  # noqa: PTH110, PTH116
            count, size, newest_ns = count + 1, size + found.st_size, max(newest_ns, found.st_mtime_ns)
            names.append(f"{os.path.relpath(full, path)} {found.st_size}")
    if os.path.isfile(path):  # noqa: PTH113
        found = os.stat(path)  # noqa: PTH116
        count, size, newest_ns, names = 1, found.st_size, found.st_mtime_ns, [str(found.st_size)]
    elif not os.path.isdir(path):  # noqa: PTH112
        return "not there"
    digest = hashlib.sha256("\n".join(sorted(names)).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    newest = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(newest_ns / 1e9)) if count else "never"
    return f"{count} files, {size} bytes, newest {newest}, {digest}"


def python(request: dict[str, Any], told: dict[str, Any]) -> dict[str, str] | None:
    """The job's interpreter; None where this is not it."""
    if not request["is_job_python"]:
        return None
    return {"version": sys.version.split()[0], "executable": sys.executable, "prefix": sys.prefix}


def packages(request: dict[str, Any], told: dict[str, Any]) -> dict[str, str] | None:
    """Name (normalised as in PEP 503) to version, of all that this interpreter finds installed, read from the names
    of the metadata folders. Where a broken upgrade left two of one name, both are told."""
    if not request["is_job_python"]:
        return None
    found: dict[str, str] = {}
    for place in sys.path:
        here: dict[str, list[str]] = {}
        for name in _names(place):
            if name.endswith((".dist-info", ".egg-info")):
                package, version = _name_and_version(place, name)
                if package:
                    here.setdefault(re.sub(r"[-_.]+", "-", package).lower(), []).append(version)
        for package, versions in here.items():
            found.setdefault(package, " and ".join(sorted(set(versions))))
    for name in BUILD_IN_VERSION_FILE:
        version = (_version_file(name) or {}).get("version", "")
        if version.split("+")[0] == found.get(name):
            found[name] = version
    return dict(sorted(found.items()))


def _names(place: str) -> list[str]:
    try:
        return os.listdir(place)  # noqa: PTH208
    except OSError:  # a zip archive or a folder that is not there: nothing is installed in it
        return []


def _name_and_version(place: str, name: str) -> tuple[str, str]:
    stem = re.sub(r"-py\d[\d.]*$", "", name.rpartition(".")[0])
    package, _, version = stem.partition("-")
    if version[:1].isdigit():
        return package, version
    for inside in ("METADATA", "PKG-INFO", ""):
        path = os.path.join(place, name, inside).rstrip("/")  # noqa: PTH118
        if os.path.isfile(path):  # noqa: PTH113
            with open(path, encoding="utf-8", errors="replace") as file:
                head = file.read(METADATA_HEAD_BYTES)
            fields = dict(re.findall(r"^(Name|Version): *(.*?)\s*$", head, re.M))
            return fields.get("Name", package), fields.get("Version", "?")
    return package, "?"


def torch(request: dict[str, Any], told: dict[str, Any]) -> dict[str, str] | None:
    """torch's version with its build, and the CUDA it was built for, from the text of its version file."""
    return _version_file("torch") if request["is_job_python"] else None


def _version_file(package: str) -> dict[str, str] | None:
    for place in sys.path:
        path = os.path.join(place, package, "version.py")  # noqa: PTH118
        if os.path.isfile(path):  # noqa: PTH113
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read(METADATA_HEAD_BYTES)
            pattern = r"^(__version__|cuda|hip|git_version)\s*(?::[^=\n]*)?=\s*['\"]([^'\"]*)['\"]"
            return {name.replace("__", ""): value for name, value in re.findall(pattern, text, re.M)}
    return None


def nccl(request: dict[str, Any], told: dict[str, Any]) -> str | None:
    """The version of the NCCL that the job would load: the venv's package, else the system's library."""
    for name, version in (told.get("packages") or {}).items():
        if name.startswith("nvidia-nccl"):
            return str(version)
    places = request["library_path"].split(":")
    for place in [*places, "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib"]:
        real = os.path.realpath(os.path.join(place, "libnccl.so.2")) if place else ""  # noqa: PTH118
        match = re.search(r"libnccl\.so\.([\d.]+)$", real)
        if match and os.path.exists(real):  # noqa: PTH110
            return match.group(1)
    return None


def driver(request: dict[str, Any], told: dict[str, Any]) -> str | None:
    """The NVIDIA kernel module's version; None where none is loaded."""
    if not os.path.exists(request["driver_file"]):  # noqa: PTH110
        return None
    with open(request["driver_file"], encoding="utf-8", errors="replace") as file:
        match = re.search(r"^NVRM version:.*?\b(\d{3,}\.\d+(?:\.\d+)?)\b", file.read(METADATA_HEAD_BYTES), re.M)
    return match.group(1) if match else None


def kernel(request: dict[str, Any], told: dict[str, Any]) -> str:
    """The running kernel's release."""
    return os.uname().release


def libc(request: dict[str, Any], told: dict[str, Any]) -> str | None:
    """The C library's name and version."""
    return os.confstr("CS_GNU_LIBC_VERSION")


def git(request: dict[str, Any], told: dict[str, Any]) -> dict[str, Any] | None:
    """The commit of workdir, and its dirty files with what is in them; None outside a repository."""
    inside = _git(request, "rev-parse", "--is-inside-work-tree", "--show-toplevel")
    if inside.returncode != 0:
        text = inside.stderr.decode("utf-8", "replace")
        if "not a git repository" in text:
            return None
        raise OSError(text.strip()[:300])
    top = inside.stdout.decode("utf-8", "surrogateescape").split("\n")[1]
    head = _git(request, "rev-parse", "HEAD")
    status = _git(request, "status", "--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=dirty")
    if status.returncode != 0:
        raise OSError(status.stderr.decode("utf-8", "replace").strip()[:300])
    entries = status.stdout.decode("utf-8", "surrogateescape").split("\0")
    dirty = [entry[3:] for entry in entries if entry[2:3] == " "]
    commit = head.stdout.decode().strip() if head.returncode == 0 else "none yet"
    hashes = {name: _hash(os.path.join(top, name)) for name in sorted(dirty)[:DIRTY_CAP]}  # noqa: PTH118
    return {"commit": commit, "dirty": hashes, "dirty_files": len(dirty)}


def _git(request: dict[str, Any], *words: str) -> subprocess.CompletedProcess[bytes]:
    """Takes no lock, asks nothing, runs no hook or monitor of the repository."""
    env = dict(os.environ, GIT_OPTIONAL_LOCKS="0", GIT_TERMINAL_PROMPT="0", LC_ALL="C")
    quiet = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    command = ["git", "-C", request["workdir"], *quiet, *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=request["git_s"])


def code(request: dict[str, Any], told: dict[str, Any]) -> dict[str, str]:
    """The scripts and configs that argv names, with a hash of each."""
    found: dict[str, str] = {}
    words = request["argv"]
    for before, word in zip(["", *words], words):  # noqa: B905 - Python 3.7, and the lengths differ
        for path in _may_be(before, word):
            full = os.path.join(request["workdir"], path)  # noqa: PTH118
            if os.path.isfile(full) and _is_code(full):  # noqa: PTH113
                found[path] = _hash(full)
    named = _all_files(request["protect"])
    found.update((path, _hash(path)) for path in named[:PROTECTED_CAP])
    rest = named[PROTECTED_CAP:]
    if rest:
        found[f"{named[PROTECTED_CAP - 1]} and {len(rest)} more"] = _looks(rest)
    return found


def _looks(paths: list[str]) -> str:
    """One hash of the names, sizes and times of many files: that one of them changed, not which."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116
            digest.update(repr((path, status.st_size, status.st_mtime_ns)).encode("utf-8", "surrogateescape"))
        except OSError:
            digest.update(repr((path, None)).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]


def _all_files(paths: list[str]) -> list[str]:
    """The files named, and those below folders that are."""
    found: list[str] = []
    for path in paths:
        inside = [os.path.join(top, name) for top, _, names in os.walk(path) for name in names]  # noqa: PTH118
        found += sorted(one for one in inside if "/__pycache__/" not in one) if os.path.isdir(path) else [path]  # noqa: PTH112
    return found


def _may_be(before: str, word: str) -> list[str]:
    if before == "-m":
        module = word.replace(".", "/")
        return [module + ".py", module + "/__main__.py"]
    return [word, word.partition("=")[2]] if "=" in word else [word]


def _is_code(path: str) -> bool:
    if path.endswith(CODE_SUFFIXES):
        return True
    if os.path.getsize(path) > HASH_CAP_BYTES:  # noqa: PTH202
        return False
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def _hash(path: str) -> str:
    """The first 16 digits of the SHA-256; of a large file the size; `deleted` where there is none."""
    try:
        size = os.path.getsize(path)  # noqa: PTH202
        if size > HASH_CAP_BYTES or not os.path.isfile(path):  # noqa: PTH113
            return f"{size} bytes"
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()[:16]
    except FileNotFoundError:
        return "deleted"


PARTS: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "python": python,
    "packages": packages,
    "torch": torch,
    "nccl": nccl,
    "driver": driver,
    "kernel": kernel,
    "libc": libc,
    "code": code,
    "git": git,
}

if __name__ == "__main__":
    main()
