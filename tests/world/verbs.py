"""A state directory of one's own, and verbs run in this process: fixtures for a conftest to import."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from supervisor import cli
from supervisor.edges.locks import Lock
from supervisor.edges.paths import Home


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    """An empty state directory; no guardian is started because somebody holds its lock."""
    monkeypatch.setenv("SUPERVISE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "state").mkdir(mode=0o700)
    made = Home(tmp_path / "state")
    lock = Lock.try_take(made.guardian_lock)
    assert lock is not None
    yield made
    lock.release()


@pytest.fixture
def supervise(home, capfd) -> Callable[..., tuple[int, str, str]]:
    """Run a verb in this process: exit code, stdout, stderr."""

    def run(*argv: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = cli.run(argv)
        said = capfd.readouterr()
        return int(code), said.out, said.err

    return run
