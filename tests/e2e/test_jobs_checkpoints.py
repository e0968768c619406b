"""Checkpoints and output directories with real jobs: what is resumed from, what is never touched."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from boxes import Box, Night

pytestmark = pytest.mark.real

SAVES = """
save() { mkdir -p "ckpt/.step_$1" && echo weights > "ckpt/.step_$1/model.bin" && mv "ckpt/.step_$1" "ckpt/step_$1"; }
"""
STEPS = 'i=0; while [ "$i" -lt "${STEPS:-100000}" ]; do i=$((i+1)); echo "step $i"; sleep 0.02; done; exit "${CODE:-0}"'
MORE = r"""
health: {progress: {log: 'step (?P<step>\d+)'}}
recovery: {stop: {grace: 2s}, backoff: {first: 1ms, cap: 1ms}}
"""
RESUME = 'resume: {from: "ckpt/step_*", arg: --resume, complete: [model.bin]}\n'


def checkpoint(box: Box, name: str, *, complete: bool = True) -> str:
    path = box.work / "ckpt" / name
    path.mkdir(parents=True)
    if complete:
        (path / "model.bin").write_text("weights\n")
    return str(path)


def resumed(night: Night, attempt: int) -> str | None:
    """The name of the checkpoint that an attempt's command was told; None for none."""
    (record,) = night.has("LaunchIntended", attempt=attempt)
    argv = record["data"]["argv"]
    return Path(argv[argv.index("--resume") + 1]).name if "--resume" in argv else None


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_ino) for path in folder.rglob("*")}


def test_what_looks_like_a_checkpoint_but_is_none_is_passed_over(box: Box) -> None:
    for name in ("step_10", "step_70", "step_60-unfinished", "step_70-unfinished"):
        checkpoint(box, name)
    for name in ("tmp_step_40", ".step_50", "step_30.tmp", "step_31.part", "step_32.partial", "step_33~"):
        checkpoint(box, name)
    checkpoint(box, "step_34.incomplete")
    checkpoint(box, "step_20", complete=False)
    (Path(checkpoint(box, "step_21")) / "model.bin").write_text("")
    before = contents(box.work / "ckpt")
    night = box.up(box.spec("a", STEPS, MORE + RESUME.replace("step_*", "*")))
    night.until("FirstProgress")
    assert resumed(night, 1) == "step_10"
    assert night.status()["checkpoint"] == str(box.work / "ckpt" / "step_10")
    assert contents(box.work / "ckpt") == before, "nothing is ever written into a checkpoint directory"


def test_a_rejected_branch_stays_out_and_what_the_run_wrote_is_taken(box: Box) -> None:
    for name in ("step_10", "step_90"):
        checkpoint(box, name)
    script = SAVES + 'case "$*" in *step_10) save 20; echo step 21; kill -KILL $$;; esac\n' + STEPS
    start = RESUME.replace("arg:", "start: step_10, arg:")
    spec = box.spec("a", script, MORE + start)
    night = box.up(spec)
    night.until("FirstProgress", attempt=2)
    assert (resumed(night, 1), resumed(night, 2)) == ("step_10", "step_20"), "step_90 was not of that branch"
    assert [Path(one["data"]["checkpoint"]["path"]).name for one in night.records("CheckpointWritten")] == ["step_20"]
    night.down()
    box.supervise("up", "-d", str(spec), code=0)
    assert resumed(night, 3) == "step_20", "`start` is for the first launch only"
    night.down()
    box.supervise("up", "-d", "--from", "ckpt/step_90", str(spec), code=0)
    assert resumed(night, 4) == "step_90", "named, it is taken"
    night.down()
    box.supervise("up", "-d", "--from", "none", str(spec), code=0)
    assert resumed(night, 5) is None


def test_a_start_that_is_not_complete_is_refused_with_the_newest_that_is(box: Box) -> None:
    good, torn = checkpoint(box, "step_10"), checkpoint(box, "step_20", complete=False)
    spec = str(box.spec("a", STEPS, MORE + RESUME.replace("arg:", "start: step_20, arg:")))
    said = box.supervise("up", "-d", spec, code=6)
    assert torn in said.err and good in said.err and "--from" in said.err
    assert torn in box.supervise("up", "-d", "--from", torn, spec, code=6).err
    assert "step_99" in box.supervise("up", "-d", "--from", "step_99", spec, code=6).err
    night = box.night("a")
    assert not night.records("LaunchIntended")
    box.supervise("up", "-d", "--from", "step_10", spec, code=0)
    assert resumed(night, 1) == "step_10"


