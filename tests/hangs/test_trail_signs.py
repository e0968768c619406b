"""Phases and bars in real logs: entered, left, growing. What merely repeats grows nothing."""

from __future__ import annotations

import pytest
from fake_specs import incident
from msgspec.structs import replace

from supervisor.core.spec import Health, Progress
from supervisor.edges.paths import AttemptDir
from supervisor.machines.trail import Trail


@pytest.fixture
def logs(tmp_path):
    """The job's output, and a trail that follows it; both are let go of."""
    phase: dict[str, str | float] = {"name": "eval", "from": "Running eval", "to": "eval done", "limit_s": 60.0}
    progress = Progress(log=r"step (?P<step>\d+)", in_=(str(tmp_path / "rank*.log"),))
    spec = replace(incident(), logs=(), health=Health(progress=progress, phases=(phase,)))
    trail = Trail(spec, AttemptDir(1, tmp_path), None)
    try:
        yield Logs(tmp_path, trail)
    finally:
        trail.close()


class Logs:
    def __init__(self, folder, trail: Trail) -> None:
        self.folder, self.trail, self.now_s = folder, trail, 100.0

    def say(self, text: str, file: str = "output.log", **how):
        with open(self.folder / file, "a") as log:
            log.write(text)
        return self.look(**how)

    def look(self, **how):
        self.now_s += 1.0
        self.trail._follower._look_for_new = True  # a new file of a glob is looked for once a second
        return self.trail.look(self.now_s, ended=False, **how)


def signs(seen) -> list[tuple[str, int, int]]:
    return [(one.what, one.n, one.total) for one in seen.signs]


def test_a_phase_is_entered_and_left_in_any_log(logs):
    assert logs.say("Running eval\n").marks == (("eval", True, 101.0),)
    assert logs.say("eval done\n", file="rank0.log").marks == (("eval", False, 102.0),)
    assert logs.look().marks == ()


def test_a_bar_that_grows_is_a_sign_and_one_that_is_drawn_again_is_none(logs):
    bar = "\rEvaluating:  {0}%|{1}      | {0}/100 [00:10<00:20,  4.5it/s]"
    assert signs(logs.say(bar.format(10, "#"), quiet=True)) == [], "the first sight is no growth"
    assert signs(logs.say(bar.format(11, "#"), quiet=True)) == [("Evaluating", 11, 100)]
    assert signs(logs.say(bar.format(11, "#"), quiet=True)) == []
    assert signs(logs.say(bar.format(12, "#"))) == [], "nobody looks for bars while steps come"
    assert signs(logs.say("heartbeat 17/1000 alive\n", quiet=True)) == [("Evaluating", 12, 100)]
    assert signs(logs.say("heartbeat 18/1000 alive\n", quiet=True)) == [], "a count without a bar is none"
    assert signs(logs.look(quiet=True)) == []


def test_a_bar_of_box_characters(logs):
    logs.say("Working ━━━━━╸ 10/50 0:00:10\n", file="rank1.log", quiet=True)
    assert signs(logs.say("Working ━━━━━━╸ 12/50 0:00:08\n", file="rank1.log", quiet=True)) == [("", 12, 50)]


def test_a_load_counts_its_shards_before_the_first_step(logs):
    logs.say("loading shard 12 of 47\n", quiet=True, loading=True)
    assert signs(logs.say("loading shard 13 of 47\n", quiet=True, loading=True)) == [("loading shard", 13, 47)]
    assert signs(logs.say("loading shard 14 of 47\n", quiet=True)) == []
    vllm = "Loading safetensors checkpoint shards:  {0}% Completed | {1}/30 [00:01<00:09]\r"
    logs.say(vllm.format(3, 1), quiet=True, loading=True)
    assert (30, 2) in [(t, n) for _, n, t in signs(logs.say(vllm.format(6, 2), quiet=True, loading=True))]
