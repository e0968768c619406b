"""What witnesses, clocks and further steps make of a failure text, at the limits that they decide by."""

from __future__ import annotations

import pytest
from changes import replace

from supervisor.core.aftermath import (
    HARDWARE_XIDS,
    SHM,
    Aftermath,
    CgroupKills,
    CouldNotTell,
    GpuHealth,
    KernelSaid,
    OomKill,
    Orphan,
    Space,
    Xid,
)
from supervisor.core.evidence import Hit, Weight
from supervisor.core.kinds import Kind
from supervisor.core.plans import Failure
from supervisor.core.rootcause import Mark, refuted, root_cause
from supervisor.core.sharpen import sharpened

NUMBERS = {"GPU-a": 4, "GPU-b": 5}
STEP_S = 1000.0


def after(failure: Failure, **seen) -> Failure:
    return sharpened(failure, Aftermath(**seen), NUMBERS, STEP_S)


def died(kind: Kind = Kind.KILLED, **changes) -> Failure:
    return Failure(kind=kind, because="the job is gone", confidence="low", **changes)


def test_what_the_kernel_said_counts_from_a_minute_before_the_last_step():
    for at_s, kind in ((939.9, Kind.KILLED), (940.0, Kind.HOST_OOM), (None, Kind.HOST_OOM)):
        kill = OomKill(7, "python", "oom-kill", True, at_s)
        assert after(died(signal=9), kernel=KernelSaid(oom_kills=(kill,))).kind is kind
    for at_s, kind in ((939.9, Kind.EXIT), (940.0, Kind.GPU_FAULT), (None, Kind.GPU_FAULT)):
        xid = Xid(79, "fell off the bus", "GPU-b", False, at_s)
        assert after(died(Kind.EXIT), kernel=KernelSaid(xids=(xid,))).kind is kind


def test_a_kill_of_ours_is_named_before_one_that_may_be():
    kills = tuple(OomKill(pid, "python", "oom", ours, STEP_S) for pid, ours in ((1, None), (2, False), (3, True)))
    found = after(died(signal=9), kernel=KernelSaid(oom_kills=kills))
    assert "pid 3" in found.because
    assert found.confidence == "high"
    maybe = after(died(signal=9), kernel=KernelSaid(oom_kills=kills[:2]))
    assert "pid 1" in maybe.because
    assert maybe.confidence == "medium"


@pytest.mark.parametrize(
    ("failure", "is_so"),
    [
        (died(Kind.EXIT, code=137), True),
        (died(Kind.EXIT, code=136), False),
        (died(Kind.EXIT, signal=9), True),
        (died(Kind.EXIT, signal=11), False),
        (died(Kind.COLLECTIVE_TIMEOUT), True),
        (died(Kind.DATA_ERROR), False),
    ],
)
def test_the_cgroups_count_explains_an_end_by_kill_or_a_worker_that_is_missed(failure, is_so):
    found = after(failure, cgroup=CgroupKills("/job", 1))
    assert (found.kind is Kind.HOST_OOM) is is_so
    assert after(failure, cgroup=CgroupKills("/job", 0)).kind is failure.kind


def test_a_hardware_error_names_the_gpu_and_keeps_what_it_was_taken_for():
    xid = Xid(79, "x" * 200, "GPU-b", False, STEP_S)
    found = after(died(Kind.HANG, gpu=1, uuid="u"), kernel=KernelSaid(xids=(xid,)))
    assert (found.kind, found.gpu, found.uuid, found.confidence) == (Kind.GPU_FAULT, 5, "GPU-b", "high")
    assert found.because == f"GPU 5 reported Xid 79: {'x' * 160} (the job is gone)"
    assert found.lost == ("hang: the job is gone: gpu_fault explains it",)
    unknown = after(died(Kind.HANG, gpu=1, uuid="u"), kernel=KernelSaid(xids=(replace(xid, gpu=None, ours=True),)))
    assert (unknown.gpu, unknown.uuid, unknown.kind) == (1, "u", Kind.GPU_FAULT)
    assert unknown.because.startswith("a GPU reported")
    stranger = after(died(Kind.HANG), kernel=KernelSaid(xids=(replace(xid, gpu=None),)))
    assert stranger.kind is Kind.HANG
    memory = after(died(Kind.EXIT), gpus=(GpuHealth("GPU-a", new_errors=2),))
    assert (memory.kind, memory.gpu) == (Kind.GPU_FAULT, 4)
    assert "GPU 4 counted 2 uncorrectable memory errors" in memory.because
    assert after(died(Kind.EXIT), gpus=(GpuHealth("GPU-z", new_errors=2),)).kind is Kind.EXIT
    assert after(died(Kind.EXIT), gpus=(GpuHealth("GPU-a", new_errors=0),)).kind is Kind.EXIT


def test_the_hardwares_own_errors_are_those_of_nvidias_catalogue():
    assert {48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120} | set(range(140, 151)) == HARDWARE_XIDS


