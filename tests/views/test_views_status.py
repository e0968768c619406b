"""What people and programs are told of a run: exact documents, 80 columns, nothing that moves a cursor."""

from __future__ import annotations

import json

import pytest
import recorded
from msgspec.structs import replace
from recorded import T0_S, entries

from supervisor.core import events as ev
from supervisor.views import history, status, words
from supervisor.views.fold import fold

LIVE = recorded.first_attempt() + recorded.second_attempt()
AT_S = T0_S + 1000.0

STATUS_RUN = {
    "name", "phase", "paused", "wanted", "attempt", "restarts", "step", "rate", "checkpoint", "knobs", "protected",
    "protected_sha256", "gpus", "last_failure", "supervisor", "because", "as_of",
}  # fmt: skip
STATUS_GPU = {"index", "uuid", "role", "used_mib", "total_mib", "util_pct", "state"}
ATTEMPT = {
    "number", "started_at", "ended_at", "argv", "knobs", "checkpoint", "first_step", "last_step", "end", "stopped",
    "verified_zero", "decision",
}  # fmt: skip
END = {"kind", "code", "signal", "gpu", "tried_mib", "free_mib", "short_by_mib", "log_line"}


def look(events, *, now=True, alive=True, **more) -> status.Look:
    said = recorded.now_json(AT_S - 1, **more) if now else {}
    return status.Look(fold("dflash", entries(events)), said, alive, True, AT_S)


def plain(document):
    return json.loads(json.dumps(document))


def test_the_status_document_has_every_field_of_the_contract():
    document = plain(status.document([look(LIVE)]))
    assert document["schema"] == "supervise.status/v1"
    (run,) = document["runs"]
    assert set(run) >= STATUS_RUN
    assert len(run["gpus"]) == 8
    assert all(set(gpu) >= STATUS_GPU for gpu in run["gpus"])
    assert run["supervisor"] == {"pid": 4242, "alive": True}
    assert run["knobs"] == {"token_budget": 45056, "max_batch_size": 48}
    assert run["protected"] == {"anchors": 1024, "layers": [1, 2]}
    assert (run["phase"], run["wanted"], run["attempt"], run["restarts"]) == ("running", "up", 2, 1)
    assert (run["step"], run["rate"], run["checkpoint"]) == (812, 3.42, "/w/checkpoints/step_710")
    assert run["last_failure"]["kind"] == "gpu_oom"
    assert run["last_failure"]["gpu"] == 5
    assert run["as_of"].endswith("+00:00")


def test_an_unreadable_gpu_is_no_gpu_at_zero():
    gpu = status.document([look(LIVE)])["runs"][0]["gpus"][6]
    assert (gpu["state"], gpu["used_mib"], gpu["util_pct"]) == ("unreadable", None, None)


def test_without_a_supervisor_there_is_no_pid_no_rate_and_no_fresh_reading():
    (run,) = status.document([look(LIVE, alive=False)])["runs"]
    assert run["supervisor"] == {"pid": None, "alive": False}
    assert run["rate"] is None
    assert {gpu["state"] for gpu in run["gpus"]} == {"stale"}


def test_without_now_json_the_journal_tells_the_phase():
    (run,) = status.document([look(LIVE, now=False)])["runs"]
    assert (run["phase"], run["step"], run["supervisor"]["pid"]) == ("running", 711, 999)
    assert {gpu["state"] for gpu in run["gpus"]} == {"unknown"}
    assert run["gpus"][5]["role"] == "drafter"


def test_a_record_that_is_newer_than_now_json_counts():
    late = status.Look(fold("d", entries(LIVE + recorded.halt())), recorded.now_json(T0_S), True, True, AT_S)
    assert late.phase == "halted"
    assert late.said("because", late.view.because) == "GPU 5 holds 900 MiB"


def test_what_is_said_of_an_earlier_attempt_says_nothing_of_this_one():
    said = look(LIVE, attempt=1, step=712)
    assert said.step == 711
    assert said.live("rate") is None


