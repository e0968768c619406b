"""Values of the spec about what a run is given and what goes before and after it: code, data, rehearsal, hooks."""

from __future__ import annotations

from msgspec import Struct, field


class Watched(Struct, frozen=True, kw_only=True):
    """What must not change unseen: absolute paths. `strict`: a change refuses the launch; else it is only told.

    For `code` no paths means the scripts and config files that the command names; `snapshot`: launched from a copy.
    """

    paths: tuple[str, ...] = ()
    strict: bool = False
    snapshot: bool = False


class CodeCopy(Struct, frozen=True, kw_only=True):
    """The copy of the code that an episode's attempts run from. `path` is the image of `top`, the tree it was made of.

    `named`: the scripts and config files that the spec names, each as an absolute path and where it lies in the copy;
    `folders` the same for folders. `hook` goes first into PYTHONPATH. `commit` is empty where `top` is no git checkout.
    """

    path: str
    top: str
    hook: str
    named: dict[str, str] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    files: int = 0
    mib: float = 0.0
    commit: str = ""
    dirty: int = 0

    def image_of(self, path: str) -> str:
        """Where a path of the tree lies in the copy; another path stays as it is."""
        if path in self.named or path in self.folders:
            return self.named.get(path) or self.folders[path]
        return self.path + path[len(self.top) :] if f"{path}/".startswith(f"{self.top}/") else path

    def source_of(self, path: str) -> str:
        """The path of the tree that lies there in the copy, as the spec names it where it does."""
        names = (name for name, copy in self.named.items() if copy == path)
        return next(names, self.top + path[len(self.path) :] if path.startswith(f"{self.path}/") else path)


class Rehearsal(Struct, frozen=True, kw_only=True):
    """A small run before the full one. `params` are texts as they stand in the file; `args` are added to the command.

    It has passed after `steps` steps within `within_s` seconds.
    """

    params: dict[str, str] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    steps: int = 20
    within_s: float = 900.0


class Hooks(Struct, frozen=True, kw_only=True):
    """Commands before each launch and after each stop, and how long each may take."""

    before_launch: tuple[str, ...] = ()
    after_stop: tuple[str, ...] = ()
    timeout_s: float = 300.0
