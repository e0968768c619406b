"""Working directories for these tests, with git and without."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "GIT_CONFIG_NOSYSTEM": "1"}


def git(work: Path, *words: str) -> str:
    names = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    command = ["git", "-C", str(work), *names, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, env=ENVIRON).stdout.strip()


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
