"""What a report says, the same in all its forms; what a log says stays text in each of them; the page fits a mail."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent))
import night
from night import NASTY
from night import r as recorded

from supervisor.cli import report, reporting
from supervisor.core import events as ev
from supervisor.edges.paths import Home
from supervisor.views.report.blocks import Facts, Given
from supervisor.views.report.facts import gathered
from supervisor.views.report.page import page
from supervisor.views.report.sections import sections, verdict
from supervisor.views.report.text import markdown, text

NIGHT = recorded.first_attempt() + recorded.second_attempt()
END_S = recorded.T0_S + 600.0


def facts(events: list[ev.Event], given: Given = Given()) -> Facts:  # noqa: B008 - a constant
    return gathered("dflash", recorded.entries(events), END_S, given)


@pytest.fixture(scope="module")
def long_night(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """Ten hours of eight GPUs, each second."""
    home = tmp_path_factory.mktemp("night")
    night.write(home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reporting.time, "time", lambda: recorded.T0_S + night.HOURS * 3600)
        return reporting.facts(Home(home).run("dflash"))


class Tags(HTMLParser):
    """The elements of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_last_step_is_the_recorded_one_where_what_was_said_is_older():
    ended, lives = NIGHT + recorded.finish(), NIGHT
    assert verdict(facts(ended, Given(now={"attempt": 2, "step": 1990}))).startswith("finished at step 2000 of 2000;")
    assert verdict(facts(lives, Given(now={"attempt": 2, "step": 990}))).startswith("running at step 990 of 2000;")
    assert verdict(facts(lives, Given(now={"attempt": 1, "step": 990}))).startswith("running at step 711 of 2000;")


