"""How well the driver says that GPUs are: errors, remapped rows, Xid events; and that it may not say."""

from __future__ import annotations

import select
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nvml_stub import StubState, uuid_of

from supervisor.edges.gpus import Gpus
from supervisor.simulation.nvml import World

UUIDS = [uuid_of(0), uuid_of(1)]


def health(gpus: Gpus, *uuids: str) -> dict[str, dict[str, Any]]:
    """Asked, and waited for."""
    before = gpus.health_boot_s
    gpus.ask_health(uuids)
    poll = select.poll()
    poll.register(gpus, select.POLLIN)
    while gpus.health_boot_s == before:
        poll.poll(1000)
        gpus.take()
    return gpus.health


def test_errors_and_address_of_each_gpu_are_told(opened: Callable[..., Gpus], driver: Path, state: StubState) -> None:
    state.cards[1].errors = 3
    state.write()
    found = health(opened(driver), *UUIDS)
    assert found[UUIDS[0]] == {"pci": "00000000:3B:00.0", "errors": 0, "unfit": None, "xids": []}
    assert found[UUIDS[1]]["errors"] == 3


@pytest.mark.parametrize(("field", "words"), [("pending", "needs a reset"), ("failed", "is to be replaced")])
def test_a_gpu_with_a_remapping_that_is_not_done_is_unfit(
    opened: Callable[..., Gpus], driver: Path, state: StubState, field: str, words: str
) -> None:
    setattr(state.cards[0], field, 1)
    state.write()
    assert words in health(opened(driver), *UUIDS)[UUIDS[0]]["unfit"]


def test_xid_events_are_told_once_and_only_from_the_first_question_on(
    opened: Callable[..., Gpus], driver: Path, state: StubState
) -> None:
    gpus = opened(driver)
    assert health(gpus, *UUIDS)[UUIDS[0]]["xids"] == []
    state.cards[0].xids = (79, 45)
    state.write()
    assert health(gpus, *UUIDS)[UUIDS[0]]["xids"] == [79, 45]
    assert health(gpus, *UUIDS)[UUIDS[0]]["xids"] == []


def test_a_gpu_without_ecc_does_not_tell_and_is_not_unfit(
    opened: Callable[..., Gpus], driver: Path, state: StubState
) -> None:
    state.cards[0].errors = -1
    state.write()
    found = health(opened(driver), *UUIDS)[UUIDS[0]]
    assert (found["errors"], found["unfit"]) == (None, None)


def test_a_lost_gpu_says_why_and_the_others_answer(opened: Callable[..., Gpus], driver: Path, state: StubState) -> None:
    state.cards[0].rc = 15
    state.write()
    found = health(opened(driver), *UUIDS)
    assert found[UUIDS[0]]["code"] == 15 and found[UUIDS[1]]["errors"] == 0


def test_the_simulation_does_not_tell(tmp_path: Path) -> None:
    world = World.create(tmp_path / "world")
    gpus = Gpus(world=world.directory)
    (one, *_) = gpus.list()
    assert health(gpus, one.uuid)[one.uuid] == {"pci": None, "errors": None, "unfit": None, "xids": []}
    gpus.close()


def test_readings_go_on_while_health_is_asked(opened: Callable[..., Gpus], driver: Path) -> None:
    gpus = opened(driver)
    gpus.ask_health(UUIDS)
    gpus.ask(UUIDS)
    poll = select.poll()
    poll.register(gpus, select.POLLIN)
    while len(gpus.take()) < 2:
        poll.poll(1000)
    assert set(gpus.health) == set(UUIDS)
