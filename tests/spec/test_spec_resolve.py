"""A file becomes a resolved spec: defaults, paths, GPUs counted out, everything in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.core.errors import Exit, Refusal
from supervisor.core.kinds import Kind
from supervisor.core.spec import (
    Do,
    Form,
    Health,
    Launch,
    Output,
    Param,
    Params,
    Preflight,
    Recovery,
    RunSpec,
    Silent,
    Stale,
    Style,
    Visible,
)
from supervisor.edges import specfile
from supervisor.edges.codec import from_plain, to_plain

CONFIGS = Path(__file__).parents[2] / "configs"


def test_three_keys_are_a_whole_spec(specs):
    assert specs.load("") == RunSpec(
        name="run",
        command=("python", "train.py"),
        file=str(specs.folder / "spec.yaml"),
        workdir=str(specs.folder),
        launch=Launch(),
        params=Params(),
        output=Output(),
        preflight=Preflight(),
        health=Health(),
        recovery=Recovery(),
    )


def test_the_incidents_spec_is_read_whole():
    spec = specfile.load(CONFIGS / "dflash.yaml", {})
    root = CONFIGS.parent
    assert (spec.workdir, spec.venv) == (str(root), str(root / ".venv"))
    assert [(role.name, role.gpus) for role in spec.topology] == [
        ("target", ("0", "1", "2", "3", "4")),
        ("drafter", ("5", "6", "7")),
    ]
    assert spec.command[2] == "--drafter-gpus=${{ topology.drafter.gpus }}"
    assert {name: value.text for name, value in spec.params.protected.items()} == {
        "anchors": "1024",
        "block_size": "32",
    }
    assert [[rung[knob.name].text for rung in knob.rungs] for knob in spec.params.knobs] == [
        ["49152", "45056", "40960"],
        ["64", "48", "32"],
    ]
    assert spec.resume.start == str(root / "checkpoints/step_690")
    assert (spec.resume.args, spec.resume.if_none) == (("--resume", "${{ checkpoint.path }}"), "fail")
    assert spec.output == Output(dir=str(root / "out/dflash"), stale=Stale.REMOVE_IF_EMPTY)
    assert spec.pins == {"torch": "2.11.0+cu128"}
    assert (spec.health.startup_timeout_s, spec.health.progress.stall_s) == (2400.0, None)
    (rule,) = spec.recovery.rules
    assert (rule.on, rule.do, rule.lower) == ((Kind.GPU_OOM,), Do.RELAUNCH, ("token_budget", "max_batch_size"))
    assert rule.where.endswith("dflash.yaml:35")
    assert spec.secrets == ("WANDB_API_KEY", "HF_TOKEN")


@pytest.mark.parametrize("name", sorted(path.name for path in CONFIGS.glob("*.yaml")))
def test_every_example_is_valid_and_goes_through_json_unchanged(name):
    spec = specfile.load(CONFIGS / name, {})
    assert from_plain(to_plain(spec), RunSpec) == spec


def test_every_key_has_its_place(specs):
    spec = specs.load("""
workdir: sub
venv: ~/venvs/a
visible: uuid
launch: {terminal: none, pty: true}
topology: {a: [GPU-1f2e, 3], b: {gpus: 2, silent: halt, util_below: 7.5, for: 1m, may_finish: true}}
params:
  style: hydra
  protected: {"c.yaml:x.y": 1, z: {value: [1, 2], flag: +z, form: equals, aliases: [zz]}}
  knobs: {q: {value: 1, ladder: [2], direction: up}, b: {rungs: [{m: 2}, {m: 1}], how: {m: {env: MM}}}}
resume: {from: /ck/step_*, start: ../x/step_1, complete: [a, "b/*"], step: 'step_(\\d+)', if_none: fresh}
output: {dir: none, stale: keep, units: "out/*.parquet"}
ports: {p: 29500, q: auto}
pins: {torch: 2.11.0+cu128, on_drift: warn, freeze: false}
preflight: {gpus_empty: false, disk_free: 1.5GiB, checks: [[test, -d, /data]]}
logs: [a.log, {ranks: r}]
health:
  startup_timeout: 500ms
  progress: {log: '(?P<step>\\d+) (?P<loss>\\S+)', in: [x.log, /y.log], stall: 1.5m}
done: {log: finished}
recovery:
  max_attempts: 2
  per: 1h
  stop: {signal: INT, grace: 5s}
  verify_zero: {stable_for: 1s, timeout: 2m, floor: 100MiB, foreign: {wait: 3m, allow: 1GiB}}
  backoff: {first: 1s, cap: 2s}
  rules:
    - on: [hang, exit]
      do: relaunch
      lower: {one_of: [q, b]}
      role: a
      match: x
      after: 6h
      times: 2
      from: older
      wait: 5m
    - {on: gpu_oom, do: notify}
