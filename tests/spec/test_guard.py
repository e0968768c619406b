"""The guard finds every way in which a protected param can differ, and nothing else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from supervisor.core.guard import (
    Violation,
    argv_violations,
    carries_all_flags,
    changed,
    environ_violations,
    file_violations,
    protected_changes,
    protected_sha256,
    runs_command,
    watched_keys,
)
from supervisor.core.scalars import typed

LOCKED = "params: {protected: {anchors: 1024, block_size: 32, lr: 1e-4}, knobs: {block: {value: 4, ladder: [2]}}}"


def found(spec, *argv):
    return [(one.param, one.found) for one in argv_violations(spec, ("train.py", *argv))]


@pytest.mark.parametrize(
    "argv",
    [
        ("--anchors", "1024"),
        ("--anchors=1024",),
        ("anchors=1024",),
        ("+anchors=1024",),
        ("--anch", "1024"),
        ("--block-size", "32"),
        ("--block_size=32",),
        ("--lr", "0.0001"),
        ("--lr=1.0e-4",),
        ("--block", "4"),
        ("--an", "512"),
        ("anchors", "512"),
        ("--anchors-per-gpu", "512"),
        ("--", "x"),
        ("path/anchors=5/x",),
        (),
    ],
)
def test_the_right_value_or_another_flag_is_no_violation(specs, argv):
    assert found(specs.load(LOCKED), *argv) == []


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        (("--anchors", "512"), "512"),
        (("--anchors=512",), "512"),
        (("anchors=512",), "512"),
        (("++anchors=512",), "512"),
        (("-anchors", "512"), "512"),
        (("--anc", "512"), "512"),
        (("--anchors", "1024", "--anchors", "512"), "512"),
        (("--anchors=512", "--anchors", "1024"), "512"),
        (("--anchors", "-1"), "-1"),
        (("--anchors",), "nothing"),
        (("--anchors", "--other"), "nothing"),
        (("--anchors=",), "nothing"),
        (("~anchors",), "off"),
        (("--no-anchors",), "off"),
        (("--anchors", "1024.5"), "1024.5"),
    ],
)
def test_any_other_value_is_found_however_it_is_written(specs, argv, value):
    assert found(specs.load(LOCKED), *argv) == [("anchors", value)]


def test_dash_and_underscore_are_one(specs):
    spec = specs.load(LOCKED)
    assert found(spec, "--block-size", "16") == [("block_size", "16")]
    assert found(spec, "--block_size", "16") == [("block_size", "16")]
    assert found(spec, "--block-s=16") == [("block_size", "16")]


def test_an_alias_is_guarded_too(specs):
    spec = specs.load("params: {protected: {anchors: {value: 4, flag: --max-anchors, aliases: [-a, --n-anchors]}}}")
    for flag in ("--max-anchors", "--n_anchors", "-a", "--anchors"):
        assert found(spec, flag, "5") == [("anchors", "5")]
        assert found(spec, flag, "4") == []


def test_a_violation_says_param_place_and_both_values(specs):
    (one,) = argv_violations(specs.load(LOCKED), ("t", "x", "--anchors=5"))
    assert str(one) == "anchors is locked at 1024, and argument 2 (--anchors=5) says 5"


@pytest.mark.parametrize(
    ("wanted", "argv", "fine"),
    [
        ("true", ("--fast",), True),
        ("true", ("--fast", "true"), True),
        ("true", ("--fast=True",), True),
        ("true", ("--fast", "data.json"), True),
        ("true", ("--fast", "false"), False),
        ("true", ("--fast=0",), False),
        ("true", ("--no-fast",), False),
        ("true", ("--no_fast=false",), True),
        ("false", ("--fast",), False),
        ("false", ("--no-fast",), True),
        ("false", ("fast=false",), True),
        ("false", ("fast=true",), False),
        ("false", (), True),
    ],
)
def test_a_switch_is_guarded_in_both_directions(specs, wanted, argv, fine):
    spec = specs.load(f"params: {{protected: {{fast: {wanted}}}}}")
    assert (found(spec, *argv) == []) is fine


@pytest.mark.parametrize(
    ("argv", "fine"),
    [
        (("--layers", "2", "--layers", "30"), True),
        (("--layers", "2", "30"), True),
        (("--layers", "2", "30", "positional"), True),
        (("--layers=2,30",), True),
        (("layers=[2, 30]",), True),
        (("--layers", "2"), False),
        (("--layers", "2", "--layers", "31"), False),
        (("--layers=2,30", "--layers=2"), False),
        (("--layers",), False),
        ((), True),
    ],
)
def test_a_list_is_the_same_repeated_in_words_or_in_one(specs, argv, fine):
    spec = specs.load("params: {protected: {layers: [2, 30]}}")
    assert (found(spec, *argv) == []) is fine


def test_the_flag_of_a_template_is_guarded(specs):
    text = "version: 1\nname: r\ncommand: [t, --n=${{ params.a }}, --mid, '${{ params.b }}', -x=1, '${{ params.a }}']\n"
    spec = specs.load(text + "params: {style: template, protected: {a: 1, b: 2}}", head=False)
    assert found(spec, "--n=5") == [("a", "5")]
    assert found(spec, "--mid", "5") == [("b", "5")]
    assert found(spec, "-x=5") == []


def test_variables_are_guarded_where_params_are_variables(specs):
    spec = specs.load("params: {style: env, protected: {lr: 1e-4, seed: {value: 1, env: MY_SEED}}}")
    assert environ_violations(spec, {"LR": "0.0001", "MY_SEED": "1", "SEED": "9"}) == ()
    assert environ_violations(spec, {}) == (), "a process that rewrote its title has lost its environment"
    (one,) = environ_violations(spec, {"LR": "1e-3"})
    assert one == Violation("lr", "the environment variable LR", "1e-3", "1e-4")
    assert argv_violations(spec, ("t", "--lr", "5")) == ()


def test_a_variable_set_to_a_param_is_guarded(specs):
    spec = specs.load("env: {RATE: '${{ params.lr }}', API_KEY: secretsecret}\nparams: {protected: {lr: 1e-4}}")
    assert [one.found for one in environ_violations(spec, {"RATE": "2"})] == ["2"]


FILES = """
files: {sft: {from: conf/sft.yaml, set: {train.seed: '${{ params.seed }}', x: 1}}}
params:
  style: template
  protected: {"conf/sft.yaml:model.dim": 64, "sft:model.depth": 2, seed: 7, unused: {value: 1, env: U}}
