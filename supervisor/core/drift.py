"""Drift: what differs between two fingerprints of a job's environment, most suspicious first, and what pins say.

Nothing is looked at here: a fingerprint is the plain document that `edges/environment.py` makes (environment.json).
What one of the two does not know is not a difference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from msgspec import Struct


class Suspicion(IntEnum):
    """How likely a change of this is to change memory use or to break CUDA; the smallest first."""

    TORCH = 0
    CUDA_LIBRARY = 1
    DRIVER = 2
    DATA = 3
    IMPORTS_CUDA = 4
    REST = 5


CUDA_LIBRARY = re.compile(r"nvidia-.*|cuda-.*|pytorch-cuda|cudatoolkit|cudnn|nccl")
IMPORTS_CUDA = re.compile(
    r"torch[a-z-]*|pytorch-triton|triton|flash-?attn.*|flash-?infer.*|xformers|deepspeed|bitsandbytes|apex"
    r"|transformer-engine.*|megatron-.*|vllm.*|sglang.*|sgl-kernel|cupy.*|jax.*|tensorflow.*|mamba-ssm|causal-conv1d"
    r"|liger-kernel|accelerate|lightning|pytorch-lightning|nemo-toolkit|torchtitan|torchao|onnxruntime-gpu"
)
REST_ORDER = ("gpus", "variables", "python", "code", "git", "package", "kernel", "libc")


class Change(Struct, frozen=True):
    """One difference. `old` or `new` None: it was not there, or is not any more."""

    suspicion: Suspicion
    group: str
    name: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        name = self.name if self.group in ("package", "torch", "variables") else f"{self.group} {self.name}".strip()
        return f"{name}: {self.old or 'not there'} -> {self.new or 'not there'}"


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    """All differences, most suspicious first."""
    before, after = _facts(old), _facts(new)
    changes = [
        Change(_suspicion(group, name), group, name, before.get((group, name)), after.get((group, name)))
        for group, name in before.keys() | after.keys()
        if before.get((group, name)) != after.get((group, name)) and _known(old, group) and _known(new, group)
    ]
    return tuple(sorted(changes, key=_order))


def suspects(changes: Sequence[Change]) -> str:
    """What may explain a failure that began with these changes; empty where there is none."""
    if not changes:
        return ""
    first = changes[0].suspicion
    named = [change for change in changes if change.suspicion < Suspicion.REST or first is Suspicion.REST]
    text = "; ".join(str(change) for change in named)
    return f"{text} (not separable)" if len(named) > 1 else text


_SECTION = {"package": "packages"}


def _known(told: Mapping[str, Any], group: str) -> bool:
    section = _SECTION.get(group, group)
    return section in told and section not in told.get("unknown", {})


def _facts(told: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    facts: dict[tuple[str, str], str] = {}
    for group in ("driver", "nccl", "kernel", "libc"):
        if told.get(group) is not None:
            facts[group, ""] = str(told[group])
    for group in ("torch", "python", "variables", "code", "data"):
        for name, value in (told.get(group) or {}).items():
            facts[group, f"torch {name}" if group == "torch" else str(name)] = str(value)
    for name, version in (told.get("packages") or {}).items():
        if name != "torch":
            facts["package", name] = str(version)
        elif not told.get("torch"):  # the file that tells its build is missing, its version is known
            facts["torch", "torch version"] = str(version)
    for gpu in told.get("gpus") or ():
        facts["gpus", str(gpu["index"])] = f"{gpu['name']} {gpu['uuid']}"
    git = told.get("git") or {}
    if git:
        facts["git", "commit"] = str(git["commit"])
        facts.update({("git", f"dirty {name}"): value for name, value in git["dirty"].items()})
    return facts


def _suspicion(group: str, name: str) -> Suspicion:
    if group == "torch":
        return Suspicion.TORCH
    if group == "nccl" or (group == "package" and CUDA_LIBRARY.fullmatch(name)):
        return Suspicion.CUDA_LIBRARY
    if group == "driver":
        return Suspicion.DRIVER
    if group == "data":
        return Suspicion.DATA
    if group == "package" and IMPORTS_CUDA.fullmatch(name):
        return Suspicion.IMPORTS_CUDA
    return Suspicion.REST


def _order(change: Change) -> tuple[int, int, str, str]:
    rank = REST_ORDER.index(change.group) if change.group in REST_ORDER else -1
    return (change.suspicion, rank, change.group, change.name)


class PinMismatch(Struct, frozen=True):
    """A pin that does not hold. `found` None: not installed; `known` False: the packages could not be told."""

    name: str
    wanted: str
    found: str | None
    known: bool = True

    def __str__(self) -> str:
        if not self.known:
            return f"{self.name} is pinned to {self.wanted}, and what is installed could not be told"
        return f"{self.name} is pinned to {self.wanted}, and {self.found or 'none'} is installed"


def pin_mismatches(pins: Mapping[str, str], packages: Mapping[str, str] | None) -> tuple[PinMismatch, ...]:
    """Every pin that does not hold, in the order of the spec. Versions are exact; see `any_build`."""
    if packages is None:
        return tuple(PinMismatch(name, wanted, None, known=False) for name, wanted in pins.items())
    found = {_normal(name): version for name, version in packages.items()}
    return tuple(
        PinMismatch(name, wanted, found.get(_normal(name)))
        for name, wanted in pins.items()
        if not _matches(wanted, found.get(_normal(name)))
    )


def any_build(pins: Mapping[str, str]) -> tuple[str, ...]:
    """The pins without a local part (`2.11.0`, not `2.11.0+cu128`): any build of that version matches them."""
    return tuple(name for name, wanted in pins.items() if "+" not in wanted)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _matches(wanted: str, found: str | None) -> bool:
    if found is None:
        return False
    public, local = _version(wanted)
    found_public, found_local = _version(found)
    return public == found_public and local in ("", found_local)


_SPELLINGS = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc", "rev": "post", "r": "post"}


def _version(text: str) -> tuple[str, str]:
    """Public and local part, in one spelling: `v2.11`, `2.11.0` are one, as are `rc1`, `-rc.1` (PEP 440)."""
    public, _, local = text.strip().lower().removeprefix("v").partition("+")
    match = re.match(r"(?:\d+!)?\d+(?:\.\d+)*", public)
    release = match[0] if match else ""
    rest = re.findall(r"[a-z]+|\d+", public[len(release) :])
    spelled = "".join(_SPELLINGS.get(word, word) for word in rest)
    while release.endswith(".0"):
        release = release.removesuffix(".0")
    return f"{release}{'.' if spelled else ''}{spelled}", re.sub(r"[-_]", ".", local)