signatures: [{name: mine, kind: data_error, match: bad shard}]
steps: 100
cost_per_hour: 12.5
""", environ={"HOME": "/home/me"})  # fmt: skip
    here = str(specs.folder / "sub")
    assert (spec.workdir, spec.venv, spec.visible) == (here, "/home/me/venvs/a", Visible.UUID)
    assert spec.launch == Launch(terminal="none", pty=True)
    a, b = spec.topology
    assert (a.gpus, b.gpus) == (("GPU-1f2e", "3"), ("0", "1"))
    assert (b.silent, b.util_below, b.for_s, b.may_finish) == (Silent.HALT, 7.5, 60.0, True)
    how = spec.params.how
    assert spec.params.style is Style.HYDRA
    assert how["c.yaml:x.y"] == Param(name="c.yaml:x.y", file=f"{here}/c.yaml", key="x.y")
    assert how["z"] == Param(name="z", flag="+z", form=Form.EQUALS, aliases=("zz",))
    assert how["m"].env == "MM"
    assert spec.params.knobs[0].up
    assert spec.resume.start == str(specs.folder / "x/step_1")
    assert (spec.resume.complete, spec.resume.step, spec.resume.if_none) == (("a", "b/*"), r"step_(\d+)", "fresh")
    assert spec.output == Output(dir=None, stale=Stale.KEEP, units=f"{here}/out/*.parquet")
    assert spec.ports == {"p": "29500", "q": "auto"}
    assert (spec.pins, spec.pins_warn) == ({"torch": "2.11.0+cu128"}, True)
    assert spec.preflight == Preflight(gpus_empty=False, disk_free_mib=1536.0, checks=(("test", "-d", "/data"),))
    assert spec.logs == (f"{here}/a.log", *(f"{here}/r/*/attempt_*/*/{n}.log" for n in ("stdout", "stderr")))
    assert spec.health.startup_timeout_s == 0.5
    assert (spec.health.progress.in_, spec.health.progress.stall_s) == ((f"{here}/x.log", "/y.log"), 90.0)
    assert spec.done.log == "finished"
    recovery = spec.recovery
    assert (recovery.max_attempts, recovery.per_s, recovery.stop_signal, recovery.grace_s) == (2, 3600.0, "SIGINT", 5.0)
    zero = recovery.verify_zero
    assert (zero.stable_for_s, zero.timeout_s, zero.floor_mib) == (1.0, 120.0, 100.0)
    assert (zero.foreign.wait_s, zero.foreign.allow_mib) == (180.0, 1024.0)
    assert (recovery.backoff_first_s, recovery.backoff_cap_s) == (1.0, 2.0)
    first, second = recovery.rules
    assert (first.on, first.lower, first.one_of, first.role) == ((Kind.HANG, Kind.EXIT), ("q", "b"), True, "a")
    assert (first.match, first.after_s, first.times, first.from_older, first.wait_s) == ("x", 21600.0, 2, True, 300.0)
    assert second.do is Do.NOTIFY
    assert spec.signatures[0].kind is Kind.DATA_ERROR
    assert (spec.steps, spec.cost_per_hour) == (100, 12.5)


def test_counts_are_laid_out_in_order_and_an_overlap_is_a_mistake(specs):
    def gpus(text):
        return [role.gpus for role in specs.load(f"topology: {text}").topology]

    assert gpus("{a: 2, b: 3}") == [("0", "1"), ("2", "3", "4")]
    assert gpus("{a: {gpus: [5, 6]}, b: 2}") == [("5", "6"), ("0", "1")]
    assert gpus("{a: [0, 1], b: 2}") == [("0", "1"), ("2", "3")]
    assert gpus("{a: 1, b: [007]}") == [("0",), ("7",)]
    assert "GPU 4 is in a already" in specs.mistakes("topology: {a: 5, b: {gpus: [4, 5]}}")[0]


def test_logs_are_one_glob_a_list_or_a_mapping(specs):
    here = specs.folder
    assert specs.load("logs: a/*.log").logs == (f"{here}/a/*.log",)
    assert specs.load("logs: {globs: [x], ranks: /r}").logs[:2] == (f"{here}/x", "/r/*/attempt_*/*/stdout.log")


def test_progress_may_be_files_jsonl_or_a_heartbeat(specs):
    progress = specs.load(
        "health: {progress: {files: 'o/*', jsonl: {file: m.jsonl, step: s, loss: l}, heartbeat: hb}}"
    ).health.progress
    here = specs.folder
    assert (progress.files, progress.heartbeat) == (f"{here}/o/*", f"{here}/hb")
    assert progress.jsonl == {"file": f"{here}/m.jsonl", "step": "s", "loss": "l"}


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("notify: {on: [halted]}", "4:1: notify: SUPERVISE_NOTIFY is not set here: nobody is told"),
        ("health: {phases: [{name: e, from: a, to: b, limit: 1h}]}", "health.phases: there is no `health.progress`"),
        (
            "rehearsal: {pass: {steps: 5}}\noutput: {dir: out/x}\nhealth: {progress: {log: 'step (?P<step>[0-9]+)'}}",
            "out/x, so a rehearsal would write there too",
        ),
        ("venv: v\npins: {torch: 2.11.0}", "pins.torch: 2.11.0 has no local part: any build of it matches"),
        ("pins: {torch: 2.11.0+cu128}", "pins: there is no `venv`"),
        ("params: {knobs: {batch_size: {value: 8, ladder: [4]}}}", "batch_size changes the effective batch"),
        ("params: {knobs: {micro_batch: {value: 8, ladder: [4]}}}", "micro_batch changes the effective batch"),
        ("params: {knobs: {x: {rungs: [{bs: 8}, {bs: 4}]}}}", "lowering bs changes the effective batch"),
        ("resume: {from: 'ck/*'}", "nothing tells the job which checkpoint to take"),
        (
            "resume: {from: 'ck/*', arg: resume}",
            "the job gets the bare word resume; a flag has its dashes here: --resume",
        ),
        ("recovery: {rules: [{on: protected_violation, do: relaunch}]}", "protected_violation always halts"),
        ("env_file: none.env", "none.env: No such file or directory; `up` will refuse to launch without it"),
    ],
)
def test_a_warning_says_what_to_know_and_is_no_mistake(specs, text, warning):
    (said,) = specs.load(text).warnings
    assert warning in said


@pytest.mark.parametrize(
    "text",
    [
        "params: {knobs: {eval_batch_size: {value: 8, ladder: [4]}}}",
        "params: {knobs: {token_budget: {value: 8, ladder: [4]}}}",
        "params: {knobs: {b: {rungs: [{mb: 8, ga: 1}, {mb: 4, ga: 2}], keep: mb * ga}}}",
        "params: {knobs: {absolute: {value: 8, ladder: [4]}}}",
        "resume: {from: 'ck/*'}\nenv: {CK: '${{ checkpoint.path }}'}",
    ],
)
def test_there_is_no_warning_where_there_is_nothing_to_know(specs, text):
    assert specs.load(text).warnings == ()


def test_a_knob_that_also_stands_in_the_command_is_said_to_be_given_twice(specs):
    text = "version: 1\nname: r\ncommand: [t, --token-budget, '5', '--m=${{ params.m }}']\n"
    knobs = "{token_budget: {value: 8, ladder: [4]}, m: {value: 2, ladder: [1]}, e: {value: 2, ladder: [1], env: E}}"
    (warning,) = specs.load(f"{text}params: {{knobs: {knobs}}}", head=False).warnings
    assert "command[1]: --token-budget: token_budget is a knob and is passed besides this" in warning


def test_a_checkpoint_in_the_command_is_said_to_be_empty_at_first(specs):
    spec = specs.load("version: 1\nname: r\ncommand: [t, '${{ checkpoint.path }}']\nresume: {from: c}", head=False)
    assert "checkpoint.path is empty where there is no checkpoint" in spec.warnings[0]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("env: {A: '${{ checkpoint.path }}'}", "checkpoint.path: there is no `resume`"),
        ("env: {A: '${{ params.x }}'}", "unknown name params.x"),
        ("env: {A: '${{ topology.a.gpu }}'}\ntopology: {a: 1}", "did you mean topology.a.gpus"),
        ("env: {A: '${{ unclosed'}", "only ${{ name }} is replaced"),
        ("env: {A: '${{ ports.a + 1 }}'}\nports: {a: 5}", "only ${{ name }} is replaced"),
        ("resume: {from: '${{ run.name }}'}", "resume.from: nothing is substituted here"),
        ("files: {a: {from: '${{ workdir }}/a.yaml'}}", "files.a.from: nothing is substituted here"),
        ("output: {dir: '${{ checkpoint.dir }}'}\nresume: {from: c}", "checkpoint.dir is not known here"),
        (
            "params: {style: template, protected: {a: 1}}",
            "a reaches neither the command nor the environment nor a file",
        ),
        ("params: {style: template, knobs: {b: {rungs: [{m: 2}, {m: 1}]}}}", "params.knobs.b: m reaches neither"),
        ("params: {protected: {x: {value: 1, env: A}}}\nenv: {A: 1}", "env.A: x is locked"),
        ("params: {protected: {a-b: 1}}\nenv: {A_B: 1}", "env.A_B: a-b is locked"),
        ("params: {protected: {'f.yaml:k': {value: 1, flag: --k}}}", "a value in a file has no flag"),
        ("params: {knobs: {a: {rungs: [{x: 1, y: 2}, {x: 2, y: 1}]}, b: {rungs: [{y: 1}, {y: 0}]}}}", "another knob"),
        ("params: {knobs: {a: {value: 1, ladder: [2, 1], direction: up}}}", "stands on this ladder already"),
        ("params: {knobs: {a: {value: 1, ladder: [3, 2], direction: up}}}", "the rungs must rise: 2 follows 3"),
        ("params: {knobs: {a: {value: 1, ladder: [3], direction: sideways}}}", "must be up or down"),
        ("params: {knobs: {a: {rungs: []}}}", "at least two rungs"),
        ("params: {knobs: {a: {value: ~, ladder: [1]}}}", "has no value"),
        ("topology: {a: 101%}", "must be a whole number"),
        ("health: {silent_gpu: {util_below: 101}}", "must be a percentage"),
        ("output: {stale: archive}", "archive of what? There is no `output.dir`"),
        ("visible: all", "must be one of index, uuid, none, not all"),
        ("secrets: [A B]", "must be a variable's name"),
        ("recovery: {per: 1d}", "must be a duration"),
        ("recovery: {verify_zero: {floor: 1GB}}", "must be a size"),
        ("recovery: {stop: {grace: 99999999999999999999h}}", "must be a duration"),
        ("resume: {from: ''}", "must not be empty"),
        ("preflight: {checks: [[]]}", "preflight.checks[0]: must not be empty"),
        ("preflight: {checks: [{a: b}]}", "preflight.checks[0]: must be a single value or a list, not a mapping"),
        ("health: {progress: {log: '(?P<step>.)', in: {a: b}}}", "must be a single value or a list, not a mapping"),
        ("env: [a]", "env: must be a mapping, not a list"),
        ("env:", "env: must be a mapping, not nothing"),
        ("secrets: A", "secrets: must be a list, not A"),
        ("secrets: {A: b}", "secrets: must be a list, not a mapping"),
        ("params: {knobs: {a: {value: 5, ladder: [[1], 4]}}}", "must be one value, not a list"),
        ("params: {knobs: {a: {rungs: [[1], {a: 2}]}}}", "must be a mapping, not a list"),
        ("params: {knobs: {a: {rungs: [{}, {}]}}}", "every rung sets the same params: at least one"),
    ],
)
def test_a_wrong_spec_says_what_is_wrong(specs, text, mistake):
    assert mistake in "\n".join(specs.mistakes(text))


def test_an_environment_that_agrees_with_the_topology_is_fine(specs):
    specs.load("topology: {a: [2, 1]}\nenv: {CUDA_VISIBLE_DEVICES: '1,2', CUDA_DEVICE_ORDER: PCI_BUS_ID}")
    specs.load("topology: {a: [2, 1]}\nvisible: none\nenv: {CUDA_VISIBLE_DEVICES: '7'}")
    specs.load("topology: {a: [GPU-abc]}\nenv: {CUDA_VISIBLE_DEVICES: '7'}")


def test_one_mistake_does_not_make_others(specs):
    said = specs.mistakes("""
