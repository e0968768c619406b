"""`init -- COMMAND...`: a spec that `check` accepts and that gives the job the words it was typed with."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor import cli
from supervisor.core.placing import RoleGpus
from supervisor.core.render import Placement, render
from supervisor.core.spec import RunSpec
from supervisor.edges import specfile
from supervisor.views.first_spec import first_spec


def read(folder: Path, words: list[str]) -> RunSpec:
    path = folder / "supervise.yaml"
    path.write_text(first_spec(words, "my-run", "supervise.yaml"), encoding="utf-8")
    return specfile.load(path, {})


def launched(spec: RunSpec) -> tuple[str, ...]:
    """The words of the first launch, on GPUs in order."""
    roles: dict[str, RoleGpus] = {}
    for role in spec.topology:
        n = tuple(range(len(role.gpus)))
        roles[role.name] = RoleGpus(ordinals=n, physical=n, uuids=tuple(f"GPU-{i}" for i in n))
    return render(spec, Placement(attempt=1, attempt_dir="/a", run_dir="/r", gpus=roles)).argv


COMMANDS = [
    "python train.py --lr 1e-4 --batch-size 8 --bf16",
    "python -u -m pkg.train --seed=1 --weight_decay 0.1 --data a b c",
    "torchrun --standalone --nproc-per-node=8 train.py --max_steps 1000 --micro-batch 4 --grad-accum 4",
    "torchrun --nproc_per_node 4 -m pkg.train --per_device_train_batch_size=8 --gradient_accumulation_steps=2",
    "accelerate launch --multi_gpu --num_processes 4 train.py --learning_rate 2e-5 --output_dir out/x",
    "deepspeed --num_gpus 8 train.py --deepspeed ds.json --num_train_epochs 3",
    "python train.py model=big optim.lr=3e-4 trainer.max_steps=100 +x=1 ~y data.batch_size=8",
    "python train.py --anchors 1024 --block-size 32 --token-budget 49152 --lr -1e-4",
    "./train.sh 'two words' \"it's\" --name 'a: b' --empty '' --json '{\"a\": 1}' --tilde ~ --null null --eq =x",
    "./train",
    "train --lr 1 --lr 2",
    "torchrun",
    "python train.py --seed true --lr 1e400 --dtype null --note ünïcode",
    "python train.py --batch_size 0 --grad_accum 4",
    "python train.py --batch_size 6 --grad_accum 1",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_job_gets_the_same_words_with_the_same_values(tmp_path: Path, command: str):
    words = shlex.split(command)
    spec = read(tmp_path, words)
    if spec.params.style.value == "hydra" or "'" not in command:
        assert sorted(launched(spec)) == sorted(words)
    assert launched(spec)[: len(spec.command)][0] == words[0]


def test_what_shapes_the_training_is_locked_and_the_batch_is_a_knob(tmp_path: Path):
    words = shlex.split("torchrun --nproc-per-node=2 t.py --learning_rate 1e-4 --micro-batch 8 --grad-accum 2 --x 1")
    spec = read(tmp_path, words)
    assert list(spec.params.protected) == ["learning_rate"]
    (knob,) = spec.params.knobs
    assert [[value.text for value in rung.values()] for rung in knob.rungs] == [["8", "2"], ["4", "4"], ["2", "8"]]
    assert knob.keep is not None
    assert spec.command == ("torchrun", "--nproc-per-node=${{ topology.trainer.count }}", "t.py", "--x", "1")
    assert spec.topology[0].gpus == ("0", "1")


def test_a_batch_that_nothing_accumulates_for_is_left_and_said(tmp_path: Path):
    text = first_spec(shlex.split("python t.py --batch-size 8"), "r", "f")
    assert "# batch-size could be a knob" in text
    assert read(tmp_path, shlex.split("python t.py --batch-size 8")).params.knobs == ()
    assert len(read(tmp_path, shlex.split("python t.py --batch-size 8 --accum 4")).params.knobs) == 1


def test_variables_before_the_command_are_its_environment_and_no_secret_is_written(tmp_path: Path):
    words = shlex.split("CUDA_VISIBLE_DEVICES=2,3 HF_TOKEN=hf_s3cret OMP_NUM_THREADS=8 .venv/bin/python t.py")
    text = first_spec(words, "r", "f")
    assert "s3cret" not in text
    spec = read(tmp_path, words)
    assert spec.topology[0].gpus == ("2", "3")
    assert spec.env == {"OMP_NUM_THREADS": "8"}
    assert spec.secrets == ("HF_TOKEN",)
    assert (spec.venv, spec.command) == (str(tmp_path / ".venv"), ("python", "t.py"))


def test_a_checkpoint_that_is_named_is_where_the_run_starts(tmp_path: Path):
    spec = read(tmp_path, shlex.split("python t.py --resume=ck/step_690"))
    assert spec.resume is not None
    assert (spec.resume.from_, spec.resume.start) == (str(tmp_path / "ck/step_*"), str(tmp_path / "ck/step_690"))
    assert spec.resume.args == ("--resume=${{ checkpoint.path }}",)
    assert spec.command == ("python", "t.py")


def test_a_launchers_own_restarts_are_off(tmp_path: Path):
    spec = read(tmp_path, shlex.split("torchrun --max-restarts=3 t.py"))
    assert spec.command == ("torchrun", "--max-restarts=0", "t.py")


USUAL = """
python torchrun accelerate launch deepspeed -m train.py --lr --seed --batch-size --grad-accum 8 1e-4 --resume
ck/step_1 a=b optim.lr=1 +a=b --nproc-per-node=4 --max_restarts 3 -- env A=b HF_TOKEN=xxxxxx --output_dir out
--anchors=1024 --lr=2 CUDA_VISIBLE_DEVICES=0,1 --num_processes 0 auto --flag= = - '' .venv/bin/python SEED=1 --see
"""
WORD = st.one_of(
    st.sampled_from(USUAL.split()),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
)


@given(st.lists(WORD, min_size=1, max_size=10).filter(lambda words: words[0].strip() != ""))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_typed_becomes_a_spec_that_check_accepts(tmp_path: Path, words: list[str]):
    if any("${{" in word for word in words):
        return
    read(tmp_path, words)


def test_the_verb_writes_it_and_leaves_an_old_one_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert cli.run(["init", "--name", "a", "--", "python", "train.py", "--lr", "1"]) == 0
    before = Path("supervise.yaml").read_text()
    assert "lr: 1" in before
    assert cli.run(["init", "--", "python", "other.py"]) == 2
    assert Path("supervise.yaml").read_text() == before
    assert cli.run(["init", "other.yaml", "--"]) == 2
    assert os.listdir() == ["supervise.yaml"]  # noqa: PTH208
