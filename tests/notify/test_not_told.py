"""What `status` says of messages that reached nobody."""

from __future__ import annotations

from supervisor.views.fold import fold
from supervisor.views.run import Entry


def test_a_message_that_reached_nobody_is_a_warning_and_one_that_did_is_none():
    told = Entry("Notified", 1.0, {"key": "failed:1", "why": ""})
    lost = Entry("Notified", 2.0, {"key": "halted:episode 1", "why": "1 (webhook): HTTP 500"})
    assert fold("r", [told, lost]).warnings == ("nobody was told of halted:episode 1: 1 (webhook): HTTP 500",)