params: {protected: {a: {b: c}}, knobs: {k: {value: 1, ladder: 5}}}
env: {A: "${{ params.a }} ${{ params.k }}"}
recovery: {rules: [{on: hang, do: relaunch, lower: k}]}
health: {progress: {log: 'x'}}
done: {step: x}
""")
    assert [line.split(": ")[1] for line in said] == [
        "params.protected.a",
        "params.protected.a.b",
        "params.knobs.k.ladder",
        "health.progress.log",
        "done.step",
    ]


SETS = """
params:
  protected: {anchors: 1024}
  knobs:
    budget: {value: 49152, ladder: [45056, 40960]}
    batch: {rungs: [{mb: 8, ga: 4}, {mb: 4, ga: 8}, {mb: 4, ga: 9}]}
"""


def test_set_moves_a_knob_onto_one_of_its_rungs(specs):
    spec = specs.load(SETS)
    assert specfile.apply_set(spec, {}) == {}
    assert specfile.apply_set(spec, {"budget": "45056"}) == {"budget": 1}
    assert specfile.apply_set(spec, {"mb": "8", "budget": "40960.0"}) == {"budget": 2, "batch": 0}
    assert specfile.apply_set(spec, {"mb": "4", "ga": "9"}) == {"batch": 2}


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        ({"budget": "48000"}, "budget=48000 is on no rung.*budget=49152; budget=45056; budget=40960"),
        ({"anchors": "512"}, "anchors is locked: it shapes the training signal"),
        ({"bugdet": "45056"}, "bugdet is no knob of this spec. Its knobs: budget, mb, ga"),
        ({"batch": "1"}, "batch is a set of knobs.*mb, ga"),
        ({"mb": "4"}, "mb=4 stands on several rungs"),
        ({"mb": "8", "ga": "9"}, "is on no rung"),
    ],
)
def test_set_takes_nothing_that_is_on_no_rung(specs, sets, why):
    with pytest.raises(Refusal, match=why) as caught:
        specfile.apply_set(specs.load(SETS), sets)
    assert caught.value.exit == Exit.USAGE


def test_the_schema_beside_the_examples_is_the_one_of_this_version():
    import json

    stored = json.loads((CONFIGS / "supervise.schema.json").read_text(encoding="utf-8"))
    assert stored == specfile.json_schema()
    assert stored["required"] == ["version", "name", "command"]
    assert stored["additionalProperties"] is False


def test_explain_says_whence_each_value_comes():
    file = specfile.read(CONFIGS / "torchrun.yaml", {})
    rows = {row.path: row for row in file.explain()}
    assert rows["name"].whence.endswith("torchrun.yaml:6")
    assert rows["topology.trainer.gpus"].value == "[0, 1, 2, 3, 4, 5, 6, 7]"
    assert rows["topology.trainer.gpus"].whence.endswith(":10")
    assert rows["resume.args"].whence.endswith(":39")
    assert rows["recovery.stop.grace"].value == "90s"
    assert (rows["recovery.per"].value, rows["recovery.per"].whence) == ("12h", "default")
    assert rows["params.knobs.batch"].value.startswith("{micro_batch: 8, grad_accum: 4} -> {micro_batch: 4")
    assert rows["params.protected.learning_rate"].value == "3e-4 (--learning-rate, locked)"


def test_explain_covers_every_section(specs):
    file = specs.read("""
