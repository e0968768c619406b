"""The NVML edge through the real nvidia-ml-py, against a driver's library compiled here."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from gpu_reads import read
from nvml_stub import StubState, uuid_of

from supervisor.core.errors import Refusal
from supervisor.core.evidence import Reading, Unreadable
from supervisor.edges import gpus_link
from supervisor.edges.gpus import Gpus, GpusUnavailable, resolve

Opened = Callable[..., Gpus]
SIX = uuid_of(6)
HANGS_S = 3.0
"""Also on a busy box a helper that does not hang answers sooner."""


def test_memory_reserved_by_the_driver_is_not_used_memory(driver: Path, state: StubState, opened: Opened) -> None:
    gpus = opened(driver)
    gpus.list()
    seen = read(gpus, [SIX])[SIX]
    assert isinstance(seen, Reading)
    assert (seen.used_mib, seen.reserved_mib, seen.v2, seen.total_mib) == (0, 600, True, 97249)
    assert (seen.index, seen.temperature_c, seen.power_w, seen.pids) == (6, 41, 123, None)


def test_a_driver_without_v2_is_read_by_v1_and_the_reading_says_so(old_driver: Path, opened: Opened) -> None:
    seen = read(opened(old_driver), [SIX])[SIX]
    assert isinstance(seen, Reading)
    assert (seen.used_mib, seen.reserved_mib, seen.v2) == (600, None, False)


def test_a_driver_that_refuses_the_version_of_v2_is_read_by_v1(driver: Path, state: StubState, opened: Opened) -> None:
    state.v2_rc = 25
    state.write()
    seen = read(opened(driver), [SIX])[SIX]
    assert isinstance(seen, Reading) and not seen.v2


def test_where_v2_answered_once_v1_is_never_asked(driver: Path, state: StubState, opened: Opened) -> None:
    gpus = opened(driver)
    read(gpus, [SIX])
    state.v2_rc = 13
    state.write()
    assert isinstance(read(gpus, [SIX])[SIX], Unreadable)


def test_a_lost_gpu_is_unreadable_and_hides_no_other(driver: Path, state: StubState, opened: Opened) -> None:
    gpus = opened(driver)
    uuids = [gpu.uuid for gpu in gpus.list()]
    state.cards[6].rc = 15
    state.write()
    seen = read(gpus, uuids)
    lost = seen[SIX]
    assert isinstance(lost, Unreadable) and "lost" in lost.why and lost.index == 6
    assert sum(isinstance(each, Reading) for each in seen.values()) == 7
    assert len(gpus.list()) == 7 and gpus.unlisted == ("GPU 6: GPU is lost (NVML 15)",)


@pytest.mark.parametrize(("code", "says"), [(9, "not loaded"), (18, "upgraded"), (999, "Unknown Error")])
def test_a_driver_that_does_not_start_makes_gpus_unknown(
    driver: Path, state: StubState, opened: Opened, code: int, says: str
) -> None:
    state.init_rc = code
    state.write()
    gpus = opened(driver)
    with pytest.raises(GpusUnavailable, match=says) as refused:
        gpus.list()
    assert refused.value.code == code
    seen = read(gpus, [SIX])[SIX]
    assert isinstance(seen, Unreadable) and says in seen.why


def test_no_driver_is_told_with_advice(no_driver: Path, opened: Opened) -> None:
    with pytest.raises(GpusUnavailable, match=r"no NVIDIA driver .* --simulate") as refused:
        opened(no_driver).list()
    assert refused.value.code == 12


def test_an_older_driver_without_v3_lists_tells_processes_by_v2(
    old_driver: Path, state: StubState, opened: Opened
) -> None:
    state.cards[6].pids = (4242, 4243)
    state.write()
    seen = read(opened(old_driver), [SIX], processes=True)[SIX]
    assert isinstance(seen, Reading) and seen.pids == (4242, 4243)


def test_an_empty_process_list_does_not_make_memory_zero(driver: Path, state: StubState, opened: Opened) -> None:
    state.cards[6].used_mib = 70 * 1024
    state.write()
    seen = read(opened(driver), [SIX], processes=True)[SIX]
    assert isinstance(seen, Reading) and seen.pids == () and seen.used_mib == 70 * 1024


def test_a_call_that_never_returns_makes_the_gpu_unreadable(driver: Path, state: StubState, opened: Opened) -> None:
    gpus = opened(driver, deadline_s=HANGS_S)
    uuids = [gpu.uuid for gpu in gpus.list()]
    before = read(gpus, uuids)
    state.cards[6].rc = 1000
    state.write()
    seen = read(gpus, uuids)
    assert all(isinstance(seen[uuid], Reading) for uuid in uuids[:6])
    hung = seen[SIX]
    assert isinstance(hung, Unreadable) and "while GPU 6 was being read" in hung.why
    assert isinstance(before[SIX], Reading), "the reading before must not stand for the one that is missing"
    assert isinstance(seen[uuids[7]], Unreadable)


def test_after_a_hang_that_ended_a_new_helper_reads_again(driver: Path, state: StubState, opened: Opened) -> None:
    gpus = opened(driver, deadline_s=HANGS_S)
    gpus.list()
    state.cards[6].rc = 1000
    state.write()
    assert isinstance(read(gpus, [SIX])[SIX], Unreadable)
    state.cards[6].rc = 0
    state.write()
    while not isinstance(seen := read(gpus, [SIX])[SIX], Reading):
        assert "hangs" in seen.why or "still starting" in seen.why
    assert state.calls().count("nvmlInit -1") == 2


def test_while_a_given_up_helper_hangs_none_is_started(
    driver: Path, state: StubState, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus_link.Link, "kill", gpus_link.Link.let_go)  # state D: KILL changes nothing
    gpus = opened(driver, deadline_s=HANGS_S)
    gpus.list()
    state.cards[6].rc = 1000
    state.write()
    read(gpus, [SIX])
    for _ in range(3):
        seen = read(gpus, [SIX])[SIX]
        assert isinstance(seen, Unreadable) and "hangs" in seen.why
    with pytest.raises(GpusUnavailable, match="hangs"):
        gpus.list()
    assert state.calls().count("nvmlInit -1") == 1


def test_a_slow_first_init_is_waited_for(driver: Path, state: StubState, opened: Opened) -> None:
    state.init_ms = 2 * round(HANGS_S * 1000)
    state.write()
    gpus = opened(driver, deadline_s=HANGS_S)
    early = read(gpus, [SIX])[SIX]
    assert isinstance(early, Unreadable) and "still starting" in early.why
    assert len(gpus.list()) == 8
    assert isinstance(read(gpus, [SIX])[SIX], Reading)
    assert state.calls().count("nvmlInit -1") == 1


def test_an_init_that_never_ends_is_given_up(driver: Path, state: StubState, opened: Opened) -> None:
    state.init_ms = 600_000
    state.write()
    gpus = opened(driver, deadline_s=0.1, init_deadline_s=0.3)
    with pytest.raises(GpusUnavailable, match="gave no answer"):
        gpus.list()


def test_a_list_that_comes_too_late_says_so(driver: Path, state: StubState, opened: Opened) -> None:
    state.init_ms = 5_000
    state.write()
    with pytest.raises(GpusUnavailable, match="has not answered for"):
        opened(driver).list(timeout_s=0.1)


def test_a_killed_helper_leaves_its_request_unknown_and_is_replaced(
    driver: Path, state: StubState, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.edges.gpus.START_AGAIN_S", 0.0)
    state.cards[6].rc = 1000
    state.write()
    gpus = opened(driver)
    gpus.start()
    gpus.ask([SIX])
    assert gpus._link is not None
    os.kill(gpus._link.process.pid, signal.SIGKILL)
    gpus._link.process.wait()
    gone = gpus.take()[SIX]
    assert isinstance(gone, Unreadable) and "ended with status -9" in gone.why
    state.cards[6].rc = 0
    state.write()
    assert isinstance(read(gpus, [SIX])[SIX], Reading)


def test_a_helper_that_ends_by_itself_is_not_started_each_time(
    driver: Path, state: StubState, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.edges.gpus.START_AGAIN_S", 600.0)
    gpus = opened(driver)
    gpus.list()
    assert gpus._link is not None
    os.kill(gpus._link.process.pid, signal.SIGKILL)
    gpus._link.process.wait()
    for _ in range(3):
        assert isinstance(read(gpus, [SIX])[SIX], Unreadable)
    assert state.calls().count("nvmlInit -1") == 1


def test_a_driver_upgraded_meanwhile_makes_gpus_unknown_until_a_new_helper_reads_them(
    driver: Path, state: StubState, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.edges.gpus.RENEW_AFTER_S", 0.0)
    gpus = opened(driver)
    uuids = [gpu.uuid for gpu in gpus.list()]
    for card in state.cards:
        card.rc = 18
    state.write()
    seen = read(gpus, uuids)
    assert all(isinstance(each, Unreadable) and "What runs goes on" in each.why for each in seen.values())
    for card in state.cards:
        card.rc = 0
    state.write()
    until = time.monotonic() + 60
    while not isinstance(read(gpus, [SIX])[SIX], Reading) and time.monotonic() < until:
        pass
    assert state.calls().count("nvmlInit -1") == 2


ORPHAN = """
import sys
from supervisor.edges.gpus import Gpus
gpus = Gpus()
gpus.start()
gpus.ask([sys.argv[1]])
print(gpus._link.process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.real
def test_a_helper_that_hangs_in_a_call_ends_with_its_supervisor(driver: Path, state: StubState) -> None:
    state.cards[6].rc = 1000
    state.write()
    environ = {**os.environ, **state.environ(driver)}
    argv = [sys.executable, "-c", ORPHAN, SIX]
    with subprocess.Popen(argv, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        helper = os.pidfd_open(int(parent.stdout.readline()))
        until = time.monotonic() + 60
        while "nvmlDeviceGetMemoryInfo_v2 6" not in state.calls() and time.monotonic() < until:
            os.sched_yield()
        parent.kill()
    assert select.select([helper], [], [], 60)[0], "it hangs in the driver, and nobody reads it any more"
    os.close(helper)


def test_what_is_no_answer_ends_the_helper(driver: Path, opened: Opened) -> None:
    gpus = opened(driver)
    gpus.list()
    assert gpus._link is not None
    gpus._link._rest = b"noise"
    gone = read(gpus, [SIX])[SIX]
    assert isinstance(gone, Unreadable) and "no answer" in gone.why


def test_the_driver_is_initialised_once_and_process_lists_are_asked_only_on_demand(
    driver: Path, state: StubState, opened: Opened
) -> None:
    gpus = opened(driver)
    uuids = [gpu.uuid for gpu in gpus.list()]
    read(gpus, uuids)
    before = len(state.calls())
    for _ in range(10):
        read(gpus, uuids)
    calls = state.calls()
    assert calls.count("nvmlInit -1") == 1
    assert not [call for call in calls if "Processes" in call]
    assert len(calls) - before <= 10 * 8 * 5, "memory, utilisation, temperature, power, index: five calls a GPU"


def test_one_pass_over_eight_gpus_wakes_its_reader_once(driver: Path, state: StubState, opened: Opened) -> None:
    gpus = opened(driver)
    uuids = [gpu.uuid for gpu in gpus.list()]
    read(gpus, uuids)
    gpus.ask(uuids)
    wakes = 0
    while len(gpus._asked):
        os.set_blocking(gpus.fileno(), True)
        wakes += len(os.read(gpus.fileno(), 4096))
        os.set_blocking(gpus.fileno(), False)
        gpus.take()
    assert wakes <= 2, "one, and the reading before may have been taken sooner than its own"


def test_after_a_reboot_that_shuffled_indices_a_gpu_is_still_found_by_its_uuid(
    driver: Path, state: StubState, opened: Opened
) -> None:
    opened(driver).list()
    for card in state.cards:
        card.index = 7 - card.index
    state.cards[6].used_mib = 1234
    state.write()
    after = opened(driver)
    assert {gpu.uuid: gpu.index for gpu in after.list()}[SIX] == 1
    seen = read(after, [SIX])[SIX]
    assert isinstance(seen, Reading) and (seen.index, seen.used_mib) == (1, 1234)


def test_requests_asked_meanwhile_are_joined_and_answered(driver: Path, state: StubState, opened: Opened) -> None:
    state.cards[1].pids = (77,)
    state.write()
    gpus = opened(driver)
    gpus.ask([uuid_of(0)])
    gpus.ask([uuid_of(1)])
    seen = read(gpus, [uuid_of(2)], processes=True)
    assert len(seen) == 3
    one = seen[uuid_of(1)]
    assert isinstance(one, Reading) and one.pids == (77,)


def test_ids_resolve_by_index_and_uuid_and_the_unknown_is_named_with_what_is_there(
    driver: Path, state: StubState, opened: Opened
) -> None:
    state.cards[3].mig = 1
    state.cards[2].mig = -1  # this model knows no MIG
    state.write()
    there = opened(driver).list()
    assert [gpu.index for gpu in resolve(["5", uuid_of(2)], there)] == [5, 2]
    with pytest.raises(Refusal, match=r"GPU 9 is not on this box. There are: 0 \(GPU-.*Not answering: GPU 8"):
        resolve(["9"], there, ["GPU 8: GPU is lost"])
    with pytest.raises(Refusal, match="cut into MIG instances"):
        resolve(["3"], there)
    with pytest.raises(Refusal, match="is a MIG instance"):
        resolve(["MIG-1234"], there)


def test_the_helper_ends_when_its_stdin_closes(driver: Path, state: StubState) -> None:
    argv = [sys.executable, "-I", "-m", "supervisor.edges.gpus_helper"]
    environ = {**os.environ, **state.environ(driver)}
    done = subprocess.run(argv, env=environ, input=b"", capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, b'{"ready":true}\n')


@pytest.mark.real
def test_the_helper_is_small_and_sampling_eight_gpus_costs_little(
    driver: Path, state: StubState, opened: Opened
) -> None:
    gpus = opened(driver)
    uuids = [gpu.uuid for gpu in gpus.list()]
    assert gpus._link is not None
    pid = gpus._link.process.pid
    status = Path(f"/proc/{pid}/status").read_text()
    rss_kib = int(status.split("VmRSS:")[1].split()[0])
    assert rss_kib <= 24 * 1024
    del os.environ["NVML_STUB_CALLS"]
    before = time.process_time()
    for _ in range(50):
        read(gpus, uuids)
    assert (time.process_time() - before) / 50 < 0.02, "generous: a shared box; the benchmark has the ratio"