@pytest.mark.parametrize(
    ("more", "code"),
    [([], 0), (recorded.halt(), 9), (recorded.user_stop(), 3), (recorded.finish(), 0),
     ([ev.Degraded(attempt=2, failure=recorded.OOM)], 10)],
)  # fmt: skip
def test_the_exit_code_of_status(more, code):
    assert status.exit_code([look(LIVE + more, now=False)]) == code


def test_the_worst_of_several_runs_is_the_halted_one():
    runs = [look(LIVE), look(LIVE + recorded.halt(), now=False), look(LIVE + recorded.user_stop(), now=False)]
    assert status.exit_code(runs) == 9


def hostile(events):
    """The same records with a log line that tries to take the terminal over."""
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m boom \u202egnp\r\n" + "x" * 500
    failure = replace(recorded.OOM, because=evil, log_line=evil)
    return [replace(e, failure=failure) if isinstance(e, ev.Judged) else e for e in events]


def assert_harmless(text: str):
    assert max(map(len, text.split("\n"))) <= 80
    assert not words._HARMFUL.search(text.replace("\n", ""))


def test_status_for_people_fits_80_columns_and_no_log_line_moves_the_cursor():
    said = look(hostile(LIVE), phase="verifying")
    said = said._replace(now={**said.now, "last_line": "\x1b[2Jgone \x07" + "y" * 300, "because": "\x1b[31mred"})
    text = status.text([said], detailed=True)
    assert_harmless(text)
    assert "supervise down dflash" in text
    assert "GPU" in text


def test_a_name_of_forty_letters_still_fits():
    assert_harmless(status.text([look(LIVE)._replace(view=fold("n" * 40, entries(LIVE)))], detailed=True))


def test_status_says_what_comes_next_and_how_to_stop_it():
    text = status.text([look(LIVE)], detailed=True)
    assert "making progress" in text
    assert "to stop" in text
    assert "rate 3.42" in text


def test_an_ended_run_says_the_next_command_and_not_how_to_stop_it():
    text = status.text([look(LIVE + recorded.halt(), now=False)], detailed=True)
    assert "supervise gpus" in text
    assert "to stop" not in text


def test_a_run_of_another_machine_is_named_as_such():
    text = status.text([look(LIVE)._replace(here=False)], detailed=True)
    assert "belongs to box" in text
    assert "supervise adopt dflash --here" in text


def test_the_history_document_has_every_field_of_the_contract():
    document = plain(history.document(fold("dflash", entries(LIVE + recorded.halt()))))
    assert (document["schema"], document["run"]) == ("supervise.history/v1", "dflash")
    first, second = document["attempts"]
    for attempt in (first, second):
        assert set(attempt) >= ATTEMPT
        assert set(attempt["end"]) >= END
        assert set(attempt["verified_zero"]) >= {"waited_s", "used_mib", "holders"}
        assert set(attempt["decision"]) >= {"do", "lowered", "because"}
    assert first["end"] == first["end"] | {
        "kind": "gpu_oom", "code": 1, "signal": None, "gpu": 5, "tried_mib": 4853.76, "short_by_mib": 174.08,
    }  # fmt: skip
    assert first["decision"]["lowered"] == {"token_budget": [49152, 45056], "max_batch_size": [64, 48]}
    assert first["decision"]["do"] == "relaunch"
    assert first["stopped"] == [{"pid": 4002, "cmdline": "python train_dflash.py --rank 5", "by": "policy"}]
    assert first["verified_zero"]["waited_s"] == 4.25
    assert first["checkpoint"] == "/w/checkpoints/step_690"
    assert (second["end"]["kind"], second["end"]["signal"], second["decision"]["do"]) == ("code_error", 11, "halted")
    (holder,) = second["verified_zero"]["holders"]
    assert holder == holder | {"gpu": 5, "pid": 31, "user": "eve", "cmdline": "python other.py", "owner": "foreign"}


def test_an_attempt_stopped_by_the_user_ends_with_kind_none():
    document = history.document(fold("dflash", entries(LIVE + recorded.user_stop())))
    second = document["attempts"][1]
    assert (second["end"]["kind"], second["end"]["signal"]) == ("none", 15)
    assert [each["by"] for each in second["stopped"]] == ["user"]
    assert second["decision"]["do"] == "stopped"


