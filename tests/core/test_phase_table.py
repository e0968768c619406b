"""The one table of phases, and the diagram that the docs draw from it."""

from pathlib import Path

from supervisor.core.phases import ENDS, HAS_JOB, TRANSITIONS, Phase
from supervisor.views.diagram import phase_diagram

DOC = Path(__file__).parents[2] / "docs" / "recovery.md"


def test_the_docs_show_the_diagram_of_the_table():
    assert f"```mermaid\n{phase_diagram()}```" in DOC.read_text()


def test_finished_is_reached_only_with_the_gpus_verified_and_nothing_running():
    assert {source for source, trigger in TRANSITIONS if trigger == "EpisodeEnded:finished"} == {Phase.CLEANING}


def test_no_phase_with_a_job_ends_without_being_stopped_first():
    for phase in HAS_JOB:
        assert not [trigger for source, trigger in TRANSITIONS if source is phase and "EpisodeEnded" in trigger]


def test_a_launch_is_intended_from_cleaning_only_which_only_a_verified_zero_or_a_preflight_leads_to():
    assert {source for source, trigger in TRANSITIONS if trigger == "LaunchIntended"} == {Phase.CLEANING}
    to_cleaning = {trigger for (_, trigger), target in TRANSITIONS.items() if target is Phase.CLEANING}
    assert to_cleaning == {"VerifiedZero", "PreflightPassed"}


def test_an_end_is_left_only_by_a_new_episode_or_by_ending_what_is_left():
    assert {trigger for source, trigger in TRANSITIONS if source in ENDS} == {"EpisodeOpened", "StopIntended"}
