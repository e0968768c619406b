"""What a job's interpreter is asked, in real virtual environments and repositories made here."""

from __future__ import annotations

import ast
import json
import os
import sys
import threading
import venv as venvs
from pathlib import Path
from typing import Any

import pytest
from repos import git

from supervisor.core.evidence import Gpu
from supervisor.edges import environment
from supervisor.edges.environment import PROBE, Fingerprint, start_fingerprint

VERSION_FILE = """from typing import Optional
__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']
__version__ = '2.11.0+cu128'
debug = False
cuda: Optional[str] = '12.8'
git_version = 'abc'
hip: Optional[str] = None
"""


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    """A real virtual environment with packages that are only names, and a torch that must not be imported."""
    root = tmp_path_factory.mktemp("job") / "venv"
    venvs.create(root, with_pip=False, symlinks=True)
    (site,) = root.glob("lib/python3*/site-packages")
    for name in ("torch-2.11.0.dist-info", "flash_attn-2.8.0+cu12.dist-info", "nvidia_nccl_cu12-2.27.3.dist-info"):
        (site / name).mkdir()
    for name in ("half-1.0.dist-info", "half-2.0.dist-info", "old_one-3.1-py3.11.egg-info", "~orch-2.1.dist-info"):
        (site / name).mkdir()
    (site / "mine.egg-info").mkdir()
    (site / "mine.egg-info" / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 0.1.dev0\n")
    (site / "nameless.egg-info").write_text("")
    (site / "torch").mkdir()
    (site / "torch" / "version.py").write_text(VERSION_FILE)
    (site / "torch" / "__init__.py").write_text(f"open({str(root / 'imported')!r}, 'w')\n")
    return root


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """On a busy box git and the end of a process take their time."""
    monkeypatch.setattr(environment, "GIT_S", 60.0)
    monkeypatch.setattr(environment, "REAPED_WITHIN_S", 60.0)


@pytest.fixture
def take(tmp_path, venv):
    """Takes a fingerprint of a job in an empty workdir."""
    (tmp_path / "work").mkdir()

    def taken(**more: Any) -> dict[str, Any]:
        return start(tmp_path / "work", **{"venv": venv, **more}).wait()

    return taken


def start(workdir: Path, venv: Path | str | None, **more: Any) -> Fingerprint:
    given: dict[str, Any] = {
        "workdir": str(workdir),
        "argv": [],
        "environ": {"PATH": os.environ["PATH"]},
        "venv": None if venv is None else str(venv),
        "redact": lambda text: text,
        "deadline_s": 60.0,
        "driver_file": str(workdir / "driver"),
    }
    return start_fingerprint(**{**given, **more})


def test_the_jobs_own_interpreter_tells_its_own_packages(take, venv):
    seen = take()
    assert seen["unknown"] == {}
    assert seen["python"]["prefix"] == str(venv)
    assert seen["packages"]["flash-attn"] == "2.8.0+cu12"
    assert seen["packages"]["old-one"] == "3.1"
    assert seen["packages"]["mine"] == "0.1.dev0"
    assert seen["packages"]["nameless"] == "?"
    assert "pytest" not in seen["packages"]
    assert seen["kernel"] == os.uname().release
    json.dumps(seen)


def test_torch_is_told_with_its_build_and_never_imported(take, venv):
    seen = take()
    assert seen["torch"] == {"version": "2.11.0+cu128", "cuda": "12.8", "git_version": "abc"}
    assert seen["packages"]["torch"] == "2.11.0+cu128"
    assert not (venv / "imported").exists()


def test_two_versions_left_by_a_broken_upgrade_are_both_told(take):
    assert take()["packages"]["half"] == "1.0 and 2.0"


def test_nccl_is_the_venvs_package_or_else_the_systems_library(take, tmp_path):
    assert take()["nccl"] == "2.27.3"
    (tmp_path / "libnccl.so.2.19.4").touch()
    (tmp_path / "libnccl.so.2").symlink_to("libnccl.so.2.19.4")
    environ = {"PATH": "", "LD_LIBRARY_PATH": f":{tmp_path}"}
    assert take(venv=None, environ=environ)["nccl"] == "2.19.4"


def test_the_driver_is_read_where_one_is_loaded(take, tmp_path):
    assert take()["driver"] is None
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (x@y)  Sun Jul 27\n"
    (tmp_path / "work" / "driver").write_text(line + "GCC version:  gcc version 12.2.0\n")
    assert take()["driver"] == "580.65.06"


def test_values_of_variables_pass_through_redaction(take):
    environ = {
        "PATH": os.environ["PATH"],
        "NCCL_DEBUG": "INFO",
        "CUDA_MODULE_LOADING": "sekret",
        "HF_TOKEN": "sekret",
        "SUPERVISE_HOME": "/x",
    }
    seen = take(environ=environ, redact=lambda text: text.replace("sekret", "***"))
    assert seen["variables"] == {"CUDA_MODULE_LOADING": "***", "NCCL_DEBUG": "INFO"}
    assert "sekret" not in json.dumps(seen)


def test_gpus_are_told_by_name_and_uuid(take):
    (gpu,) = take(gpus=[Gpu(0, "GPU-1", "H200", 143771.0)])["gpus"]
    assert gpu == {"index": 0, "uuid": "GPU-1", "name": "H200", "total_mib": 143771.0}


def test_scripts_and_configs_named_in_argv_are_hashed(take, tmp_path):
    work = tmp_path / "work"
    (work / "pkg" / "tool").mkdir(parents=True)
    for name in ("train.py", "conf.yaml", "data.bin", "pkg/mod.py", "pkg/tool/__main__.py"):
        (work / name).write_text(name)
    (work / "start").write_text("#!/bin/sh\n")
    argv = ["./start", "train.py", "--config=conf.yaml", "data.bin", "-m", "pkg.mod", "-m", "pkg.tool", "absent.py"]
    first = take(argv=argv)["code"]
    assert set(first) == {"./start", "train.py", "conf.yaml", "pkg/mod.py", "pkg/tool/__main__.py"}
    (work / "train.py").write_text("changed")
    second = take(argv=argv)["code"]
    assert {name for name in first if first[name] != second[name]} == {"train.py"}


def test_the_commit_and_the_dirty_files_are_told_and_the_repository_is_not_touched(take, tmp_path):
    work = tmp_path / "work"
    assert take()["git"] is None
    git(work, "init", "-q")
    assert take()["git"]["commit"] == "none yet"
    for name in ("a.py", "b b.py", "c.py"):
        (work / name).write_text(name)
    git(work, "add", ".")
    git(work, "commit", "-qm", "one")
    (work / "sub").mkdir()
    clean = start(work / "sub", None).wait()["git"]
    assert len(clean["commit"]) == 40 and clean["dirty"] == {}
    (work / "b b.py").write_text("changed")
    (work / "c.py").unlink()
    index = (work / ".git" / "index").read_bytes()
    dirty = start(work / "sub", None).wait()["git"]["dirty"]
    assert set(dirty) == {"b b.py", "c.py"}
    assert dirty["c.py"] == "deleted"
    assert (work / ".git" / "index").read_bytes() == index


def test_a_monitor_that_the_repository_asks_for_is_not_run(take, tmp_path):
    work = tmp_path / "work"
    git(work, "init", "-q")
    monitor = tmp_path / "monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    monitor.chmod(0o755)
    git(work, "config", "core.fsmonitor", str(monitor))
    take()
    assert not (tmp_path / "ran").exists()


def test_without_git_the_rest_is_told(take):
    seen = take(environ={"PATH": ""})
    assert "git" in seen["unknown"]
    assert seen["packages"]["torch"] == "2.11.0+cu128"


def test_without_a_python_of_the_job_the_supervisors_packages_are_not_taken_for_its_own(take):
    seen = take(venv=None, environ={"PATH": ""})
    assert seen["packages"] is None and seen["torch"] is None and seen["python"] is None
    assert "no python" in seen["unknown"]["python"]
    assert seen["kernel"]


def test_without_a_venv_the_python_of_argv_and_path_is_asked(take, venv):
    assert take(venv=None, argv=[f"{venv}/bin/python", "x.py"])["python"]["prefix"] == str(venv)
    assert take(venv=None, environ={"PATH": f"{venv}/bin"}, argv=["start.sh"])["python"]["prefix"] == str(venv)


def test_a_venv_that_is_not_there_is_told(take, tmp_path):
    assert "is not there" in take(venv=str(tmp_path / "gone"))["unknown"]["python"]


def broken_venv(root: Path, text: str) -> Path:
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python").write_text(text)
    (root / "bin" / "python").chmod(0o755)
    return root


def test_an_interpreter_that_cannot_run_is_told(take, tmp_path):
    seen = take(venv=str(broken_venv(tmp_path / "a", "#!/nowhere/python\n")))
    assert "cannot be run" in seen["unknown"]["probe"]


@pytest.mark.parametrize(
    ("script", "why"), [("echo 3", "no document"), ("echo hi", "said nothing"), ("echo Boom >&2; exit 3", "Boom")]
)
def test_an_interpreter_that_tells_nothing_is_told(take, tmp_path, script, why):
    seen = take(venv=str(broken_venv(tmp_path / "a", f"#!/bin/sh\n{script}\n")))
    assert why in seen["unknown"]["probe"]
    assert seen["schema"] == environment.SCHEMA


def test_it_is_polled_and_never_waited_for(tmp_path):
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    slow = broken_venv(tmp_path / "a", f'#!/bin/sh\nread x < {fifo}\nexec {sys.executable} "$@"\n')
    taking = start(tmp_path, slow)
    assert taking.poll() is None
    threading.Thread(target=lambda: fifo.write_text("x\n"), daemon=True).start()
    seen = taking.wait()
    assert taking.poll() is seen
    assert seen["unknown"] == {}


def test_an_interpreter_that_hangs_is_given_up_on_and_ended(tmp_path):
    hung = broken_venv(tmp_path / "a", "#!/bin/sh\nexec sleep 600\n")
    taking = start(tmp_path, hung, deadline_s=0.2)
    child = taking._child
    assert child is not None
    seen = taking.wait()
    assert "did not answer within 0.2 s" in seen["unknown"]["probe"]
    assert child.returncode == -9


def test_one_that_is_not_wanted_any_more_is_ended(tmp_path):
    hung = broken_venv(tmp_path / "a", "#!/bin/sh\nexec sleep 600\n")
    taking = start(tmp_path, hung)
    child = taking._child
    assert child is not None
    taking.close()
    taking.close()
    assert child.returncode == -9


def test_the_probe_runs_on_old_interpreters():
    tree = ast.parse(PROBE.read_text(), feature_version=(3, 7))
    names = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert names <= {*sys.stdlib_module_names, "collections.abc"}
