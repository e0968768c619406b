"""Where a locked value stands in a command, and whether it is the locked one; how a scalar is read for that."""

from __future__ import annotations

import math

import pytest
from changes import replace
from fake_specs import incident

from supervisor.core.guard import (
    argv_violations,
    changed,
    protected_changes,
    protected_sha256,
    runs_command,
    watched_keys,
)
from supervisor.core.keep import NotArithmetic, equal, evaluate, names
from supervisor.core.occurrences import Occurrence, occurrences
from supervisor.core.scalars import number, same, same_value, shown, typed
from supervisor.core.spec import ConfigFile, Knob, Param, Params, Rule, RunSpec, Scalar, Style, Value


def spec(*, how: dict[str, Param] | None = None, style: Style = Style.ARGPARSE, **protected: Value) -> RunSpec:
    ways = {name: Param(name=name) for name in protected} | (how or {})
    return replace(incident(), command=("train.py",), params=Params(protected=protected, how=ways, style=style))


def int_(text: str) -> Scalar:
    return Scalar(text, "int")


def places(name: str, *argv: str, of: RunSpec | None = None) -> list[Occurrence]:
    return list(occurrences(of or spec(anchors=int_("1024"), block_size=int_("32")), name, ("train.py", *argv)))


def test_a_flag_owns_the_words_up_to_the_next_flag():
    assert places("anchors", "--anchors", "1", "-2", "x", "--other", "3") == [
        Occurrence(1, "--anchors", ("1", "-2", "x"), False)
    ]
    assert places("anchors", "--anchors", "--other", "3") == [Occurrence(1, "--anchors", (), False)]
    assert places("anchors", "--anchors=7", "8") == [Occurrence(1, "--anchors=7", ("7",), False)]
    assert places("anchors", "x", "--anchors", "1")[0].index == 2
    assert list(occurrences(spec(anchors=int_("1")), "anchors", ("--anchors=7",))) == [], "that is the program"


def test_a_word_without_dashes_counts_before_an_equals_sign_only():
    assert places("anchors", "anchors", "1") == []
    assert [one.values for one in places("anchors", "anchors=1", "+anchors=2", "++anchors=3")] == [
        ("1",),
        ("2",),
        ("3",),
    ]
    assert places("anchors", "~anchors") == [Occurrence(1, "~anchors", (), True)]
    assert places("anchors", "anch=1") == []


def test_a_shortened_or_negated_flag_is_meant_and_another_params_own_is_not():
    assert [one.off for one in places("anchors", "--no-anchors")] == [True]
    assert [one.off for one in places("anchors", "--no_anchors")] == [True]
    assert len(places("anchors", "--anc", "1")) == 1
    assert places("anchors", "--an", "1") == []
    assert places("anchors", "-anc", "1") == []
    both = spec(anchors=int_("1"), anchors_max=int_("2"))
    assert places("anchors_max", "--anchors", "1", of=both) == []
    assert len(places("anchors_max", "--anchors-", "1", of=both)) == 1
    assert places("block_size", "--block_size", "1", "--block-size", "2")[1].values == ("2",)


def test_a_short_flag_is_a_params_where_the_spec_writes_it():
    assert places("m", "-m", "x", of=spec(m=int_("1"))) == []
    short = spec(how={"m": Param(name="m", flag="-m")}, m=int_("1"))
    assert len(places("m", "-m", "x", of=short)) == 1


def wrong(of: RunSpec, *argv: str) -> list[tuple[str, str]]:
    return [(one.param, one.found) for one in argv_violations(of, ("train.py", *argv))]


def test_a_switch_says_true_alone_false_negated_and_what_stands_behind_its_equals_sign():
    on, off = (spec(fast=Scalar(text, "bool")) for text in ("true", "false"))
    for argv, is_on in (
        (("--fast",), True),
        (("--no-fast",), False),
        (("--fast", "false"), False),
        (("--fast", "True"), True),
        (("--fast", "x"), True),
        (("--fast=false",), False),
        (("--fast=true",), True),
        (("--no-fast=true",), False),
        (("--no-fast=false",), True),
    ):
        assert bool(wrong(on, *argv)) is not is_on, argv
        assert bool(wrong(off, *argv)) is is_on, argv
    assert wrong(on, "--fast=x")
    assert wrong(off, "--fast=x")


