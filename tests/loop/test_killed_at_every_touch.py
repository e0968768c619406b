"""A supervisor that is killed at any instant is replaced by one that goes on as if nothing had happened."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from fake_journals import read_events
from nights import NIGHTS, Lived, Night, live

from supervisor.core import events as ev
from supervisor.core.fold import fold
from supervisor.core.phases import ENDS
from supervisor.core.state import State

pytestmark = pytest.mark.many
BY_NAME = pytest.mark.parametrize("night", NIGHTS, ids=lambda night: night.name.replace(" ", "-"))


@BY_NAME
def test_a_night_goes_as_it_is_written_when_nobody_is_killed(night: Night, night_dir: Path):
    lived = live(night, night_dir)
    assert lived.state.phase is night.ends
    assert len(lived.world.started) == night.attempts
    assert_kept_promises(lived)


@BY_NAME
def test_a_night_ends_the_same_wherever_its_supervisor_is_killed(night: Night, night_dir: Path):
    (night_dir / "whole").mkdir()
    whole = live(night, night_dir / "whole")
    for at in whole.worth_killing_at:
        what = whole.touches[at][0]
        folder = night_dir / f"{at}"
        folder.mkdir()
        lived = live(night, folder, frozenset({at}))
        assert lived.supervisors == 2, f"killed at {at}: {what}"
        assert_same_night(lived, whole, f"killed at {at}: {what}")
        assert_kept_promises(lived)


@BY_NAME
def test_a_night_ends_the_same_with_supervisors_killed_again_and_again(night: Night, night_dir: Path):
    (night_dir / "whole").mkdir()
    whole = live(night, night_dir / "whole")
    for seed in range(5):
        folder = night_dir / f"{seed}"
        folder.mkdir()
        kills = frozenset(random.Random(seed).sample(range(len(whole.touches)), 8))
        lived = live(night, folder, kills)
        assert_same_night(lived, whole, f"killed at {sorted(kills)}")
        assert_kept_promises(lived)


def assert_same_night(lived: Lived, whole: Lived, what: str) -> None:
    assert lived.state.phase is whole.state.phase, what
    assert launches(lived) == launches(whole), what
    assert lived.state.rungs == whole.state.rungs, what
    assert lived.state.because == whole.state.because, what


def launches(lived: Lived) -> list[tuple[object, ...]]:
    return [(one.attempt, one.argv, one.checkpoint and one.checkpoint.step) for one in lived.world.started]


def assert_kept_promises(lived: Lived) -> None:
    records = read_events(lived.journal)
    assert_launched_once_and_clean(lived)
    assert_nothing_but_knobs_and_checkpoint_differs(lived)
    assert_every_request_is_answered(lived, records)
    assert_nothing_is_done_before_it_is_said(records)


def assert_launched_once_and_clean(lived: Lived) -> None:
    counts = Counter(one.attempt for one in lived.world.started)
    assert not [n for n, times in counts.items() if times > 1], "an attempt was launched twice"
    for one in lived.world.started:
        assert one.alive == (), f"attempt {one.attempt} was begun while {one.alive} lived"
        assert one.held_mib <= 64.0, f"attempt {one.attempt} was begun with {one.held_mib} MiB held"


def assert_nothing_but_knobs_and_checkpoint_differs(lived: Lived) -> None:
    if not lived.world.started:
        return
    first, rungs = masked(lived.world.started[0].argv), lived.world.started[0].rungs
    for one in lived.world.started:
        assert masked(one.argv) == first
        assert one.env == lived.world.started[0].env
        assert all(one.rungs[name] >= rungs[name] for name in rungs), "a knob went up"
        rungs = one.rungs


def masked(argv: tuple[str, ...]) -> list[str]:
    """The command without what recovery may move."""
    words, moves = list(argv), {"--token-budget", "--max-batch-size", "--resume"}
    return ["*" if before in moves else word for before, word in zip(["", *words], words, strict=False)]


def assert_every_request_is_answered(lived: Lived, records: list[tuple[ev.Event, object]]) -> None:
    answers = Counter(event.request for event, _ in records if isinstance(event, ev.Answered))
    asked = {one.id for one in lived.world.requests}
    assert asked <= set(answers)
    assert set(answers.values()) == {1}, "a request was answered twice"
    if any("down" in request for request in asked | set(answers)):
        assert lived.state.phase.value == "stopped"


def assert_nothing_is_done_before_it_is_said(records) -> None:
    """No launch without a verified zero (or the first of an episode) behind the last process's end."""
    state = State(run="dflash")
    verified = False
    for event, at in records:
        match event:
            case ev.PreflightPassed() | ev.VerifiedZero():
                verified = True
            case ev.LaunchIntended():
                assert verified, "a launch without a verified zero"
                verified = False
            case ev.EpisodeEnded():
                assert state.phase not in ENDS
            case _:
                pass
        state = fold(state, event, at)
    assert state.phase in ENDS
