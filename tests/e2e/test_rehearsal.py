"""A small run before the full one, with real processes in a real tmux."""

from __future__ import annotations

import pytest
from boxes import REPO, until

pytestmark = [pytest.mark.real, pytest.mark.simulation]


def test_a_small_run_goes_first_and_leaves_nothing_in_the_way_of_the_full_one(box):
    text = (REPO / "configs" / "dflash-4gpu.yaml").read_text().replace("workdir: ..", f"workdir: {REPO}")
    night = box.up(box.write("four.yaml", text), "--simulate", SUPERVISE_SIM_SCENARIO="well", SUPERVISE_SIM_SPEED="8")
    night.wait(0)
    first, last = night.history()["attempts"]
    assert (first["rehearsal"], last["rehearsal"]) == (True, False)
    small, full = first["argv"], last["argv"]
    assert small[small.index("--token-budget") + 1] == "8192"
    assert full[full.index("--token-budget") + 1] == "32768"
    assert first["verified_zero"]["is_zero"]
    assert last["because"].startswith("the rehearsal passed: ")
    assert last["checkpoint"] is None  # whatever the rehearsal saved
    own = night.dir.attempt(1).path / "rehearsal" / "checkpoints" / "4gpu"
    assert f"--checkpoint-dir={own}" in small
    assert list(own.glob("step_*"))


def test_hooks_run_around_each_attempt_and_a_halt_names_what_changed(box):
    """The script is edited between two attempts, and the second dies of it."""
    hook = box.write("hook.sh", '#!/bin/sh\necho "$@" >> hooks\ntest ! -e no\n', 0o755)
    more = f"hooks: {{before_launch: [{hook}, before], after_stop: [{hook}, after]}}\nlaunch: {{terminal: none}}\n"
    more += "recovery: {rules: [{on: exit, do: halt}]}\n"
    more += "health: {progress: {log: 'step (?P<step>[0-9]+)'}}\n"
    night = box.up(box.spec("a", "echo step 1; exec sleep 600", more))
    night.until("FirstProgress", attempt=1)
    until(lambda: night.dir.attempt(1).environment.exists(), "the fingerprint of attempt 1")
    seen = night.dir.attempt(2).environment  # taken beside the loop; a dead job waits for it some seconds only
    box.write("a.sh", f"#!/bin/sh\nuntil [ -e {seen} ]; do sleep 0.02; done; exit 1\n", 0o755)
    box.supervise("restart", "a", "-y", code=0)
    night.wait(9)
    assert (box.work / "hooks").read_text().split() == ["before", "after", "before", "after"]
    (drift,) = night.records("Drifted")
    assert drift["data"]["since"] == 1
    last = night.history()["attempts"][-1]
    assert "changed since attempt 1" in last["end"]["evidence"][-1]
    assert f"code {box.work}/a.sh" in last["decision"]["because"]
    box.write("no", "")
    box.supervise("up", "-d", str(box.work / "a.yaml"), code=6)
    assert len(night.records("LaunchIntended")) == 2
