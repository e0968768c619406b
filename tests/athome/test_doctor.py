"""`doctor`: what of a machine will cost a night, each with its fix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.cli import doctor
from supervisor.edges import home_box
from supervisor.edges.home_box import Logind, Place, container, logind, place_of, unit_of
from supervisor.edges.launchers import understand
from supervisor.edges.paths import Home


def write(root: Path, **files: str) -> Path:
    """Files below a root of the test's own; `__` stands for `/` in a name."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"DOTdockerenv": ""}, "docker"),
        ({"run__DOTcontainerenv": ""}, "podman"),
        ({"run__systemd__container": "lxc\n"}, "lxc"),
        ({"proc__1__environ": "PATH=/bin\0container=lxc-libvirt\0"}, "lxc-libvirt"),
        ({"proc__1__cgroup": "0::/kubepods/pod1\n"}, "a container"),
        ({"proc__1__cgroup": "0::/init.scope\n"}, ""),
    ],
)
def test_a_container_is_known_by_the_marks_it_leaves(tmp_path: Path, files: dict[str, str], kind: str):
    assert container(write(tmp_path, **files)) == kind


def test_a_box_without_systemd_ends_nothing_at_a_logout(tmp_path: Path):
    assert logind("me", tmp_path) == Logind(None, False, None)


def test_the_last_word_on_killing_has_the_drop_in_that_sorts_last(tmp_path: Path):
    write(
        tmp_path,
        run__systemd__system__x="",
        etc__systemd__logindDOTconf="[Login]\n#KillUserProcesses=no\nKillUserProcesses=no\n",
        usr__lib__systemd__logindDOTconfDOTd__10DOTconf="[Login]\nKillUserProcesses=yes\n",
        etc__systemd__logindDOTconfDOTd__20DOTconf="[Login]\n KillUserProcesses = true\nKillExcludeUsers=root ops\n",
    )
    assert logind("me", tmp_path) == Logind(True, False, False)
    assert logind("ops", tmp_path).excluded
    write(tmp_path, var__lib__systemd__linger__me="")
    assert logind("me", tmp_path).linger


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/code-server.service\n", "code-server.service"),
        ("9:name=systemd:/system.slice/ssh.service\n1:cpu:/\n", "ssh.service"),
        ("0::/user.slice/user-0.slice/session-3.scope\n", ""),
        ("0::/user.slice/user-0.slice/user@0.service\n", ""),
        ("0::/user.slice/user-0.slice/user@0.service/app.slice/jupyter.service\n", "jupyter.service"),
        ("0::/\n", ""),
    ],
)
def test_a_process_in_a_services_cgroup_ends_with_that_service(tmp_path: Path, cgroup: str, unit: str):
    assert unit_of(7, write(tmp_path, proc__7__cgroup=cgroup)) == unit


def test_a_process_that_is_gone_is_in_no_service(tmp_path: Path):
    assert unit_of(7, tmp_path) == ""


MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 / /home rw shared:1 - nfs4 srv:/home rw
31 30 0:41 / /home/me/my\\040disk rw - xfs /dev/sdb rw
32 22 0:42 / /home2 rw - fuse.sshfs x rw
"""


@pytest.mark.parametrize(
    ("path", "wanted", "is_remote"),
    [
        ("/home/me/x", Place("nfs4", "/home"), True),
        ("/home/me/my disk/x", Place("xfs", "/home/me/my disk"), False),
        ("/home2/x", Place("fuse.sshfs", "/home2"), True),
        ("/homely", Place("ext4", "/"), False),
    ],
)
def test_a_folder_lies_on_the_deepest_mount_above_it(path: str, wanted: Place, is_remote: bool):
    assert place_of(Path(path), MOUNTS) == wanted
    assert wanted.is_remote == is_remote


def test_a_state_directory_that_can_do_everything_is_left_as_it_was(tmp_path: Path):
    assert home_box.tried(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def test_what_a_state_directory_cannot_do_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "mkfifo", refuse)
    assert home_box.tried(tmp_path) == {
        "hard links": "Operation not permitted",
        "a FIFO": "Operation not permitted",
    }


def findings(spec: Path) -> dict[str, list[doctor.Finding]]:
    found: dict[str, list[doctor.Finding]] = {}
    for one in doctor.spec_findings(spec, has_gpus=True):
        found.setdefault(one.what, []).append(one)
    return found


def spec(folder: Path, more: str) -> Path:
    path = folder / "s.yaml"
    path.write_text(f"version: 1\nname: s\n{more}\n")
    return path


@pytest.mark.parametrize(
    "command",
    [
        "torchrun, --nproc-per-node=4, --max-restarts=3, train.py",
        "python, -m, torch.distributed.run, --max_restarts, '3', train.py",
        "accelerate, launch, --max_restarts, '3', train.py",
    ],
)
def test_a_launcher_that_restarts_by_itself_is_told(tmp_path: Path, command: str):
    (told,) = findings(spec(tmp_path, f"command: [{command}]"))["launcher"]
    assert "restarts its workers 3 times by itself" in told.text
    assert "--max-restarts=0" in told.fix


def test_the_scripts_own_flag_is_no_restart_of_a_launcher(tmp_path: Path):
    assert "launcher" not in findings(spec(tmp_path, "command: [torchrun, train.py, --max-restarts=3]"))


def test_processes_that_do_not_fit_the_topology_are_told(tmp_path: Path):
    more = "topology: {t: 4}\ncommand: [torchrun, --nproc-per-node=8, train.py]"
    assert "starts 8 processes, the topology has 4 GPUs" in findings(spec(tmp_path, more))["launcher"][0].text


def test_the_jobs_environment_must_not_be_that_of_supervise(tmp_path: Path):
    told = findings(spec(tmp_path, f"command: [python, t.py]\nvenv: {sys.prefix}"))["venv"][0]
    assert told.level == "bad"


def test_a_spec_with_mistakes_tells_each_of_them(tmp_path: Path):
    told = findings(spec(tmp_path, "command: python t.py\nworkdi: x"))["spec"]
    assert [one.level for one in told] == ["bad", "bad"]


def test_supervisord_beside_us_is_bad(monkeypatch: pytest.MonkeyPatch):
    from importlib import metadata

    monkeypatch.setattr(metadata, "version", lambda name: "4.2.5" if name == "supervisor" else "0")
    told = next(iter(doctor._installation()))
    assert (told.level, "pip uninstall supervisor" in told.fix) == ("bad", True)


def test_a_run_without_a_supervisor_is_bad(tmp_path: Path):
    home = Home(tmp_path)
    run = home.run("lost")
    run.path.mkdir(parents=True)
    run.open.touch()
    (told,) = doctor._guardian(home)
    assert (told.level, told.fix) == ("bad", "supervise adopt --all")


@pytest.mark.real
def test_the_verb_says_everything_and_leaves_nothing_behind(tmp_path: Path):
    environ = {**os.environ, "SUPERVISE_HOME": str(tmp_path / "state"), "SUPERVISE_LOCKS": str(tmp_path / "locks")}
    argv = [sys.executable, "-m", "supervisor.cli", "doctor", "-o", "json"]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    document = json.loads(done.stdout)
    assert document["schema"] == "supervise.doctor/v1"
    assert done.returncode == (0 if document["ok"] else 6)
    named = {one["what"] for one in document["findings"]}
    assert {"machine", "driver", "tmux", "logout", "limits", "state", "disk"} <= named
    assert all(one["fix"] for one in document["findings"] if one["level"] in ("bad", "warn"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "kind", "script", "rest", "gpus"),
    [
        ("python -u train.py --lr 1", "python", "train.py", ("--lr", "1"), None),
        ("python3.11 -m pkg.train --lr 1", "python", "pkg.train", ("--lr", "1"), None),
        ("torchrun --standalone --nproc_per_node 8 t.py --lr 1", "torchrun", "t.py", ("--lr", "1"), 8),
        ("torchrun --nnodes=1 -m pkg.train --lr=1", "torchrun", "-m pkg.train", ("--lr=1",), None),
        ("accelerate launch --multi_gpu --num_processes 4 t.py a=1", "accelerate", "t.py", ("a=1",), 4),
        ("deepspeed --num_gpus 8 t.py --deepspeed ds.json", "deepspeed", "t.py", ("--deepspeed", "ds.json"), 8),
        ("./start.sh --x 1", "", "./start.sh", ("--x", "1"), None),
        ("torchrun", "torchrun", "", (), None),
    ],
)
def test_a_command_is_taken_apart(words: str, kind: str, script: str, rest: tuple[str, ...], gpus: int | None):
    launch = understand(words.split())
    assert (launch.kind, launch.script, launch.rest, launch.gpus) == (kind, script, rest, gpus)
    assert (*launch.head, *launch.rest) == tuple(words.split())
