"""kill -9 in every phase of a night: the next supervisor takes the same step, nothing is launched twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from boxes import Box, Night, is_alive, kill, until
from msgspec.structs import replace

from supervisor.edges import proc, requests
from supervisor.edges.journal import Journal

pytestmark = [pytest.mark.real, pytest.mark.simulation]

SMALL = """\
version: 1
name: small
topology: {target: 1, drafter: 2}
command: [train.sh, "--target-gpus=${{ topology.target.gpus }}", "--drafter-gpus=${{ topology.drafter.gpus }}"]
params:
  protected: {anchors: 1024}
  knobs: {token_budget: {value: 49152, ladder: [45056]}}
resume: {from: "checkpoints/step_*", start: step_690, arg: --resume, if_none: fail}
output: {dir: out, stale: remove_if_empty}
health: {progress: {log: 'step (?P<step>\\d+)/'}}
"""
MOMENTS = (
    ("EpisodeOpened", {}),
    ("LaunchIntended", {"attempt": 1}),
    ("Launched", {"attempt": 1}),
    ("FirstProgress", {"attempt": 1}),
    ("Judged", {"attempt": 1}),
    ("SignalIntended", {"attempt": 1}),
    ("MembersGone", {"attempt": 1}),
    ("VerifiedZero", {"attempt": 1}),
    ("LaunchIntended", {"attempt": 2}),
    ("Launched", {"attempt": 2}),
    ("JobEnded", {"attempt": 2}),
    ("VerifiedZero", {"attempt": 2}),
)


def begin(box: Box, scenario: str, speed: str = "8") -> Night:
    return box.up(
        box.write("small.yaml", SMALL), "--simulate", SUPERVISE_SIM_SCENARIO=scenario, SUPERVISE_SIM_SPEED=speed
    )


def launches(night: Night) -> list[dict]:
    """What the stand-in itself wrote down at each of its starts."""
    path = night.dir.path / "world" / "starts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_night_of_kills_is_the_same_night(box):
    box.write("small.yaml", SMALL)
    asked = {"SUPERVISE_SIM_SCENARIO": "incident", "SUPERVISE_SIM_SPEED": "8"}
    verb = box.start("up", "-d", "--simulate", str(box.work / "small.yaml"), **asked)
    night = box.night("sim-small")
    for type_, fields in MOMENTS:
        night.until(type_, **fields)
        kill(night.supervisor, box.followed_guardian, box.tmux)
    assert verb.wait(60) == 0, verb.communicate()
    night.wait(0)
    first, second = night.history()["attempts"]
    assert first["end"]["kind"] == "gpu_oom"
    assert first["decision"]["lowered"] == {"token_budget": [49152, 45056]}
    assert max(first["verified_zero"]["used_mib"]) <= 64
    assert second["end"]["kind"] == "none"
    assert len(night.records("SupervisorStarted")) > len(MOMENTS) // 2  # moments that come together are one kill
    assert [launch["argv"] for launch in launches(night)] == [first["argv"][2:], second["argv"][2:]]
    assert [r["data"]["attempt"] for r in night.records("LaunchIntended")] == [1, 2]


def all_dead(box: Box, night: Night, attempt: int = 1) -> None:
    """As the power cut leaves it: nobody of this box lives."""
    kill(*box.guardians(), night.supervisor, box.tmux, night.runner(attempt))
    until(lambda: kill(*box.everybody()) or not box.everybody(), "nobody is left")


def rebooted(box: Box, night: Night) -> None:
    """What a reboot leaves: another boot id in all that was recorded; the folder of GPU locks and the cgroups gone."""
    boot_id, former = proc.boot_id(), "5f1b0a52-0000-4000-8000-000000000000"
    records = list(Journal.open(night.dir.journal, writer=False).read())
    night.dir.journal.unlink()
    night.dir.snapshot.unlink(missing_ok=True)
    journal = Journal.open(night.dir.journal, writer=True)
    for one in records:
        data = json.loads(json.dumps(one.data).replace(boot_id, former))
        journal.append(one.type, data, replace(one.at, boot_id=former, boot_s=one.at.boot_s + 90_000))
    journal.close()
    for path in box.home.root.rglob("*"):
        if path.is_file() and path.stat().st_size < 1 << 20 and boot_id.encode() in path.read_bytes():
            path.write_bytes(path.read_bytes().replace(boot_id.encode(), former.encode()))
    shutil.rmtree(box.root / "locks", ignore_errors=True)
    for cgroup in filter(Path.exists, box.cgroups()):
        cgroup.rmdir()


def test_a_reboot_goes_on_from_the_newest_checkpoint_on_verified_gpus(box):
    night = begin(box, "slow")
    night.until("CheckpointWritten", attempt=1)
    all_dead(box, night)
    rebooted(box, night)
    saved = [path for path in (night.dir.path / "scratch" / "checkpoints").iterdir() if path.name[:4] == "step"]
    newest = max(saved, key=lambda path: int(path.name[5:]))
    told = box.supervise("adopt", "--all", code=0)
    assert "sim-small: supervised" in told.err
    night.until("FirstProgress", attempt=2)
    night.down()
    first, second = night.history()["attempts"]
    assert first["end"]["kind"] == "killed"
    assert first["verified_zero"]["used_mib"] == [0, 0, 0]
    assert first["decision"]["lowered"] == {}
    assert second["checkpoint"] == str(newest)
    assert second["first_step"] == int(newest.name[5:]) + 1
    assert len(launches(night)) == 2


def test_a_stop_that_was_asked_for_while_everybody_was_dead_is_not_forgotten(box):
    night = begin(box, "slow")
    night.until("FirstProgress", attempt=1)
    all_dead(box, night)
    requests.put(night.dir, {"verb": "down", "args": {}})  # and whoever asked is gone too
    box.supervise("adopt", "--all", code=0)
    night.wait(3)
    assert len(launches(night)) == 1
    until(lambda: not night.dir.open.exists(), "the run is closed")
    assert night.status()["phase"] == "stopped"


def test_a_stop_survives_the_death_of_all_who_watch_while_it_goes_on(box):
    night = begin(box, "slow")
    night.until("FirstProgress", attempt=1)
    asked = box.start("down", "sim-small", "-y")
    for type_ in ("StopIntended", "SignalIntended", "MembersGone"):
        night.until(type_, attempt=1)
        kill(night.supervisor, box.followed_guardian, box.tmux, night.runner())
    assert asked.wait(60) == 0, asked.communicate()
    until(lambda: not night.dir.open.exists(), "the run is closed")
    assert len(night.records("LaunchIntended")) == 1
    assert not [pid for pid in night.members() if is_alive(pid)]
