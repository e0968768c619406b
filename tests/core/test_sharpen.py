"""What witnesses beside the log make of a verdict, and what they leave alone."""

from __future__ import annotations

import pytest

from supervisor.core.aftermath import (
    SHM,
    Aftermath,
    CgroupKills,
    CouldNotTell,
    GpuHealth,
    KernelSaid,
    OomKill,
    Orphan,
    RankError,
    Space,
    Xid,
)
from supervisor.core.events import Failure
from supervisor.core.kinds import Kind
from supervisor.core.sharpen import SLACK_S, sharpened

NUMBERS = {"GPU-a": 4, "GPU-b": 5}
DIED_S = 1000.0


def after(failure: Failure, **seen: object) -> Failure:
    return sharpened(failure, Aftermath(**seen), NUMBERS, DIED_S)  # type: ignore[arg-type]


def of(kind: Kind, **fields: object) -> Failure:
    return Failure(kind=kind, because="the job is gone", confidence="low", **fields)  # type: ignore[arg-type]


def killed() -> Failure:
    return of(Kind.KILLED, signal=9)


def oom(ours: bool | None, at_s: float | None = DIED_S) -> KernelSaid:
    return KernelSaid(oom_kills=(OomKill(71, "python", "oom-kill:...,pid=71", ours, at_s),))


def xid(code: int, gpu: str | None = "GPU-b", *, ours: bool = False, at_s: float | None = DIED_S) -> KernelSaid:
    return KernelSaid(xids=(Xid(code, f"NVRM: Xid (PCI:0000:3b:00): {code}", gpu, ours, at_s),))


def test_without_witnesses_a_verdict_stays_as_it_is():
    assert sharpened(killed(), None, NUMBERS, DIED_S) == killed()


def test_a_changed_protected_param_needs_no_witness():
    failure = of(Kind.PROTECTED_VIOLATION)
    assert after(failure, kernel=oom(True)) == failure


# ── memory of the host ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_kill_by_the_kernels_memory_killer_is_host_oom_and_says_who_was_ended():
    found = after(killed(), kernel=oom(True))
    assert (found.kind, found.confidence, found.signal) == (Kind.HOST_OOM, "high", 9)
    assert found.because == "the kernel's memory killer ended pid 71 (python) (the job is gone)"
    assert found.lost == ("killed: the job is gone: host_oom explains it",)
    assert found.evidence == ("kernel log: oom-kill:...,pid=71 (of this run)",)


def test_a_kill_of_a_process_of_others_explains_nothing():
    found = after(killed(), kernel=oom(False))
    assert found.kind is Kind.KILLED
    assert found.evidence == ("kernel log: oom-kill:...,pid=71 (not of this run)",)


def test_a_kill_of_whom_nobody_knows_whose_it_is_counts_only_with_a_sigkill_and_with_less_confidence():
    found = after(killed(), kernel=oom(None, None))
    assert (found.kind, found.confidence) == (Kind.HOST_OOM, "medium")
    assert after(of(Kind.EXIT, code=1), kernel=oom(None)).kind is Kind.EXIT
    assert after(of(Kind.EXIT, code=137), kernel=oom(None)).kind is Kind.HOST_OOM


def test_a_kill_after_which_the_run_went_on_explains_nothing():
    assert after(killed(), kernel=oom(True, DIED_S - SLACK_S - 1)).kind is Kind.KILLED
    assert after(of(Kind.HANG), kernel=xid(79, at_s=DIED_S - SLACK_S - 1)).kind is Kind.HANG


@pytest.mark.parametrize("failure", [killed(), of(Kind.EXIT, code=137), of(Kind.COLLECTIVE_ERROR, code=1)])
def test_growth_of_the_cgroups_count_is_host_oom(failure: Failure):
    found = after(failure, cgroup=CgroupKills("/sys/fs/cgroup/job", 2))
    assert found.kind is Kind.HOST_OOM
    assert "2 of the job's cgroup /sys/fs/cgroup/job" in found.because
    assert after(failure, cgroup=CgroupKills("/sys/fs/cgroup/job", 0)).kind is failure.kind


def test_a_segfault_is_no_kill():
    assert after(of(Kind.SEGFAULT, signal=11), cgroup=CgroupKills("/c", 1)).kind is Kind.SEGFAULT


def test_a_gpu_out_of_memory_is_not_the_hosts():
    assert after(of(Kind.GPU_OOM), kernel=oom(True)).kind is Kind.GPU_OOM


# ── GPUs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [Kind.EXIT, Kind.SEGFAULT, Kind.CUDA_ERROR, Kind.COLLECTIVE_TIMEOUT, Kind.HANG])
def test_an_end_or_a_hang_with_a_hardware_xid_on_one_of_the_runs_gpus_is_gpu_fault(kind: Kind):
    found = after(of(kind), kernel=xid(79))
    assert (found.kind, found.gpu, found.uuid, found.confidence) == (Kind.GPU_FAULT, 5, "GPU-b", "high")
    assert found.because.startswith("GPU 5 reported Xid 79: NVRM: Xid")


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_an_xid_of_the_application_is_told_and_decides_nothing(code: int):
    found = after(of(Kind.CUDA_ERROR), kernel=xid(code))
    assert found.kind is Kind.CUDA_ERROR
    assert f"): {code}" in found.evidence[0]


def test_an_xid_of_another_runs_gpu_is_not_ours():
    assert after(of(Kind.EXIT), kernel=xid(79, "GPU-elsewhere")).kind is Kind.EXIT


def test_an_xid_of_no_known_gpu_counts_where_it_names_a_process_of_ours():
    assert after(of(Kind.EXIT), kernel=xid(79, None)).kind is Kind.EXIT
    found = after(of(Kind.EXIT, gpu=5), kernel=xid(79, None, ours=True))
    assert (found.kind, found.gpu) == (Kind.GPU_FAULT, 5)
    assert found.because.startswith("a GPU reported Xid 79")


