"""A box with GPUs, asked through the real nvidia-ml-py and a driver's library that the tests compile; real jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "gpus"))  # nvml_stub.py

from boxes import Box, Night, is_alive, until
from nvml_stub import StubState, build_stub, uuid_of

pytestmark = pytest.mark.real

STEPS = 'i=0; while [ "$i" -lt "${STEPS:-100000}" ]; do i=$((i+1)); echo "step $i"; sleep 0.02; done; exit "${CODE:-0}"'
HOLD = "import sys; files = [open(path, 'rb') for path in sys.argv[1:]]; print('held', flush=True); sys.stdin.read()"
PROGRESS = r"health: {progress: {log: 'step (?P<step>\d+)'}}" + "\n"


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("drivers")
    return {"new": build_stub(folder / "new"), "old": build_stub(folder / "old", "NO_MEMORY_V2", "NO_V3")}


@pytest.fixture
def cards(box: Box, drivers: dict[str, Path]) -> StubState:
    """Eight empty GPUs; whatever is written into it is so from then on."""
    dev = box.root / "dev"
    dev.mkdir()
    for name in ("nvidia-uvm", *(f"nvidia{minor}" for minor in range(8))):
        (dev / name).write_bytes(b"")
    state = StubState.of(box.root)
    box.environ |= state.environ(drivers["new"])
    return state


@pytest.fixture
def hold(box: Box) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """`hold(5)`: a process of somebody else that has GPU 5 open, as CUDA does."""
    made: list[subprocess.Popen[bytes]] = []

    def begin(gpu: int) -> subprocess.Popen[bytes]:
        paths = [str(box.root / "dev" / name) for name in ("nvidia-uvm", f"nvidia{gpu}")]
        argv = [sys.executable, "-c", HOLD, *paths]
        made.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"))
        out = made[-1].stdout
        assert out is not None and out.readline() == b"held\n"
        return made[-1]

    yield begin
    for each in made:
        each.kill()
        each.communicate()


def recovery(zero: str = "", more: str = "") -> str:
    verify = ", ".join(filter(None, ["stable_for: 200ms", zero]))
    return f"recovery: {{stop: {{grace: 2s}}, backoff: {{first: 1ms, cap: 1ms}}, verify_zero: {{{verify}}}{more}}}\n"


def use(cards: StubState, gpu: int, used_mib: float, rc: int = 0) -> None:
    cards.cards[gpu].used_mib, cards.cards[gpu].rc = used_mib, rc
    cards.write()


def trained(box: Box, cards: StubState, name: str = "a", more: str = "", gpus: str = "[2, 5]") -> Night:
    """A run that holds 70 GiB of GPU 5."""
    night = box.up(box.spec(name, STEPS, f"topology: {{t: {gpus}}}\n" + PROGRESS + (more or recovery())))
    night.until("FirstProgress")
    use(cards, 5, 70_000)
    return night


# ── which GPUs ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_gpu_that_does_not_exist_is_refused_and_nothing_is_launched(box: Box, cards: StubState) -> None:
    for number, (gpus, named) in enumerate([("[0, 8]", "8"), ("['GPU-none']", "GPU-none"), ("9", "GPU 8")]):
        said = box.supervise("up", "-d", str(box.spec(f"a{number}", STEPS, f"topology: {{t: {gpus}}}\n")), code=6)
        assert named in said.err and "topology" in said.err
        assert not box.night(f"a{number}").records("LaunchIntended")
    twice = box.spec("b", STEPS, "topology: {t: [0], d: [0]}\n")
    assert box.supervise("up", "-d", str(twice), code=5).err


def test_the_job_sees_its_gpus_in_the_order_of_the_bus(box: Box, cards: StubState) -> None:
    uuids = {number: uuid_of(number) for number in (2, 5, 6)}
    box.write("job.sh", '#!/bin/sh\necho "$CUDA_DEVICE_ORDER/$CUDA_VISIBLE_DEVICES/$1/$2/$3"\n', 0o755)
    for visible, wanted in (
        ("index", "2,5,6/2,1"),
        ("uuid", f"{','.join(uuids.values())}/2,1"),
        ("none", "/6,5"),
    ):
        spec = box.write(
            f"{visible}.yaml",
            f"version: 1\nname: {visible}\nvisible: {visible}\ntopology: {{t: [2], d: [6, 5]}}\n"
            "command: [./job.sh, '${{ topology.d.gpus }}', '${{ topology.d.physical }}', '${{ topology.d.uuids }}']\n"
            + recovery(),
        )
        night = box.up(spec)
        night.wait(0)
        assert night.output() == f"PCI_BUS_ID/{wanted}/6,5/{uuids[6]},{uuids[5]}\n"
    spec = box.work / "index.yaml"
    assert "CUDA_VISIBLE_DEVICES" in box.supervise("up", "-d", str(spec), code=6, CUDA_VISIBLE_DEVICES="3").err
    box.supervise("up", "-d", str(spec), code=0, CUDA_VISIBLE_DEVICES="2,5,6")


def test_a_gpu_belongs_to_the_run_that_is_wanted_up_also_while_it_waits(box: Box, cards: StubState) -> None:
    waits = "recovery: {stop: {grace: 2s}, backoff: {first: 300s}, verify_zero: {stable_for: 200ms}}\n"
    night = trained(box, cards, more=waits)
    spec = str(box.spec("b", STEPS, "topology: {t: [5, 6]}\n" + recovery()))
    user = box.supervise("gpus", "-o", "json", code=0).json["gpus"][5]
    assert user["run"] == "a"
    said = box.supervise("up", "-d", spec, code=7)
    assert "run a of " in said.err and "supervise down a" in said.err
    box.environ["CODE"] = "7"
    os.kill(night.leader(), signal.SIGTERM)
    use(cards, 5, 0)
    night.until("BackoffBegan")
    assert night.status()["phase"] == "backoff"
    assert "run a of " in box.supervise("up", "-d", spec, code=7).err
    night.down()
    box.supervise("up", "-d", spec, code=0)
    until(lambda: box.supervise("gpus", "-o", "json").json["gpus"][5]["run"] == "b", "the lock is its own now")


def test_a_gpu_that_is_not_empty_is_refused_with_the_line_that_consents(
    box: Box, cards: StubState, hold: Callable[..., subprocess.Popen[bytes]]
) -> None:
    other = hold(5)
    use(cards, 5, 4000)
    spec = box.spec("a", STEPS, "topology: {t: [5]}\n" + PROGRESS + recovery())
    said = box.supervise("up", "-d", str(spec), code=6)
    assert f"pid {other.pid}" in said.err and "4000 MiB" in said.err
    assert "foreign: {allow: 4064MiB}" in said.err
    assert is_alive(other.pid)
    spec.write_text(spec.read_text().replace("stable_for: 200ms", "stable_for: 200ms, foreign: {allow: 4064MiB}"))
    night = box.up(spec)
    night.until("FirstProgress")
    use(cards, 5, 60_000)
    os.kill(night.leader(), signal.SIGKILL)
    night.until("MembersGone")
    use(cards, 5, 4010)
    night.until("LaunchIntended", attempt=2)
    assert is_alive(other.pid), "a foreign process is never signalled"


def test_locks_that_cannot_be_taken_are_no_free_gpus(box: Box, cards: StubState) -> None:
    box.write("a-file", "no folder\n")
    box.environ["SUPERVISE_LOCKS"] = str(box.work / "a-file")
    said = box.supervise("up", "-d", str(box.spec("a", STEPS, "topology: {t: [5]}\n")), code=6)
    assert "SUPERVISE_LOCKS" in said.err and "install -d -m 1777" in said.err


def test_an_unreadable_gpu_is_not_an_empty_one(box: Box, cards: StubState) -> None:
    use(cards, 5, 0, rc=15)
    said = box.supervise("up", "-d", str(box.spec("a", STEPS, "topology: {t: [5]}\n")), code=6)
    assert "Not answering: GPU 5: GPU is lost" in said.err and "supervise gpus" in said.err


# ── after an attempt ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_launch_before_the_memory_has_drained(box: Box, cards: StubState) -> None:
    night = trained(box, cards)
    os.kill(night.leader(), signal.SIGKILL)
    night.until("MembersGone")
    asked = len(cards.calls())
    for used in (70_000, 40_000, 41_000, 900, 100):
        use(cards, 5, used)
        asked = len(cards.calls())
        until(lambda at=asked: len(cards.calls()) > at + 8, "it is read again")
        assert night.status()["phase"] == "verifying"
        assert len(night.records("LaunchIntended")) == 1
    use(cards, 5, 3)
    night.until("FirstProgress", attempt=2)
    (zero,) = night.records("VerifiedZero")
    assert zero["data"]["used_mib"] == [0, 3]
    first = night.history()["attempts"][0]
    assert first["verified_zero"]["used_mib"] == [0, 3] and first["verified_zero"]["waited_s"] > 0


def test_memory_that_never_drains_halts_the_run_and_down_is_8(box: Box, cards: StubState) -> None:
    night = trained(box, cards, more=recovery("timeout: 2s"))
    os.kill(night.leader(), signal.SIGKILL)
    night.wait(9)
    status = night.status()
    assert status["phase"] == "halted" and "70000 MiB" in status["because"] and "GPU 5" in status["because"]
    assert status["last_failure"]["kind"] == "killed"
    assert night.history()["attempts"][0]["verified_zero"]["used_mib"] == [0, 70_000]
    said = night.down(8)
    assert "GPU 5" in said.err
    assert "not empty" in box.supervise("up", "-d", str(box.work / "a.yaml"), code=6).err
    assert "GPU 5" in night.down(8).err, "an up that was refused does not make it empty"
    use(cards, 5, 0)
    night.down(0)
    assert night.status()["phase"] == "stopped"
    box.supervise("up", "-d", str(box.work / "a.yaml"), code=0)


def test_foreign_holders_are_named_and_never_signalled(
    box: Box, cards: StubState, hold: Callable[..., subprocess.Popen[bytes]]
) -> None:
    night = trained(box, cards)
    other = hold(5)
    os.kill(night.leader(), signal.SIGKILL)
    night.wait(9)
    assert f"pid {other.pid}" in night.status()["because"]
    (holder,) = night.history()["attempts"][0]["verified_zero"]["holders"]
    assert (holder["gpu"], holder["pid"], holder["owner"]) == (5, other.pid, "foreign")
    assert holder["user"] and "sys.stdin" in holder["cmdline"]
    assert is_alive(other.pid)
    said = night.down(8)
    assert f"pid {other.pid}" in said.err
    assert is_alive(other.pid)


def test_foreign_holders_are_waited_for_as_long_as_the_spec_says(
    box: Box, cards: StubState, hold: Callable[..., subprocess.Popen[bytes]]
) -> None:
    night = trained(box, cards, more=recovery("foreign: {wait: 10m}"))
    other = hold(5)
    os.kill(night.leader(), signal.SIGKILL)
    night.until("ForeignHolders")
    assert night.status()["phase"] == "backoff"
    other.communicate(b"")
    use(cards, 5, 0)
    night.until("FirstProgress", attempt=2)


def test_a_gpu_that_cannot_be_read_keeps_the_run_verifying_until_the_timeout(box: Box, cards: StubState) -> None:
    night = trained(box, cards, more=recovery("timeout: 3s"))
    use(cards, 5, 0, rc=15)
    os.kill(night.leader(), signal.SIGKILL)
    night.wait(9)
    assert "cannot be read" in night.status()["because"]
    (gone,), (ended,) = night.records("MembersGone"), night.records("EpisodeEnded")
    assert ended["at"]["boot_s"] - gone["at"]["boot_s"] >= 3.0
    assert len(night.records("LaunchIntended")) == 1


def test_a_gpu_that_can_be_read_again_is_launched_on(box: Box, cards: StubState) -> None:
    night = trained(box, cards)
    use(cards, 5, 0, rc=15)
    os.kill(night.leader(), signal.SIGKILL)
    night.until("MembersGone")
    asked = len(cards.calls())
    until(lambda: len(cards.calls()) > asked + 8, "it is read again")
    assert len(night.records("LaunchIntended")) == 1
    use(cards, 5, 0)
    night.until("FirstProgress", attempt=2)


def test_a_driver_that_stops_answering_leaves_a_healthy_run_alone(box: Box, cards: StubState) -> None:
    night = trained(box, cards)
    leader = night.leader()
    cards.init_rc = 18
    for card in cards.cards:
        card.rc = 18
    cards.write()

    def silent() -> set[int]:
        return {gpu["index"] for gpu in night.status()["gpus"] if gpu["state"] not in ("ok", "stale")}

    until(lambda: silent() == {2, 5}, "status tells of both")
    step = night.status()["step"]
    until(lambda: night.status()["step"] > step, "it goes on")
    assert is_alive(leader) and night.status()["phase"] == "running"
    assert not night.records("Judged", "StopIntended")

    def warned() -> list[str]:
        texts = [one["data"]["text"] for one in night.records("Warned")]
        return [text for text in texts if "was upgraded while in use" in text]

    told = until(warned, "it is told")
    assert 1 <= len(told) <= 2, "once for each GPU"
    assert "What runs goes on" in told[0]
    cards.init_rc = 0
    for card in cards.cards:
        card.rc = 0
    use(cards, 5, 0)
    night.down(0)


def test_a_driver_without_the_newer_memory_call_is_used_as_it_is(
    box: Box, cards: StubState, drivers: dict[str, Path]
) -> None:
    box.environ |= cards.environ(drivers["old"])
    night = trained(box, cards, more=recovery("floor: 600MiB"))  # what it reserves counts as used there
    os.kill(night.leader(), signal.SIGKILL)
    night.until("MembersGone")
    use(cards, 5, 0)
    night.until("FirstProgress", attempt=2)
    assert night.records("VerifiedZero")[0]["data"]["used_mib"] == [600, 600]


def test_out_of_memory_lowers_a_knob_and_nothing_else(box: Box, cards: StubState) -> None:
    oom = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.74 GiB. GPU 1 has a total capacity of "
        "94.97 GiB of which 4.57 GiB is free."
    )
    script = f'case "$*" in *64*) echo step 1; echo "{oom}"; exit 1;; esac; ' + STEPS
    more = "params: {protected: {anchors: 1024}, knobs: {mb: {value: 64, ladder: [48]}}}\n" + recovery()
    night = box.up(box.spec("a", script, "topology: {t: [2, 5]}\n" + PROGRESS + more))
    night.until("FirstProgress", attempt=2)
    first = night.history()["attempts"][0]
    assert (first["end"]["kind"], first["end"]["gpu"]) == ("gpu_oom", 5), "the job's GPU 1 is the box's GPU 5"
    assert first["end"]["short_by_mib"] == pytest.approx(174, abs=1)
    assert first["decision"]["lowered"] == {"mb": [64, 48]}
    one, two = (record["data"]["argv"] for record in night.records("LaunchIntended"))
    assert [pair for pair in zip(one, two, strict=True) if pair[0] != pair[1]] == [("64", "48")]
    night.down()
    said = box.supervise("up", "-d", str(box.work / "a.yaml"), code=0).err
    assert "mb 48, lowered in attempt 1" in said