def test_a_list_is_one_word_each_or_one_word_with_commas_and_may_not_be_longer():
    layers = spec(layers=(int_("1"), int_("2")))
    for argv in (("--layers", "1", "2"), ("--layers", "1,2"), ("--layers=[1, 2]",), ("--layers", "1", "2", "data")):
        assert wrong(layers, *argv) == [], argv
    for argv in (("--layers", "1"), ("--layers", "2", "1"), ("--layers", "1,2,3"), ("--layers",), ("--no-layers",)):
        assert wrong(layers, *argv), argv


@pytest.mark.parametrize(
    ("argv", "is_so"),
    [
        (("python", "/w/train.py", "--x"), True),
        (("python", "other.py", "--train.py"), False),
        (("train.py",), True),
    ],
)
def test_a_process_runs_the_command_where_its_script_is_a_word_of_it(argv, is_so):
    assert runs_command(spec(), argv) is is_so


def test_a_launcher_is_not_what_a_command_runs():
    def runs(command: tuple[str, ...], *argv: str) -> bool:
        return runs_command(replace(spec(), command=command), argv)

    assert runs(("torchrun", "--nproc=8", "train.py"), "python", "train.py")
    assert not runs(("torchrun", "--nproc=8", "train.py"), "torchrun")
    assert runs(("python", "-m", "pkg.train"), "python3", "-m", "pkg.train")
    assert not runs(("python", "-m", "pkg.train"), "python3", "pkg.train")
    assert runs(("./trainer", "--x"), "/w/trainer")
    assert runs(("trainer", "a.py", "b.py"), "a.py")
    assert runs(("trainer", "a.py", "b.py"), "trainer")
    assert not runs(("trainer", "a.py", "b.py"), "b.py")
    assert not runs(("bash", "-m", "x", "word"), "word"), "a module is run, the word is its argument"
    assert runs(("env", "A=1", "word"), "A=1"), "the first word that is no launcher"


def test_what_is_locked_is_a_value_however_it_is_written():
    assert protected_sha256(spec(lr=Scalar("1e-4", "float"))) == protected_sha256(spec(lr=Scalar("0.0001", "float")))
    assert protected_sha256(spec(n=int_("12"))) == protected_sha256(spec(n=int_("012")))
    assert protected_sha256(spec(n=Scalar("12.0", "float"))) == protected_sha256(spec(n=int_("12")))
    assert protected_sha256(spec(n=Scalar("12.5", "float"))) != protected_sha256(spec(n=int_("12")))
    assert protected_sha256(spec(b=Scalar("True", "bool"))) == protected_sha256(spec(b=Scalar("true", "bool")))
    assert protected_sha256(spec(b=Scalar("true", "bool"))) != protected_sha256(spec(b=Scalar("true")))
    assert protected_sha256(spec(s=Scalar("A"))) != protected_sha256(spec(s=Scalar("a")))
    assert protected_sha256(spec(a=int_("1"), b=int_("2"))) == protected_sha256(spec(b=int_("2"), a=int_("1")))
    assert protected_sha256(spec(a=(int_("1"), int_("2")))) != protected_sha256(spec(a=(int_("2"), int_("1"))))


def kept(keep: str, **rung: str) -> RunSpec:
    knob = Knob(name="batch", rungs=({name: int_(text) for name, text in rung.items()},), keep=keep)
    of = spec(n=int_("3"))
    return replace(of, params=replace(of.params, knobs=(knob,)))


def test_what_keep_comes_to_is_locked_as_a_number():
    assert protected_changes(kept("a * b", a="2", b="8"), kept("a * b", a="4", b="4")) == ()
    assert protected_changes(kept("a * b", a="2", b="8"), kept("a * b", a="4", b="5")) == ("keep a * b 16 -> 20",)
    assert protected_changes(kept("a / n", a="3"), kept("a / n", a="6")) == ("keep a / n 1.0 -> 2.0",)
    assert protected_changes(kept("a * b", a="2", b="8"), spec(n=int_("3"))) == ("keep a * b 16 -> (removed)",)
    assert protected_changes(kept("a * b", a="2"), kept("a", a="2")) == (), "it has no value"


