"""The root cause among hits, and what refutes one."""

from __future__ import annotations

import pytest

from supervisor.core.evidence import Hit, Weight
from supervisor.core.kinds import Kind
from supervisor.core.rootcause import LOST_CAP, Confidence, Mark, refuted, root_cause


def hit(kind=Kind.GPU_OOM, offset=0, weight=Weight.CAUSE, signature=None, **fields):
    name = signature or f"{kind.value}_{weight.value}"
    return Hit(name, kind, fields.pop("file", "f"), offset + 1, offset, f"text {offset}", weight=weight, **fields)


def chosen(*hits):
    cause = root_cause(hits)
    assert cause is not None
    return cause.hit


def reasons(*hits):
    cause = root_cause(hits)
    assert cause is not None
    return [why for _, why in cause.lost]


def test_nothing_seen_is_no_cause():
    assert root_cause([]) is None


def test_a_wrapper_alone_is_a_failure_whose_reason_stands_elsewhere_and_noise_is_none():
    cause = root_cause([hit(Kind.EXIT, weight=Weight.WRAPPER)])
    assert cause is not None
    assert (cause.hit.kind, cause.confidence, cause.lost) == (Kind.EXIT, Confidence.LOW, ())
    assert root_cause([hit(Kind.EXIT, weight=Weight.NOISE)]) is None


def test_the_first_cause_wins_over_later_ones_and_over_all_summaries():
    summary = hit(Kind.KILLED, 1, Weight.SUMMARY)
    first = hit(Kind.GPU_OOM, 2, rank=5, gpu=5)
    second = hit(Kind.DISK_FULL, 3)
    assert chosen(summary, first, second).offset == 2
    assert reasons(summary, first, second) == ["an exit code or signal, no reason", "printed later"]


def test_a_watchdog_storm_never_wins_over_the_rank_that_failed_first():
    storm = [hit(Kind.COLLECTIVE_TIMEOUT, 10 + rank, Weight.AFTERMATH, rank=rank) for rank in range(3)]
    oom = hit(Kind.GPU_OOM, 99, rank=3, gpu=3)
    cause = root_cause([*storm, oom])
    assert cause is not None
    assert (cause.hit.rank, cause.confidence) == (3, Confidence.HIGH)
    assert {why for _, why in cause.lost} == {"gpu_oom explains it", "what others print after a gpu_oom"} - {
        "gpu_oom explains it"
    }


def test_exit_codes_are_a_cause_of_last_resort_with_low_confidence():
    cause = root_cause([hit(Kind.KILLED, 1, Weight.SUMMARY, rank=3), hit(Kind.EXIT, 2, Weight.SUMMARY)])
    assert cause is not None
    assert (cause.hit.kind, cause.hit.rank, cause.confidence) == (Kind.KILLED, 3, Confidence.LOW)


def test_an_exception_without_a_known_text_wins_over_summaries_only():
    generic = hit(Kind.CODE_ERROR, 1, Weight.GENERIC)
    known = hit(Kind.DISK_FULL, 2)
    assert chosen(generic, hit(Kind.EXIT, 0, Weight.SUMMARY)).kind is Kind.CODE_ERROR
    assert chosen(generic, known).kind is Kind.DISK_FULL
    assert reasons(known, generic) == ["names no known reason"]


@pytest.mark.parametrize("kind", [Kind.CUDA_ERROR, Kind.KILLED, Kind.SEGFAULT])
def test_a_broken_gpu_explains_what_was_printed_before_it(kind):
    assert chosen(hit(kind, 1), hit(Kind.GPU_FAULT, 2)).kind is Kind.GPU_FAULT
    assert reasons(hit(kind, 1), hit(Kind.GPU_FAULT, 2)) == ["gpu_fault explains it"]


def test_a_gpu_without_memory_is_not_explained_by_a_later_lack_of_host_memory():
    assert chosen(hit(Kind.GPU_OOM, 1), hit(Kind.HOST_OOM, 2)).kind is Kind.GPU_OOM


def test_an_exception_of_one_rank_explains_that_others_lost_their_connection():
    lost = hit(Kind.COLLECTIVE_ERROR, 1, Weight.AFTERMATH, source="rank1")
    own = hit(Kind.CODE_ERROR, 2, Weight.GENERIC, source="rank1")
    other = hit(Kind.CODE_ERROR, 2, Weight.GENERIC, source="rank0", rank=0)
    assert chosen(lost, other).rank == 0
    assert chosen(lost, own).kind is Kind.COLLECTIVE_ERROR
    assert reasons(lost, own) == ["printed later"]


def test_a_timeout_is_not_explained_by_an_exception_that_came_after_it():
    timeout = hit(Kind.COLLECTIVE_TIMEOUT, 1, Weight.AFTERMATH, source="rank1")
    assert chosen(timeout, hit(Kind.CODE_ERROR, 2, Weight.GENERIC, source="rank0")).kind is Kind.COLLECTIVE_TIMEOUT


def test_figures_that_one_text_lacks_come_from_others_of_the_same_failure():
    warned = hit(Kind.GPU_OOM, 1, Weight.GENERIC, tried_mib=100.0, free_mib=20.0, total_mib=1000.0)
    raised = hit(Kind.GPU_OOM, 2, gpu=3, in_use_mib=900.0, reserved_mib=5.0, others=((7, 50.0),))
    found = chosen(warned, hit(Kind.DISK_FULL, 3), raised, hit(Kind.GPU_OOM, 4, rank=3, gpu=3, pid=9))
    assert found.kind is Kind.DISK_FULL
    found = chosen(warned, raised, hit(Kind.GPU_OOM, 4, rank=3, gpu=3, pid=9))
    assert (found.offset, found.gpu, found.rank) == (2, 3, 3)
    assert (found.tried_mib, found.free_mib, found.pid) == (100.0, 20.0, 9)


