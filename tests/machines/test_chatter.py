"""How soon a chatty log is read again."""

from __future__ import annotations

import pytest

from supervisor.machines.chatter import CHATTY_S, REST_S, Chatter


def test_words_after_silence_are_read_at_once():
    chatter = Chatter()
    for at_s in (0.0, CHATTY_S, 2 * CHATTY_S):
        assert chatter.rests_s(at_s) == 0.0
        chatter.was_read(at_s)
        assert chatter.rests_s(at_s) == 0.0


def test_words_that_follow_soon_are_let_gather():
    chatter = Chatter()
    chatter.was_read(0.0)
    chatter.was_read(0.5)
    assert chatter.rests_s(0.5) == pytest.approx(REST_S)
    assert chatter.rests_s(0.5 + REST_S) == 0.0


def test_a_job_that_prints_all_the_time_is_read_five_times_a_second():
    chatter, now_s, reads = Chatter(), 0.0, 0
    while now_s < 10.0:
        if not chatter.rests_s(now_s):
            chatter.was_read(now_s)
            reads += 1
        now_s += 0.01
    assert 45 <= reads <= 52