env: {HF_TOKEN: supersecret}
files: {f: {from: a.yaml, set: {k: 1}}}
params: {style: env, protected: {"a.yaml:k": 1, x: 2}, knobs: {b: {rungs: [{m: 2}, {m: 1}], keep: 3}}}
resume: {from: c, args: [--c, '${{ checkpoint.path }}']}
done: {step: 5}
ports: {p: 1}
pins: {torch: 2.0+x}
preflight: {disk_free: 2GiB}
health: {startup_timeout: 500ms, progress: {heartbeat: hb}}
recovery: {verify_zero: {stable_for: 0s}, rules: [{on: exit, do: relaunch, lower: {one_of: [b]}}]}
signatures: [{name: s, kind: exit, match: m}]
""")
    rows = {row.path: row.value for row in file.explain()}
    assert rows["env.HF_TOKEN"] == "<secret>"
    assert rows["params.protected.a.yaml:k"].endswith("a.yaml, locked)")
    assert rows["params.protected.x"] == "2 (X, locked)"
    assert rows["health.startup_timeout"] == "500ms"
    assert rows["recovery.verify_zero.stable_for"] == "0s"
    assert rows["recovery.rules[0]"] == "exit: relaunch, lower one of b"
    assert rows["preflight.disk_free"] == "2GiB"
    assert rows["done.step"] == "5"
    bare = {row.path: row.value for row in specs.read("").explain()}
    assert bare["done"] == "the job's exit 0"
    assert bare["health.progress"].startswith("none")


@pytest.mark.parametrize("phase", ["starting", "running", "eval"])
def test_a_rule_may_be_for_the_time_before_the_first_step_or_for_a_phase_of_its_own(specs, phase):
    spec = specs.load(
        "health: {progress: {log: 'step (?P<step>[0-9]+)'}, phases: [{name: eval, from: a, to: b, limit: 1h}]}\n"
        f"recovery: {{rules: [{{on: hang, do: relaunch, phase: {phase}}}]}}\n"
    )
    assert spec.recovery.rules[0].phase == phase


def test_a_trainer_that_chooses_by_itself_need_not_be_told_which(specs):
    assert specs.load("resume: {from: 'ck/*', mode: auto}").warnings == ()