def test_an_xid_that_only_the_driver_tells_counts_too():
    found = after(of(Kind.EXIT), kernel=CouldNotTell("not permitted"), gpus=(GpuHealth("GPU-a", xids=(48,)),))
    assert (found.kind, found.gpu) == (Kind.GPU_FAULT, 4)


def test_new_uncorrectable_errors_are_gpu_fault_and_old_ones_are_not():
    found = after(of(Kind.EXIT), gpus=(GpuHealth("GPU-a", 0), GpuHealth("GPU-b", 3)))
    assert (found.kind, found.gpu) == (Kind.GPU_FAULT, 5)
    assert after(of(Kind.EXIT), gpus=(GpuHealth("GPU-a", None), CouldNotTell("lost"))).kind is Kind.EXIT


def test_a_code_error_is_not_explained_by_a_gpu():
    assert after(of(Kind.CODE_ERROR), kernel=xid(79)).kind is Kind.CODE_ERROR


# ── room ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("room", [Space("output", "/out", 0.5), Space("output", "/out", 9000.0, 0)])
def test_an_unexplained_exit_without_room_to_write_is_disk_full(room: Space):
    found = after(of(Kind.EXIT, code=1), space=(room,))
    assert (found.kind, found.confidence) == (Kind.DISK_FULL, "medium")
    assert "/out (output)" in found.because


def test_room_that_could_not_be_told_is_not_full():
    seen = (CouldNotTell("the room at /out: no answer"), Space("output", "/out", 9000.0, 10))
    found = after(of(Kind.EXIT, code=1), space=seen)
    assert found.kind is Kind.EXIT
    assert found.evidence == ("could not tell: the room at /out: no answer",)


@pytest.mark.parametrize("failure", [of(Kind.SEGFAULT, signal=7), of(Kind.SEGFAULT, code=135), of(Kind.EXIT, code=1)])
def test_a_bus_error_or_unexplained_exit_with_shared_memory_full_is_shm_full(failure: Failure):
    assert after(failure, space=(Space(SHM, "/dev/shm", 0.0),)).kind is Kind.SHM_FULL
    assert after(failure, space=(Space(SHM, "/dev/shm", 64.0),)).kind is failure.kind


def test_a_bus_error_is_not_explained_by_a_full_disk_and_a_segfault_not_by_full_shared_memory():
    assert after(of(Kind.SEGFAULT, signal=7), space=(Space("output", "/out", 0.0),)).kind is Kind.SEGFAULT
    assert after(of(Kind.SEGFAULT, signal=11), space=(Space(SHM, "/dev/shm", 0.0),)).kind is Kind.SEGFAULT


def test_a_reason_in_the_log_stands_however_full_the_disk_is():
    failure = of(Kind.EXIT, log_line="ValueError: x")
    assert after(failure, space=(Space("output", "/out", 0.0),)).kind is Kind.EXIT


# ── who else held the GPU ────────────────────────────────────────────────────────────────────────────────────────────


def test_an_orphan_named_in_the_text_is_to_blame_and_no_knob():
    failure = of(Kind.GPU_OOM, others=((70, 100.0), (71, 71 * 1024.0), (99, 500.0)))
    left = (Orphan(70, 2, "python"), Orphan(71, 1, "python train.py"))
    found = after(failure, orphans=left)
    assert found.leftover == "an orphan of attempt 1 (pid 71) holds 71.0 GiB"
    assert found.because.endswith("holds 71.0 GiB: lowering would not have helped")


def test_another_holder_that_is_no_orphan_changes_nothing():
    failure = of(Kind.GPU_OOM, others=((99, 500.0),))
    assert after(failure, orphans=(Orphan(71, 1, "python"),)).leftover is None
    assert after(failure, orphans=CouldNotTell("another PID namespace")).leftover is None
    small = after(of(Kind.GPU_OOM, others=((71, 500.0),)), orphans=(Orphan(71, 1, "python"),))
    assert small.leftover == "an orphan of attempt 1 (pid 71) holds 500 MiB"


# ── all that was said ────────────────────────────────────────────────────────────────────────────────────────────────


def test_everything_that_was_found_and_what_could_not_be_told_is_said():
    found = after(
        of(Kind.CODE_ERROR),
        kernel=CouldNotTell("the kernel's log: Operation not permitted"),
        cgroup=CgroupKills("/c", 1),
        gpus=(GpuHealth("GPU-a", 2, "a row remapping is pending", (31,)), CouldNotTell("lost")),
        space=(Space("output", "/out", 1.0, 7), Space("workdir", "/w", 2.0), Space("tmp", "/tmp", 9000.0)),
        ranks=(RankError(3, 1.0, "/e/3/error.json", "ValueError: x"),),
    )
    assert found.kind is Kind.CODE_ERROR
    assert found.evidence == (
        "cgroup /c: 1 processes lost to the memory killer",
        "driver: GPU-a reported Xid 31",
        "driver: GPU-a counted 2 new uncorrectable errors",
        "driver: a row remapping is pending",
        "room: 1.0 MiB, 7 inodes left at /out (output)",
        "room: 2.0 MiB left at /w (workdir)",
        "rank 3: ValueError: x (/e/3/error.json)",
        "could not tell: the kernel's log: Operation not permitted",
        "could not tell: lost",
    )


def test_a_gpu_that_needs_a_reset_is_unfit():
    assert Aftermath(gpus=(CouldNotTell("lost"), GpuHealth("GPU-a", unfit="reset"))).unfit == "reset"
    assert Aftermath(gpus=(GpuHealth("GPU-a"),)).unfit is None