def disk(free: float, files: int | None = 99, what: str = "checkpoints") -> Space:
    return Space(what, "/w", free, files)


def test_a_disk_is_full_below_eight_mib_or_without_an_inode_and_shared_memory_below_one():
    assert after(died(Kind.EXIT, code=1), space=(disk(7.9),)).kind is Kind.DISK_FULL
    assert after(died(Kind.EXIT, code=1), space=(disk(8.0),)).kind is Kind.EXIT
    none = after(died(Kind.EXIT, code=1), space=(disk(900.0, 0),))
    assert none.kind is Kind.DISK_FULL
    assert "no inode was left at /w (checkpoints)" in none.because
    assert after(died(Kind.EXIT, code=1), space=(disk(900.0, 1),)).kind is Kind.EXIT
    assert after(died(Kind.EXIT, code=1), space=(disk(900.0, None),)).kind is Kind.EXIT
    assert after(died(Kind.EXIT, code=1), space=(disk(0.9, what=SHM),)).kind is Kind.SHM_FULL
    assert after(died(Kind.EXIT, code=1), space=(disk(1.0, what=SHM),)).kind is Kind.EXIT
    for bus in (died(Kind.SEGFAULT, signal=7), died(Kind.SEGFAULT, code=135)):
        assert after(bus, space=(disk(0.9, what=SHM),)).kind is Kind.SHM_FULL
        assert after(bus, space=(disk(0.9),)).kind is Kind.SEGFAULT
    assert after(died(Kind.SEGFAULT, signal=11), space=(disk(0.9, what=SHM),)).kind is Kind.SEGFAULT
    assert after(died(Kind.EXIT, code=1, log_line="why"), space=(disk(0.9),)).kind is Kind.EXIT


def oom(*others: tuple[int, float], short: float | None = 100.0) -> Failure:
    return died(Kind.GPU_OOM, others=others, short_by_mib=short)


def test_the_largest_orphan_is_to_blame():
    orphans = (Orphan(7, 1, "x"), Orphan(8, 2, "y"))
    found = after(oom((7, 10.0), (8, 1_024.0), (9, 5_000.0)), orphans=orphans, own=frozenset({1}))
    assert found.leftover == "an orphan of attempt 2 (pid 8) holds 1.0 GiB"
    assert found.because.endswith("lowering would not have helped")
    assert after(oom((7, 1_023.0)), orphans=orphans).leftover == "an orphan of attempt 1 (pid 7) holds 1023 MiB"
    assert after(oom((7, 10.0)), orphans=CouldNotTell("hidden")).leftover is None


def test_strangers_are_to_blame_who_hold_as_much_as_was_missing():
    own = frozenset({1})
    assert after(oom((9, 99.0)), own=own).leftover is None
    assert after(oom((9, 100.0)), own=own).leftover == "pid 9, which is not of this run, holds 100 MiB"
    assert after(oom((9, 60.0), (10, 61.0)), own=own).leftover == "pid 10, which is not of this run, holds 61 MiB"
    assert after(oom((9, 60.0), (1, 900.0)), own=own).leftover is None
    assert after(oom((9, 100.0)), own=None).leftover is None
    assert after(oom((9, 100.0)), own=frozenset()).leftover is None
    assert after(oom((9, 100.0), short=None), own=own).leftover is None
    assert after(died(Kind.EXIT, others=((9, 100.0),), short_by_mib=1.0), own=own).leftover is None


# ── texts ──


def hit(kind: Kind = Kind.GPU_OOM, offset: int = 0, weight: Weight = Weight.CAUSE, **fields) -> Hit:
    made = Hit("s", kind, "a.log", offset + 1, offset, "text", weight=weight)
    return replace(made, **fields)


def first(*hits: Hit) -> Hit:
    cause = root_cause(hits)
    assert cause is not None
    return cause.hit


def clocked(file: str, offset: int, text: str) -> Hit:
    return hit(offset=offset, file=file, text=text, signature=f"{file}{offset}", rank=offset)


def test_of_two_files_the_text_that_was_printed_first_wins_by_its_clock():
    late = clocked("a.log", 1, "2026-01-01 10:00:01 late")
    assert first(late, clocked("b.log", 2, "10:00:00.5 early")).offset == 2
    assert first(late, clocked("b.log", 2, "10:00:01,5 later")).offset == 1
    assert first(late, clocked("b.log", 2, "no time")).offset == 1
    assert first(late, clocked("a.log", 2, "09:00:00 same file")).offset == 1, "a file's own order stays"
    assert first(clocked("a.log", 1, "10:59:59 x"), clocked("b.log", 2, "11:00:00 x")).offset == 1
    assert first(clocked("a.log", 1, "11:00:00 x"), clocked("b.log", 2, "10:59:59 x")).offset == 2
    assert first(clocked("a.log", 1, "10:01:00 x"), clocked("b.log", 2, "10:00:59 x")).offset == 2


