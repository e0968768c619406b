"""Put first into PYTHONPATH as `sitecustomize.py`: what Python would take from the working tree it takes from its copy.

Standard library only, and nothing newer than Python 3.7: the job's interpreter may be old. A launch names the copy in
its arguments; this is for what the launch starts in turn: a start script's `python train.py`, `python -m pkg.train`, a
package that is installed to be edited. What is not in the copy is taken from where it lies.
"""

# Every Python of the job pays for what is imported here.
# ruff: noqa: PTH100, PTH110, PTH113, PTH118, PTH120

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))


class FromCopy:
    """A finder that asks those behind it, and answers with the same module as it stands in the copy."""

    def __init__(self, top: str, image: str) -> None:
        self._top = top + os.sep
        self._image = image + os.sep

    def copied(self, path: str) -> str | None:
        """The copy of a file or folder of the tree; None where there is none, or it is only a link to it."""
        folder, name = os.path.split(os.path.abspath(path))
        path = os.path.join(os.path.realpath(folder), name)
        if not path.startswith(self._top) or path.startswith(self._image):
            return None
        copy = self._image + path[len(self._top) :]
        is_there = os.path.exists(copy) and os.path.realpath(copy).startswith(self._image)
        return copy if is_there else None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec, of the copy where the tree would have been asked; None leaves it to the others."""
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            found = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if found is not None:
                return self._moved(found)
        return None

    def _moved(self, spec: ModuleSpec) -> ModuleSpec | None:
        places = spec.submodule_search_locations
        inside = None if places is None else [self.copied(one) or one for one in places]
        if spec.has_location and spec.origin is not None:
            copy = self.copied(spec.origin)
            if copy is None or not os.path.isfile(copy):
                return spec
            return importlib.util.spec_from_file_location(spec.name, copy, submodule_search_locations=inside)
        if places is not None and inside is not None and inside != list(places):  # a namespace
            moved = importlib.machinery.ModuleSpec(spec.name, None, is_package=True)
            moved.submodule_search_locations = inside
            return moved
        return spec


def start_the_copy(finder: FromCopy) -> None:
    """`python train.py` with a script of the tree becomes the same with the copy: same process, same arguments."""
    script = sys.argv[0] if getattr(sys, "argv", None) else ""
    if script in ("", "-", "-c", "-m") or not sys.executable:
        return
    copy = finder.copied(script)
    if copy is None or not os.path.isfile(copy):
        return
    with open("/proc/self/cmdline", "rb") as file:
        words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    at = len(words) - len(sys.argv)
    if at > 0 and words[at:] == sys.argv:
        os.execv(sys.executable, [sys.executable, *words[1:at], copy, *sys.argv[1:]])


def next_of_that_name() -> None:
    """The `sitecustomize` that this one stands before, run as it would have been."""
    places = [one for one in sys.path if os.path.abspath(one or ".") != _HERE]
    found = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
    if found is not None and found.loader is not None:
        module = importlib.util.module_from_spec(found)
        sys.modules["sitecustomize"] = module
        found.loader.exec_module(module)


if __name__ == "sitecustomize":
    with open(os.path.join(_HERE, "where"), "rb") as _file:
        _finder = FromCopy(*map(os.fsdecode, _file.read().split(b"\0")))
    start_the_copy(_finder)
    sys.meta_path.insert(0, _finder)
    next_of_that_name()
