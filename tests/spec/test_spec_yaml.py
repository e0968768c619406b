"""The YAML of a spec: strict, bounded, typed as YAML 1.2 core, and every scalar as it stands in the file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from supervisor.core.errors import Exit, Refusal, SpecError
from supervisor.core.spec import Scalar
from supervisor.edges.specfile import tree
from supervisor.edges.specfile.tree import BYTES_MAX, NODES_MAX, parse

CONFIGS = Path(__file__).parents[2] / "configs"


def only_mistake(raw):
    with pytest.raises(SpecError) as caught:
        parse("s.yaml", raw if isinstance(raw, bytes) else raw.encode())
    (mistake,) = caught.value.mistakes
    return str(mistake)


def test_scalars_reach_the_job_as_they_stand(specs):
    spec = specs.load("""
env: {VA: 012, VB: 1e-4, VC: no, VD: TRUE, VE: "1_0", VF: 0.10, VG: 2026-01-01}
params: {protected: {a: 012, b: 1e-4, c: no, d: True, e: "8"}}
pins: {torch: 2.10, x: 1.0}
""")
    assert spec.env == {
        "VA": "012",
        "VB": "1e-4",
        "VC": "no",
        "VD": "TRUE",
        "VE": "1_0",
        "VF": "0.10",
        "VG": "2026-01-01",
    }
    assert spec.params.protected == {
        "a": Scalar("012", "int"),
        "b": Scalar("1e-4", "float"),
        "c": Scalar("no"),
        "d": Scalar("True", "bool"),
        "e": Scalar("8"),
    }
    assert spec.pins == {"torch": "2.10", "x": "1.0"}


@pytest.mark.parametrize("text", ["{a: ${{ gpus }}}", "[${{ gpus }}, x]", "a: ${{ gpus }}", "- --g=${{ gpus }}"])
def test_a_substitution_needs_no_quotes_anywhere(text):
    source = parse("s.yaml", text.encode())
    assert "${{ gpus }}" in str(source.root)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a: !!python/object/apply:os.system [x]", "s.yaml:1:4: the tag"),
        ("a: !!python/name:os.system x", "s.yaml:1:4: the tag"),
        ("a: !mine x", "s.yaml:1:4: the tag !mine is refused"),
        ("a: !!set {x}", "s.yaml:1:4: the tag"),
        ("a: !!map [x]", "s.yaml:1:4: the tag"),
        ("a: !!int x", "s.yaml:1:4: `x` is no YAML 1.2 int"),
        ("a: *x", "s.yaml:1:4: *x stands for nothing"),
        ("a: &x [*x]", "s.yaml:1:8: a: *x stands for nothing that ended before it"),
        ("? [a]\n: b", "s.yaml:1:3: a key must be a single word"),
        ("a: &x b\n? *x\n: c", "s.yaml:2:3: an alias cannot be a key"),
        ("a: 1\n---\nb: 2", "s.yaml:2:1: a second document"),
        ("a: [1,\nb: 2", "s.yaml:2:"),
        ("\ta: 1", "s.yaml:1:1: not YAML:"),
        ("a: 'x", "s.yaml:1:"),
        ("a: b: c", "s.yaml:1:5: not YAML: mapping values are not allowed here"),
        ("[" * 60, "s.yaml:1:51: "),
        (b"a: \xff", "s.yaml:1:1: not UTF-8 text"),
        (b"a: 1\nb: \x00", "s.yaml:2:1: the character U+0000"),
        (b"a: 1\nb: \x07", "s.yaml:"),
        ('a: "x\\0"', "s.yaml:1:4: an escape that no command line"),
        ("a: \ue000", "s.yaml:1:1: the character U+E000"),
        (b"#" * (BYTES_MAX + 1), "s.yaml:1:1: 1048577 bytes; a spec has at most 1 MiB"),
    ],
)
def test_what_is_not_plain_data_is_refused_at_its_place(text, where):
    assert only_mistake(text).startswith(where)


def test_an_alias_bomb_stops_at_a_bound_and_not_in_memory():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert f"more than {NODES_MAX} values once aliases are written out" in only_mistake("\n".join(lines))


def test_an_alias_stands_for_what_it_names(specs):
    spec = specs.load("params: {knobs: {a: {value: 8, ladder: &l [4, 2]}, b: {value: 16, ladder: *l}}}")
    assert [rung["b"].text for rung in spec.params.knobs[1].rungs] == ["16", "4", "2"]


def test_a_mistake_in_an_aliased_mapping_is_told_for_both(specs):
    text = "topology: {a: &r {gpus: [1], foor: 2m}, b: *r}"
    said = specs.mistakes(text)
    assert any("topology.a.foor: unknown key (did you mean for)" in line for line in said)
    assert any(line.startswith("4:41: topology.b.foor") for line in said), "at the alias: its own keys stand elsewhere"


def test_explicit_core_tags_are_allowed(specs):
    spec = specs.load("params: {protected: {a: !!str 8, b: !!int 9, c: ! 7, d: !!float 1.5}}\nenv: !!map {X: y}")
    assert spec.params.protected == {
        "a": Scalar("8"),
        "b": Scalar("9", "int"),
        "c": Scalar("7"),
        "d": Scalar("1.5", "float"),
    }


def test_a_byte_order_mark_and_windows_line_ends_are_no_mistake(specs):
    path = specs.folder / "w.yaml"
    path.write_bytes("\ufeffversion: 1\r\nname: w\r\ncommand: [a]\r\n".encode())
    from supervisor.edges import specfile

    assert specfile.load(path, {}).command == ("a",)


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n", "word\n", "5\n"])
def test_an_empty_file_or_one_that_is_no_mapping_says_what_a_spec_is(specs, text):
    said = "\n".join(specs.mistakes(text, head=False))
    assert "version is required: `version: 1`" in said or "a spec is a mapping; it begins with `version: 1`" in said


def test_a_missing_or_unreadable_file_says_so_with_exit_5(specs, tmp_path):
    from supervisor.edges import specfile

    for path, why in ((tmp_path / "none.yaml", "there is no such file"), (tmp_path, "Is a directory")):
        with pytest.raises(Refusal, match=why) as caught:
            specfile.load(path, {})
        assert caught.value.exit == Exit.SPEC_INVALID


def test_a_merge_key_is_an_unknown_key_of_yaml_1_2(specs):
    assert "<<: unknown key" in specs.mistakes("env: &e {A: b}\nlaunch: {<<: *e}")[0]


@pytest.mark.parametrize("loader", [yaml.SafeLoader, tree._Loader])
def test_half_a_surrogate_pair_is_refused_by_whichever_parser_is_there(loader, monkeypatch):
    monkeypatch.setattr(tree, "_Loader", loader)
    assert only_mistake('a: "\\ud800"').startswith("s.yaml:1:")


@pytest.mark.parametrize("name", sorted(path.name for path in CONFIGS.glob("*.yaml")))
def test_both_parsers_read_the_same(name, monkeypatch):
    raw = (CONFIGS / name).read_bytes()
    fast = parse(name, raw)
    monkeypatch.setattr(tree, "_Loader", yaml.SafeLoader)
    assert parse(name, raw) == fast
