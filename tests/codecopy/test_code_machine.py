"""The copy of an episode as a launch needs it: what the spec names in it, what is refused, what is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_specs import incident
from msgspec.structs import replace
from repos import ENVIRON, git
from trees import write

from supervisor.core.evidence import ProcessId
from supervisor.core.given import CodeCopy, Watched
from supervisor.core.spec import Health, Output, Param, Params, Resume, RunSpec, Scalar, Stale
from supervisor.edges import codecopy, proc
from supervisor.edges.codec import from_plain, to_plain
from supervisor.edges.paths import Home, RunDir
from supervisor.machines import code as machine
from supervisor.machines import surroundings
from supervisor.machines.astray import EVERY_S, Astray
from supervisor.machines.job import Job
from supervisor.machines.starting import _violations


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "state")


@pytest.fixture
def run(home: Home) -> RunDir:
    run = home.run("a")
    run.path.mkdir(parents=True)
    return run


@pytest.fixture
def spec(work: Path) -> Callable[..., RunSpec]:
    def made(*command: str, **more: object) -> RunSpec:
        given = {
            "workdir": str(work),
            "command": command or ("python", "train.py", "--config=conf/a.yaml"),
            "env": {},
            "resume": None,
            "output": Output(),
            "health": Health(),
            "params": Params(),
            "code": Watched(snapshot=True),
        }
        return incident(**{**given, **more})

    return made


@pytest.fixture
def take(home: Home, run: RunDir) -> Callable[..., machine.Taken]:
    return lambda spec, episode=1: machine.take(home, run, spec, ENVIRON, episode)


def test_the_copy_is_told_with_what_the_spec_names_in_it(spec, take, run, work):
    taken = take(
        spec("./go.sh", "python", "train.py", "--config=conf/a.yaml", "out", "--out=out/x.json", "--x=none.sh")
    )
    assert taken.problems == ()
    code = taken.code
    assert code is not None
    assert code.path == f"{run.code}/0001/tree"
    assert code.named == {f"{work}/{name}": f"{code.path}/{name}" for name in ("train.py", "conf/a.yaml")}
    assert (code.top, code.files, code.dirty, code.commit) == (str(work), 5, 0, git(work, "rev-parse", "HEAD"))
    assert from_plain(to_plain(code), CodeCopy) == code


def test_a_workdir_that_is_reached_by_a_link_is_the_same_tree(spec, take, work, tmp_path):
    (tmp_path / "alias").symlink_to(work)
    taken = take(spec(workdir=str(tmp_path / "alias")))
    assert taken.code.named[f"{tmp_path}/alias/train.py"] == f"{taken.code.path}/train.py"


def test_what_the_spec_names_and_the_copy_does_not_hold_is_said(spec, take, work):
    write(work, "mine.yaml", "runs/conf.yaml")
    (work / ".gitignore").write_text("out\nmine.yaml\n")
    command = ("python", "train.py", "--a=mine.yaml", "--b=conf/", "--c=runs/conf.yaml", "--config-dir", "pkg")
    said = take(spec(*command, output=Output(dir=f"{work}/runs"))).warnings
    assert [text for text in said if f"{work}/mine.yaml is named by the spec and not in the copy" in text]
    assert [text for text in said if f"{work}/runs/conf.yaml is named" in text]
    assert [text for text in said if f"{work}/conf is a folder" in text]
    assert not [text for text in said if "pkg is a folder" in text]


def test_files_that_only_the_spec_reads_are_copied_whatever_git_says(spec, take, work):
    write(work, "mine.yaml", text="a: 1\n")
    (work / ".gitignore").write_text("out\nmine.yaml\n")
    how = {"x": Param(name="x", file=f"{work}/mine.yaml", key="a")}
    taken = take(spec(params=Params(protected={"x": Scalar("1", "int")}, how=how)))
    assert f"{work}/mine.yaml" in taken.code.named
    assert taken.warnings == ()


def test_checkpoints_outputs_data_and_environments_are_never_copied(spec, take, work):
    names = ("ck/step_1/conf.json", "res/a.yaml", "data/d.json", "env/lib/x.py", "loose_1.json")
    write(work, *names)
    git(work, "add", ".")
    taken = take(
        spec(
            resume=Resume(from_=f"{work}/ck/step_*"),
            output=Output(dir=f"{work}/res"),
            data=Watched(paths=(f"{work}/data",)),
            venv=f"{work}/env",
            logs=(f"{work}/*.log",),  # the folder of these is the whole tree: that leaves nothing out
        )
    )
    tree = Path(taken.code.path)
    assert [name for name in names if (tree / name).resolve().is_relative_to(tree)] == ["loose_1.json"]
    assert (tree / "ck" / "step_1" / "conf.json").exists()


def test_what_stands_in_the_way_of_the_copy_is_a_reason_not_to_launch(spec, take, work, monkeypatch):
    monkeypatch.setattr(codecopy, "FILES_MAX", 1)
    (problem,) = take(spec()).problems
    assert problem.startswith("code.snapshot: the code of ")
    (work / ".git" / "index").write_bytes(b"broken")
    (problem,) = take(spec()).problems
    assert "git ls-files" in problem


def test_what_would_be_copied_is_told_before_anything_is(spec, home, work, tmp_path, monkeypatch):
    write(work, "train.py", text="new")
    told = machine.foreseen(home, spec(), ENVIRON)
    assert told == (f"5 files, 0.0 MiB, of {work} at {git(work, 'rev-parse', 'HEAD')[:10]}, 1 dirty", "")
    assert not home.root.exists()
    write(tmp_path, "bare/x.py")
    assert "which is no git checkout" in machine.foreseen(home, spec(workdir=str(tmp_path / "bare")), ENVIRON)[0]
    monkeypatch.setattr(codecopy, "BYTES_MAX", 1)
    assert machine.foreseen(home, spec(), ENVIRON)[1].startswith("code.snapshot: ")


OWN = '#!/bin/bash\n# $0\ncd "$(dirname "$0")"\npython train.py\n'


def test_a_start_script_that_goes_to_its_own_folder_must_find_what_the_run_writes(spec, take, work):
    """Its relative names are those of the copy, from where only what is there already leads home."""
    write(work, "go.sh", text=OWN)
    taken = take(spec("./go.sh", output=Output(dir=f"{work}/res/a")))
    (problem,) = taken.problems
    assert f"the run writes to {work}/res/a, which is not there yet: mkdir -p {work}/res/a" in problem
    (work / "res" / "a").mkdir(parents=True)
    taken = take(
        spec("./go.sh", output=Output(dir=f"{work}/res/a", stale=Stale.REMOVE_IF_EMPTY), logs=("/elsewhere/x",))
    )
    assert taken.problems == ()
    assert "what it makes there by a new relative name stays in" in taken.warnings[0]
    taken = take(spec("./go.sh", output=Output(dir=f"{work}/out", stale=Stale.REMOVE_IF_EMPTY)))
    assert "`output.stale: remove_if_empty` may take away" in taken.problems[0]


def test_what_the_run_writes_and_is_not_there_yet_is_named(spec, take, work):
    """Code that goes by its own file would make it in the copy."""
    given = spec(output=Output(dir=f"{work}/out/a", stale=Stale.ARCHIVE), resume=Resume(from_=f"{work}/ck/step_*"))
    (told,) = take(given).warnings
    assert told.startswith(f"{work}/ck is not there yet: mkdir -p {work}/ck, if the code goes by its own file")
    (work / "ck").mkdir()
    assert take(given).warnings == ()
    assert take(spec(output=Output(dir=f"{work}/out", stale=Stale.ARCHIVE))).warnings == ()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("export PYTHONPATH=src", "go.sh sets PYTHONPATH anew"),
        ("source lib/env.sh", "go.sh starts lib/env.sh by a relative name"),
        ("exec ./lib/env.sh --x", "go.sh starts ./lib/env.sh by a relative name"),
        ("export PYTHONPATH=src:$PYTHONPATH", ""),
        ("echo done.sh; $HOME/lib/env.sh; gone.sh", ""),
        ("# cd $0; PYTHONPATH=src", ""),
    ],
)
def test_what_a_start_script_does_past_the_copy_is_said(spec, take, work, line, said):
    write(work, "go.sh", "lib/env.sh", text=f"#!/bin/sh\n{line}\n")
    warnings = take(spec("./go.sh")).warnings
    assert [said in text for text in warnings] == ([True] if said else [])


def test_a_state_directory_where_nothing_may_be_executed_is_told(spec, take, work, monkeypatch):
    write(work, "go.sh", text="#!/bin/sh\n")
    monkeypatch.setattr(os, "ST_NOEXEC", 2**64 - 1)
    real = os.statvfs
    monkeypatch.setattr(
        os,
        "statvfs",
        lambda path: SimpleNamespace(f_flag=8, f_bavail=real(path).f_bavail, f_frsize=real(path).f_frsize),
    )
    assert "command: [bash, ./go.sh, ...]" in take(spec("./go.sh")).problems[0]
    assert take(spec("python", "train.py")).problems == ()


def test_copies_that_cannot_be_removed_are_told(spec, take, monkeypatch):
    def stuck(folder, keep):
        raise OSError("stuck")

    monkeypatch.setattr("supervisor.edges.codekept.prune", stuck)
    assert take(spec()).warnings == ("older copies of the code cannot be removed: stuck",)


# ── each launch ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_copy_that_is_as_it_was_made_says_nothing(spec, take):
    given = spec()
    assert machine.checked(given, take(given).code) == machine.Taken()


def test_a_copy_that_was_changed_warns_or_refuses_as_on_change_says(spec, take):
    given = spec()
    code = take(given).code
    write(Path(code.path), "train.py", "pkg/model.py", "pkg/__init__.py", "conf/a.yaml", "new.txt", text="x")
    changed, wrote = machine.checked(given, code).warnings
    assert "the copy of the code was changed: conf/a.yaml, pkg/__init__.py, pkg/model.py and 1 more" in changed
    assert "a job wrote into the copy of the code: new.txt" in wrote
    strict = replace(given, code=Watched(strict=True, snapshot=True))
    found = machine.checked(strict, code)
    assert "next: supervise up" in found.problems[0]
    assert found.warnings == (wrote,)


def test_without_its_copy_nothing_is_launched(spec, take, monkeypatch):
    given = spec()
    code = take(given).code
    (Path(code.path).parent / "manifest.json").unlink()
    assert "the copy of the code is gone" in machine.checked(given, code).problems[0]

    def dead(copy):
        raise OSError("Input/output error")

    monkeypatch.setattr("supervisor.edges.codekept.look", dead)
    assert "cannot be read: Input/output error" in machine.checked(given, code).problems[0]


def test_the_fingerprint_is_that_of_the_copy_under_the_names_of_the_tree(spec, take, work):
    """So an edit of the tree is no drift of the run, and a new `up` compares like with like."""
    given = spec(
        "python",
        "train.py",
        "--config=conf/a.yaml",
        "/etc/hostname",
        code=Watched(paths=(f"{work}/pkg",), snapshot=True),
    )
    before = surroundings.take(given, {}, ENVIRON, (), str)
    code = take(given).code
    write(work, "train.py", "conf/a.yaml", "pkg/model.py", "pkg/new.py", text="edited")
    git(work, "commit", "-qam", "two")
    now = surroundings.take(given, {}, ENVIRON, (), str, code)
    assert now["code"] == before["code"]
    assert now["git"] == before["git"]
    assert set(now["code"]) == {"train.py", "conf/a.yaml", f"{work}/pkg/__init__.py", f"{work}/pkg/model.py"}
    (Path(code.path).parent / "manifest.json").write_text("{")
    assert surroundings.take(given, {}, ENVIRON, (), str, code)["git"]["dirty"] == {}


def test_a_protected_value_is_read_from_the_copy_where_the_command_names_it_and_else_from_both(spec, take, work):
    how = {"x": Param(name="x", file=f"{work}/conf/a.yaml", key="anchors")}
    params = Params(protected={"x": Scalar("1024", "int")}, how=how)
    for command, violated in ((("python", "train.py", "--config=conf/a.yaml"), False), (("python", "train.py"), True)):
        write(work, "conf/a.yaml", text="anchors: 1024\n")
        given = spec(*command, params=params)
        code = take(given).code
        argv = tuple(word.replace("conf/a.yaml", f"{code.path}/conf/a.yaml") for word in command)
        rendered = SimpleNamespace(argv=argv, env={})
        assert _violations(given, code, rendered, {}, {}) == ()
        write(work, "conf/a.yaml", text="anchors: 512\n")
        assert bool(_violations(given, code, rendered, {}, {})) is violated
        assert _violations(given, None, rendered, {}, {})


def test_a_live_process_may_name_a_protected_config_in_the_copy(spec, take, tmp_path):
    params = Params(protected={"config": Scalar("conf/a.yaml")}, how={"config": Param(name="config")})
    given = spec("python", "train.py", params=params)
    code = take(given).code
    attempt = Home(tmp_path).run("b").attempt(1)
    attempt.path.mkdir(parents=True)
    for config, said in ((f"{code.path}/conf/a.yaml", 0), ("conf/a.yaml", 0), ("conf/b.yaml", 1)):
        command = [sys.executable, "-c", "import sys; print(1, flush=True); sys.stdin.read()", "--config", config]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trainer:
            assert trainer.stdout.readline() == b"1\n"
            line = {"pid": trainer.pid, "start_ticks": proc.start_ticks(trainer.pid), "sid": 1}
            attempt.members.write_text(json.dumps(line) + "\n")
            job = Job(attempt, proc.boot_id())
            job.members()
            assert len(list(job.violations(given, code))) == said


def test_a_process_that_was_given_the_trees_own_file_is_told_once_and_not_at_first_sight(spec, take, work):
    code = take(spec()).code
    command = [sys.executable, "-c", "import time; time.sleep(600)", "--c=conf/a.yaml", "out/x.json"]
    job = subprocess.Popen(command, cwd=work)
    try:
        deadline_s = time.monotonic() + 30
        while "--c=conf/a.yaml" not in proc.argv(job.pid) and time.monotonic() < deadline_s:
            time.sleep(0.005)
        member = SimpleNamespace(id=ProcessId(job.pid, proc.start_ticks(job.pid) or 0))
        gone = SimpleNamespace(id=ProcessId(job.pid, 1))
        astray = Astray(1, code)
        looks = [astray.look((gone, member), n * EVERY_S) for n in range(4)]
        assert astray.look((member,), 3 * EVERY_S + 0.1) == []
    finally:
        job.kill()
        job.wait()
    text = f"pid {job.pid} was given {work}/conf/a.yaml of the working tree, not of the copy of the code"
    assert looks == [[], [text], [], []]
