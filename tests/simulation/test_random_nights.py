"""Random nights keep every promise; and where the code is sabotaged, a promise is seen to break.

More of them: `python -m tests.simulation --nights 100000 --seed 1`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from broken import first_broken, minimised
from fake_machine import FakeMachine
from fake_specs import CHECKPOINTS
from lives import Life
from msgspec.structs import replace
from plots import Plot, plot_of
from promises import masked

from supervisor import loop
from supervisor.core import decisions
from supervisor.core.events import LaunchIntended
from supervisor.core.evidence import Checkpoint, Member, ProcessId, Proof
from supervisor.core.lineage import Lineage
from supervisor.core.zero import ZeroWatch

pytestmark = [pytest.mark.simulation, pytest.mark.many]

NIGHTS, PARTS = 2000, 40
TRIED = range(400)


@pytest.mark.parametrize("part", range(PARTS))
def test_random_nights_keep_every_promise(part: int) -> None:
    for seed in range(part * NIGHTS // PARTS, (part + 1) * NIGHTS // PARTS):
        why = first_broken(plot_of(seed))
        assert why is None, f"seed {seed}: {why}\n{minimised(plot_of(seed))}"


def test_a_seed_is_a_night() -> None:
    first, again = Life(plot_of(7)), Life(plot_of(7))
    first.lived()
    again.lived()
    assert first.transcript == again.transcript
    assert first.transcript != Life(plot_of(8)).transcript


def test_the_words_that_recovery_may_move_are_left_out_of_a_comparison() -> None:
    assert masked(("a", "--resume", "x", "--anchors", "1")) == ["a", "--anchors", "1"]


# ── sabotage ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def caught(what: str) -> Plot:
    """The first night that breaks in these words."""
    for seed in TRIED:
        why = first_broken(plot_of(seed))
        if why is not None and what in why:
            return plot_of(seed)
    pytest.fail(f"{len(TRIED)} nights, and none broke with {what!r}")


def test_a_launch_on_gpus_that_are_not_empty_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ZeroWatch, "verified", lambda *_: True)
    caught("VerifiedZero while")


def test_a_launch_beside_a_live_job_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    look = FakeMachine._members
    monkeypatch.setattr(FakeMachine, "_members", lambda self: replace(look(self), members=(), empty_looks=9))
    monkeypatch.setattr(ZeroWatch, "verified", lambda *_: True)
    caught("lived")


def test_a_signal_to_a_stranger_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    look = FakeMachine._members

    def with_holders(self: FakeMachine) -> object:
        seen = look(self)
        pids = [holder.pid for holder in self.world.holders() if holder.owner.value == "foreign"]
        theirs = tuple(Member(ProcessId(n, n * 10), "eve", Proof.TOKEN, "S", n, n, "") for n in pids)
        return replace(seen, members=(*seen.members, *theirs), empty_looks=0 if theirs else seen.empty_looks)

    monkeypatch.setattr(FakeMachine, "_members", with_holders)
    caught("a stranger was signalled")


def intending(monkeypatch: pytest.MonkeyPatch, change: Callable[[LaunchIntended], LaunchIntended]) -> None:
    """Every launch is intended otherwise than decided."""
    decide = loop.decide

    def otherwise(*given: Any) -> tuple[Any, ...]:
        return tuple(change(event) if isinstance(event, LaunchIntended) else event for event in decide(*given))

    monkeypatch.setattr(loop, "decide", otherwise)


def test_a_knob_that_goes_up_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    intending(monkeypatch, lambda event: replace(event, rungs=dict.fromkeys(event.rungs, event.attempt % 2)))
    caught("moved token_budget up")


def test_another_command_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    import fake_machine

    render = fake_machine.render

    def changed(spec: object, place: object) -> object:
        made = render(spec, place)  # type: ignore[arg-type]
        return replace(made, argv=(*made.argv, "--anchors", str(place.attempt)))  # type: ignore[attr-defined]

    monkeypatch.setattr(fake_machine, "render", changed)
    caught("was begun with")


def test_a_checkpoint_that_is_not_there_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def another(event: LaunchIntended) -> LaunchIntended:
        told = event.checkpoint
        return event if told is None else replace(event, checkpoint=replace(told, path=f"{told.path}0"))

    intending(monkeypatch, another)
    caught("which is not there")


def test_an_older_checkpoint_than_need_be_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Checkpoint(path=f"{CHECKPOINTS}/step_690", step=690, inode=101, mtime_ns=0)
    intending(monkeypatch, lambda event: replace(event, checkpoint=first) if event.checkpoint else event)
    caught("not from")


def test_a_rejected_branch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lineage, "launched", lambda self, told, present: self)
    caught("rejected branch")


def test_a_supervisor_that_waits_for_ever_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "verifying", lambda *_: ())
    caught("stuck in verifying")


def test_a_night_is_cut_down_to_what_breaks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ZeroWatch, "verified", lambda *_: True)
    plot = caught("VerifiedZero while")
    short = minimised(plot)
    assert first_broken(short) is not None
    assert 1 <= len(short.deeds) < len(plot.deeds)
    assert "up" in str(short)
