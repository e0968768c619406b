"""Working directories for these tests, with git and without."""

from __future__ import annotations

from pathlib import Path

from repos import git


def write(root: Path, *names: str, text: str = "") -> None:
    """Files of this text, with the folders above them."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def checkout(work: Path) -> Path:
    """A checkout with a script, a package, a config, and outputs that git ignores."""
    work.mkdir()
    git(work, "init", "-q")
    write(work, "train.py", text="import pkg.model\n")
    write(work, "pkg/model.py", text="SIZE = 1\n")
    write(work, "pkg/__init__.py")
    write(work, "conf/a.yaml", text="anchors: 1024\n")
    write(work, ".gitignore", text="out\n.venv\n__pycache__\n")
    write(work, "out/step_1.pt", text="weights")
    git(work, "add", ".")
    git(work, "commit", "-qm", "one")
    return work
