"""check, schema and init as a person calls them: 0 for a valid file, 5 for another, machine lacks as warnings."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from supervisor import cli
from supervisor.core import events as ev
from supervisor.core.evidence import Instant, MachineId
from supervisor.core.spec import RunSpec
from supervisor.edges.codec import to_plain
from supervisor.edges.journal import Journal
from supervisor.edges.paths import Home

HEAD = "version: 1\nname: run\ncommand: [python, train.py]\n"


@pytest.fixture
def supervise(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUPERVISE_HOME", str(tmp_path / "state"))

    def call(*args):
        code = int(cli.run(args))
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    return call


def test_a_valid_file_is_0_even_where_the_machine_has_nothing_of_it(supervise, tmp_path):
    (tmp_path / "s.yaml").write_text(
        "version: 1\nname: run\ncommand: [no-such-program]\nvenv: none-here\ntopology: {a: 4000}\n"
        "files: {f: {from: conf.yaml, set: {a.b: 1}}}\n"
    )
    done = supervise("check", "s.yaml")
    assert (done.returncode, done.stdout) == (0, "s.yaml: valid\n")
    for lack in ("none-here is not there", "no-such-program is not there", "conf.yaml cannot be read: No such file"):
        assert lack in done.stderr


def test_what_a_snapshot_would_copy_is_told_and_why_it_would_be_refused(supervise, tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("pass")
    (tmp_path / "s.yaml").write_text(HEAD + "code: {snapshot: true}\n")
    done = supervise("check", "-v", "s.yaml")
    assert "code.snapshot: true" in done.stdout
    assert f"code.snapshot would copy 2 files, 0.0 MiB, of {tmp_path}, which is no git checkout" in done.stdout
    assert "would copy" not in supervise("check", "s.yaml").stdout
    monkeypatch.setattr("supervisor.edges.codecopy.FILES_MAX", 1)
    done = supervise("check", "-v", "s.yaml")
    assert done.returncode == 0
    assert "warning: code.snapshot: the code of" in done.stderr


def test_a_wrong_file_is_5_with_all_its_mistakes_and_nothing_on_stdout(supervise, tmp_path):
    (tmp_path / "s.yaml").write_text(HEAD + "stepz: 5\nvisible: al\n")
    done = supervise("check", "s.yaml")
    assert (done.returncode, done.stdout) == (5, "")
    assert "s.yaml:4:1: stepz: unknown key (did you mean steps)" in done.stderr
    assert "s.yaml:5:1: visible: must be one of index, uuid, none, not al" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_not_there_is_5(supervise):
    done = supervise("check", "none.yaml")
    assert done.returncode == 5
    assert "none.yaml: there is no such file" in done.stderr


def test_json_says_the_same_in_one_document(supervise, tmp_path):
    (tmp_path / "good.yaml").write_text(HEAD + "notify: {on: [halted]}\n")
    (tmp_path / "bad.yaml").write_text("version: 1\n")
    good = supervise("check", "-o", "json", "good.yaml")
    document = json.loads(good.stdout)
    assert (good.returncode, document["schema"], document["valid"]) == (0, "supervise.check/v1", True)
    assert "SUPERVISE_NOTIFY is not set here" in document["warnings"][0]
    assert {"path": "name", "value": "run", "whence": "good.yaml:2"} in document["values"]
    bad = supervise("check", "-o", "json", "bad.yaml")
    document = json.loads(bad.stdout)
    assert (bad.returncode, document["valid"]) == (5, False)
    assert [mistake["what"][:16] for mistake in document["mistakes"]] == ["name is required", "command is requi"]


def test_verbose_prints_every_value_and_whence_it_comes(supervise, tmp_path):
    (tmp_path / "s.yaml").write_text(HEAD + "env: {HF_TOKEN: hf_secret_value}\n")
    done = supervise("check", "-v", "s.yaml")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "name: run # s.yaml:2" in lines
    assert "recovery.max_attempts: 6 # default" in lines
    assert "env.HF_TOKEN: <secret> # s.yaml:4" in lines
    assert "hf_secret_value" not in done.stdout + done.stderr


def test_config_files_are_looked_into(supervise, tmp_path):
    (tmp_path / "c.yaml").write_text("a: 1\nlocked: 5\n")
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "s.yaml").write_text(
        HEAD + "files: {f: {from: c.yaml, set: {a: 2, zz: 3}}, g: {from: bad.json, set: {x: 1}}}\n"
        "params: {protected: {'c.yaml:locked': 6, 'f:a': 2, 'gone.toml:x': 1}}\n"
    )
    done = supervise("check", "s.yaml")
    assert done.returncode == 0
    for lack in (
        f"{tmp_path}/c.yaml has no key zz",
        "the config file is not JSON",
        "c.yaml:locked is locked at 6, and locked in",
        "gone.toml cannot be read",
    ):
        assert lack in done.stderr


def test_a_workdir_that_is_not_there_is_the_one_lack_that_counts(supervise, tmp_path):
    (tmp_path / "s.yaml").write_text(HEAD + "workdir: gone\nvenv: v\n")
    done = supervise("check", "s.yaml")
    assert (done.returncode, done.stderr.count("warning")) == (0, 1)
    assert f"workdir {tmp_path}/gone is not there" in done.stderr


@pytest.mark.parametrize(
    ("command", "lacks"),
    [
        ("[python3, -u, train.py]", True),
        ("[torchrun, --nproc-per-node=2, src/train.py]", True),
        ("[python3, there.py]", False),
        ("[python3, '${{ files.train }}.py']", False),
        ("[python3, -m, pkg.train]", False),
        ("[sh, -c, ./train.py]", False),
    ],
)
def test_a_python_script_that_is_not_there_is_told_before_an_attempt_ends_with_it(supervise, tmp_path, command, lacks):
    (tmp_path / "there.py").touch()
    (tmp_path / "train.yaml").write_text("a: 1")
    files = "files: {train: {from: train.yaml, set: {a: 2}}}\n" if "files" in command else ""
    (tmp_path / "s.yaml").write_text(f"version: 1\nname: run\ncommand: {command}\n{files}")
    done = supervise("check", "s.yaml")
    assert done.returncode == 0, done.stderr
    assert ("train.py). Relative names start in `workdir`" in done.stderr) is lacks


def test_schema_prints_the_schema(supervise):
    done = supervise("schema")
    document = json.loads(done.stdout)
    assert document["properties"]["name"]["pattern"] == "^[a-z0-9-]{1,40}$"
    assert "params" in document["properties"]


def test_init_writes_a_valid_spec_and_leaves_an_existing_file_alone(supervise, tmp_path):
    first = supervise("init", "--name", "my-run")
    assert (first.returncode, first.stderr) == (0, "")
    assert supervise("check", "supervise.yaml").returncode == 0
    text = (tmp_path / "supervise.yaml").read_text()
    assert "name: my-run" in text
    again = supervise("init")
    assert again.returncode == 2
    assert "is there already and was left alone" in again.stderr
    assert (tmp_path / "supervise.yaml").read_text() == text


def test_init_with_every_comment_taken_away_is_valid_too(supervise, tmp_path):
    supervise("init", "all.yaml", "--name", "all")
    lines = (tmp_path / "all.yaml").read_text().splitlines()[1:]
    bare = [line[2:] if line.startswith("# ") else line for line in lines]
    (tmp_path / "all.yaml").write_text("\n".join(bare))
    assert supervise("check", "all.yaml").returncode == 0, supervise("check", "all.yaml").stderr


def test_init_takes_the_folders_name_and_refuses_a_wrong_one(supervise, tmp_path):
    assert supervise("init", "--name", "My Run").returncode == 2
    folder = tmp_path / "Some Folder_2"
    folder.mkdir()
    assert supervise("init", str(folder / "s.yaml")).returncode == 0
    assert "name: some-folder-2" in (folder / "s.yaml").read_text()
    assert supervise("init", "no/such/folder/s.yaml").returncode == 1


def test_what_changed_since_the_last_attempt_that_made_progress_is_told(supervise, tmp_path):
    run = Home(tmp_path / "state").run("run")
    run.path.mkdir(parents=True)
    journal = Journal.open(run.journal, writer=True)
    machine, at = MachineId("b", "m", "box"), Instant("b", 1.0, 1.0)
    spec = RunSpec(name="run", command=("python3", "train.py"), file="s.yaml", workdir=str(tmp_path))
    launch = ev.LaunchIntended(
        attempt=1, argv=(), rungs={}, knobs={}, protected={}, checkpoint=None, token="run:1", because=""
    )
    for event in (
        ev.EpisodeOpened(request="r", spec=spec, machine=machine, rungs={}, protected_sha256=""),
        launch,
        ev.FirstProgress(attempt=1, step=1, startup_s=2.0),
    ):
        journal.append(type(event).__name__, to_plain(event), at)
    journal.close()
    run.attempt(1).path.mkdir(parents=True)
    run.attempt(1).environment.write_text(json.dumps({"code": {"train.py": "other"}, "unknown": {}}))
    (tmp_path / "train.py").write_text("print()")
    (tmp_path / "s.yaml").write_text("version: 1\nname: run\ncommand: [python3, train.py]\n")
    done = supervise("check", "s.yaml")
    assert done.returncode == 0
    assert "warning: changed since attempt 1, the last that made progress: code train.py: other -> " in done.stderr
    run.journal.write_bytes(b"damaged\n" * 3)
    assert "changed" not in supervise("check", "s.yaml").stderr
