"""Which rank failed first, over several files; and which GPU a rank means by its ordinal."""

from __future__ import annotations

import pytest
from fake_specs import incident, inventory, uuid
from msgspec.structs import replace

from supervisor.core.aftermath import Printer
from supervisor.core.evidence import Hit
from supervisor.core.kinds import Kind
from supervisor.core.placing import NotPlaced, lay_out
from supervisor.core.rootcause import root_cause
from supervisor.core.state import State
from supervisor.core.watch import physical


def hit(file: str, text: str, kind: Kind = Kind.DATA_ERROR, line: int = 1) -> Hit:
    return Hit("x", kind, file, line, line * 100, text)


def first(*hits: Hit) -> str:
    cause = root_cause(hits)
    assert cause is not None
    return cause.hit.file


def test_the_file_that_printed_the_earlier_time_has_the_cause_whatever_its_name():
    late = hit("rank0.log", "[2026-02-11 03:14:31,204] ERROR shard is torn")
    early = hit("rank7.log", "[rank7]:[E211 03:14:31.078 x.cpp:1] device-side assert", Kind.CUDA_ERROR)
    assert first(late, early) == "rank7.log"


def test_a_line_of_one_file_never_overtakes_the_line_before_it():
    one = hit("rank0.log", "03:14:31 first", line=1)
    two = hit("rank0.log", "03:14:29 printed by a clock that was set back", Kind.CUDA_ERROR, line=2)
    other = hit("rank1.log", "03:14:30 between", Kind.NUMERIC)
    cause = root_cause([one, two, other])
    assert cause is not None and cause.hit.file == "rank1.log"
    assert [h.line for h, _ in cause.lost] == [1], "of what a file repeats the first is told"


@pytest.mark.parametrize(
    "text", ["no time at all", "ratio 99:99:99", "x" * 90 + " 03:14:30", "23:59:59.9 the day before"]
)
def test_where_a_time_is_missing_or_of_another_day_the_order_of_reading_stays(text: str):
    assert first(hit("rank0.log", "03:14:31 torn"), hit("rank1.log", text)) == "rank0.log"


# ── printed GPUs ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def state() -> State:
    roles = lay_out(incident(), inventory())
    assert not isinstance(roles, NotPlaced)
    return State(run="dflash", roles=roles)


def oom(gpu: int | None, **known: int) -> Hit:
    return replace(hit("output.log", "CUDA out of memory", Kind.GPU_OOM), gpu=gpu, **known)  # type: ignore[arg-type]


def saw(pid: int, *visible: str, rank: int | None = None) -> Printer:
    return Printer(pid, rank, visible)


def test_without_a_word_of_any_process_the_ordinal_counts_along_the_runs_gpus(state: State):
    assert physical(oom(5), state, (), {}) == uuid(5)
    assert physical(oom(5), state, (Printer(1, None, None),), {}) == uuid(5)
    assert physical(oom(8), state, (), {}) is None
    assert physical(oom(None), state, (), {}) is None
    assert physical(oom(-1), state, (), {}) is None


def test_it_counts_along_the_gpus_that_the_printing_process_sees(state: State):
    printers = (saw(1, "0", "1", rank=0), saw(2, "5", "6", "7", rank=1))
    assert physical(oom(0, rank=1), state, printers, {}) == uuid(5)
    assert physical(oom(0, pid=2), state, printers, {}) == uuid(5)
    assert physical(oom(2), state, printers, {}) == uuid(7), "only one of them sees three"


def test_uuids_count_as_indices_do_and_gpus_of_others_are_not_ours(state: State):
    assert physical(oom(0), state, (saw(1, uuid(6)),), {}) == uuid(6)
    assert physical(oom(1), state, (saw(1, "0", uuid(6)),), {}) == uuid(6)
    assert physical(oom(0), state, (saw(1, "GPU-elsewhere"),), {}) is None
    assert physical(oom(0), state, (saw(1, ""),), {}) is None


def test_where_processes_differ_the_one_that_holds_its_gpu_printed_it_and_else_nobody_can_tell(state: State):
    printers = (saw(1, "0", "1"), saw(2, "5", "6", "7"))
    assert physical(oom(0), state, printers, {}) is None
    assert physical(oom(0), state, printers, {uuid(5): (2,), uuid(3): (1,)}) == uuid(5)
