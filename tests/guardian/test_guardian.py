"""The guardian with real processes: a supervisor for each open run, never two, however often anybody dies."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from supervisor import guardian
from supervisor.edges import detached, proc, requests, secrets
from supervisor.edges.locks import Lock, is_held, read_note
from supervisor.edges.paths import Home

pytestmark = pytest.mark.real
HOLDER = """
import sys, time, os
from pathlib import Path
from supervisor.edges.locks import Lock
lock = Lock.try_take(Path(sys.argv[1]))
lock.note(f"{sys.argv[2] if sys.argv[2:] else os.getpid()}\\n")
print("held", flush=True)
time.sleep(600)
"""
STAND_IN = str(Path(__file__).with_name("stand_in_guardian.py"))


class World:
    """A state directory and the processes that this test started in it."""

    def __init__(self, root):
        self.home = Home(root)
        self.guardians = []

    def guard(self, *flags, **environ):
        one = subprocess.Popen(
            [sys.executable, STAND_IN, "--home", str(self.home.root), *flags],
            env={**os.environ, **environ},
            stderr=subprocess.DEVNULL,
        )
        self.guardians.append(one)
        return one

    def open(self, name):
        run = self.home.run(name)
        run.path.mkdir(parents=True, exist_ok=True)
        run.open.touch()
        return run

    def starts(self, name):
        path = self.home.run(name).path / "started.jsonl"
        text = path.read_text() if path.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()  # the last one may be half written
        return [json.loads(line) for line in lines]

    def supervisor(self, name, other_than=None):
        """The pid of the supervisor that holds the run's lock, once there is one."""
        run = self.home.run(name)

        def found():
            try:
                pid = int((run.path / "pid").read_text())
            except (FileNotFoundError, ValueError):
                return None
            return pid if is_held(run.lock) and pid != other_than else None

        return until(found)

    def everybody(self):
        """Guardian and understudy, known by this test's own state directory in their command line."""
        return [pid for pid in proc.pids() if str(self.home.root) in proc.argv(pid) and pid != os.getpid()]

    def kill_guardians(self):
        """An understudy may become one while we look: again until there is none."""
        found = self.everybody()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    def end(self):
        until(self.kill_guardians)
        for one in self.guardians:
            one.wait()
        for name in self.home.names():
            for told in self.starts(name):
                kill_this(told["pid"], told["env"].get("SUPERVISE_HOME") == str(self.home.root))


def kill_this(pid, is_ours):
    """KILL, if the process is still the one that told us its pid."""
    argv = proc.argv(pid)
    if is_ours and any(word.endswith("stand_in_supervisor.py") for word in argv):
        os.kill(pid, signal.SIGKILL)
        until(lambda: (seen := proc.stat(pid)) is None or proc.is_dead(seen))


def until(true, within_s=30.0):
    deadline = time.monotonic() + within_s
    while not (value := true()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return value


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path / "state")
    world.home.root.mkdir(mode=0o700)
    yield world
    world.end()


def test_an_open_run_gets_a_supervisor_in_a_session_of_its_own(world):
    world.open("dflash")
    world.guard(PYTHONPATH="/nowhere", SUPERVISE_TOKEN="r1")
    pid = world.supervisor("dflash")
    (told,) = world.starts("dflash")
    assert told["sid"] == pid
    assert told["cwd"] == str(world.home.root)
    assert told["int"]
    assert not [name for name in told["env"] if name.startswith("PYTHON")]
    assert "SUPERVISE_TOKEN" not in told["env"]
    assert [fd for fd in told["fds"] if fd > 2][:-2] == []  # its own file and the listing
    assert "hello" in world.home.run("dflash").supervisor_log.read_text()


def test_a_run_that_is_not_open_gets_none_until_somebody_asks(world):
    run = world.home.run("dflash")
    run.path.mkdir(parents=True)
    world.open("other")
    world.guard()
    world.supervisor("other")
    assert world.starts("dflash") == []
    requests.put(run, {"verb": "up"})
    guardian.wake(world.home)
    world.supervisor("dflash")


