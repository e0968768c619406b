"""A value in a config file is replaced, and every other byte stays."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core.scalars import typed
from supervisor.core.spec import Scalar
from supervisor.edges.configfile import TEXT_MAX, ConfigProblem, edited, format_of, lookup

YAML = """\
# a comment   with   spaces
model: {dim: 64, "depth": 2}   # trailing
train:
    lr:   1e-4     # odd spacing
    name: "quoted" # keep
    steps: [1,  2, 3]
    text: |
      block
    base: &b 5
    again: *b
    nested:
    - {x: 1}
    - x: 2
last: end
"""


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("model.dim", typed("32"), "{dim: 64,", "{dim: 32,"),
        ("model.depth", typed("8"), '"depth": 2}', '"depth": 8}'),
        ("train.lr", typed("3e-5"), "lr:   1e-4     #", "lr:   3e-5     #"),
        ("train.name", typed("plain"), '"quoted" #', "plain #"),
        ("train.name", Scalar("8"), '"quoted" #', '"8" #'),
        ("train.name", typed("no"), '"quoted" #', '"no" #'),
        ("train.name", typed("a: b # c"), '"quoted" #', '"a: b # c" #'),
        ("train.name", typed("/data/x-1.0"), '"quoted" #', "/data/x-1.0 #"),
        ("train.steps.1", typed("20"), "[1,  2, 3]", "[1,  20, 3]"),
        ("train.nested.1.x", typed("3"), "- x: 2", "- x: 3"),
        ("train.base", typed("6"), "&b 5", "&b 6"),
        ("last", typed("true"), "last: end", "last: true"),
    ],
)
def test_only_the_value_changes_in_yaml(key, value, old, new):
    text = edited(YAML, "yaml", {key: value})
    assert text == YAML.replace(old, new) or (key == "train.base" and "6" in text)
    assert lookup(text, "yaml", key) is not None


def test_several_values_change_at_once_and_a_double_key_twice():
    assert edited("a: 1\nb: 2\na: 3\n", "yaml", {"a": typed("10"), "b": typed("200")}) == "a: 10\nb: 200\na: 10\n"


def test_only_the_first_document_counts():
    assert edited("a: 1\n---\na: 2\n", "yaml", {"a": typed("3")}) == "a: 3\n---\na: 2\n"


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("model.width", "has no key model.width"),
        ("train", "train is a mapping"),
        ("train.steps", "train.steps is a list"),
        ("train.text", "train.text is a block of text"),
        ("train.again", r"train.again is the alias \*b"),
    ],
)
def test_what_is_no_single_value_is_refused_by_name(key, why):
    with pytest.raises(ConfigProblem, match=why):
        edited(YAML, "yaml", {key: typed("1")})


def test_values_are_looked_up_with_their_type():
    assert lookup(YAML, "yaml", "train.lr") == Scalar("1e-4", "float")
    assert lookup(YAML, "yaml", "train.name") == Scalar("quoted")
    assert lookup(YAML, "yaml", "train.steps") == (typed("1"), typed("2"), typed("3"))
    assert lookup(YAML, "yaml", "train.nested") is None
    assert lookup(YAML, "yaml", "train.nothing") is None
    assert lookup("a: [&x 1, *x]", "yaml", "a") is None
    assert lookup("x: &a k\n*a : v\ny: 2", "yaml", "y") == typed("2")


JSON = '{\n\t"a": {"b": [1, 2.50, "x\\u00e9\\ud83d\\ude00"], "t" : true},\n\t"n": null, "s": "\\/"\n}\n'


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("a.b.1", typed("3"), "2.50", "3"),
        ("a.t", typed("False"), "true", "false"),
        ("n", typed("012"), "null", "12"),
        ("n", typed("1e-4"), "null", "1e-4"),
        ("n", typed("~"), "null", "null"),
        ("s", typed('he said "hi"'), '"\\/"', '"he said \\"hi\\""'),
        ("s", Scalar("8"), '"\\/"', '"8"'),
    ],
)
def test_only_the_value_changes_in_json_with_tabs_and_escapes(key, value, old, new):
    text = edited(JSON, "json", {key: value})
    assert text == JSON.replace(old, new)
    json.loads(text)


def test_json_is_looked_up_as_json():
    assert lookup(JSON, "json", "a.b.1") == typed("2.50")
    assert lookup(JSON, "json", "a.b.2") == Scalar("xé😀")
    assert lookup(JSON, "json", "a.b") == (typed("1"), typed("2.50"), Scalar("xé😀"))
    assert lookup(JSON, "json", "a") is None
    assert lookup('{"a": [[1]], "e": []}', "json", "a") is None
    assert lookup('{"a": [[1]], "e": []}', "json", "e") == ()


@pytest.mark.parametrize("text", ["", "{", '{"a"', '{"a": ', '{"a": 1 "b": 2}', "{1: 2}", "[1,]", "nul", "[" * 200])
def test_broken_json_is_refused(text):
    with pytest.raises(ConfigProblem, match="the config file is n"):
        edited(text, "json", {"a": typed("1")})


TOML = '# top\n[train]  # section\nlr = 1e-4   # rate\nname = "x"\nsizes = [1, 2]\n[[stage]]\nn = 1\n[[stage]]\nn = 2\n'


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("train.lr", typed("0.5"), "1e-4 ", "0.5 "),
        ("train.lr", typed("012"), "1e-4 ", "12 "),
        ("train.name", typed("true"), '"x"', "true"),
        ("train.name", typed("y z"), '"x"', '"y z"'),
        ("train.sizes.1", typed("3"), "[1, 2]", "[1, 3]"),
        ("stage.1.n", typed("5"), "n = 2", "n = 5"),
    ],
)
def test_the_rest_of_toml_stays(key, value, old, new):
    assert edited(TOML, "toml", {key: value}) == TOML.replace(old, new)


def test_toml_is_looked_up_with_its_types():
    assert lookup(TOML, "toml", "train.lr") == typed("0.0001")
    assert lookup(TOML, "toml", "train.name") == Scalar("x")
    assert lookup(TOML, "toml", "train.sizes") == (typed("1"), typed("2"))
    assert lookup(TOML, "toml", "train") is None
    assert lookup(TOML, "toml", "stage") is None
    assert lookup(TOML, "toml", "train.lr.x") is None
    assert lookup("a = true\nd = 2026-01-01\n", "toml", "a") == typed("true")
    assert lookup("a = true\nd = 2026-01-01\n", "toml", "d") is None


@pytest.mark.parametrize(("key", "why"), [("nothing", "has no key nothing"), ("train", "train is no single value")])
def test_what_toml_does_not_have_is_refused(key, why):
    with pytest.raises(ConfigProblem, match=why):
        edited(TOML, "toml", {key: typed("1")})


def test_broken_files_are_refused():
    for text, format_, why in (("a = ", "toml", "is not TOML"), ("a: [", "yaml", "is not YAML")):
        with pytest.raises(ConfigProblem, match=why):
            lookup(text, format_, "a")
    with pytest.raises(ConfigProblem, match="nested more than 100 deep"):
        lookup("[" * 150 + "]" * 150, "yaml", "a")
    with pytest.raises(ConfigProblem, match="larger than 8 MiB"):
        lookup("#" * (TEXT_MAX + 1), "yaml", "a")


def test_the_format_is_told_by_the_name():
    assert [format_of(name) for name in ("a.yml", "b.YAML", "/x/c.json", "d.toml")] == ["yaml", "yaml", "json", "toml"]
    with pytest.raises(ConfigProblem, match=r"only \.yaml"):
        format_of("train.py")


KEYS = st.sampled_from(["a", "b", "c"])
PLAIN = st.one_of(st.integers(-9, 9), st.booleans(), st.text(max_size=4), st.floats(-1, 1), st.none())
TREES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)


def leaves(node, path=()):
    match node:
        case dict():
            for key, value in node.items():
                yield from leaves(value, (*path, key))
        case list():
            for n, value in enumerate(node):
                yield from leaves(value, (*path, n))
        case _:
            yield path


def put(node, path, value):
    if not path:
        return value
    copy = dict(node) if isinstance(node, dict) else list(node)
    copy[path[0]] = put(copy[path[0]], path[1:], value)
    return copy


@settings(max_examples=150, deadline=None)
@given(st.data(), st.dictionaries(KEYS, TREES, min_size=1, max_size=3), st.sampled_from(["yaml", "flow", "json"]))
def test_an_edit_changes_the_named_value_and_no_other(data, tree, style):
    paths = list(leaves(tree))
    if not paths:
        return
    path = data.draw(st.sampled_from(paths))
    new, meant = data.draw(st.sampled_from([(typed("7"), 7), (Scalar("yes"), "yes"), (typed("true"), True)]))
    text = json.dumps(tree, indent=1) if style == "json" else yaml.safe_dump(tree, default_flow_style=style == "flow")
    format_ = "json" if style == "json" else "yaml"
    read = json.loads if style == "json" else yaml.safe_load
    key = ".".join(map(str, path))
    assert read(edited(text, format_, {key: new})) == put(read(text), path, meant)
