"""What an attempt is launched with: every style, every name, nothing that was not asked for."""

from __future__ import annotations

import pytest

from supervisor.core.evidence import Checkpoint
from supervisor.core.placing import RoleGpus
from supervisor.core.render import Placement, all_values, expand, file_path, placed, render, values
from supervisor.core.spec import ConfigFile, Scalar

GPUS = {"target": RoleGpus((0, 2), (4, 6), ("GPU-a", "GPU-c")), "drafter": RoleGpus((1,), (5,), ("GPU-b",))}
TAKEN = Checkpoint("/data/ck/step_690", 690, 1, 2)


def placement(**changes):
    options = {"attempt": 3, "attempt_dir": "/run/attempts/0003", "run_dir": "/run", "gpus": GPUS}
    return Placement(**{**options, **changes})


def argv(specs, text, **changes):
    return render(specs.load(text), placement(**changes)).argv


PARAMS = """
  protected: {anchors: 1024, compile: true, debug: false, layers: [2, 30], lr: 1e-4}
  knobs: {token_budget: {value: 49152, ladder: [45056, 40960]}}
"""


def test_argparse_appends_flags_switches_and_repeated_lists(specs):
    assert argv(specs, f"params:{PARAMS}") == (
        *("python", "train.py", "--anchors", "1024", "--compile", "--layers", "2", "--layers", "30"),
        *("--lr", "1e-4", "--token-budget", "49152"),
    )


def test_hydra_appends_overrides(specs):
    assert argv(specs, f"params:\n  style: hydra{PARAMS}") == (
        *("python", "train.py", "anchors=1024", "compile=true", "debug=false", "layers=[2,30]", "lr=1e-4"),
        "token_budget=49152",
    )


def test_env_sets_variables_and_appends_nothing(specs):
    rendered = render(specs.load(f"params:\n  style: env{PARAMS}"), placement(rungs={"token_budget": 1}))
    assert rendered.argv == ("python", "train.py")
    assert {name: text for name, text in rendered.env.items() if not name.startswith("CUDA")} == {
        "ANCHORS": "1024",
        "COMPILE": "true",
        "DEBUG": "false",
        "LAYERS": "2,30",
        "LR": "1e-4",
        "TOKEN_BUDGET": "45056",
    }


def test_template_puts_each_param_where_it_stands_and_appends_nothing(specs):
    text = """
command: [train, "--a=${{ params.anchors }}", "${{params.lr}}"]
env: {BUDGET: "${{ params.token_budget }}"}
params:
  style: template
  protected: {anchors: 1024, lr: 1e-4}
  knobs: {token_budget: {value: 8, ladder: [4]}}
"""
    rendered = render(specs.load("version: 1\nname: r" + text, head=False), placement())
    assert rendered.argv == ("train", "--a=1024", "1e-4")
    assert rendered.env["BUDGET"] == "8"


def test_a_param_is_written_with_its_own_flag_and_form(specs):
    text = """
params:
  protected:
    anchors: {value: 1024, flag: --max-anchors, form: equals}
    compile: {value: true, form: equals}
    fast: {value: true, form: bare}
    slow: {value: false, form: bare}
    seed: {value: 7, env: MY_SEED}
"""
    rendered = render(specs.load(text), placement())
    assert rendered.argv[2:] == ("--max-anchors=1024", "--compile=true", "--fast")
    assert rendered.env["MY_SEED"] == "7"


def test_params_args_say_where_the_params_go(specs):
    text = "command: [python, train.py, '${{ params.args }}', tail]\nparams: {protected: {a: 1, b: x y}}"
    whole = specs.load("version: 1\nname: r\n" + text, head=False)
    assert render(whole, placement()).argv == ("python", "train.py", "--a", "1", "--b", "x y", "tail")
    inside = specs.load(
        "version: 1\nname: r\n" + text.replace("'${{ params.args }}'", "'go ${{ params.args }}'"), head=False
    )
    assert render(inside, placement()).argv[2] == "go --a 1 --b 'x y'"


def test_resume_arguments_are_there_only_with_a_checkpoint(specs):
    text = "resume: {from: 'ck/step_*', arg: --resume}"
    assert argv(specs, text) == ("python", "train.py")
    assert argv(specs, text, checkpoint=TAKEN)[2:] == ("--resume", "/data/ck/step_690")
    assert argv(specs, text.replace("--resume", "--resume="), checkpoint=TAKEN)[2:] == ("--resume=/data/ck/step_690",)
    args = (
        "resume: {from: 'ck/*', args: [--d, '${{ checkpoint.dir }}', '${{ checkpoint.name }}:${{ checkpoint.step }}']}"
    )
    assert argv(specs, args, checkpoint=TAKEN)[2:] == ("--d", "/data/ck", "step_690:690")


def test_a_checkpoint_in_the_environment_is_empty_where_there_is_none(specs):
    spec = specs.load("resume: {from: '/*'}\nenv: {FROM: '${{ checkpoint.path }}', IN: '${{ checkpoint.dir }}'}")
    assert render(spec, placement()).env["FROM"] == ""
    top = Checkpoint("/step_1/", 1, 1, 1)
    assert render(spec, placement(checkpoint=top)).env["IN"] == "/"


