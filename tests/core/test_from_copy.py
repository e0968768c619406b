"""A launch from a copy of the code names what it starts and is configured by there, and all else where it lies."""

from __future__ import annotations

import pytest
from fake_specs import incident, knob

from supervisor.core.around import Tracking
from supervisor.core.codecopy import always_named, from_copy, launch_env, named_on, named_paths, written_paths
from supervisor.core.given import CodeCopy, Hooks, Rehearsal, Watched
from supervisor.core.guard import argv_violations, in_both, protected_sha256
from supervisor.core.render import Placement, render
from supervisor.core.spec import (
    ConfigFile,
    Done,
    Health,
    Knob,
    Output,
    Param,
    Params,
    Progress,
    Resume,
    RunSpec,
    Scalar,
)

TREE = "/s/runs/a/code/0001/tree"
NAMED = {f"/w/{name}": f"{TREE}/{name}" for name in ("train.py", "conf/a.yaml", "conf/b.yaml", "go.sh", "train")}
CODE = CodeCopy(path=TREE, top="/w", hook="/s/python", named=NAMED, folders={"/w/conf": f"{TREE}/conf"})


def moved(*command: str) -> tuple[str, ...]:
    return from_copy(incident(command=command), CODE).command


@pytest.mark.parametrize(
    ("word", "there"),
    [
        ("train.py", f"{TREE}/train.py"),
        ("./conf/../train.py", f"{TREE}/train.py"),
        ("/w/train.py", f"{TREE}/train.py"),
        ("${{ workdir }}/train.py", f"{TREE}/train.py"),
        ("--config=conf/a.yaml", f"--config={TREE}/conf/a.yaml"),
        ("--config=${{ workdir }}/conf/a.yaml", f"--config={TREE}/conf/a.yaml"),
        ("@conf/a.yaml", f"@{TREE}/conf/a.yaml"),
        *(
            (word, word)
            for word in ("train", "out/x", "conf", "/w", ".", "${{ files.a }}", "--a=b=conf/a.yaml", "x.py", "")
        ),
    ],
)
def test_a_word_is_changed_only_where_it_is_the_path_of_a_copied_file(word, there):
    assert moved("python", word) == ("python", there)


def test_a_program_without_a_slash_is_looked_up_in_path():
    assert moved("go.sh", "go.sh") == ("go.sh", f"{TREE}/go.sh")
    assert moved("./go.sh") == (f"{TREE}/go.sh",)


def test_a_folder_is_that_of_the_copy_only_behind_flags_that_read_from_one():
    argv = moved("python", "--config-dir", "conf", "-cd", "${{ workdir }}/conf", "--config-dir=conf", "--out", "conf")
    assert argv[2:] == (f"{TREE}/conf", "-cd", f"{TREE}/conf", f"--config-dir={TREE}/conf", "--out", "conf")
    assert moved("python", "--config-dir", "else")[2] == "else"


def test_without_a_copy_the_spec_is_as_it_is():
    spec = incident()
    assert from_copy(spec, None) is spec
    assert launch_env(None, {}) == {}


def everywhere() -> RunSpec:
    how = {name: Param(name=name) for name in ("config", "lr")}
    how["b:x"] = Param(name="b:x", file="/w/conf/b.yaml", key="x")
    protected = {"config": Scalar("conf/a.yaml"), "b:x": (Scalar("1", "int"), Scalar("conf/b.yaml"))}
    knobs = (
        Knob(name="lr", rungs=({"lr": Scalar("conf/a.yaml")}, {"lr": Scalar("conf/b.yaml")})),
        Knob(name="venv", rungs=({"venv": Scalar("/w/train.py")},), venv=True),
    )
    return incident(
        command=("python", "train.py"),
        env={"CONF": "conf/a.yaml", "OTHER": "x"},
        params=Params(protected=protected, knobs=knobs, how=how),
        files=(ConfigFile(name="f", from_="/w/conf/a.yaml"), ConfigFile(name="g", from_="/etc/g.yaml")),
        rehearsal=Rehearsal(args=("conf/b.yaml",), params={"p": "conf/a.yaml"}),
        hooks=Hooks(before_launch=("./go.sh",), after_stop=("sh", "go.sh")),
        code=Watched(paths=("/w/pkg",), snapshot=True),
    )


def test_params_environment_files_hooks_and_the_rehearsal_name_the_copy_too():
    spec = from_copy(everywhere(), CODE)
    assert spec.env == {"CONF": f"{TREE}/conf/a.yaml", "OTHER": "x"}
    assert spec.params.protected["config"].text == f"{TREE}/conf/a.yaml"
    assert [one.text for one in spec.params.protected["b:x"]] == ["1", f"{TREE}/conf/b.yaml"]
    assert [rung["lr"].text for rung in spec.params.knobs[0].rungs] == [f"{TREE}/conf/a.yaml", f"{TREE}/conf/b.yaml"]
    assert spec.params.knobs[1].rungs[0]["venv"].text == "/w/train.py"
    assert spec.params.how["b:x"].file == f"{TREE}/conf/b.yaml"
    assert [file.from_ for file in spec.files] == [f"{TREE}/conf/a.yaml", "/etc/g.yaml"]
    assert spec.rehearsal == Rehearsal(args=(f"{TREE}/conf/b.yaml",), params={"p": f"{TREE}/conf/a.yaml"})
    assert spec.hooks == Hooks(before_launch=(f"{TREE}/go.sh",), after_stop=("sh", f"{TREE}/go.sh"))
    assert (spec.workdir, spec.output, spec.resume) == ("/w", incident().output, incident().resume)


