"""What is looked at before a launch: checkpoints are looked at again where the first look is too old."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
from msgspec.structs import replace

from supervisor.core.decisions import GONE
from supervisor.core.evidence import Checkpoint, Instant
from supervisor.core.launching import FRESH_S
from supervisor.core.spec import Resume, RunSpec
from supervisor.core.state import Attempt, State
from supervisor.edges import proc
from supervisor.edges.checkpoints import scan
from supervisor.edges.paths import Home, RunDir
from supervisor.machines.asides import Asides
from supervisor.machines.before import Before
from supervisor.machines.remains import Remains


class Ender:
    def tidy(self) -> None:
        pass


class NoGpus:
    inventory = ()

    def has_locks(self, state: State) -> bool:
        return True


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = Home(tmp_path / "state").run("r")
    made.path.mkdir(parents=True)
    return made


@pytest.fixture
def state(tmp_path: Path) -> State:
    resume = Resume(from_=str(tmp_path / "step_*"), args=("--resume",))
    spec = RunSpec(name="r", command=("train",), file="r.yaml", workdir=str(tmp_path), resume=resume)
    return State(run="r", spec=spec)


def save(folder: Path, step: int) -> Path:
    made = folder / f"step_{step}"
    made.mkdir()
    header = json.dumps({"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    (made / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"full")
    return made


def looker(run: RunDir) -> tuple[Before, Asides]:
    asides = Asides(lambda: None)
    home = Home(run.path.parent.parent)
    return Before(home, run, str, NoGpus(), asides), asides


def seen(before: Before, state: State, run: RunDir, *, later_s: float = 0.0, unlike: object = None) -> list[int]:
    """The steps of the complete ones, once another answer than `unlike` is there."""
    remains = Remains(run)
    before.prepare(state, remains, Ender())
    while True:
        now = proc.now()
        if later_s:
            before.look_again(state, remains, replace(now, boot_s=now.boot_s + later_s))
        ready, _ = before.ready_answer(state)
        if ready is not None and ready is not unlike:
            seen.ready = ready
            return [one.step for one in ready.found if isinstance(one, Checkpoint)]
        os.sched_yield()


def test_a_checkpoint_that_went_while_a_hook_ran_is_not_offered_to_the_launch(run, state, tmp_path):
    save(tmp_path, 700)
    newest = save(tmp_path, 710)
    before, _ = looker(run)
    assert seen(before, state, run) == [710, 700]
    first = seen.ready
    os.truncate(newest / "model.safetensors", 20)
    assert seen(before, state, run, later_s=FRESH_S, unlike=first) == [700]
    assert seen.ready.token == first.token, "all else is as it was seen: a hook may have been given it"
    assert seen.ready.looked_boot_s > first.looked_boot_s


def test_what_was_seen_just_now_is_not_looked_at_again(run, state, tmp_path):
    save(tmp_path, 710)
    before, asides = looker(run)
    seen(before, state, run)
    just_now = replace(proc.now(), boot_s=seen.ready.looked_boot_s + FRESH_S / 4)
    before.look_again(state, Remains(run), just_now)
    assert [name for name in asides._begun if name.endswith("again")] == []


def test_a_folder_that_could_not_be_listed_may_answer_later(run, state, tmp_path, monkeypatch):
    from supervisor.machines import ready

    def deaf(resume: Resume) -> None:
        raise OSError("stale file handle")

    save(tmp_path, 710)
    before, _ = looker(run)
    with monkeypatch.context() as patched:
        patched.setattr(ready, "scan", deaf)
        assert seen(before, state, run) == []
        assert [one.text for one in seen.ready.problems] == ["checkpoints cannot be listed: stale file handle"]
    assert seen(before, state, run, later_s=FRESH_S, unlike=seen.ready) == [710]
    assert seen.ready.problems == ()


def intended(state: State, ago_s: float, now: Instant) -> State:
    assert state.spec is not None and state.spec.resume is not None
    (newest,) = scan(state.spec.resume)
    assert isinstance(newest, Checkpoint)
    began = replace(now, boot_s=now.boot_s - ago_s)
    attempt = Attempt(number=2, token="t", argv=("x",), rungs={}, checkpoint=newest, began=began)
    return replace(state, attempt=attempt)


def answer(before: Before, state: State, now: Instant) -> str:
    while (said := before.is_whole(state, now)) is None:
        os.sched_yield()
    return said


def test_a_launch_that_was_decided_before_a_reboot_is_not_made_from_what_the_reboot_left_cut_off(run, state, tmp_path):
    before, _ = looker(run)
    newest, now = save(tmp_path, 710), proc.now()
    assert answer(before, state, now) == "", "nothing was decided"
    old = intended(state, 3600.0, now)
    assert answer(before, old, now) == "", "it is whole"
    before, _ = looker(run)
    (newest / "model.safetensors").write_bytes(b"")
    assert answer(before, old, now).startswith(f"{GONE}{newest} was complete when it was chosen, and is not: ")
    before, _ = looker(run)
    assert answer(before, old, replace(now, boot_id="another boot")).startswith(GONE)


def test_a_launch_that_was_decided_just_now_is_made_at_once(run, state, tmp_path):
    before, asides = looker(run)
    save(tmp_path, 710)
    now = proc.now()
    assert before.is_whole(intended(state, 0.1, now), now) == ""
    assert not asides._begun
