"""A run belongs to the user whose folder it is: nobody else's supervise, root's included, acts on it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import recorded

from supervisor import cli, supervise_run
from supervisor.edges import requests
from supervisor.edges.paths import Home, RunDir

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")

EVE = 23_456


def give(path: Path, uid: int = EVE) -> None:
    """The folder and all in it are that user's."""
    for each in (path, *path.rglob("*")):
        os.chown(each, uid, uid, follow_symlinks=False)


def everything(path: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times below a folder."""
    seen = [(each, each.lstat()) for each in sorted(path.rglob("*"))]
    return [(str(each), stat.st_size, stat.st_mtime_ns) for each, stat in seen]


@pytest.fixture
def hers(home: Home) -> RunDir:
    """A run of another user in a state directory that we can enter."""
    run = recorded.write(home.root, recorded.first_attempt() + recorded.second_attempt())
    run.requests.mkdir(mode=0o700)
    give(run.path)
    return run


@pytest.mark.parametrize("argv", [("down", "-y"), ("restart", "-y"), ("pause",), ("resume",)], ids=lambda argv: argv[0])
def test_no_verb_acts_on_another_users_run(hers: RunDir, supervise, argv: tuple[str, ...]):
    before = everything(hers.path)
    code, out, err = supervise(argv[0], "dflash", *argv[1:])
    assert (code, out) == (7, "")
    assert f"#{EVE}" in err
    assert "sudo -u" in err
    assert everything(hers.path) == before


def test_up_does_not_launch_into_another_users_run(hers: RunDir, supervise, tmp_path: Path):
    spec = tmp_path / "a.yaml"
    spec.write_text("version: 1\nname: dflash\ncommand: [sleep, '1']\n")
    before = everything(hers.path)
    assert supervise("up", "-d", str(spec))[0] == 7
    assert everything(hers.path) == before


def test_adopt_leaves_it_alone_and_says_so(hers: RunDir, supervise):
    before = everything(hers.path)
    assert "belongs to another user" in supervise("adopt", "--all")[2]
    assert everything(hers.path) == before


def test_no_supervisor_of_ours_takes_it(hers: RunDir):
    before = everything(hers.path)
    assert supervise_run.main(["dflash"]) == 0
    assert everything(hers.path) == before


def test_it_can_be_looked_at_by_who_may_read_it(hers: RunDir, supervise):
    code, out, _ = supervise("status", "dflash")
    assert code == 0
    assert "running" in out


def test_a_request_that_another_user_wrote_is_no_request(home: Home):
    run = home.run("r")
    mine = requests.put(run, {"verb": "down"})
    theirs = requests.put(run, {"verb": "up", "args": {"spec": {"command": ["evil"]}}})
    os.chown(run.requests / f"{theirs}.json", EVE, EVE)
    good, bad = requests.look(run)
    assert [one.id for one in good] == [mine]
    assert "another user" in bad[0].why


def test_nobody_gets_into_a_state_directory_that_we_made(home: Home, supervise, tmp_path: Path):
    """The files of a run are private, so another user's verb sees no run and changes nothing."""
    run = recorded.write(home.root, recorded.first_attempt())
    home.root.chmod(0o700)
    for verb in ("status", "down"):
        assert supervise(verb, "nope")[0] == 4  # all is imported: she may not be able to read Python's files
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    before = everything(home.root)
    for argv in (("status", "dflash"), ("down", "dflash", "-y")):
        assert as_eve(*argv) == 1
    assert everything(home.root) == before
    assert run.journal.stat().st_mode & 0o077 == 0


def as_eve(*argv: str) -> int:
    """The exit code of another user's verb."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(EVE)
            os.setuid(EVE)
            os._exit(int(cli.run(argv)))
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