def test_the_launch_stays_in_the_working_directory_and_puts_the_hook_first():
    place = Placement(attempt=1, attempt_dir="/a", run_dir="/r", code=CODE)
    assert render(everywhere(), place).argv[1] == f"{TREE}/train.py"
    assert launch_env(CODE, {}) == {"PYTHONPATH": "/s/python"}
    assert launch_env(CODE, {"PYTHONPATH": "/w/src"}) == {"PYTHONPATH": "/s/python:/w/src"}


def test_every_path_by_which_code_may_be_named_is_asked_about():
    paths = named_paths(everywhere())
    for name in ("/w/train.py", "/w/conf/a.yaml", "/w/conf/b.yaml", "/w/go.sh", "/etc/g.yaml", "/w/pkg"):
        assert name in paths
    assert always_named(everywhere()) == ("/w/conf/a.yaml", "/etc/g.yaml", "/w/conf/b.yaml", "/w/pkg")
    assert named_paths(incident(command=("python", "x"), env={})) == ()
    assert always_named(incident()) == ()


def test_what_the_run_writes_is_known_from_the_spec():
    progress = Progress(
        files="/w/steps/*.done", heartbeat="/w/beat", jsonl={"file": "/w/m.jsonl", "step": "s"}, in_=("/w/log/*",)
    )
    spec = incident(
        output=Output(dir="/w/out", units="/w/units/part-*"),
        resume=Resume(from_="/step_*", start="/w/ck/step_1"),
        health=Health(progress=progress),
        logs=("/w/a.log", "${{ run.dir }}/b.log"),
        done=Done(file="/w/done/${{ attempt.number }}"),
        tracking=Tracking(tensorboard="/w/tb"),
    )
    assert written_paths(spec) == (
        *("/w/out", "/w/units", "/w/a.log", "/", "/w/ck/step_1", "/w/steps", "/w/beat", "/w/m.jsonl", "/w/log"),
        *("/w/done", "/w/tb"),
    )
    bare = incident(output=Output(), resume=None, health=Health())
    assert written_paths(bare) == ()


def test_a_value_may_be_named_in_the_tree_or_in_the_copy_and_nowhere_else():
    spec = incident(params=Params(protected={"config": Scalar("conf/a.yaml")}, how={"config": Param(name="config")}))

    def found(*words: str) -> list[str]:
        argv = ("python", *words)
        both = in_both(argv_violations(spec, argv), argv_violations(from_copy(spec, CODE), argv))
        return [one.found for one in both]

    assert found("--config", "conf/a.yaml") == found("--config", f"{TREE}/conf/a.yaml") == []
    assert found("--config", f"{TREE}/conf/b.yaml") == [f"{TREE}/conf/b.yaml"]
    assert protected_sha256(spec) != protected_sha256(from_copy(spec, CODE))  # the hash is of the spec's own values


def test_what_a_process_was_given_of_the_working_tree_is_seen():
    assert next(named_on(CODE, ("python", "train.py", "@conf/a.yaml", "out/x"), "/w")) == "/w/train.py"
    assert "/w/conf/a.yaml" in list(named_on(CODE, ("python", "--c=conf/a.yaml", "out/x"), "/w"))
    assert list(named_on(CODE, ("python", f"{TREE}/train.py", "train.py", "/else/x.py"), "/else")) == []
    inside = CodeCopy(path="/w/state/tree", top="/w", hook="")
    assert list(named_on(inside, ("python", "/w/state/tree/train.py"), "/w")) == []


def test_a_path_has_its_place_in_the_copy_and_back():
    assert CODE.image_of("/w/train.py") == f"{TREE}/train.py"
    assert CODE.image_of("/w/conf") == f"{TREE}/conf"
    assert CODE.image_of("/w/pkg/x.py") == f"{TREE}/pkg/x.py"
    assert CODE.image_of("/w") == TREE
    assert CODE.image_of("/wide/x.py") == "/wide/x.py"
    assert CODE.source_of(f"{TREE}/train.py") == "/w/train.py"
    assert CODE.source_of(f"{TREE}/pkg/x.py") == "/w/pkg/x.py"
    assert CODE.source_of("train.py") == "train.py"


def test_a_ladder_keeps_its_knobs():
    spec = incident(params=Params(knobs=(knob("a", "4", "2"),), how={"a": Param(name="a")}))
    assert from_copy(spec, CODE).params == spec.params