def test_another_runs_checkpoint_is_refused_unless_it_is_named(box: Box) -> None:
    script = SAVES + 'case "$*" in *--resume*) ;; *) save 5;; esac\n' + STEPS
    one = box.up(box.spec("one", script, MORE + RESUME))
    one.until("CheckpointWritten")
    spec = str(box.spec("two", STEPS, MORE + RESUME))
    said = box.supervise("up", "-d", spec, code=7)
    assert "one" in said.err and "--from" in said.err
    box.supervise("up", "-d", "--from", "ckpt/step_5", spec, code=0)
    assert resumed(box.night("two"), 1) == "step_5"


def test_a_run_that_had_a_checkpoint_does_not_quietly_begin_anew(box: Box) -> None:
    script = SAVES + 'save 5; echo step 6; cat "$GATE"; kill -KILL $$'
    os.mkfifo(box.work / "gate")
    night = box.up(box.spec("a", script, MORE + RESUME), GATE=str(box.work / "gate"))
    night.until("CheckpointWritten")
    assert resumed(night, 1) is None, "fresh, as there was none"
    subprocess.run(["rm", "-r", str(box.work / "ckpt" / "step_5")], check=True)
    (box.work / "gate").write_text("go\n")
    night.wait(9)
    assert len(night.records("LaunchIntended")) == 1
    assert "--from none" in night.status()["next"]
    assert night.wait(9).err


def test_an_output_directory_is_treated_by_its_rule(box: Box) -> None:
    rules = ("remove_if_empty", "archive", "keep")
    nights = {}
    for stale in rules:
        name = stale.replace("_", "-")
        script = f'mkdir -p {name}; [ "$ATTEMPT" = 2 ] && touch {name}/part; echo step 1; sleep 1000'
        more = MORE + f"env: {{ATTEMPT: '${{{{ attempt.number }}}}'}}\noutput: {{dir: {name}, stale: {stale}}}\n"
        nights[stale] = box.up(box.spec(name, script, more))
    for stale, night in nights.items():
        out = box.work / night.name
        night.until("FirstProgress")
        first = out.stat().st_ino
        held = os.open(out, os.O_RDONLY)  # so that its inode is not given away again
        os.kill(night.leader(), signal.SIGKILL)
        night.until("FirstProgress", attempt=2)
        assert (out.stat().st_ino == first) == (stale == "keep"), "an empty one goes, whoever made it"
        os.close(held)
        second = out.stat().st_ino
        os.kill(night.leader(2), signal.SIGKILL)
        night.until("FirstProgress", attempt=3)
        renamed = [path for path in box.work.iterdir() if path.is_dir() and path.name.startswith(night.name + ".")]
        if stale == "archive":
            assert [path.stat().st_ino for path in renamed] == [second] and (renamed[0] / "part").exists()
            assert not (out / "part").exists()
        else:
            assert not renamed and (out / "part").exists(), "one with anything in it is left alone"


def test_a_link_and_what_is_not_the_runs_are_never_touched(box: Box, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (box.work / "linked").symlink_to(tmp_path / "elsewhere")
    (box.work / "theirs").mkdir()
    (box.work / "theirs" / "file").write_text("precious\n")
    (box.work / "kept").mkdir()
    checkpoint(box, "step_3")
    for name, out, stale in (
        ("a", "linked", "remove_if_empty"),
        ("b", "theirs", "archive"),
        ("c", "../outside", "remove_if_empty"),
        ("d", "ckpt", "archive"),
    ):
        (tmp_path / "outside").mkdir(exist_ok=True)
        more = MORE + f"output: {{dir: {out}, stale: {stale}}}\n" + (RESUME if name == "d" else "")
        said = box.supervise("up", "-d", str(box.spec(name, "echo step 1", more)))
        assert said.code in (0, 5, 6), said
        if said.code == 0:
            box.night(name).wait(0)
    assert (box.work / "linked").is_symlink() and (tmp_path / "elsewhere").is_dir()
    assert (box.work / "theirs" / "file").read_text() == "precious\n"
    assert (tmp_path / "outside").is_dir()
    assert (box.work / "ckpt" / "step_3" / "model.bin").exists()
