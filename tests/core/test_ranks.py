"""Which rank a log or a line belongs to, and who did not report."""

from __future__ import annotations

import pytest

from supervisor.core.ranks import last_lines, not_reporting, rank_of_file, rank_of_line


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("/logs/run_x/attempt_0/5/stdout.log", 5),
        ("/logs/run_x/attempt_12/0/error.json", 0),
        ("/w/logs/rank_3.log", 3),
        ("/w/logs/rank3.log", 3),
        ("/s/attempts/0001/output.log", None),
        ("/w/train.log", None),
    ],
)
def test_the_rank_of_a_log(path, rank):
    assert rank_of_file(path) == rank


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("[rank5]: Traceback", 5),
        ("[default0]:step 3", 0),
        ("2026-01-01 | rank 7 | step 3", 7),
        ("rank=2 loss 1", 2),
        ("step 691/720 | loss 2.2", None),
        ("x" * 300 + " rank 2", None),
    ],
)
def test_the_rank_of_a_line(line, rank):
    assert rank_of_line(line) == rank


def test_a_rank_without_a_line_did_not_report():
    said = last_lines("output.log", ["[rank0]: step 5", "", "no rank", "[rank1]: step 5", "[rank3]: step 5"])
    assert said == {0: "[rank0]: step 5", 1: "[rank1]: step 5", 3: "[rank3]: step 5"}
    assert not_reporting({0, 1, 2, 3}, said, {}) == (2,)


def test_a_rank_at_an_earlier_step_did_not_report():
    said = {0: "step 5 of epoch 1, step 6", 1: "step 6", 2: "iter 5"}
    assert not_reporting((), said, {}) == (2,)


def test_where_nothing_tells_them_apart_nobody_is_named():
    assert not_reporting((), {}, {}) == ()
    assert not_reporting({0, 1, 2}, {0: "step 6"}, {}) == (), "rank 0 alone prints"
    assert not_reporting((), {0: "step 6", 1: "step 6"}, {0: 100.0, 1: 95.0}) == ()
    assert not_reporting((), {0: "a", 1: "b", 2: "c"}, {0: 100.0, 1: 80.0, 2: 100.0}) == (1,)