def test_a_killed_supervisor_is_replaced_each_time_and_there_is_never_a_second(world):
    world.open("dflash")
    world.guard()
    pid = None
    for _ in range(5):
        pid = world.supervisor("dflash", other_than=pid)
        os.kill(pid, signal.SIGKILL)
    world.supervisor("dflash", other_than=pid)
    assert len(world.starts("dflash")) == 6


def test_a_supervisor_that_somebody_else_started_is_left_alone_and_missed_when_it_dies(world):
    run = world.open("dflash")
    lock = Lock.try_take(run.lock)
    world.open("other")
    world.guard()
    world.supervisor("other")
    assert world.starts("dflash") == []
    lock.release()
    world.supervisor("dflash")


@pytest.mark.parametrize("module", ["guardian", "runner"])
def test_who_stays_for_days_imports_little(module):
    code = f"import sys, supervisor.{module}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"msgspec", "dataclasses", "inspect", "subprocess", "hashlib"} & set(ran.stdout.split())


def test_a_second_guardian_ends_at_once_and_a_watching_one_waits_its_turn(world):
    world.open("dflash")
    first = world.guard()
    pid = world.supervisor("dflash")
    assert world.guard().wait(timeout=60) == 0
    watching = world.guard("--watch")
    first.kill()
    first.wait()
    until(lambda: is_held(world.home.guardian_lock))
    assert watching.poll() is None
    os.kill(pid, signal.SIGKILL)
    world.supervisor("dflash", other_than=pid)


def test_guardian_and_supervisors_killed_in_one_instant_are_all_there_again(world):
    """The understudy takes over; nothing else of ours is left then."""
    for name in ("dflash", "other"):
        world.open(name)
    first = world.guard()
    pids = {name: world.supervisor(name) for name in ("dflash", "other")}
    until(lambda: len(world.everybody()) == 2)
    for pid in (first.pid, *pids.values()):
        os.kill(pid, signal.SIGKILL)
    for name, pid in pids.items():
        world.supervisor(name, other_than=pid)
    until(lambda: len([pid for pid in world.everybody() if pid != first.pid]) == 2)


def test_a_killed_understudy_is_replaced(world):
    world.open("dflash")
    one = world.guard()
    world.supervisor("dflash")
    (old,) = until(lambda: [pid for pid in world.everybody() if pid != one.pid])
    os.kill(old, signal.SIGKILL)
    until(lambda: [pid for pid in world.everybody() if pid not in (one.pid, old)])
    assert one.poll() is None


def test_a_new_guardian_finds_the_supervisors_of_the_old_one(world):
    world.open("dflash")
    world.open("other")
    first = world.guard()
    pids = {name: world.supervisor(name) for name in ("dflash", "other")}
    first.kill()
    first.wait()
    world.guard()
    until(lambda: is_held(world.home.guardian_lock))
    os.kill(pids["other"], signal.SIGKILL)
    world.supervisor("other", other_than=pids["other"])
    assert len(world.starts("dflash")) == 1
    assert world.supervisor("dflash") == pids["dflash"]


def test_a_guardian_with_nothing_to_do_ends_and_one_that_watches_stays(world):
    assert world.guard(TEST_IDLE_S="0").wait(timeout=60) == 0
    assert not is_held(world.home.guardian_lock)
    watching = world.guard("--watch", TEST_IDLE_S="0")
    until(lambda: is_held(world.home.guardian_lock))
    world.open("dflash")
    world.supervisor("dflash")
    assert watching.poll() is None


def test_a_request_put_while_the_guardian_ends_is_not_left_lying(world, monkeypatch):
    """It saw the lock held, so it started no guardian; the one that ends looks once more without the lock."""
    run = world.home.run("dflash")
    run.path.mkdir(parents=True)
    monkeypatch.chdir(world.home.root)
    turns = []

    def turn(self, *, watch, is_ours):
        turns.append(is_held(world.home.guardian_lock))
        if len(turns) == 1:
            requests.put(run, {"verb": "up"})
        else:
            shutil.rmtree(run.requests)

    monkeypatch.setattr(guardian.Guardian, "run", turn)
    assert guardian.guard(world.home) == 0
    assert turns == [True, True]


