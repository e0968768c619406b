"""What a box or a person gets wrong: each a clear error with its exit code, nothing launched, nothing lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from boxes import Box, Said, kill, until

pytestmark = pytest.mark.real

STEPS = 'i=0; while true; do i=$((i+1)); echo "step $i"; sleep 0.02; done'
MORE = r"""
health: {progress: {log: 'step (?P<step>\d+)'}}
recovery: {stop: {grace: 2s}}
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk, or another machine id")


def test_a_spec_that_cannot_be_read_is_5_and_makes_nothing(box: Box) -> None:
    (box.work / "folder").mkdir()
    (box.work / "loop").symlink_to(box.work / "loop")
    (box.work / "binary").write_bytes(bytes(range(256)))
    box.write("mistaken.yaml", "version: 1\nname: A B\ncommnd: [true]\n")
    for name in ("nosuch.yaml", "folder", "loop", "binary", "mistaken.yaml"):
        said = box.supervise("up", "-d", name, code=5)
        assert name in said.err and not said.out and "Traceback" not in said.err
    mistakes = box.supervise("check", "mistaken.yaml", code=5)
    told = mistakes.out + mistakes.err
    assert "mistaken.yaml:2:" in told and "command" in told, "every mistake, each with its place"
    assert not box.home.names()


def test_a_command_that_cannot_be_started_is_refused_before_anything_is_launched(box: Box) -> None:
    box.write("plain.sh", "#!/bin/sh\n")
    (box.work / "folder").mkdir()
    for number, (more, why) in enumerate(
        [
            ("command: [./nosuch.sh]", "./nosuch.sh is not there"),
            ("command: [no-such-program]", "PATH"),
            ("command: [./plain.sh]", "chmod +x"),
            ("command: [./folder]", "folder"),
            ("command: [/bin/true]\nworkdir: nosuch", "workdir"),
            ("command: [/bin/true]\nvenv: nosuch", "venv"),
            ("command: [/bin/true]\nsecrets: [NOT_SET_ANYWHERE]", "NOT_SET_ANYWHERE"),
            ("command: [/bin/true]\nenv_file: nosuch.env", "nosuch.env"),
            ("command: [/bin/true]\npreflight: {disk_free: 100000000GiB}", "MiB"),
            ("command: [/bin/true]\npreflight: {checks: [[sh, -c, 'echo the disk is on fire; exit 3']]}", "on fire"),
        ]
    ):
        spec = box.write(f"bad{number}.yaml", f"version: 1\nname: bad{number}\n{more}\n")
        said = box.supervise("up", "-d", str(spec), code=6)
        assert why in said.err and not said.out and "Traceback" not in said.err, said
        night = box.night(f"bad{number}")
        assert not night.records("LaunchIntended"), "nothing was launched"
        until(lambda at=night.dir.secrets: not at.exists(), "and no secret stays")
    assert box.supervise("wait", "bad0", code=3).err
    assert "bad0" in box.supervise("status", code=0).out


def test_a_run_that_was_refused_comes_up_once_that_is_mended(box: Box) -> None:
    spec = box.spec("a", STEPS, MORE)
    script = box.work / "a.sh"
    script.chmod(0o644)
    assert f"chmod +x {script}" in box.supervise("up", "-d", str(spec), code=6).err
    script.chmod(0o755)
    night = box.up(spec)
    night.until("FirstProgress")
    assert night.status()["attempt"] == 1


def test_many_who_say_up_at_once_get_one_job(box: Box) -> None:
    spec = str(box.spec("a", "echo started >> starts; " + STEPS, MORE))
    asking = [box.start("up", "-d", spec) for _ in range(5)]
    said = [one.communicate(timeout=60)[1] for one in asking]
    assert [one.returncode for one in asking] == [0] * 5, said
    assert sum("already running" in one for one in said) == 4, said
    box.night("a").until("FirstProgress")
    assert (box.work / "starts").read_text() == "started\n"
    assert len(box.night("a").records("LaunchIntended")) == 1


