"""Sessions on a real tmux: there once, exactly named, and a broken server costs the view only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from supervisor.core.errors import Exit
from supervisor.edges import proc
from supervisor.edges.paths import Home
from supervisor.edges.tmux import There, Tmux, TmuxMissing, TmuxSilent

pytestmark = pytest.mark.real

SLEEP = ("sleep", "3600")


def test_a_session_runs_the_argv_itself_and_there_is_only_ever_one(tmux, home):
    first = tmux.ensure_session("dflash", SLEEP, home.root)
    second = tmux.ensure_session("dflash", SLEEP, home.root)
    assert first == second
    assert first.alive
    until(lambda: proc.argv(first.pid) == SLEEP)
    assert proc.start_ticks(first.pid) == first.start_ticks
    assert [pane.session for pane in tmux.panes()].count("dflash") == 1


def test_words_reach_the_process_as_they_stand(tmux, home):
    words = ("sleep", "3600", "a b", "$HOME", "x;", ";", "it's", "#{pid}", "é")
    pane = tmux.ensure_session("words", (sys.executable, "-c", "import time; time.sleep(3600)", *words), home.root)
    until(lambda: proc.argv(pane.pid)[3:] == words)  # before it executes them, its argv is the server's


def test_a_command_of_one_word_is_not_given_to_a_shell(tmux, home, tmp_path):
    script = tmp_path / "a b;c"
    script.write_text("#!/bin/sh\nexec sleep 3600\n")
    script.chmod(0o700)
    pane = tmux.ensure_session("one", (str(script),), home.root)
    until(lambda: proc.argv(pane.pid) == SLEEP)


def test_a_longer_name_is_not_the_session(tmux, home):
    tmux.ensure_session("dflash-old", SLEEP, home.root)
    assert tmux.is_there("dflash-old") is There.YES
    assert tmux.is_there("dflash") is There.NO
    tmux.kill_session("dflash")
    assert tmux.is_there("dflash-old") is There.YES
    assert tmux.ensure_session("dflash", SLEEP, home.root).session == "dflash"


def test_no_server_means_that_there_is_no_session(tmux):
    assert tmux.is_there("dflash") is There.NO
    assert tmux.panes() == ()
    tmux.kill_session("dflash")
    assert tmux.server_pid() is None


@pytest.mark.parametrize("name", ["", "_keep", "a.b", "a:b", "=a", "a b", "é"])
def test_a_name_that_tmux_would_change_is_refused(tmux, name):
    with pytest.raises(ValueError, match="not a name"):
        tmux.is_there(name)


def test_the_server_shows_no_job_in_its_command_line_and_has_a_clean_environment(tmux, home, monkeypatch):
    for name in ("PYTHONPATH", "CUDA_VISIBLE_DEVICES", "HF_TOKEN", "SUPERVISE_TOKEN", "TMUX"):
        monkeypatch.setenv(name, "/nowhere")
    pane = tmux.ensure_session("dflash", SLEEP, home.root)
    server = tmux.server_pid()
    assert server == pane.server_pid
    assert "3600" not in proc.cmdline(server)
    until(lambda: proc.argv(pane.pid) == SLEEP)
    for pid in (server, pane.pid):
        environ = proc.environ(pid)
        assert not {"PYTHONPATH", "CUDA_VISIBLE_DEVICES", "HF_TOKEN", "SUPERVISE_TOKEN"} & set(environ)
        assert set(environ) <= {"PATH", "LANG", "SHELL", "HOME", "USER", "LOGNAME", "PWD", "SHLVL", "TERM",
                                "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TMUX", "TMUX_PANE", "OLDPWD", "_"}  # fmt: skip


def test_the_users_tmux_conf_is_never_read(tmux, home, tmp_path, monkeypatch):
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    (hostile / ".tmux.conf").write_text("set -g default-shell /bin/false\nset -g destroy-unattached on\nkill-server\n")
    (hostile / "tmux").mkdir()
    (hostile / "tmux" / "tmux.conf").write_text("kill-server\n")
    monkeypatch.setenv("HOME", str(hostile))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(hostile))
    pane = tmux.ensure_session("dflash", SLEEP, home.root)
    until(lambda: proc.argv(pane.pid) == SLEEP)
    assert tmux.is_there("dflash") is There.YES


def test_a_fast_exit_is_not_lost_and_the_pane_is_used_again(tmux, home):
    first = tmux.ensure_session("dflash", ("true",), home.root)
    until(lambda: not _now(tmux, first).alive)
    second = tmux.ensure_session("dflash", SLEEP, home.root)
    assert second.pane_id == first.pane_id
    assert second.pid != first.pid
    assert second.alive


def test_a_live_process_of_an_earlier_attempt_is_left_alone(tmux, home):
    old = tmux.ensure_session("dflash", SLEEP, home.root)
    new = tmux.ensure_session("dflash", ("sleep", "7200"), home.root)
    assert new.pid != old.pid
    assert _now(tmux, old).alive
    assert new.session == "dflash"


def test_a_removed_socket_is_made_anew_by_the_same_server(tmux, home):
    pane = tmux.ensure_session("dflash", SLEEP, home.root)
    server = tmux.server_pid()
    home.tmux_sock.unlink()
    assert tmux.is_there("dflash") is There.YES
    home.tmux_sock.unlink()
    assert tmux.ensure_session("dflash", SLEEP, home.root) == pane
    assert tmux.server_pid() == server


def test_a_stopped_server_is_unknown_and_not_absent(home, tmux):
    tmux.ensure_session("dflash", SLEEP, home.root)
    server = tmux.server_pid()
    hurried = Tmux(home, deadline_s=0.3)
    os.kill(server, signal.SIGSTOP)
    try:
        until(lambda: proc.stat(server).state == "T")
        assert hurried.is_there("dflash") is There.UNKNOWN
        assert hurried.is_there("dflash-2") is There.UNKNOWN  # at once: one hanging call is enough
        with pytest.raises(TmuxSilent):
            hurried.ensure_session("dflash", SLEEP, home.root)
        with pytest.raises(TmuxSilent):
            hurried.kill_session("dflash")
    finally:
        os.kill(server, signal.SIGCONT)
    until(lambda: hurried.is_there("dflash") is There.YES)


def test_a_stopped_server_without_a_socket_gets_no_second_one_beside_it(home, tmux):
    tmux.ensure_session("dflash", SLEEP, home.root)
    server = tmux.server_pid()
    os.kill(server, signal.SIGSTOP)
    try:
        until(lambda: proc.stat(server).state == "T")
        home.tmux_sock.unlink()
        with pytest.raises(TmuxSilent, match="does not come back"):
            Tmux(home, deadline_s=0.3).ensure_session("dflash", SLEEP, home.root)
    finally:
        os.kill(server, signal.SIGCONT)
    until(lambda: tmux.is_there("dflash") is There.YES)
    assert tmux.server_pid() == server


def test_a_server_that_nobody_recorded_is_recorded_by_who_finds_it(home, tmux, tmp_path):
    tmux.ensure_session("dflash", SLEEP, home.root)
    server = tmux.server_pid()
    home.tmux_pid.unlink()  # whoever started it was killed before it wrote this
    assert tmux.server_pid() is None
    tmux.ensure_view("dflash", tmp_path / "output.log")
    assert tmux.server_pid() == server


@pytest.mark.parametrize("direct", [True, False])
def test_a_server_that_dies_between_two_calls_is_started_by_our_own_start(home, tmux, tmp_path, monkeypatch, direct):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    tmux.ensure_session("other", SLEEP, home.root)
    ask = tmux.server.ask

    def ask_a_dying_one(*args, **how):
        if args[0] == "new-session":
            monkeypatch.setattr(tmux.server, "ask", ask)
            os.kill(tmux.server_pid(), signal.SIGKILL)
            until(lambda: tmux.server_pid() is None)
        return ask(*args, **how)

    monkeypatch.setattr(tmux.server, "ask", ask_a_dying_one)
    if direct:
        pane = tmux.ensure_session("dflash", SLEEP, home.root)
    else:
        pane = tmux.ensure_view("dflash", tmp_path / "output.log")
    assert tmux.server_pid() == pane.server_pid
    assert "dflash" not in proc.cmdline(pane.server_pid)
    assert "HF_TOKEN" not in proc.environ(pane.server_pid)
    assert tmux.server.ask("show-options", "-gv", "remain-on-exit").out == ("on",)


def test_a_dead_server_costs_only_the_view(home, tmux, tmp_path):
    output = tmp_path / "output.log"
    output.write_text("step 690\n")
    tmux.ensure_session("dflash", SLEEP, home.root)
    old = tmux.server_pid()
    os.kill(old, signal.SIGKILL)
    until(lambda: tmux.server_pid() is None)
    assert tmux.is_there("dflash") is There.NO
    view = tmux.ensure_view("dflash", output)
    assert view.is_view
    assert tmux.ensure_view("dflash", output) == view
    assert tmux.server_pid() not in (None, old)
    until(lambda: "step 690" in _shown(tmux, view))
    runner = tmux.ensure_session("dflash", SLEEP, home.root)
    assert runner.pane_id == view.pane_id
    assert not runner.is_view


def test_a_view_is_not_made_where_the_runner_has_its_pane(home, tmux, tmp_path):
    runner = tmux.ensure_session("dflash", SLEEP, home.root)
    assert tmux.ensure_view("dflash", tmp_path / "output.log") == runner


def test_the_server_ends_with_its_last_session_and_not_before(home, tmux):
    tmux.ensure_session("a", SLEEP, home.root)
    tmux.ensure_session("b", SLEEP, home.root)
    server = tmux.server_pid()
    tmux.kill_session("a")
    assert tmux.is_there("a") is There.NO
    assert tmux.server_pid() == server
    tmux.kill_session("b")
    until(lambda: tmux.server_pid() is None)


def test_a_damaged_record_of_the_server_is_none(home, tmux):
    tmux.ensure_session("a", SLEEP, home.root)
    server = tmux.server_pid()
    home.tmux_pid.write_text("{")
    assert tmux.server_pid() is None
    assert tmux.ensure_session("b", SLEEP, home.root).server_pid == server
    assert tmux.server_pid() == server


def test_attaching_works_read_only_and_from_inside_tmux(home, tmux, tmp_path, monkeypatch):
    tmux.ensure_session("dflash", SLEEP, home.root)
    monkeypatch.setenv("TMUX", "/somewhere,1,0")
    monkeypatch.setenv("TERM", "xterm")
    argv = tmux.attach_argv("dflash", read_only=True)
    assert "-r" in argv
    assert "-r" not in tmux.attach_argv("dflash", read_only=False)
    client = subprocess.Popen(
        [sys.executable, "-c", "import pty,sys; pty.spawn(sys.argv[1:])", *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    try:
        listed = ("list-clients", "-F", "#{client_readonly} #{client_session}")
        until(lambda: tmux.server.ask(*listed).out == ("1 dflash",))
    finally:
        tmux.kill_session("dflash")
        client.communicate(timeout=20)


def test_a_state_directory_with_a_long_path_still_gets_a_socket(tmp_path):
    home = Home(tmp_path / ("deep" * 25) / "er")
    home.root.mkdir(parents=True)
    tmux = Tmux(home)
    try:
        pane = tmux.ensure_session("dflash", SLEEP, home.root)
        assert pane.alive
        assert len(os.fsencode(tmux.server.socket)) <= 100
        assert tmux.server.socket.parent.stat().st_mode & 0o777 == 0o700
        assert Tmux(home).is_there("dflash") is There.YES
    finally:
        tmux.kill_session("dflash")
        until(lambda: tmux.server_pid() is None)
        tmux.server.socket.unlink(missing_ok=True)
        tmux.server.socket.parent.rmdir()


def test_a_socket_folder_that_others_can_enter_is_not_trusted(tmp_path):
    home = Home(tmp_path / ("deep" * 25) / "er")
    tmux = Tmux(home)
    folder = tmux.server.socket.parent
    folder.mkdir(mode=0o755)
    try:
        with pytest.raises(TmuxSilent, match="not a private folder"):
            tmux.ensure_session("dflash", SLEEP, tmp_path)
        assert tmux.is_there("dflash") is There.UNKNOWN
    finally:
        folder.rmdir()


def test_the_version_is_that_of_the_program(tmux):
    assert tmux.version()[0].isdigit()


def test_a_missing_tmux_says_how_to_install_it(home, monkeypatch):
    monkeypatch.setenv("PATH", str(home.root))
    with pytest.raises(TmuxMissing, match="apt-get install tmux") as raised:
        Tmux(home).ensure_session("dflash", SLEEP, home.root)
    assert raised.value.exit is Exit.PREFLIGHT
    assert Tmux(home).is_there("dflash") is There.UNKNOWN


def _now(tmux, pane):
    return next(one for one in tmux.panes() if one.pane_id == pane.pane_id)


def _shown(tmux, pane):
    return "\n".join(tmux.server.ask("capture-pane", "-p", "-t", pane.pane_id).out)


def until(true, within_s=20.0):
    """Wait for a fact."""
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)