def test_what_changed_is_named_as_in_the_file():
    of = spec(n=int_("3"))
    recovery = replace(
        of.recovery, per_s=1.0, stop_signal="SIGINT", grace_s=1.0, backoff_first_s=1.0, backoff_cap_s=1.0
    )
    assert set(changed(of, replace(of, recovery=recovery))) == {
        "recovery.per",
        "recovery.stop.signal",
        "recovery.stop.grace",
        "recovery.backoff.first",
        "recovery.backoff.cap",
    }
    assert changed(of, replace(of, pins_warn=True)) == ("pins.on_drift",)
    assert changed(of, replace(of, env={**of.env, "A": "1"})) == ("env.A",)
    assert changed(of, replace(of, params=replace(of.params, style=Style.HYDRA))) == ("params.style",)
    moved = Rule(on=(), do="halt", where="r.yaml:9")  # type: ignore[arg-type]
    rules = (replace(of, recovery=replace(of.recovery, rules=(replace(moved, where=w),))) for w in ("a:1", "b:2"))
    assert changed(*rules) == ()
    assert changed(of, of) == ()


def test_a_protected_value_of_a_file_is_watched_in_the_file_and_in_its_copies():
    in_file = {"lr": Param(name="lr", file="/w/conf.yaml", key="opt.lr")}
    copies = (ConfigFile(name="conf", from_="/w/conf.yaml"), ConfigFile(name="other", from_="/w/x.yaml"))
    of = replace(spec(how=in_file, lr=Scalar("1e-4", "float")), files=copies)
    assert [(one.file, one.key) for one in watched_keys(of)] == [("/w/conf.yaml", "opt.lr"), ("conf", "opt.lr")]
    filled = replace(copies[1], set={"a.lr": "${{ params.lr }}", "b": "${{ params.other }}"})
    of = replace(spec(lr=Scalar("1e-4", "float")), files=(filled,))
    assert [(one.file, one.key) for one in watched_keys(of)] == [("other", "a.lr")]


# ── scalars and arithmetic ──


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        (Scalar("0x1F", "int"), 31),
        (Scalar("-0x1F", "int"), -31),
        (Scalar("+0x1F", "int"), 31),
        (Scalar("0o17", "int"), 15),
        (Scalar("012", "int"), 12),
        (Scalar("1_000", "int"), 1000),
        (Scalar("1_0.5", "float"), 10.5),
        (Scalar("-.Inf", "float"), -math.inf),
        (Scalar("+.inf", "float"), math.inf),
        (Scalar("TRUE", "bool"), True),
        (Scalar("false", "bool"), False),
        (Scalar("~", "null"), None),
        (Scalar("7"), "7"),
    ],
)
def test_a_scalar_is_the_value_that_yaml_says(scalar, value):
    assert scalar.value == value
    assert math.isnan(Scalar(".NaN", "float").value)


def test_a_number_is_no_boolean_and_very_long_ones_are_text():
    assert number(Scalar("true", "bool")) is None
    assert number(Scalar("7", "int")) == 7
    assert (typed("9" * 300).tag, typed("9" * 301).tag) == ("int", "str")
    assert (typed("." + "9" * 299).tag, typed("." + "9" * 300).tag) == ("float", "str")
    assert same(Scalar("true", "bool"), Scalar("True", "bool"))
    assert not same(Scalar("true", "bool"), Scalar("True"))
    assert not same(Scalar("true", "bool"), Scalar("1", "int"))
    assert shown((Scalar("1"), Scalar("2"))) == "[1, 2]"
    assert not same_value((Scalar("1"),), Scalar("1"))
    assert not same_value((Scalar("1"),), (Scalar("1"), Scalar("2")))


def test_keep_refuses_what_is_beyond_any_batch():
    assert evaluate("2 ** 59", {}) == 2**59
    assert evaluate("1 ** 64", {}) == 1
    assert evaluate("0 ** 2 + a", {"a": 1}) == 1
    assert evaluate("a ** b", {"a": -2, "b": 2}) == 4
    assert evaluate("a ** b", {"a": 0, "b": 0.5}) == 0
    assert evaluate("1e18", {}) == 1e18
    for beyond in ("1 ** 65", "2 ** 60", "1e18 * 2", "0 ** -1", "1 / 0"):
        with pytest.raises(NotArithmetic):
            evaluate(beyond, {})
    with pytest.raises(NotArithmetic):
        evaluate("a ** b", {"a": -2, "b": 0.5})
    with pytest.raises(NotArithmetic, match="b is not a number"):
        evaluate("a * b", {"a": 1})
    assert evaluate(f"{'1' + ' ' * 199}", {}) == 1
    with pytest.raises(NotArithmetic, match="longer than 200"):
        evaluate(f"{'1' + ' ' * 200}", {})
    assert names("b * a.x + b") == ("b", "a.x")
    assert equal(0.1 + 0.2, 0.3)
    assert not equal(16, 17)
    assert not equal(1.0, 1.0 + 2e-9)