def test_every_name_has_its_value(specs):
    names = (  # noqa: SIM905 - read as a list of words
        "run.name run.dir attempt.number attempt.dir gpus topology.target.gpus topology.target.physical "
        "topology.target.uuids topology.target.count ports.rdzv files.conf workdir params.layers venv"
    ).split()
    env = "\n".join(f"  V{n}: '${{{{ {name} }}}}'" for n, name in enumerate(names))
    text = f"""
venv: /venv
topology: {{target: [4, 6], drafter: [5]}}
ports: {{rdzv: auto}}
files: {{conf: {{from: conf/sft.yaml}}}}
params: {{protected: {{layers: [1, 2]}}}}
env:
{env}
"""
    rendered = render(specs.load(text), placement(ports={"rdzv": 29501}))
    said = dict(zip(names, (rendered.env[f"V{n}"] for n in range(len(names))), strict=True))
    assert said == {
        "run.name": "run",
        "run.dir": "/run",
        "attempt.number": "3",
        "attempt.dir": "/run/attempts/0003",
        "gpus": "0,1,2",
        "topology.target.gpus": "0,2",
        "topology.target.physical": "4,6",
        "topology.target.uuids": "GPU-a,GPU-c",
        "topology.target.count": "2",
        "ports.rdzv": "29501",
        "files.conf": "/run/attempts/0003/files/conf.yaml",
        "workdir": str(specs.folder),
        "params.layers": "1,2",
        "venv": "/venv",
    }


def test_the_gpus_are_shown_to_the_job_in_the_order_of_the_bus(specs):
    env = render(specs.load("topology: {target: [4, 6], drafter: [5]}"), placement()).env
    assert env == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "4,5,6"}


def test_a_path_of_the_spec_keeps_the_venv_first(specs):
    env = render(specs.load("venv: /venv\nenv: {PATH: /opt/bin}"), placement()).env
    assert env["PATH"] == "/venv/bin:/opt/bin"


def test_a_secret_is_never_rendered(specs):
    env = render(specs.load("env: {HF_TOKEN: abcdefgh, A: b}"), placement()).env
    assert "HF_TOKEN" not in env
    assert env["A"] == "b"


def test_config_files_get_typed_values(specs):
    text = """
files:
  sft:
    from: conf/sft.yaml
    set: {a.b: ${{ params.micro_batch }}, c: "8", d: 8, e: "${{ run.name }}-${{ params.micro_batch }}", f: yes}
params: {style: template, knobs: {micro_batch: {value: 8, ladder: [4]}}}
"""
    (file,) = render(specs.load(text), placement(rungs={"micro_batch": 1})).files
    assert (file.from_, file.path) == (f"{specs.folder}/conf/sft.yaml", "/run/attempts/0003/files/sft.yaml")
    assert file.set == {
        "a.b": Scalar("4", "int"),
        "c": Scalar("8"),
        "d": Scalar("8", "int"),
        "e": Scalar("run-4"),
        "f": Scalar("yes"),
    }


@pytest.mark.parametrize(("source", "copy"), [("/c/a.b.json", "n.json"), ("/c/.env", "n"), ("/c/conf", "n")])
def test_a_copy_has_the_suffix_of_its_source(source, copy):
    assert file_path("/at", ConfigFile(name="n", from_=source)) == f"/at/files/{copy}"


def test_what_is_watched_has_no_substitution_left(specs):
    text = """
logs: ["${{ attempt.dir }}/ranks/*.log", more.log]
output: {dir: "out/${{ run.name }}"}
done: {file: "${{ attempt.dir }}/DONE"}
preflight: {checks: [[test, -d, "${{ workdir }}"]]}
health:
  progress:
    log: 'step (?P<step>\\d+)'
    in: "${{ attempt.dir }}/r0.log"
    jsonl: {file: "${{ attempt.dir }}/m.jsonl", step: global_step}
"""
    spec = placed(specs.load(text), placement())
    assert spec.logs == ("/run/attempts/0003/ranks/*.log", f"{specs.folder}/more.log")
    assert spec.output.dir == f"{specs.folder}/out/run"
    assert spec.done.file == "/run/attempts/0003/DONE"
    assert spec.preflight.checks == (("test", "-d", str(specs.folder)),)
    assert spec.health.progress.in_ == ("/run/attempts/0003/r0.log",)
    assert spec.health.progress.jsonl == {"file": "/run/attempts/0003/m.jsonl", "step": "global_step"}
    bare = specs.load("")
    assert placed(bare, placement()) == bare


def test_rungs_give_the_values_of_all_knobs(specs):
    spec = specs.load("""
params:
  protected: {anchors: 1024}
  knobs:
    batch: {rungs: [{mb: 8, ga: 4}, {mb: 4, ga: 8}], keep: mb * ga}
    budget: {value: 10, ladder: [5]}
""")
    assert {name: value.text for name, value in values(spec, {"batch": 1}).items()} == {
        "mb": "4",
        "ga": "8",
        "budget": "10",
    }
    assert list(all_values(spec, {})) == ["anchors", "mb", "ga", "budget"]
    assert expand("${{ params.mb }}/${{ attempt.number }}", spec, placement()) == "8/3"
