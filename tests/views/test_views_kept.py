"""A view that was kept and goes on says what one says that read all records."""

from __future__ import annotations

import json

import pytest
import recorded

from supervisor.core import events as ev
from supervisor.views.accounting import WRITTEN_KEPT, Books, accounting
from supervisor.views.fold import fold
from supervisor.views.kept import Told
from supervisor.views.run import Entry

NIGHTS = {
    "finished": recorded.first_attempt() + recorded.second_attempt() + recorded.finish(),
    "halted": recorded.first_attempt() + recorded.second_attempt() + recorded.halt(),
    "stopped": recorded.first_attempt() + recorded.second_attempt() + recorded.user_stop(),
    "warned": [*recorded.first_attempt(), ev.Warned(text="the disk fills up"), ev.PauseSet(paused=True)],
}


@pytest.mark.parametrize("night", NIGHTS)
def test_wherever_the_reading_was_interrupted_the_rest_gives_the_same(night: str):
    entries = recorded.entries(NIGHTS[night])
    whole, spent = fold("dflash", entries), accounting(entries, recorded.T0_S + 5000.0)
    for at in range(len(entries) + 1):
        told = Told("dflash")
        for entry in entries[:at]:
            told.take(entry)
        told = Told.of(json.loads(json.dumps(told.plain())))
        for entry in entries[at:]:
            told.take(entry)
        assert told.view == whole, at
        assert told.books.total(recorded.T0_S + 5000.0) == spent


def test_asking_for_the_total_takes_nothing():
    books = Books()
    for entry in recorded.entries(NIGHTS["warned"]):
        books.take(entry)
    assert books.total(recorded.T0_S + 1000.0) == books.total(recorded.T0_S + 1000.0)


def test_a_run_of_many_saves_is_kept_small():
    """A week of records, and what is kept of them does not grow with it."""
    books = Books()
    books.take(Entry("EpisodeOpened", 0.0, {}))
    books.take(Entry("PreflightPassed", 0.0, {}))
    books.take(Entry("LaunchIntended", 0.0, {"attempt": 1}))
    books.take(Entry("FirstProgress", 0.0, {"attempt": 1, "step": 1}))
    for n in range(2 * WRITTEN_KEPT):
        books.take(Entry("CheckpointWritten", float(n), {"checkpoint": {"path": f"/c/step_{n}"}}))
    assert len(books.training) == 1
    assert len(books.written) == WRITTEN_KEPT
    assert f"/c/step_{2 * WRITTEN_KEPT - 1}" in books.written


@pytest.mark.parametrize("plain", [{}, {"view": {}}, {"view": {"attempts": 3}}, {"view": None, "books": {}}])
def test_what_is_no_kept_view_is_refused(plain: dict[str, object]):
    with pytest.raises((KeyError, TypeError, ValueError)):
        Told.of(plain)
