"""How a rehearsal differs from its run."""

from __future__ import annotations

from fake_specs import incident
from msgspec.structs import replace

from supervisor.core.evidence import Checkpoint
from supervisor.core.given import Hooks, Rehearsal
from supervisor.core.placing import RoleGpus
from supervisor.core.render import Placement, placed, render
from supervisor.core.small import folders, moved_to
from supervisor.core.spec import ConfigFile, Output, Progress, Resume, Style

ROLE = {"drafter": RoleGpus(ordinals=(5, 6, 7), physical=(5, 6, 7), uuids=("a", "b", "c"))}
PLACE = Placement(
    attempt=1,
    attempt_dir="/s/attempts/0001",
    run_dir="/s",
    rehearsal=True,
    gpus=ROLE,
    checkpoint=Checkpoint(path="/w/checkpoints/step_690", step=690, inode=1, mtime_ns=1),
)
SMALL = Rehearsal(params={"token_budget": "1024", "max_steps": "30"}, args=("--tag=${{ attempt.number }}",))


def test_its_params_and_words_are_on_the_command_and_all_else_is_as_in_the_run():
    spec = incident(rehearsal=SMALL)
    argv = render(spec, PLACE).argv
    full = render(spec, replace(PLACE, rehearsal=False)).argv
    assert argv[-1] == "--tag=1"
    assert argv[argv.index("--token-budget") :][:2] == ("--token-budget", "1024")
    assert argv[argv.index("--max-steps") :][:2] == ("--max-steps", "30")
    assert set(full) - set(argv) == {"49152"}
    assert tuple(one for one in full if one in argv)[2:6] == ("--anchors", "1024", "--block-size", "32")


def test_what_the_run_writes_to_lies_in_the_attempts_folder_and_the_checkpoint_is_read_where_it_is():
    spec = incident(
        rehearsal=SMALL,
        command=("train.sh", "--out=out/dflash/a", "--ck", "/w/checkpoints", "--data=outside/dflash", "x:./out/dflash"),
        env={"OUT": "/w/out/dflash", "LIKE": "out/dflash2"},
        files=(ConfigFile(name="f", from_="/w/f.yaml", set={"dir": "out/dflash"}),),
        logs=("/w/out/dflash/*.log",),
        output=Output(dir="/w/out/dflash", units="/w/out/dflash/*.parquet"),
    )
    progress = Progress(files="/w/out/dflash/x", in_=("/w/out/dflash/l",), jsonl={"file": "/w/checkpoints/m"})
    spec = replace(spec, health=replace(spec.health, progress=progress))
    made, there = render(spec, PLACE), placed(spec, PLACE)
    base = "/s/attempts/0001/rehearsal"
    assert made.argv[1:6] == (
        f"--out={base}/out/dflash/a", "--ck", f"{base}/checkpoints", "--data=outside/dflash", f"x:{base}/out/dflash",
    )  # fmt: skip
    assert "/w/checkpoints/step_690" in made.argv
    assert (made.env["OUT"], made.env["LIKE"]) == (f"{base}/out/dflash", "out/dflash2")
    assert made.files[0].set["dir"].text == f"{base}/out/dflash"
    assert there.output.dir == f"{base}/out/dflash"
    assert there.output.units == f"{base}/out/dflash/*.parquet"
    assert there.logs == (f"{base}/out/dflash/*.log",)
    assert there.health.progress == replace(
        progress, files=f"{base}/out/dflash/x", in_=(f"{base}/out/dflash/l",), jsonl={"file": f"{base}/checkpoints/m"}
    )
    assert there.done is None


def test_the_workdir_itself_is_never_moved_nor_a_folder_that_is_not_known_yet():
    spec = incident(output=Output(dir="${{ attempt.dir }}/out"), resume=Resume(from_="/w/step_*"))
    assert folders(spec) == ()
    assert folders(incident(output=Output(), resume=None)) == ()
    assert folders(incident(output=Output(dir="/w/out"), resume=Resume(from_="/w/out/ck/step_*"))) == (
        "/w/out/ck",
        "/w/out",
    )
    assert moved_to(incident(output=Output(dir="/data/o"), resume=None), "/a") == {"/data/o": "/a/rehearsal/data/o"}


def test_without_a_folder_or_progress_nothing_is_moved():
    spec = incident(rehearsal=SMALL, output=Output(), resume=None)
    spec = replace(spec, health=replace(spec.health, progress=None))
    assert render(spec, PLACE).argv[0] == "scripts/start_training.sh"
    assert placed(spec, PLACE).health.progress is None


def test_with_params_in_the_environment_a_new_one_goes_there():
    spec = incident(rehearsal=Rehearsal(params={"max_steps": "30"}))
    spec = replace(spec, params=replace(spec.params, style=Style.ENV))
    assert render(spec, PLACE).env["MAX_STEPS"] == "30"


def test_hooks_are_filled_in():
    spec = incident(hooks=Hooks(before_launch=("sync", "${{ attempt.dir }}")))
    filled = placed(spec, replace(PLACE, rehearsal=False)).hooks
    assert filled is not None
    assert filled.before_launch == ("sync", "/s/attempts/0001")
