"""`keep` is arithmetic and nothing else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.keep import LENGTH_MAX, NotArithmetic, equal, evaluate, names


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("micro_batch * grad_accum", 32),
        ("micro_batch*grad_accum + 2 - 1", 33),
        ("(micro_batch + 2) * 3", 30),
        ("grad_accum / micro_batch", 0.5),
        ("10 // 4 + 10 % 4", 4),
        ("2 ** 3", 8),
        ("-micro_batch", -8),
        ("data.batch * 2", 20),
        ("1.5", 1.5),
    ],
)
def test_it_knows_numbers_names_and_six_operators(expression, value):
    assert evaluate(expression, {"micro_batch": 8, "grad_accum": 4, "data.batch": 10}) == value


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "open('x')",
        "(lambda: 1)()",
        "[1][0]",
        "micro_batch if 1 else 2",
        "f().x",
        "'a' * 2",
        "True",
        "None",
        "1 < 2",
        "~1",
        "micro_batch @ 2",
        "x := 1",
        "",
        "1 +",
        "\0",
        "(" * 150,
        "1" + "+1" * LENGTH_MAX,
    ],
)
def test_everything_else_is_refused_and_never_run(expression):
    with pytest.raises(NotArithmetic):
        evaluate(expression, {"micro_batch": 8})


@pytest.mark.parametrize(
    "expression", ["9 ** 9 ** 9", "1 / 0", "1 % 0", "1e300", "1e200 ** 2", "1e17 * 100", "(0 - 2) ** 0.5", "2 ** 65"]
)
def test_a_number_that_is_no_batch_is_refused_at_once(expression):
    with pytest.raises(NotArithmetic):
        evaluate(expression, {})


def test_an_unknown_name_is_named():
    with pytest.raises(NotArithmetic, match="grad_acum is not a number of this rung"):
        evaluate("micro_batch * grad_acum", {"micro_batch": 8})


def test_the_names_are_found_without_values_even_where_they_divide():
    assert names("a * b / (c.d - a)") == ("a", "b", "c.d")


def test_batches_are_equal_exactly_and_quotients_nearly():
    assert equal(32, 32)
    assert equal(0.1 + 0.2, 0.3)
    assert not equal(32, 33)


@given(st.text(alphabet="ab.()+-*/% 0123456789e_'\"[]{}:=", max_size=60))
def test_any_text_is_a_number_or_a_refusal(text):
    with contextlib.suppress(NotArithmetic):
        assert isinstance(evaluate(text, {"a": 2, "b": 3.5}), (int, float))
