"""The simulated night: what is mapped, what is skipped and said, and that the real workdir is not written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from supervisor.core.kinds import Kind
from supervisor.core.spec import (
    Do,
    Done,
    Health,
    Knob,
    Output,
    Params,
    Preflight,
    Progress,
    Recovery,
    Resume,
    Role,
    Rule,
    RunSpec,
    Scalar,
    VerifyZero,
)
from supervisor.edges.paths import Home, RunDir
from supervisor.simulation import night
from supervisor.simulation.world import World


@pytest.fixture
def workdir(tmp_path) -> Path:
    scripts = tmp_path / "work" / "scripts"
    scripts.mkdir(parents=True)
    (scripts / "start_training.sh").write_text('#!/bin/sh\nexec "$TRAIN_SCRIPT" "$@"\n')
    (scripts / "start_training.sh").chmod(0o755)
    return tmp_path / "work"


@pytest.fixture
def run(tmp_path) -> RunDir:
    return Home(tmp_path / "state").run("sim-dflash")


def spec(workdir: Path, **more) -> RunSpec:
    base = {
        "name": "dflash",
        "command": ("scripts/start_training.sh", "--target-gpus=${{ topology.target.gpus }}"),
        "file": str(workdir / "dflash.yaml"),
        "workdir": str(workdir),
        "venv": str(workdir / ".venv"),
        "env": {"CUDA_MODULE_LOADING": "LAZY", "HF_TOKEN": "<secret>", "CUDA_VISIBLE_DEVICES": "0,1"},
        "secrets": ("HF_TOKEN",),
        "topology": (Role(name="target", gpus=("0", "1", "2", "3", "4")), Role(name="drafter", gpus=("5", "6", "7"))),
        "resume": Resume(
            from_=f"{workdir}/checkpoints/step_*", start=f"{workdir}/checkpoints/step_690", if_none="fail"
        ),
        "output": Output(dir=f"{workdir}/out/dflash", units=f"{workdir}/out/dflash/*.safetensors"),
        "pins": {"torch": "2.11.0+cu128"},
        "preflight": Preflight(disk_free_mib=1e6, checks=(("false",),)),
        "logs": (f"{workdir}/logs/*.log", "/var/log/other.log"),
        "health": Health(progress=Progress(log=r"step (?P<step>\d+).* (?P<rate>[\d.]+) Ktok/s")),
        "done": Done(step=5000),
    }
    return RunSpec(**(base | more))


def test_the_scratch_folder_stands_in_for_the_workdir(workdir, run):
    made = night.simulated(spec(workdir), run)
    scratch = run.path / "scratch"
    assert (made.name, made.workdir, made.simulated) == ("sim-dflash", str(scratch), True)
    assert made.resume.from_ == f"{scratch}/checkpoints/step_*"
    assert made.resume.start == f"{scratch}/checkpoints/step_690"
    assert made.output.dir == f"{scratch}/out/dflash"
    assert made.output.units == f"{scratch}/out/dflash/*.safetensors"
    assert made.logs == (f"{scratch}/logs/*.log", f"{scratch}/outside/var/log/other.log")


def test_dots_do_not_lead_out_of_the_scratch_folder(workdir, run):
    given = spec(workdir, output=Output(dir=f"{workdir}/../elsewhere"))
    made = night.simulated(given, run)
    assert made.output.dir.startswith(f"{run.path}/scratch/outside/")


def test_what_is_skipped_is_skipped_and_said(workdir, run):
    made = night.simulated(spec(workdir), run)
    assert (made.venv, made.secrets, made.pins, made.done) == (None, (), {}, None)
    assert (made.preflight.disk_free_mib, made.preflight.checks) == (None, ())
    said = " ".join(made.warnings)
    for word in ("venv", "secrets", "pins", "hooks", "data", "disk_free", "memory fit", "user checks", "done"):
        assert word in said


def test_the_start_script_stays_and_runs_the_stand_in(workdir, run):
    made = night.simulated(spec(workdir), run)
    assert made.command == (f"{workdir}/scripts/start_training.sh", "--target-gpus=${{ topology.target.gpus }}")
    assert Path(made.env["TRAIN_SCRIPT"]).name == "trainer.py"
    assert Path(made.env["TRAIN_SCRIPT"]).is_file()
    assert made.env["SUPERVISE_SIM_WORLD"] == str(run.path / "world")


def test_a_start_script_that_does_not_hand_over_never_runs(workdir, run):
    (workdir / "scripts" / "start_training.sh").write_text("#!/bin/sh\nexec python real_training.py\n")
    made = night.simulated(spec(workdir), run)
    assert made.command[:2] == (sys.executable, made.env["TRAIN_SCRIPT"])


def test_another_command_becomes_the_stand_in_with_the_same_flags(workdir, run):
    given = spec(workdir, command=("torchrun", "--nproc-per-node=8", "train.py", "${{ params.args }}"))
    made = night.simulated(given, run)
    assert made.command == (
        sys.executable, made.env["TRAIN_SCRIPT"], "--nproc-per-node=8", "train.py", "${{ params.args }}",
    )  # fmt: skip
    assert any("torchrun" in warning for warning in made.warnings)


def test_the_gpus_are_those_of_the_simulation(workdir, run):
    made = night.simulated(spec(workdir), run)
    assert not {"CUDA_VISIBLE_DEVICES", "HF_TOKEN"} & set(made.env)
    inherited = night.job_environment({"CUDA_VISIBLE_DEVICES": "3", "CUDA_DEVICE_ORDER": "x", "PATH": "/bin"})
    assert inherited == {"PATH": "/bin"}


def test_real_uuids_become_free_indices_of_the_simulated_box(workdir, run):
    given = spec(workdir, topology=(Role(name="a", gpus=("GPU-x", "1")), Role(name="b", gpus=("0", "GPU-y"))))
    made = night.simulated(given, run)
    assert [role.gpus for role in made.topology] == [("2", "1"), ("0", "3")]


def test_times_are_cut_and_shorter_ones_stay(workdir, run):
    zero = VerifyZero(stable_for_s=0.1, timeout_s=300)
    made = night.simulated(spec(workdir, recovery=Recovery(grace_s=60, verify_zero=zero)), run).recovery
    assert (made.grace_s, made.verify_zero.timeout_s, made.verify_zero.stable_for_s) == (3.0, 3.0, 0.1)
    made = night.simulated(spec(workdir), run).recovery
    assert made.verify_zero.stable_for_s + 1.0 < made.verify_zero.timeout_s


def test_a_pattern_that_reads_the_stand_in_is_kept_and_another_replaced(workdir, run):
    kept = night.simulated(spec(workdir), run)
    assert kept.health.progress.log == r"step (?P<step>\d+).* (?P<rate>[\d.]+) Ktok/s"
    other = night.simulated(spec(workdir, health=Health(progress=Progress(log=r"iter=(?P<step>\d+)"))), run)
    assert night._finds_a_step(other.health.progress.log)
    assert any("progress" in warning for warning in other.warnings)
    by_files = Health(progress=Progress(files=f"{workdir}/out/*.pt"))
    assert night.simulated(spec(workdir, health=by_files), run).health.progress.files is None


def test_a_spec_without_a_progress_rule_has_none_in_the_simulation(workdir, run):
    assert night.simulated(spec(workdir, health=Health()), run).health.progress is None


def test_a_knob_that_is_a_venv_moves_nothing_in_the_simulation(workdir, run):
    knobs = (
        Knob(name="venv", venv=True, rungs=({"venv": Scalar("/a")}, {"venv": Scalar("/b")})),
        Knob(name="batch", rungs=({"batch": Scalar("2", "int")}, {"batch": Scalar("1", "int")})),
    )
    rules = (Rule(on=(Kind.GPU_OOM,), do=Do.RELAUNCH, lower=("venv", "batch")),)
    made = night.simulated(spec(workdir, params=Params(knobs=knobs), recovery=Recovery(rules=rules)), run)
    assert [knob.name for knob in made.params.knobs] == ["batch"]
    assert made.recovery.rules[0].lower == ("batch",)


def test_completeness_asks_only_for_what_the_stand_in_writes(workdir, run):
    resume = Resume(from_=f"{workdir}/c/step_*", complete=("*.safetensors", "*.distcp"))
    made = night.simulated(spec(workdir, resume=resume), run)
    assert made.resume.complete == ("*.safetensors",)
    assert any("*.distcp" in warning for warning in made.warnings)


@pytest.mark.parametrize(
    ("glob", "name"),
    [
        ("/s/step_*", "/s/step_*"),
        ("/s/*/step_*", "/s/sim/step_*"),
        ("/s/**/epoch_*_step_*.pt", "/s/sim/epoch_0_step_*.pt"),
        ("/s/step_[0-9]????", "/s/step_0*"),
        ("/s/last.ckpt", "/s/last.ckpt"),
    ],
)
def test_a_glob_of_checkpoints_is_one_name_with_one_star(glob, name):
    assert night._one_star(glob) == name


def listing(folder: Path) -> dict[str, float]:
    return {str(path): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


def test_preparing_makes_the_world_and_the_start_and_writes_nothing_in_the_workdir(workdir, run):
    before = listing(workdir)
    made = night.simulated(spec(workdir), run)
    night.prepare_scratch(made, run)
    world = World(run.path / "world")
    assert len(world.gpus()) == 8
    assert all(world.used_mib(gpu.index) == 0 for gpu in world.gpus())
    assert world.gpus()[0].total_mib == pytest.approx(97249.28)
    start = Path(made.resume.start)
    assert sorted(path.name for path in start.iterdir()) == sorted(night.CHECKPOINT_FILES)
    assert listing(workdir) == before


def test_preparing_twice_changes_no_checkpoint(workdir, run):
    made = night.simulated(spec(workdir), run)
    night.prepare_scratch(made, run)
    start = listing(Path(made.resume.start))
    night.prepare_scratch(made, run)
    assert listing(Path(made.resume.start)) == start


def test_a_run_that_must_have_a_checkpoint_gets_one(workdir, run):
    given = spec(workdir, resume=Resume(from_=f"{workdir}/c/step_*", if_none="fail"))
    night.prepare_scratch(night.simulated(given, run), run)
    assert (run.path / "scratch" / "c" / "step_100").is_dir()


def test_a_box_has_as_many_gpus_as_the_topology_names(workdir, run):
    given = spec(workdir, topology=(Role(name="a", gpus=("0", "11")),))
    assert len(night.prepare_scratch(night.simulated(given, run), run).gpus()) == 12


def test_the_simulation_of_a_simulation_has_the_same_name():
    assert night.name_of("dflash") == night.name_of("sim-dflash") == "sim-dflash"