"""


def test_values_in_config_files_are_watched_in_the_source_and_in_the_copy(specs):
    spec = specs.load(FILES)
    watched = {(key.param, key.file, key.key) for key in watched_keys(spec)}
    source = f"{specs.folder}/conf/sft.yaml"
    assert watched == {
        ("conf/sft.yaml:model.dim", source, "model.dim"),
        ("conf/sft.yaml:model.dim", "sft", "model.dim"),
        ("sft:model.depth", "sft", "model.depth"),
        ("seed", "sft", "train.seed"),
    }


def test_a_differing_or_missing_value_in_a_file_is_a_violation(specs):
    spec = specs.load(FILES)
    keys = {key.param: key for key in watched_keys(spec)}
    values = {keys["seed"]: typed("7.0"), keys["sft:model.depth"]: None, keys["conf/sft.yaml:model.dim"]: typed("65")}
    assert [(one.param, one.found) for one in file_violations(spec, values)] == [
        ("sft:model.depth", "nothing"),
        ("conf/sft.yaml:model.dim", "65"),
    ]


def test_only_a_process_with_all_the_flags_is_taken_for_the_trainer(specs):
    spec = specs.load("params: {protected: {a_a: 1, fast: false, seed: {value: 1, env: S}, lr: 2}}")
    assert carries_all_flags(spec, ("python", "--a-a", "5", "--lr=2"))
    assert not carries_all_flags(spec, ("python", "--a-a", "5"))
    assert not carries_all_flags(specs.load(""), ("python", "train.py"))
    assert not carries_all_flags(specs.load("params: {protected: {fast: false}}"), ("python",))


@pytest.mark.parametrize(
    ("command", "argv", "runs"),
    [
        ("[python, train.py]", ("/usr/bin/python3", "-u", "/w/train.py", "--x"), True),
        ("[python, train.py]", ("python", "-c", "pass"), False),
        ("[python, -m, pkg.train]", ("python3.11", "-m", "pkg.train"), True),
        ("[python, -m, pkg.train]", ("python3.11", "pkg.train"), False),
        ("[scripts/start.sh, --a]", ("bash", "scripts/start.sh"), True),
        ("[scripts/start]", ("/bin/sh", "/w/scripts/start"), True),
        ("[torchrun, --nproc-per-node=2, train.py]", ("python", "-u", "train.py"), True),
        ("[torchrun, --nproc-per-node=2, train.py]", ("python", "/venv/bin/torchrun", "x"), False),
        ("[python, -m, torch.distributed.run, train.py]", ("python", "train.py"), True),
        ("[env, python3.12, train]", ("python", "train"), True),
        ("[python]", ("python",), False),
    ],
)
def test_a_process_that_runs_the_script_or_module_is_known(specs, command, argv, runs):
    spec = specs.load(f"version: 1\nname: r\ncommand: {command}", head=False)
    assert runs_command(spec, argv) is runs


def test_the_hash_is_of_values_not_of_how_they_are_written(specs):
    one = specs.load("params: {protected: {lr: 1e-4, n: 8, s: abc, f: true, l: [1, x]}}")
    other = specs.load("params: {style: hydra, protected: {l: [1.0, x], f: True, s: 'abc', n: 8.0, lr: 0.0001}}")
    assert protected_sha256(one) == protected_sha256(other)
    third = specs.load("params: {protected: {lr: 1e-4, n: 9, s: abc, f: true, l: [1, x]}}")
    assert protected_sha256(one) != protected_sha256(third)
    assert len(protected_sha256(one)) == 64
    assert protected_sha256(specs.load("params: {protected: {x: .inf}}")) != protected_sha256(
        specs.load("params: {protected: {x: .nan}}")
    )


def test_what_keep_comes_to_is_locked_too(specs):
    text = "params: {protected: {name: x}, knobs: {b: {rungs: [{mb: 8, ga: 4}, {mb: 4, ga: 8}], keep: mb * ga}}}"
    old = specs.load(text)
    new = specs.load(text.replace("ga: 4", "ga: 2").replace("ga: 8", "ga: 4"))
    assert protected_changes(old, new) == ("keep mb * ga 32 -> 16",)
    assert protected_sha256(old) != protected_sha256(new)
    half = specs.load("params: {knobs: {b: {rungs: [{mb: 8, ga: 4}, {mb: 4, ga: 2}], keep: mb / ga}}}")
    broken = replace(half, params=replace(half.params, knobs=(replace(half.params.knobs[0], keep="mb / zz"),)))
    assert protected_changes(half, broken) == ("keep mb / ga 2.0 -> (removed)",)


def test_changing_or_removing_what_is_locked_is_named_and_adding_is_not(specs):
    old = specs.load("params: {protected: {anchors: 1024, lr: 1e-4, l: [1]}}")
    assert protected_changes(old, specs.load("params: {protected: {anchors: 512, l: [2], new: 1}}")) == (
        "anchors 1024 -> 512",
        "lr 1e-4 -> (removed)",
        "l [1] -> [2]",
    )
    assert protected_changes(old, specs.load("params: {protected: {anchors: 1024, lr: 0.0001, l: [1], n: 2}}")) == ()


def test_what_changed_is_named_as_keys_of_the_file_protected_first(specs):
    old = specs.load("""
