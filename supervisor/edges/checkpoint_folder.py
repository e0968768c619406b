"""One folder of a checkpoint as the layouts see it: names and sizes. No judgement."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable

from msgspec import Struct


class Folder(Struct, frozen=True):
    """One folder within a checkpoint: `files` maps names to sizes in bytes, `folders` are names."""

    path: str
    files: dict[str, int]
    folders: frozenset[str]
    step: int | None
    strict: bool
    top: bool

    def full(self, name: str) -> str:
        """The path of something in it."""
        return posixpath.join(self.path, name)

    def ranks(self, pattern: str) -> set[int]:
        """The numbers (first group) of the files whose whole name matches."""
        return {int(m[1]) for m in (re.fullmatch(pattern, name) for name in self.files) if m}

    def matching(self, pattern: str) -> list[str]:
        """The files whose whole name matches."""
        return [name for name in self.files if re.fullmatch(pattern, name)]


def gap(numbers: Iterable[int], at_least: int = 0) -> int | None:
    """The first number from 0 on that is missing below the largest, or below `at_least`."""
    have = set(numbers)
    return next((n for n in range(max(at_least, max(have, default=0))) if n not in have), None)


def listed(path: str) -> list[str]:
    """The names in a folder. Raises OSError."""
    return os.listdir(path)  # noqa: PTH208 - names, not paths