def test_a_guardian_whose_lock_file_was_removed_takes_the_new_one_or_ends(world):
    world.open("dflash")
    one = world.guard()
    world.supervisor("dflash")
    world.home.guardian_lock.unlink()
    until(lambda: is_held(world.home.guardian_lock))
    assert one.poll() is None
    world.home.guardian_lock.unlink()
    other = Lock.try_take(world.home.guardian_lock)
    if other is not None:
        assert one.wait(timeout=60) == 0
        other.release()


def test_supervisors_that_end_by_themselves_are_started_ever_slower_but_never_given_up(world):
    run = world.open("dflash")
    (run.path / "broken").touch()
    world.guard()
    until(lambda: len(world.starts("dflash")) >= 4)
    (run.path / "broken").unlink()
    world.supervisor("dflash")


@pytest.mark.parametrize(
    ("status", "lived_s", "waits_s"),
    [
        (signal.SIGKILL, 0.0, [0.0, 0.0, 0.0]),
        (256, 0.1, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]),
        (signal.SIGSEGV, 0.1, [0.1, 0.2, 0.4]),
        (256, 2.0, [0.1, 0.1, 0.1]),
    ],
)
def test_the_backoff_grows_only_for_short_lives_that_end_by_themselves(status, lived_s, waits_s):
    watched = guardian._Watched()
    found = []
    for _ in waits_s:
        watched.started_s = 100.0
        guardian._back_off(watched, int(status), 100.0 + lived_s)
        found.append(round(watched.not_before_s - 100.0 - lived_s, 6))
    assert found == waits_s


def test_the_environment_is_the_one_that_up_staged(world):
    run = world.open("dflash")
    request = requests.new_id()
    secrets.stage(run, request, {"HF_TOKEN": "job-secret"}, {"PATH": os.environ["PATH"], "SUPERVISE_DEV": "/d"})
    world.guard(SUPERVISE_DEV="/other", ONLY_OURS="1")
    pid = world.supervisor("dflash")
    env = world.starts("dflash")[0]["env"]
    assert env["SUPERVISE_DEV"] == "/d"
    assert env["SUPERVISE_HOME"] == str(world.home.root)
    assert not {"HF_TOKEN", "ONLY_OURS"} & set(env)
    secrets.stage(run, requests.new_id(), {}, {"SUPERVISE_DEV": "/refused"})
    assert secrets.commit(run, request)
    os.kill(pid, signal.SIGKILL)
    world.supervisor("dflash", other_than=pid)
    assert world.starts("dflash")[-1]["env"]["SUPERVISE_DEV"] == "/d"


@pytest.mark.parametrize("damage", ["{", "[]", '{"own": {"A": 1}}', '{"pending": {"x": []}}'])
def test_damaged_secrets_do_not_keep_a_supervisor_from_starting(world, damage):
    run = world.open("dflash")
    run.secrets.write_text(damage)
    world.guard()
    world.supervisor("dflash")


def test_a_run_of_another_machine_is_ignored_until_it_is_moved_here(world):
    run = world.open("dflash")
    here = {"boot_id": "b", "machine_id": proc.machine_id(), "host": os.uname().nodename}
    run.machine.write_text(json.dumps({**here, "machine_id": "another", "host": "another"}))
    world.open("other")
    world.guard()
    world.supervisor("other")
    assert world.starts("dflash") == []
    run.machine.write_text(json.dumps(here))
    world.supervisor("dflash")


@pytest.mark.parametrize(
    ("machine", "is_here"),
    [
        (None, True),
        ({"machine_id": "", "host": os.uname().nodename}, True),
        ({"machine_id": "", "host": "elsewhere"}, False),
        ({"machine_id": "m", "host": os.uname().nodename}, False),
    ],
)
def test_a_machine_is_known_by_its_id_else_by_its_name(machine, is_here, monkeypatch):
    monkeypatch.setattr(proc, "machine_id", lambda: "ours")
    assert guardian.is_here(machine) is is_here


