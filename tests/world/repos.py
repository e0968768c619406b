"""Git for tests that need a repository: nobody's configuration, no user's name."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "GIT_CONFIG_NOSYSTEM": "1"}


def git(work: Path, *words: str) -> str:
    """What git printed there."""
    names = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    command = ["git", "-C", str(work), *names, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, env=ENVIRON).stdout.strip()