def test_a_state_directory_that_cannot_be_written_is_an_error_that_says_what_to_set(box: Box) -> None:
    spec = str(box.spec("a", STEPS, MORE))
    box.write("a-file", "not a folder\n")
    for where in ("/proc/nosuch", str(box.work / "a-file"), str(box.work / "a-file" / "below")):
        said = box.supervise("up", "-d", spec, code=1, SUPERVISE_HOME=where)
        assert where in said.err and "SUPERVISE_HOME" in said.err and "Traceback" not in said.err, said
        assert box.supervise("status", SUPERVISE_HOME=where).code in (0, 1)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Box]:
    """A box whose state directory is a disk of three MiB."""
    box = Box(tmp_path)
    box.home.root.mkdir(mode=0o700)
    disk = str(box.home.root)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "small", disk], check=False)
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    try:
        yield box
        box.close()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def fill(box: Box) -> Path:
    """Takes every byte that is left."""
    path = box.home.root / "fill"
    with open(path, "ab", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return path


@as_root
def test_on_a_full_disk_nothing_is_launched_and_it_is_said(small: Box) -> None:
    spec = small.spec("a", STEPS, MORE)
    filled = fill(small)
    said = small.supervise("up", "-d", str(spec), code=1)
    assert str(small.home.root) in said.err and "df -h" in said.err and "Traceback" not in said.err, said
    night = small.night("a")
    assert not night.records() and not night.dir.open.exists()
    assert small.supervise("status").code == 0
    filled.unlink()
    small.up(spec).until("FirstProgress")


@as_root
def test_a_disk_that_fills_up_touches_no_run_and_a_run_can_still_be_ended(small: Box) -> None:
    script = "exec > /dev/null; " + STEPS
    night = small.up(small.spec("a", script, ""))
    leader = night.leader()
    until(lambda: [one for one in night.records("Launched") if one["data"]["leader"]], "nothing more is to be recorded")
    before = len(night.records())
    filled = fill(small)
    status = night.status()
    assert (status["phase"], status["supervisor"]["alive"]) == ("running", True)
    assert len(night.records()) == before
    night.down()
    assert night.status()["phase"] == "stopped"
    assert leader not in small.everybody()
    assert [record["n"] for record in night.records()] == list(range(1, len(night.records()) + 1)), "nothing was lost"
    filled.unlink()
    small.up(small.work / "a.yaml")
    assert night.status()["attempt"] == 2


@pytest.fixture
def elsewhere(box: Box) -> Callable[..., Said]:
    """Verbs on a machine that shares this state directory: all is the same there but the machine's id."""
    other = box.write("machine-id", "0123456789abcdef0123456789abcdef\n")
    enter = f'mount --bind {other} /etc/machine-id && exec "$@"'

    def run(*argv: str, code: int | None = None) -> Said:
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", enter, "sh", sys.executable, "-m", "supervisor.cli", *argv],
            cwd=box.work,
            env=box.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if "unshare" in done.stderr or "mount:" in done.stderr:
            pytest.skip(f"no other machine can be had here: {done.stderr}")
        said = Said(done.returncode, done.stdout, done.stderr)
        assert code is None or said.code == code, f"{argv}: {said}"
        return said

    return run


@as_root
@pytest.mark.skipif(not Path("/etc/machine-id").exists(), reason="this box has no machine id")
def test_a_run_of_another_machine_is_named_and_left_alone_until_it_is_moved(
    box: Box, elsewhere: Callable[..., Said]
) -> None:
    spec = str(box.spec("a", STEPS, MORE))
    night = box.up(box.work / "a.yaml")
    night.until("FirstProgress")
    host = os.uname().nodename
    assert host in elsewhere("status", code=0).out
    assert elsewhere("status", "-o", "json", code=0).json["runs"][0]["machine"] == {"host": host, "here": False}
    for verb in (
        ("up", "-d", spec),
        ("down", "a", "-y"),
        ("restart", "a", "-y"),
        ("pause", "a"),
        ("resume", "a"),
        ("wait", "a"),
        ("attach", "a"),
    ):
        said = elsewhere(*verb, code=7)
        assert host in said.err and "supervise adopt a --here" in said.err and not said.out, said
    assert elsewhere("adopt", "a", "--here", code=7).err, "it is supervised"
    assert elsewhere("adopt", "--all", code=0).err
    assert night.status()["phase"] == "running"
    former, leader, runner = night.supervisor, night.leader(), night.runner()
    kill(*box.guardians(), former, runner, leader)  # that machine is gone
    elsewhere("adopt", "a", "--here", code=0)
    night.until("LaunchIntended", attempt=2)
    night.until("FirstProgress", attempt=2)
    assert box.supervise("down", "a", "-y", code=7).err
    former = night.supervisor
    kill(former)
    night.until_supervised(but=[former])
    elsewhere("up", "-d", spec, code=0)
    elsewhere("down", "a", "-y", code=0)
    elsewhere("up", "-d", spec, code=0)
    elsewhere("down", "a", "-y", code=0)
    attempts = [one["number"] for one in night.history()["attempts"]]
    assert attempts == [1, 2, 3], "the journal went on"
