"""What a short look tells: the step that counts, why a run is halted, a pattern that finds nothing."""

from __future__ import annotations

import recorded
from msgspec.structs import replace
from recorded import T0_S, entries

from supervisor.core import events as ev
from supervisor.core.spec import Health, Progress
from supervisor.views import history, status, words
from supervisor.views.fold import fold

FIRST = recorded.first_attempt()
LIVE = FIRST + recorded.second_attempt()
AT_S = T0_S + 1000.0


def look(events, *, alive=True, **said) -> status.Look:
    return status.Look(fold("dflash", entries(events)), recorded.now_json(AT_S - 1) | said, alive, True, AT_S)


def with_pattern(events):
    watched = Health(progress=Progress(log=r"step (?P<step>\d+)"))
    return [
        replace(event, spec=replace(event.spec, health=watched)) if isinstance(event, ev.EpisodeOpened) else event
        for event in events
    ]


def test_the_last_step_of_an_attempt_that_ended_is_the_recorded_one_and_not_an_older_one():
    ended = LIVE + recorded.finish()
    assert look(ended, step=1990).step == 2000
    assert look(ended, step=None).step == 2000
    assert look(LIVE, step=812).step == 812


def test_without_a_run_a_halted_one_says_why_and_what_to_type():
    halted = look(LIVE + recorded.halt(), phase="halted", because="GPU 5 holds 900 MiB", next="supervise gpus")
    finished = look(LIVE + recorded.finish(), phase="finished")
    first, *rest = status.text([halted, finished], detailed=False).splitlines()
    assert first.startswith("dflash  halted")
    assert rest[0] == "  because     GPU 5 holds 900 MiB"
    assert rest[1].startswith("  next        ")
    assert rest[2] == ""
    assert rest[3].startswith("dflash  finished")
    assert len(rest) == 4


def test_the_gpus_of_a_run_that_ended_are_those_of_its_end():
    text = status.text([look(LIVE + recorded.finish(), alive=False, phase="finished")], detailed=True)
    assert "at its end" in text
    assert "stale" not in text
    assert "stale" in status.text([look(LIVE, alive=False)], detailed=True)


def test_a_start_that_prints_and_has_no_step_names_the_pattern_that_it_waits_for():
    starting = with_pattern(LIVE[:-1])
    said = {"phase": "starting", "step": None, "last_line": "iter 4 loss 2.9"}
    waits = "waits for   the first line that health.progress.log finds: step (?P<step>\\d+)"
    text = " ".join(status.text([look(starting, **said)], detailed=True).split())
    assert " ".join(waits.split()) in text
    assert "waits for" not in status.text([look(starting, **said | {"last_line": ""})], detailed=True)
    assert "waits for" not in status.text([look(starting, **said, load="loading shard 1 of 8")], detailed=True)
    assert "waits for" not in status.text([look(with_pattern(LIVE))], detailed=True)
    assert "waits for" not in status.text([look(LIVE[:-1], **said)], detailed=True)


def test_an_attempt_that_runs_has_steps_from_its_first_on():
    text = history.text(fold("dflash", entries(LIVE)), AT_S)
    assert "  steps       691 to 712\n" in text
    assert "  steps       from 711 on\n" in text


def test_an_attempt_that_ended_and_whose_pattern_found_nothing_says_so():
    silent = [event for event in FIRST if not isinstance(event, ev.FirstProgress)]
    silent = [replace(one, first_step=None, last_step=None) if isinstance(one, ev.JobEnded) else one for one in silent]
    silent = [replace(one, last_step=None) if isinstance(one, ev.Judged) else one for one in silent]
    said = "  steps       none: no line was what health.progress.log looks for\n"
    assert said in history.text(fold("dflash", entries(with_pattern(silent))), AT_S)
    assert "steps  " not in history.text(fold("dflash", entries(silent)), AT_S)
    assert "none: no line" not in history.text(fold("dflash", entries(with_pattern(FIRST))), AT_S)


def test_a_message_of_two_lines_stays_one_of_two_lines():
    refused = ev.PreflightRefused(exit=6, text="no checkpoint matches c/*\n  next: supervise up s.yaml --from none")
    view = fold("dflash", entries([recorded.opened(), refused]))
    text = status.text([status.Look(view, at_s=AT_S)], detailed=True)
    assert "  because     no checkpoint matches c/*\n              next: supervise up s.yaml --from none\n" in text
    assert words.wrapped("label", "") == ["  label"]
    assert words.wrapped("label", "a\x1b[31m\rb") == ["  label       a\\x0db"]


def test_seconds_of_a_record_are_told_to_the_millisecond():
    progress = ev.FirstProgress(attempt=1, step=1, startup_s=3.1372935520012106)
    assert "startup_s=3.137\n" in history.events_text(entries([progress]))
