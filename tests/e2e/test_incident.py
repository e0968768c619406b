"""The incident, with real processes in a real tmux: what the verbs say of each way in which the night can go.

The nights run side by side in one state directory, as they would on a shared box.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from boxes import REPO, Box, Night

pytestmark = [pytest.mark.real, pytest.mark.simulation]

DFLASH = (REPO / "configs" / "dflash.yaml").read_text().replace("workdir: ..", f"workdir: {REPO}")
SMALL = """\
version: 1
name: small
topology: {target: 1, drafter: 2}
command: [train.sh, "--target-gpus=${{ topology.target.gpus }}", "--drafter-gpus=${{ topology.drafter.gpus }}"]
params:
  protected: {anchors: 1024}
  knobs: {token_budget: {value: 49152, ladder: [45056]}}
resume: {from: "checkpoints/step_*", start: step_690, arg: --resume, if_none: fail}
health: {progress: {log: 'step (?P<step>\\d+)'}}
"""
LOWERED = {"token_budget": [49152, 45056], "max_batch_size": [64, 48]}


def begin(box: Box, name: str, text: str, scenario: str, times: int = 1) -> None:
    """A simulated night of this scenario in its first `times` launches, under this name."""
    was = text.split("\nname: ")[1].split("\n")[0]
    spec = box.write(f"{name}.yaml", text.replace(f"\nname: {was}\n", f"\nname: {name}\n"))
    asked = {"SUPERVISE_SIM_SCENARIO": scenario, "SUPERVISE_SIM_TIMES": str(times), "SUPERVISE_SIM_SPEED": "8"}
    box.up(spec, "--simulate", **asked)


@pytest.fixture(scope="module")
def nights(tmp_path_factory) -> Iterator[Box]:
    """All of them, begun and not waited for."""
    box = Box(tmp_path_factory.mktemp("nights"))
    try:
        begin(box, "hang", SMALL.replace("log: ", "stall: 4s, log: "), "hang")
        begin(box, "exit", SMALL, "exit1", times=9)
        begin(box, "forgets", SMALL, "forgets", times=9)
        begin(box, "silent", SMALL.replace("drafter: 2", "drafter: {gpus: 2, for: 2s}"), "silent")
        begin(box, "survive", DFLASH, "survive")
        begin(box, "dflash", DFLASH, "incident", times=9)
        begin(box, "ladder", SMALL, "always_oom", times=9)
        yield box
    finally:
        box.close()


def differences(one: list[str], other: list[str]) -> dict[str, tuple[str, str]]:
    """The words in which two argvs differ, by the flag before them."""
    assert len(one) == len(other)
    pairs = enumerate(zip(one, other, strict=True))
    return {one[n - 1]: (before, after) for n, (before, after) in pairs if before != after}


def newest_saved(night: Night, attempt: int) -> int:
    """The step of the newest checkpoint that the run had after this attempt."""
    return max((r["data"]["checkpoint"]["step"] for r in night.has("CheckpointWritten", attempt=attempt)), default=690)


def test_the_night_of_the_incident_ends_in_a_finished_run(nights):
    night = nights.night("sim-dflash")
    night.wait(0)

    first, second = night.history()["attempts"]
    end = first["end"]
    assert (end["kind"], end["gpu"], end["code"]) == ("gpu_oom", 5, 1)
    assert end["short_by_mib"] == pytest.approx(174, abs=1)
    assert (end["tried_mib"], end["free_mib"]) == (pytest.approx(4854, abs=1), pytest.approx(4680, abs=1))
    assert "CUDA out of memory" in end["log_line"]
    assert (first["decision"]["do"], first["decision"]["lowered"]) == ("relaunch", LOWERED)
    assert "GPU 5" in first["decision"]["because"]
    assert first["knobs"] == {"token_budget": 49152, "max_batch_size": 64}

    orphans = first["stopped"]
    assert len(orphans) == 5  # the target's workers, in sessions of their own, after their launcher was gone
    assert {one["by"] for one in orphans} == {"policy"}
    assert all("trainer.py" in one["cmdline"] for one in orphans)
    zero = first["verified_zero"]
    assert len(zero["used_mib"]) == 8
    assert all(0 <= used <= 64 for used in zero["used_mib"])
    assert zero["holders"] == []

    assert (second["end"]["kind"], second["decision"]["do"]) == ("none", "finished")
    assert (second["first_step"], second["last_step"]) == (691, 720)
    assert second["checkpoint"].endswith("step_690")
    assert differences(first["argv"], second["argv"]) == {
        "--token-budget": ("49152", "45056"),
        "--max-batch-size": ("64", "48"),
    }

    status = night.status()
    assert (status["phase"], status["attempt"], status["restarts"]) == ("finished", 2, 1)
    assert status["last_failure"] is None
    assert status["supervisor"]["pid"] is None
    launched = (night.dir.path / "world" / "starts.jsonl").read_text().splitlines()
    assert len(launched) == 2


def test_two_drafters_die_and_the_job_trains_on_with_the_third(nights):
    night = nights.night("sim-survive")
    night.wait(0)
    first, second = night.history()["attempts"]
    assert (first["end"]["kind"], first["end"]["gpu"]) == ("gpu_oom", 5)
    stop = night.until("StopIntended", attempt=1)
    assert not [
        end for end in night.has("JobEnded", attempt=1) if end["n"] < stop["n"]
    ]  # it was stopped, it trained on
    assert first["decision"]["lowered"] == LOWERED
    assert {one["by"] for one in first["stopped"]} == {"policy"}
    assert set(differences(first["argv"], second["argv"])) <= {"--token-budget", "--max-batch-size", "--resume"}
    assert all(0 <= used <= 64 for used in first["verified_zero"]["used_mib"])
    # Whatever it saved while it crawled on is the newest checkpoint in play.
    assert newest_saved(night, 1) > 690
    assert second["checkpoint"].endswith(f"step_{newest_saved(night, 1)}")


def test_a_trainer_that_begins_again_is_stopped_at_once_and_the_run_halts(nights):
    night = nights.night("sim-forgets")
    assert "halted" in night.wait(9).err
    first, second = night.history()["attempts"]
    assert (first["end"]["kind"], first["decision"]["do"]) == ("exit", "relaunch")
    assert second["checkpoint"].endswith("step_690")
    assert (second["end"]["kind"], second["decision"]["do"]) == ("lost_progress", "halted")
    assert {r["data"]["signal"] for r in night.has("SignalSent", attempt=2)} == {"SIGKILL"}  # it saves nothing more
    assert list((night.dir.path / "scratch" / "checkpoints").glob("step_690"))
    assert night.status()["last_failure"]["kind"] == "lost_progress"


def test_a_ladder_that_is_used_up_halts_with_the_reason_and_what_to_do(nights):
    night = nights.night("sim-ladder")
    said = night.wait(9)
    assert "halted" in said.err
    attempts = night.history()["attempts"]
    assert [(one["end"]["kind"], one["knobs"]["token_budget"]) for one in attempts] == [
        ("gpu_oom", 49152),
        ("gpu_oom", 45056),
    ]
    assert attempts[-1]["decision"]["do"] == "halted"
    assert all(max(one["verified_zero"]["used_mib"]) <= 64 for one in attempts)
    status = night.status()
    assert status["phase"] == "halted"
    assert "rung" in status["because"]
    assert status["last_failure"]["kind"] == "gpu_oom"
    told = "".join(nights.supervise("status", night.name, code=0).out.split())  # lines are folded
    assert f"superviseup--simulate{nights.work}/ladder.yaml" in told


def test_a_hang_is_relaunched_as_it_was(nights):
    night = nights.night("sim-hang")
    night.wait(0)
    attempts = night.history()["attempts"]
    first, last = attempts[0], attempts[-1]
    assert first["end"]["kind"] == "hang"
    assert {one["by"] for one in first["stopped"]} == {"policy"}  # it was alive
    assert first["decision"]["lowered"] == {}
    assert set(differences(first["argv"], last["argv"])) <= {"--resume"}
    (dump,) = first["dumps"]  # written before anybody was signalled
    text = Path(dump["path"]).read_text()
    assert text.count("wchan: ") >= 4  # the launcher and its three workers
    assert "== last line of each log" in text
    assert night.until("Dumped", attempt=1)["n"] < night.until("StopIntended", attempt=1)["n"]


def test_a_drafter_that_falls_silent_is_missed_and_the_run_relaunched_with_all_its_gpus(nights):
    """As in the incident: 30.5 GiB stay held at 0 %, no word in the log, and the others train on."""
    night = nights.night("sim-silent")
    night.wait(0)
    attempts = night.history()["attempts"]
    first, last = attempts[0], attempts[-1]
    assert (first["end"]["kind"], first["end"]["gpu"]) == ("silent_gpu", 2)
    assert "GPU 2 (drafter) fell silent" in first["end"]["because"]
    assert "running on 1 of 2 drafters" in first["end"]["because"]
    assert {one["by"] for one in first["stopped"]} == {"policy"}
    assert first["decision"]["lowered"] == {}
    assert (last["end"]["kind"], last["decision"]["do"]) == ("none", "finished")


def test_an_unexplained_end_is_tried_again_twice_and_then_halts(nights):
    night = nights.night("sim-exit")
    night.wait(9)
    attempts = night.history()["attempts"]
    assert [(one["end"]["kind"], one["end"]["code"]) for one in attempts] == [("exit", 1)] * 3
    assert attempts[0]["argv"] == attempts[1]["argv"] == attempts[2]["argv"]
    assert [one["decision"]["lowered"] for one in attempts] == [{}, {}, {}]