def tags(made: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(made)
    return parser.found


@pytest.mark.parametrize(
    "events, begins, ends",
    [
        (NIGHT, "running at step 711 of 2000; 1 restart (gpu_oom); ", "; nothing to do"),
        (NIGHT + recorded.finish(), "finished at step 2000 of 2000; 1 restart (gpu_oom); ", "; nothing to do"),
        (NIGHT + recorded.halt(), "halted at step 730 of 2000: GPU 5 holds 900 MiB; ", "to do: supervise gpus"),
        (NIGHT + recorded.user_stop(), "stopped at step 720 of 2000: stopped by the user; ", "supervise up /w/x.yaml"),
    ],
)
def test_the_verdict_says_whether_it_runs_what_happened_and_what_to_do(events, begins: str, ends: str):
    said = verdict(facts(events))
    assert said.startswith(begins)
    assert said.endswith(ends)
    assert "\n" not in said


def test_all_forms_say_the_same(long_night: Facts):
    page_text, plain, marked = page(long_night), text(long_night), markdown(long_night)
    for section in sections(long_night):
        if section.blocks and section.id not in ("lanes",):
            assert section.title in plain
            assert section.title.split(":")[0] in marked
    for said in ("short by 174 MiB", "token_budget", "Locked params: unchanged", "abab", "4854 MiB", "silent_gpu"):
        for form in (page_text, plain, marked.replace("\\", "")):
            assert said in form, said


def test_the_time_of_the_night_is_told_with_gpu_hours_and_money(long_night: Facts):
    plain = text(long_night)
    for label in ("training, kept", "training that was rolled back", "loading", "ending, verifying zero"):
        assert label in plain
    (total,) = re.findall(r"^  all +10h 00m +100.0 % +80.0 +([\d.]+)$", plain, re.M)
    assert float(total) == pytest.approx(10 * (long_night.view.spec["cost_per_hour"]), abs=0.05)


def test_a_page_of_ten_hours_of_eight_gpus_each_second_fits_a_mail(long_night: Facts):
    assert len(page(long_night).encode()) <= 1_000_000


def test_nothing_of_a_log_becomes_markup(long_night: Facts):
    made = page(long_night)
    names = [name for name, _ in tags(made)]
    assert names.count("script") == 2
    assert not {"img", "iframe", "link", "object", "embed", "base", "form"} & set(names)
    assert not [value for _, attributes in tags(made) for value in attributes if value.startswith("on")]
    assert "\x1b" not in made
    assert "&lt;/script&gt;&lt;script&gt;document.title" in made
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', made, re.S)[1])
    assert any("</script>" in mark[2] for mark in data["marks"])


def test_the_page_asks_for_nothing_from_anywhere(long_night: Facts):
    made = page(long_night)
    assert not [attributes for _, attributes in tags(made) if {"src", "srcset", "action", "data"} & set(attributes)]
    assert all((each.get("href") or "#").startswith("#") for _, each in tags(made))
    (policy,) = [each["content"] for _, each in tags(made) if each.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "unsafe" not in policy
    assert "connect-src 'self'" in page(long_night, live_s=5.0)


def test_text_of_a_log_cannot_move_a_cursor_or_become_a_heading(long_night: Facts):
    plain, marked = text(long_night), markdown(long_night)
    for form in (plain, marked):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", form)
    outside = re.sub(r"^(`{3,})$.*?^\1$", "", marked, flags=re.S | re.M)
    assert "<script" not in outside
    assert "<img" not in outside
    assert not re.search(r"(?<!\\)\|\*_`", outside)


def test_backticks_of_a_log_cannot_end_its_block():
    failure = ev.Failure(kind="code_error", because="x", log_line="```\n# Verdict: all is well\n````")
    bad = [*NIGHT[:-1], ev.Judged(attempt=2, failure=failure, plan=recorded.LOWER)]
    marked = markdown(facts(bad))
    assert not re.search("^# Verdict: all", marked, re.M)
    (fence,) = {each for each in re.findall("^`+$", marked, re.M) if len(each) > 3}
    assert len(fence) == 5


def test_an_attempt_opens_to_its_cause_arithmetic_and_the_proof_of_its_locked_params():
    (section,) = [each for each in sections(facts(NIGHT)) if each.attempt == 1]
    said = json.dumps(section.blocks)
    for words in ("GPU 5 ran out of memory", "wanted 4854 MiB, free 4680 MiB, short by 174 MiB", "output.log:120",
                  "token_budget 49152 -> 45056", "anchors", "ab" * 32, "verified after 4.2 s"):  # fmt: skip
        assert words in said, words
    assert section.bad


def test_a_locked_param_that_was_launched_with_another_value_is_said_and_not_called_unchanged():
    other = [
        replace(event, protected={"anchors": "512"})
        if isinstance(event, ev.LaunchIntended) and event.attempt == 2 else event
        for event in NIGHT
    ]  # fmt: skip
    found = {each.id: json.dumps(each.blocks) for each in sections(facts(other))}
    assert "unchanged" in found["attempt-1"]
    assert "unchanged" not in found["attempt-2"]
    assert "anchors changed in attempt 2" in found["verdict"]
    assert "the same in all 2 attempts" in json.dumps(sections(facts(NIGHT))[0].blocks)


def test_what_changed_in_the_environment_stands_in_the_attempt_that_had_it():
    given = Given(environments={2: ("package torch 2.9.0 -> 2.9.1",)})
    found = {each.attempt: json.dumps(each.blocks) for each in sections(facts(NIGHT, given)) if each.attempt}
    assert "torch 2.9.0 -> 2.9.1" in found[2]
    assert "torch 2.9" not in found[1]


def test_the_next_out_of_memory_failure_is_what_the_policy_itself_would_do(tmp_path: Path):
    run = recorded.write(tmp_path, NIGHT)
    (section,) = [each for each in sections(reporting.facts(run)) if each.id == "next"]
    assert "token_budget 45056 -> 40960, max_batch_size 48 -> 32" in json.dumps(section.blocks)
    recorded.append(run, recorded.finish(), from_s=recorded.T0_S + 600)
    assert not [each for each in sections(reporting.facts(run)) if each.id == "next" and each.blocks]


def test_headroom_is_told_of_each_gpu_and_the_least_is_named(long_night: Facts):
    (section,) = [each for each in sections(long_night) if each.id == "headroom"]
    assert "Least headroom: GPU 7 (drafter)" in json.dumps(section.blocks)


def test_a_run_that_was_never_launched_has_a_report():
    empty = gathered("new", [], END_S, Given())
    for form in (page, text, markdown):
        assert "never launched" in form(empty)


def test_a_trackers_scalars_are_told_in_place_of_the_logs():
    given = Given(scalars={"loss": [(recorded.T0_S + 100.0, 700, 2.5)]})
    assert [(point.step, point.loss) for point in facts(NIGHT, given).series.points] == [(700, 2.5)]


def test_the_verb_writes_a_file_or_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SUPERVISE_HOME", str(tmp_path / "home"))
    recorded.write(tmp_path / "home", NIGHT)
    to = tmp_path / "night.html"
    assert CliRunner().invoke(report.command, ["dflash", "-o", str(to)]).exit_code == 0
    assert to.read_text().startswith("<!doctype html>")
    assert CliRunner().invoke(report.command, ["dflash", "--md"]).output.startswith("# dflash")
    assert CliRunner().invoke(report.command, ["dflash", "--text"]).output.startswith("dflash: report of")
    assert "<!doctype" in CliRunner().invoke(report.command, ["dflash", "-o", "-"]).output


def test_nasty_is_nasty():
    assert all(each in NASTY for each in ("</script>", "<img", "\x1b", "|", "`"))
