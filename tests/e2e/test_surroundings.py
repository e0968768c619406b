"""Where a run is started from changes nothing: cron's bare environment, a command that no terminal could type."""

from __future__ import annotations

import sys

import pytest
from boxes import Box, until

pytestmark = pytest.mark.real


def test_a_command_longer_than_tmux_takes_reaches_the_job(box: Box) -> None:
    words = [f'--word-{n}=it\'s a "long" one; $HOME {"x" * 900}' for n in range(120)]
    script = box.write("tell.py", "import hashlib, sys; print(hashlib.sha256(repr(sys.argv[1:]).encode()).hexdigest())")
    import hashlib

    import yaml

    spec = {"version": 1, "name": "long", "command": [sys.executable, str(script), *words]}
    night = box.up(box.write("long.yaml", yaml.safe_dump(spec, sort_keys=False, width=2000)))
    night.wait(0)
    assert night.output().strip() == hashlib.sha256(repr(words).encode()).hexdigest()


def test_a_run_that_cron_starts_is_a_run_like_any_other(box: Box) -> None:
    kept = {"SUPERVISE_HOME", "SUPERVISE_LOCKS", "SUPERVISE_DEV", "PYTHONDONTWRITEBYTECODE"}
    box.environ = {name: value for name, value in box.environ.items() if name in kept} | {"PATH": "/usr/bin:/bin"}
    night = box.up(box.spec("cron", "echo 'grüße step 1'; exec sleep 600"))
    until(lambda: "grüße" in night.output(), "the job speaks")
    assert box.tmux is not None
    night.down()