def test_figures_of_another_gpu_are_not_mixed_in():
    found = chosen(hit(gpu=5, tried_mib=1.0), hit(offset=2, gpu=7, tried_mib=1.0, free_mib=2.0))
    assert (found.gpu, found.free_mib) == (5, None)


def test_the_rank_comes_from_the_summary_that_names_the_process():
    kernel = hit(Kind.HOST_OOM, 9, pid=41240)
    others = hit(Kind.KILLED, 1, Weight.SUMMARY, rank=2, pid=11), hit(Kind.EXIT, 2, Weight.SUMMARY, pid=41240)
    right = hit(Kind.KILLED, 3, Weight.SUMMARY, rank=6, pid=41240)
    assert chosen(*others, right, kernel).rank == 6
    assert chosen(*others, kernel).rank is None
    assert chosen(hit(Kind.HOST_OOM, 9), others[0]).rank == 2


def test_a_text_that_must_be_repeated_means_nothing_alone():
    waiting = [hit(Kind.HANG, n, Weight.AFTERMATH, repeats=3) for n in range(3)]
    assert root_cause(waiting[:2]) is None
    assert chosen(*waiting).kind is Kind.HANG
    assert reasons(*waiting) == ["the same kind, printed later"]


def test_a_line_that_was_first_taken_for_something_else_counts_once():
    early = hit(Kind.CUDA_ERROR, 5, Weight.GENERIC)
    final = hit(Kind.GPU_OOM, 5)
    assert chosen(early, final).kind is Kind.GPU_OOM
    assert reasons(early, final) == []
    assert chosen(final, early).kind is Kind.GPU_OOM


def test_what_lost_is_told_once_for_each_text_and_rank_and_never_without_end():
    storm = [hit(Kind.COLLECTIVE_ERROR, n, Weight.AFTERMATH, rank=n % 2) for n in range(1, 500)]
    assert len(reasons(hit(), *storm)) == 2
    many = [hit(Kind.COLLECTIVE_ERROR, n, Weight.AFTERMATH, rank=n) for n in range(1, 500)]
    assert len(reasons(hit(), *many)) == LOST_CAP


def test_advice_of_pythons_is_a_cause_only_where_something_else_tells_of_a_failure():
    advice = hit(Kind.ENV_ERROR, weight=Weight.WARNED)
    assert root_cause([advice]) is None
    assert chosen(advice, hit(Kind.EXIT, 1, weight=Weight.SUMMARY)) == advice
    assert chosen(advice, hit(Kind.EXIT, 1, weight=Weight.WRAPPER)) == advice
    assert chosen(advice, hit(Kind.CODE_ERROR, 1, weight=Weight.GENERIC)).kind is Kind.CODE_ERROR


def test_wrappers_and_refuted_texts_are_told_too():
    dropped = [(hit(Kind.NUMERIC), "training went on")]
    cause = root_cause([hit(Kind.EXIT, 1, Weight.WRAPPER), hit(offset=2)], refuted=dropped)
    assert cause is not None
    assert [why for _, why in cause.lost] == ["it only points at another text", "training went on"]


def marks(*steps, offset=100, **fields):
    return [Mark(offset + n, step=step, **fields) for n, step in enumerate(steps)]


def test_two_further_steps_refute_a_text_and_one_does_not():
    assert refuted([hit()], marks(7, 8)) == ((), ((hit(), "training went on, 2 further steps"),))
    assert refuted([hit()], marks(7)) == ((hit(),), ())
    assert refuted([hit()], marks(7, 7, 7))[0] == (hit(),)
    assert refuted([hit()], marks(None, None))[0] == ()


def test_steps_before_the_text_refute_nothing():
    assert refuted([hit(offset=200)], marks(7, 8, 9))[0] == (hit(offset=200),)


def test_a_good_end_refutes():
    assert refuted([hit()], [Mark(5, done=True)])[1] == ((hit(), "the run ended well after it"),)


def test_steps_of_other_ranks_do_not_refute_an_exception_that_ended_its_process():
    died = hit(raised=True, source="rank5")
    assert refuted([died], marks(7, 8, 9, source="rank6"))[0] == (died,)
    assert refuted([died], marks(7, 8, 9))[0] == (died,)
    assert refuted([died], marks(7, 8, source="rank5"))[0] == ()
    assert refuted([died], [Mark(5, done=True, source="rank6")])[0] == (died,)


def test_a_warning_of_one_rank_is_refuted_by_anybodys_steps():
    assert refuted([hit(source="rank5")], marks(7, 8))[0] == ()


def test_a_new_start_makes_the_steps_after_it_count():
    died = hit(raised=True, source="rank5")
    assert refuted([died], [Mark(50, restart=True), *marks(7, 8)])[0] == ()
    assert refuted([died], [*marks(7, 8), Mark(500, restart=True)])[0] == (died,)


def test_an_exception_on_two_gpus_is_not_refuted_by_a_third_that_trains_on():
    two = [hit(raised=True, gpu=5), hit(offset=1, raised=True, gpu=7)]
    assert refuted(two, marks(7, 8, 9))[0] == tuple(two)
    assert refuted(two, [*marks(7, 8, 9), Mark(60, caught=True)])[0] == ()
    assert refuted(two, [Mark(50, restart=True), *marks(7, 8)])[0] == ()
    assert refuted([two[0]], marks(7, 8, 9))[0] == ()