steps: 5
env: {A: x, B: y}
pins: {torch: 2.0+a}
recovery: {max_attempts: 3}
params:
  protected: {anchors: 1024}
  knobs: {mb: {value: 8, ladder: [4]}, gone: {value: 1, ladder: [0]}}
""")
    new = specs.load("""
steps: 6
env: {A: z, B: y}
pins: {torch: 2.0+a, on_drift: warn}
recovery: {max_attempts: 3, stop: {grace: 5s}}
params:
  style: hydra
  protected: {anchors: 512, seed: 1}
  knobs: {mb: {value: 8, ladder: [2]}, anew: {value: 1, ladder: [0]}}
""")
    assert changed(old, old) == ()
    assert changed(old, replace(old, file="/elsewhere.yaml", warnings=("w",))) == ()
    assert changed(old, new) == (
        "params.protected.anchors 1024 -> 512",
        "params.protected.seed (added)",
        "env.A",
        "params.style",
        "params.knobs.mb",
        "params.knobs.gone",
        "params.knobs.anew",
        "params.anchors (how it is written)",
        "params.mb (how it is written)",
        "pins.on_drift",
        "recovery.stop.grace",
        "steps",
    )


def test_a_knob_alone_that_changed_is_named_alone(specs):
    old = specs.load("params: {protected: {a: 1}, knobs: {k: {value: 2, ladder: [1]}, l: {value: 2, ladder: [1]}}}")
    new = specs.load("params: {protected: {a: 1}, knobs: {k: {value: 3, ladder: [1]}, l: {value: 2, ladder: [1]}}}")
    assert changed(old, new) == ("params.knobs.k",)


def test_a_rule_that_only_moved_in_the_file_is_unchanged(specs):
    rules = "recovery: {rules: [{on: exit, do: halt}]}"
    old, new = specs.load(rules), specs.load(f"# a comment more\n{rules}")
    assert old.recovery != new.recovery
    assert changed(old, new) == ()
    assert changed(old, specs.load(rules.replace("exit", "hang"))) == ("recovery.rules",)


def test_a_short_flag_counts_only_where_the_spec_writes_it(specs):
    spec = specs.load("version: 1\nname: r\ncommand: [python, -m, pkg]\nparams: {protected: {m: 1}}", head=False)
    assert found(spec, "-m", "pkg", "--m", "1") == []
    assert found(spec, "--m", "2") == [("m", "2")]
    short = specs.load("params: {protected: {m: {value: 1, flag: -m}}}")
    assert found(short, "-m", "2") == [("m", "2")]
