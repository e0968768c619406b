"""`supervise gpus` as a user meets it: a process of its own, a driver's library, real holders, locks and journals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from nvml_stub import StubState, uuid_of

from supervisor.cli.gpus import ids_of
from supervisor.core.evidence import Gpu, Holder, Owner, Reading, Unreadable
from supervisor.edges import gpulocks
from supervisor.simulation.nvml import World
from supervisor.views import gpus as view

pytestmark = pytest.mark.real

MAIN = "from supervisor.cli import main; main()"
HOLD = "import sys; files = [open(path, 'rb') for path in sys.argv[1:]]; print('held', flush=True); sys.stdin.read()"
Verb = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def surroundings(tmp_path: Path, state: StubState, driver: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State, locks, device nodes and driver of this test alone; the place of the device nodes."""
    dev = tmp_path / "dev"
    dev.mkdir()
    for name in ("nvidia-uvm", *(f"nvidia{minor}" for minor in range(8))):
        (dev / name).write_bytes(b"")
    for name, value in {
        "SUPERVISE_HOME": str(tmp_path / "home"),
        "SUPERVISE_LOCKS": str(tmp_path / "locks"),
        "SUPERVISE_DEV": str(dev),
        **state.environ(driver),
    }.items():
        monkeypatch.setenv(name, value)
    return dev


@pytest.fixture
def verb(surroundings: Path) -> Verb:
    def run(*args: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", MAIN, "gpus", *args]
        return subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False)

    return run


@pytest.fixture
def hold(surroundings: Path) -> Iterator[Callable[..., int]]:
    made: list[subprocess.Popen[bytes]] = []

    def begin(*names: str, **environ: str) -> int:
        argv = [sys.executable, "-c", HOLD, *(str(surroundings / name) for name in names)]
        environ = {**os.environ, **environ}
        made.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ))
        out = made[-1].stdout
        assert out is not None and out.readline() == b"held\n"
        return made[-1].pid

    yield begin
    for each in made:
        each.kill()
        each.communicate()


def gpus_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    plain = json.loads(done.stdout)
    assert plain["schema"] == "supervise.gpus/v1"
    return list(plain["gpus"])


def test_gpus_are_told_as_json_with_their_holders(verb: Verb, state: StubState, hold: Callable[..., int]) -> None:
    pid = hold("nvidia-uvm", "nvidia5")
    state.cards[5].used_mib, state.cards[5].util = 70000, 94
    state.write()
    done = verb("-o", "json")
    assert done.returncode == 0
    five = gpus_of(done)[5]
    assert (five["index"], five["uuid"], five["used_mib"], five["util_pct"]) == (5, uuid_of(5), 70000, 94)
    assert five["total_mib"] == 97249 and five["run"] is None
    (holder,) = five["holders"]
    assert holder["pid"] == pid and holder["user"] and "sys.stdin.read" in holder["cmdline"]


def test_a_gpu_that_is_idle_between_attempts_still_shows_its_run(verb: Verb) -> None:
    locks = gpulocks.take([uuid_of(3)], "dflash")
    assert isinstance(locks, gpulocks.GpuLocks)
    try:
        done = verb("-o", "json", "--gpus", "2-3")
        assert [gpu["run"] for gpu in gpus_of(done)] == [None, "dflash"]
        text = verb("--gpus", "3").stdout
    finally:
        locks.release()
    assert "dflash of " in text and all(len(line) <= 80 for line in text.splitlines())


def test_a_gpu_that_does_not_answer_is_unknown_and_said(verb: Verb, state: StubState) -> None:
    state.cards[6].rc = 15
    state.write()
    done = verb()
    assert done.returncode == 0
    assert "not answering: GPU 6: GPU is lost" in done.stderr
    assert verb("--wait-zero", "--gpus", "6").returncode == 8
    waited = verb("--wait-zero", "--timeout", "4s")
    assert waited.returncode == 8 and "GPU 6" in waited.stderr