def test_over_midnight_clocks_tell_nothing():
    assert first(clocked("a.log", 1, "22:00:00 x"), clocked("b.log", 2, "10:00:00 x")).offset == 2, "half a day"
    assert first(clocked("a.log", 1, "22:00:01 x"), clocked("b.log", 2, "10:00:00 x")).offset == 1
    behind = f"{'x' * 72}10:00:00 x"
    assert first(clocked("a.log", 1, "11:00:00 x"), clocked("b.log", 2, behind)).offset == 2
    assert first(clocked("a.log", 1, "11:00:00 x"), clocked("b.log", 2, f"x{behind}")).offset == 1, "that is no prefix"


def test_a_later_text_of_one_line_takes_the_place_of_one_that_says_less():
    weak = hit(Kind.EXIT, 5, Weight.SUMMARY)
    assert first(weak, hit(Kind.GPU_OOM, 5)).kind is Kind.GPU_OOM
    assert first(hit(Kind.GPU_OOM, 5), weak).kind is Kind.GPU_OOM
    assert first(hit(Kind.GPU_OOM, 5), hit(Kind.DISK_FULL, 5)).kind is Kind.DISK_FULL, "the newer of equals"


def test_a_text_that_must_stand_three_times_means_something_then():
    thrice = [hit(Kind.NUMERIC, n, repeats=3) for n in range(3)]
    assert root_cause(thrice[:2]) is None
    assert first(*thrice).kind is Kind.NUMERIC


def test_two_texts_are_of_one_failure_where_no_field_that_both_know_differs():
    whole = hit(rank=3, gpu=3, tried_mib=10.0, free_mib=5.0, total_mib=90.0, pid=7)
    bare = hit(offset=9)
    filled = first(bare, replace(whole, offset=20, in_use_mib=1.0, reserved_mib=2.0, others=((8, 1.0),)))
    assert (filled.rank, filled.gpu, filled.tried_mib, filled.free_mib, filled.total_mib, filled.pid) == (
        3,
        3,
        10,
        5,
        90,
        7,
    )
    assert (filled.in_use_mib, filled.reserved_mib, filled.others) == (1.0, 2.0, ((8, 1.0),))
    for field in ("rank", "gpu", "tried_mib", "free_mib", "total_mib", "pid"):
        other = replace(whole, offset=20, reserved_mib=2.0, **{field: 99})
        assert first(whole, other).reserved_mib is None, field
    named = first(bare, hit(Kind.KILLED, 20, Weight.SUMMARY, rank=0))
    assert named.rank == 0
    assert first(replace(bare, pid=7), hit(Kind.KILLED, 20, Weight.SUMMARY, rank=0, pid=8)).rank is None


def falls(of: Hit, *marks: Mark, others: tuple[Hit, ...] = ()) -> bool:
    stands, _ = refuted((of, *others), marks)
    return of not in stands


def test_two_different_steps_after_a_text_refute_it():
    of = hit(offset=10)
    assert falls(of, Mark(11, step=1), Mark(12, step=2))
    assert not falls(of, Mark(11, step=1), Mark(12, step=1))
    assert not falls(of, Mark(10, step=1), Mark(12, step=2))
    assert falls(of, Mark(11), Mark(12)), "lines without a number are told apart by their place"
    assert not falls(of, Mark(11, restart=True), Mark(12, step=2))
    assert not falls(of, Mark(11, caught=True), Mark(12, step=2))
    assert falls(of, Mark(11, done=True))


def test_who_died_is_refuted_by_its_own_steps_or_by_those_after_a_new_start():
    of = hit(offset=10, raised=True, source="rank3")
    others = (Mark(11, "rank4", 1), Mark(12, "rank4", 2))
    assert not falls(of, *others)
    assert falls(of, Mark(11, "rank3", 1), Mark(12, "rank3", 2))
    assert falls(of, Mark(10 + 1, restart=True), Mark(12, "rank4", 1), Mark(13, "rank4", 2))
    assert not falls(of, *others, Mark(13, restart=True))
    assert falls(replace(of, source=""), *others)
    assert falls(replace(of, raised=False), *others)


def test_an_exception_on_two_gpus_stands_unless_it_was_caught():
    one, two = (hit(offset=n, raised=True, gpu=n) for n in (1, 2))
    steps = (Mark(11, step=1), Mark(12, step=2))
    assert not falls(one, *steps, others=(two,))
    assert falls(one, *steps, Mark(13, caught=True), others=(two,))
    assert falls(one, *steps, others=(replace(two, gpu=1),))
    assert falls(one, *steps, others=(replace(two, gpu=None),))
    assert falls(one, *steps, others=(replace(two, kind=Kind.EXIT),))
    assert falls(one, *steps, others=(replace(two, raised=False),))
