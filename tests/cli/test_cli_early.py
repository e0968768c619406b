"""The supervisor that `up` starts before anything else."""

from __future__ import annotations

from supervisor.cli import warm


class Started:
    def __init__(self, home: object) -> None:
        self.home = home


def test_the_one_that_was_started_early_is_taken_once(monkeypatch, home):
    monkeypatch.setattr(warm, "WarmSupervisor", Started)
    warm.start_early()
    assert warm.take(home).home is None
    assert warm.take(home).home == home


def test_none_is_started_early_where_the_state_directory_depends_on_the_folder(monkeypatch, home):
    monkeypatch.setattr(warm, "WarmSupervisor", Started)
    monkeypatch.setenv("SUPERVISE_HOME", "state")
    warm.start_early()
    assert warm.take(home).home == home