def test_a_supervisor_that_cannot_be_started_is_tried_again(world, monkeypatch, capfd):
    run = world.open("dflash")
    monkeypatch.chdir(world.home.root)
    one = guardian.Guardian(world.home)
    monkeypatch.setattr(detached, "supervisor_argv", lambda name: ("/does/not/exist", name))
    assert one.look(100.0)
    assert one.runs["dflash"].not_before_s == pytest.approx(100.1)
    assert "no supervisor could be started" in capfd.readouterr().err
    run.open.unlink()
    assert not one.look(101.0)
    one.close()


def test_the_end_of_a_supervisor_that_is_no_child_ends_the_guardian_s_sleep(world):
    run = world.open("dflash")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(run.lock)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    one = guardian.Guardian(world.home)
    one.look(100.0)
    assert one._hears_of_all()
    holder.kill()
    one._wait(100.0, 3600.0)
    assert not one._hears_of_all()
    holder.communicate()
    assert not is_held(run.lock)
    one.close()


def test_a_note_that_names_somebody_else_only_slows_the_guardian_down(world):
    """The number of another PID namespace, or one that was given away again: it lives on, and the lock is free."""
    run = world.open("dflash")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run.lock), str(os.getpid())], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    world.guard()
    until(lambda: read_note(world.home.guardian_lock))
    holder.kill()
    holder.communicate()
    world.supervisor("dflash")


@pytest.mark.parametrize("note", ["", "nobody", "0", "4194305 1"])
def test_a_note_that_names_nobody_only_slows_the_guardian_down(world, note):
    run = world.open("dflash")
    lock = Lock.try_take(run.lock)
    lock.note(note)
    one = guardian.Guardian(world.home)
    assert one.look(100.0)
    assert not one._hears_of_all()
    one.close()
    lock.release()


def test_a_plain_file_in_the_place_of_the_fifo_only_slows_the_guardian_down(world, capfd):
    world.home.guardian_wake.write_text("")
    one = guardian.Guardian(world.home)
    assert one._wake == -1
    assert "cannot be woken" in capfd.readouterr().err
    one.close()


def test_ensure_starts_a_detached_guardian_once(world, tmp_path, monkeypatch):
    """From a folder that holds modules of the same names, in a process that ends before its guardian."""
    trap = tmp_path / "trap"
    trap.mkdir()
    for name in ("supervisor.py", "json.py", "select.py"):
        (trap / name).write_text("raise SystemExit('wrong module')")
    script = (
        "import sys; sys.path.pop(0)\nfrom pathlib import Path\nfrom supervisor import guardian\n"
        "from supervisor.edges.paths import Home\nhome = Home(Path(sys.argv[1]))\n"
        "print([guardian.ensure_guardian(home) for _ in range(3)])"
    )
    read_end, write_end = os.pipe()
    done = subprocess.run(
        [sys.executable, "-c", script, str(world.home.root)],
        cwd=trap, capture_output=True, text=True, check=True, env={**os.environ, "HF_TOKEN": "x" * 8},
        pass_fds=[read_end, write_end],
    )  # fmt: skip
    os.close(read_end)
    os.close(write_end)
    assert done.stdout.startswith("[False")
    until(lambda: len(guardians_of(world.home)) == 2)  # one guardian and its understudy
    pid = int(until(lambda: read_note(world.home.guardian_lock)))
    assert guardian.ensure_guardian(world.home)
    assert proc.stat(pid).ppid != os.getpid()
    assert proc.stat(pid).sid != os.getsid(0)
    assert Path(f"/proc/{pid}/cwd").readlink() == world.home.root
    assert "HF_TOKEN" not in proc.environ(pid)
    opened = {int(path.name): path.readlink() for path in Path(f"/proc/{pid}/fd").iterdir()}
    assert opened[1] == opened[2] == world.home.guardian_log
    assert {str(to) for fd, to in opened.items() if fd > 2} == {
        str(world.home.guardian_lock), str(world.home.guardian_wake),
    }  # fmt: skip


def guardians_of(home):
    """Processes started for this test's own state directory, known by their whole command line."""
    argv = ("-m", "supervisor.guardian", "--home", str(home.root))
    return [pid for pid in proc.pids() if proc.argv(pid)[1:] == argv]
