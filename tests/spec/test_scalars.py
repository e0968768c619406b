"""Scalars are typed as YAML 1.2 core types them, and compared by what they stand for."""

from __future__ import annotations

import pytest

from supervisor.core.scalars import is_text_of, number, same, same_value, scalars, shown, typed
from supervisor.core.spec import Scalar


@pytest.mark.parametrize(
    ("text", "tag", "value"),
    [
        ("012", "int", 12),
        ("-3", "int", -3),
        ("0x1F", "int", 31),
        ("0o17", "int", 15),
        ("1e-4", "float", 1e-4),
        ("1.", "float", 1.0),
        (".5", "float", 0.5),
        ("-.inf", "float", float("-inf")),
        ("true", "bool", True),
        ("FALSE", "bool", False),
        ("~", "null", None),
        ("", "null", None),
        ("no", "str", "no"),
        ("yes", "str", "yes"),
        ("1_000", "str", "1_000"),
        ("1:30", "str", "1:30"),
        ("2026-01-01", "str", "2026-01-01"),
        ("0b11", "str", "0b11"),
        ("9" * 400, "str", "9" * 400),
    ],
)
def test_a_plain_text_has_the_type_of_yaml_1_2(text, tag, value):
    assert typed(text).tag == tag
    assert typed(text).value == value


def test_numbers_are_the_same_however_they_are_written():
    assert same(typed("1e-4"), typed("0.0001"))
    assert same(typed("012"), typed("12"))
    assert same(typed("8"), typed("8.0"))
    assert same(typed("True"), typed("true"))
    assert not same(typed("true"), typed("1"))
    assert not same(typed("8"), typed("9"))
    assert not same(Scalar("12"), typed("012")), "a quoted text is compared as text"


def test_a_quoted_number_is_said_by_the_same_text():
    assert is_text_of("1024", Scalar("1024"))


def test_a_list_is_not_its_only_item():
    one = typed("1")
    assert not same_value((one,), one)
    assert not same_value(one, (one,))
    assert same_value((one, typed("2")), (typed("1.0"), typed("2")))
    assert not same_value((one,), (one, one))
    assert same_value(one, typed("01"))


def test_values_are_shown_as_written():
    assert shown(typed("1e-4")) == "1e-4"
    assert shown((typed("1"), typed("2"))) == "[1, 2]"
    assert scalars(typed("1")) == (typed("1"),)
    assert number(typed("x")) is None
    assert number(typed("true")) is None