def test_an_attempt_that_runs_has_no_end_and_no_decision():
    second = history.document(fold("dflash", entries(LIVE)))["attempts"][1]
    assert (second["ended_at"], second["end"], second["decision"], second["verified_zero"]) == (None, None, None, None)


def test_history_for_people_fits_80_columns_and_no_log_line_moves_the_cursor():
    events = hostile(LIVE + recorded.halt())
    assert_harmless(history.text(fold("dflash", entries(events)), AT_S))
    assert_harmless(history.events_text(entries(events)))


def test_history_tells_what_changed_and_the_seconds_to_zero():
    text = history.text(fold("dflash", entries(LIVE)), AT_S)
    assert "token_budget 49152 -> 45056" in text
    assert "after 4.2 s" in text
    assert "short by 174 MiB" in text


def test_a_run_that_never_launched_has_a_history_all_the_same():
    assert "nothing was ever launched" in history.text(fold("x", []), AT_S)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, "?"), (-1, "0 s"), (0.42, "0.4 s"), (41, "41 s"), (185, "3m 05s"), (7440, "2h 04m"), (442800, "5d 03h")],
)
def test_durations_for_people(seconds, said):
    assert words.duration(seconds) == said


def test_a_time_survives_the_way_through_iso():
    from datetime import datetime

    assert datetime.fromisoformat(words.iso(T0_S + 0.25)).timestamp() == T0_S + 0.25


def test_an_escape_sequence_that_is_cut_by_a_block_is_found():
    assert words.unfinished_escape("abc\x1b[3") == 3
    assert words.unfinished_escape("abc\x1b[31m") == 8
    assert words.unfinished_escape("abc") == 3


def test_a_block_of_output_keeps_its_lines_and_loses_its_escapes():
    assert words.safe_block("a\tb\r\n\x1b[31mred\x1b[0m\x07\n") == "a\tb\r\nred\\x07\n"


def test_each_gpu_is_told_with_peak_what_it_leaves_free_temperature_and_power():
    said = recorded.now_json(AT_S - 1)
    said["gpus"][0] |= {"peak_mib": 95000.0}
    found = status.Look(fold("dflash", entries(LIVE)), said, True, True, AT_S)
    first, second, *_, lost, _ = [line for line in status.text([found], detailed=True).splitlines() if "GiB" not in line
                                  and ("target" in line or "drafter" in line)]  # fmt: skip
    assert first.split() == ["0", "target", "87.9", "/", "95.0", "92.8", "2.2", "94%", "61", "512", "run"]
    assert second.split()[5:7] == ["-", "-"]
    assert lost.split() == ["6", "drafter", "?", "unreadable:", "GPU", "is", "lost"]
    assert status.document([found])["runs"][0]["gpus"][0]["peak_mib"] == 95000.0


def test_the_time_that_is_left_follows_from_the_pace_of_the_attempt():
    found = look(LIVE, step=911)
    (attempt,) = found.view.attempts[1:]
    trained_s = found.said_s - attempt.started_s - attempt.startup_s
    assert status.eta_s(found) == pytest.approx((2000 - 911) * trained_s / (911 - 711))
    assert "  to go       about " in status.text([found], detailed=False)
    assert status.document([found])["runs"][0]["eta_s"] == round(status.eta_s(found))


@pytest.mark.parametrize("more", [{"step": 715}, {"phase": "starting", "step": None}, {"attempt": 1}])
def test_too_early_or_without_a_step_nothing_is_said_of_the_end(more):
    assert status.eta_s(look(LIVE, **more)) is None
    assert status.eta_s(look(LIVE, alive=False, step=911)) is None


def test_each_gpu_is_told_with_its_owner_and_a_stranger_on_it_by_pid_and_user():
    live = status.gpus(look(LIVE))
    assert {gpu["owner"] for gpu in live} == {"run"}
    found = look(LIVE + recorded.halt())
    held = [gpu for gpu in status.gpus(found) if gpu["holder"] is not None]
    assert [(gpu["index"], gpu["owner"]) for gpu in held] == [(5, "foreign")]
    assert {gpu["owner"] for gpu in status.gpus(found)} == {"foreign", None}
    assert f"pid {held[0]['holder']['pid']} ({held[0]['holder']['user']})" in status.text([found], detailed=True)