def test_wait_zero_is_0_once_all_were_read_as_empty(verb: Verb, state: StubState) -> None:
    done = verb("--wait-zero", "--gpus", "0-7", "--timeout", "60s", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["zero"] is True


def test_wait_zero_is_8_and_names_who_holds(verb: Verb, state: StubState, hold: Callable[..., int]) -> None:
    pid = hold("nvidia-uvm", "nvidia5")
    state.cards[5].used_mib = 70000
    state.write()
    done = verb("--wait-zero", "--gpus", "5", "--timeout", "3s")
    assert done.returncode == 8
    assert "GPU 5: 70000 MiB in use, its floor is 0 MiB" in done.stderr
    assert f"pid {pid} of " in done.stderr


def test_wait_zero_learns_what_an_idle_gpu_keeps_while_nobody_holds_it(verb: Verb, state: StubState) -> None:
    for card in state.cards:
        card.used_mib = 87
    state.write()
    assert verb("--wait-zero", "--timeout", "60s").returncode == 0


def test_memory_that_nobody_seems_to_hold_is_not_zero(verb: Verb, state: StubState) -> None:
    state.cards[5].used_mib = 70 * 1024
    state.write()
    assert verb("--wait-zero", "--gpus", "5", "--timeout", "6s").returncode == 8


def test_without_a_driver_the_message_says_what_to_do(
    verb: Verb, no_driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(no_driver))
    done = verb()
    assert done.returncode == 1 and "no NVIDIA driver" in done.stderr and not done.stdout
    assert verb("--wait-zero").returncode == 8


def test_a_gpu_that_is_not_there_is_a_mistake_of_usage(verb: Verb) -> None:
    done = verb("--gpus", "5,9")
    assert done.returncode == 2 and "GPU 9 is not on this box" in done.stderr


def test_a_simulated_box_is_shown_alike(verb: Verb, tmp_path: Path) -> None:
    world = World.create(tmp_path / "world")
    world.hold({5: 70000.0}, util=94.0)
    five = gpus_of(verb("-o", "json", "--world", str(world.directory)))[5]
    assert (five["used_mib"], five["util_pct"], five["holders"][0]["pid"]) == (70000, 94, os.getpid())


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [("0-3", "0 1 2 3"), ("0,2, 5-7", "0 2 5 6 7"), ("GPU-a,1", "GPU-a 1"), ("1,1,0-1", "1 0")],
)
def test_gpus_are_named_by_ranges_lists_and_uuids(wanted: str, ids: str) -> None:
    assert ids_of(wanted) == tuple(ids.split())


@pytest.mark.parametrize("wanted", ["", ",", "0-9999999999"])
def test_a_list_that_names_no_gpu_is_refused(wanted: str) -> None:
    with pytest.raises(click.UsageError):
        ids_of(wanted)


def test_the_table_is_80_columns_wide_whatever_the_command_line_holds() -> None:
    gpu = Gpu(5, uuid_of(5), "H200", 97249.0)
    reading = Reading(gpu.uuid, 5, 0.0, 92416.0, 97249.0, 600.0, 94.0)
    evil = Holder(gpu.uuid, 7, "root", "python \x1b[31mred\n" + "x" * 400, Owner.FOREIGN)
    hidden = Holder(gpu.uuid, 0, "?", "pid 5 in the host's PID namespace", Owner.UNKNOWN)
    lost = Gpu(6, uuid_of(6), "H200", 97249.0)
    text = view.text(
        [
            view.Shown(gpu, reading, (evil, hidden), "dflash", "alice", "drafter"),
            view.Shown(lost, Unreadable(lost.uuid, 6, 0.0, "GPU is lost (NVML 15)")),
        ]
    )
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "\x1b" not in text
    assert "   5      90.2   95.0   94%  dflash of alice, drafter" in text
    assert "held by pid 7 of root (foreign): python red\\x0axxx" in text
    assert "held by pid ? of ? (unknown): pid 5 in the host's" in text
    assert "GPU is lost (NVML 15)" in text
