"""Where a night's time went: every second in one class, and what was thrown away is not called productive."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.views.accounting import accounting, document
from supervisor.views.run import Entry

UP = ("EpisodeOpened", 0.0, {})


def told(*records: tuple[str, float, dict[str, Any]]) -> list[Entry]:
    return [Entry(*record) for record in records]


def launched(n: int, at_s: float, path: str | None, step: int = 0) -> tuple[str, float, dict[str, Any]]:
    return ("LaunchIntended", at_s, {"attempt": n, "checkpoint": {"path": path, "step": step} if path else None})


NIGHT = told(
    UP,
    ("PreflightPassed", 10.0, {}),
    launched(1, 12.0, "/c/step_690", 690),
    ("FirstProgress", 112.0, {"attempt": 1, "step": 691}),
    ("CheckpointWritten", 1112.0, {"attempt": 1, "checkpoint": {"path": "/c/step_700", "step": 700}}),
    ("JobEnded", 1412.0, {"attempt": 1, "last_step": 703}),
    ("Judged", 1415.0, {"attempt": 1}),
    ("StopIntended", 1415.0, {"attempt": 1}),
    ("MembersGone", 1420.0, {"attempt": 1}),
    ("VerifiedZero", 1430.0, {"attempt": 1}),
    ("BackoffBegan", 1430.0, {"wait_s": 20.0}),
    ("BackoffOver", 1450.0, {}),
    ("VerifiedZero", 1452.0, {"attempt": 1}),
    launched(2, 1452.0, "/c/step_700", 700),
    ("FirstProgress", 1552.0, {"attempt": 2, "step": 701}),
)


def test_every_second_of_a_night_is_in_one_class():
    found = accounting(NIGHT, 2552.0)
    assert found.wall_s == 2552.0
    assert found.check_s == 10.0
    assert found.load_s == 200.0
    assert found.backoff_s == 20.0
    assert found.verify_s == 2.0 + 18.0 + 2.0
    assert found.lost_s == 300.0
    assert found.productive_s == 1000.0 + 1000.0
    assert found.lost_steps == 3
    assert found.ettr == pytest.approx(2000.0 / 2552.0)


def test_training_that_a_launch_began_behind_is_lost_and_not_productive():
    before = accounting(NIGHT[:13])
    after = accounting(NIGHT[:14])
    assert before.lost_s == 0.0
    assert after.lost_s == 300.0
    assert before.productive_s - after.productive_s == 300.0


def test_a_launch_from_nothing_throws_everything_away():
    found = accounting([*NIGHT[:13], Entry(*launched(2, 1452.0, None))])
    assert found.productive_s == 0.0
    assert found.lost_s == 1300.0
    assert found.lost_steps == 703


def test_a_degraded_run_trains_but_is_not_called_productive():
    degraded = (
        ("Degraded", 212.0, {"attempt": 1, "failure": {}}),
        ("Regained", 312.0, {"attempt": 1}),
        ("JobEnded", 412.0, {"attempt": 1}),
    )
    found = accounting([*NIGHT[:4], *told(*degraded)])
    assert found.degraded_s == 100.0
    assert found.productive_s == 200.0


def test_a_rehearsal_is_a_check_and_throws_nothing_away():
    small = ("LaunchIntended", 1452.0, {"attempt": 2, "checkpoint": None, "rehearsal": True})
    night = [*NIGHT[:13], *told(small, ("FirstProgress", 1462.0, {"attempt": 2}), ("JobEnded", 1472.0, {"attempt": 2}))]
    found = accounting(night)
    assert found.check_s == 10.0 + 20.0
    assert found.lost_s == 0.0
    assert found.productive_s == 1300.0
    assert found.attempts == 1


def test_the_time_between_two_episodes_counts_for_nothing():
    night = told(
        UP,
        ("PreflightRefused", 5.0, {"ending": "stopped"}),
        ("EpisodeOpened", 100_000.0, {}),
        ("PreflightPassed", 100_001.0, {}),
    )
    found = accounting(night)
    assert found.wall_s == 6.0
    assert found.ettr == 0.0
    assert found.episodes == 2


def test_a_clock_that_was_set_back_spends_nothing():
    found = accounting(told(UP, ("PreflightPassed", -50.0, {}), launched(1, 10.0, None)))
    assert found.wall_s == 10.0


def test_a_run_that_never_was_has_no_ratio():
    assert accounting([]).ettr is None
    assert document(accounting([]))["ettr"] is None


def test_the_document_adds_up():
    said = document(accounting(NIGHT, 2552.0))
    assert said["ettr"] == 0.7837
    assert said["wall_s"] == sum(
        said[f"{name}_s"] for name in ("productive", "degraded", "lost", "load", "verify", "backoff", "check")
    )
