"""Secret values: in one file, changed only by what was accepted, gone at the end, and in no text."""

from __future__ import annotations

import json
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.edges import requests, secrets
from supervisor.edges.locks import Lock
from supervisor.edges.paths import Home
from supervisor.edges.secrets import REDACTED, Redactor, Secrets, is_secret_name

R1, R2 = f"{1:019d}-00000001", f"{2:019d}-00000002"
TOKEN = "hf_abcdef123456"


@pytest.fixture
def run(tmp_path):
    return Home(tmp_path).run("dflash")


def test_staged_sets_become_the_runs_only_when_they_are_accepted(run):
    assert secrets.load(run) is None
    assert secrets.own_for_start(run) is None
    secrets.stage(run, R1, {"HF_TOKEN": TOKEN}, {"PATH": "/bin"})
    assert secrets.load(run) is None
    assert secrets.load_staged(run, R1) == Secrets({"HF_TOKEN": TOKEN}, {"PATH": "/bin"})
    assert secrets.own_for_start(run) == {"PATH": "/bin"}
    assert secrets.commit(run, R1)
    assert not secrets.commit(run, R1)
    assert secrets.load(run) == Secrets({"HF_TOKEN": TOKEN}, {"PATH": "/bin"})


def test_a_refused_up_changes_nothing_of_a_live_run(run):
    secrets.stage(run, R1, {"HF_TOKEN": TOKEN}, {"PATH": "/bin"})
    secrets.commit(run, R1)
    secrets.stage(run, R2, {"HF_TOKEN": "other-token"}, {"PATH": "/other"})
    assert secrets.load(run).job == {"HF_TOKEN": TOKEN}
    assert secrets.own_for_start(run) == {"PATH": "/bin"}
    secrets.drop(run, R2)
    secrets.drop(run, R2)
    assert secrets.load_staged(run, R2) is None
    assert "other-token" not in run.secrets.read_text()


def test_the_oldest_request_starts_the_first_supervisor(run):
    secrets.stage(run, R2, {}, {"WHO": "second"})
    secrets.stage(run, R1, {}, {"WHO": "first"})
    assert secrets.own_for_start(run) == {"WHO": "first"}


def test_the_file_is_private_and_goes_with_the_run(run):
    secrets.stage(run, R1, {"HF_TOKEN": TOKEN}, {})
    secrets.commit(run, R1)
    assert run.secrets.stat().st_mode & 0o777 == 0o600
    (run.path / f".{run.secrets.name}.1.x.tmp").write_text(TOKEN)
    secrets.delete(run)
    secrets.delete(run)
    assert secrets.load(run) is None
    assert [path.name for path in run.path.rglob("*") if path.is_file()] == ["secrets.lock"]


def test_what_a_waiting_request_has_staged_outlives_the_end_of_the_run_before_it(run):
    secrets.stage(run, R1, {"A": "1"}, {})
    secrets.commit(run, R1)
    waiting, forgotten = requests.new_id(), R2
    secrets.stage(run, waiting, {"A": "2"}, {"WHO": "next"})
    secrets.stage(run, forgotten, {"A": "3"}, {})
    requests.put(run, {"verb": "up"}, id=waiting)
    secrets.delete(run)
    assert secrets.load(run) is None
    assert secrets.load_staged(run, forgotten) is None
    assert secrets.own_for_start(run) == {"WHO": "next"}
    assert secrets.commit(run, waiting)


def test_a_request_that_is_about_to_be_put_keeps_what_it_staged(run):
    fresh = requests.new_id()
    secrets.stage(run, fresh, {"A": "2"}, {})
    secrets.delete(run)
    assert secrets.load_staged(run, fresh) is not None


@pytest.mark.parametrize(
    "damage", ["{", "[]", '{"own": 3}', '{"job": {"A": 1}}', '{"pending": {"x": 1}}', '{"pending": 3}']
)
def test_damage_is_told_and_never_half_used(run, damage):
    run.path.mkdir(parents=True)
    run.secrets.write_text(damage)
    with pytest.raises(ValueError, match=r"secrets\.json"):
        secrets.load(run)
    with pytest.raises(ValueError, match=r"secrets\.json"):
        secrets.commit(run, R1)
    assert run.secrets.read_text() == damage


def test_many_verbs_at_once_lose_nothing(run, monkeypatch):
    monkeypatch.setattr(secrets, "_LOCK_WAIT_S", 60.0)  # each of them syncs the file, and the disk may be busy
    run.path.mkdir(parents=True)
    ids = [f"{n:019d}-{n:08x}" for n in range(20)]
    threads = [threading.Thread(target=secrets.stage, args=(run, one, {"A": one}, {})) for one in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(json.loads(run.secrets.read_text())["pending"]) == ids


def test_a_lock_that_never_comes_free_is_an_error_and_not_a_wait(run):
    run.path.mkdir(parents=True)
    held = Lock.try_take(run.path / "secrets.lock")
    clock = iter([0.0, 1.0, 6.0])
    slept = []
    with pytest.raises(TimeoutError, match="held for 5 s"):
        secrets._take(run, lambda: next(clock), slept.append)
    assert len(slept) == 1
    held.release()


def test_printing_them_shows_names_only():
    assert TOKEN not in repr(Secrets({"HF_TOKEN": TOKEN}, {"PATH": TOKEN}))


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True), ("AWS_SECRET_ACCESS_KEY", True), ("password", True), ("X_CREDENTIAL", True), ("KEY", True),
        ("MONKEY", False), ("TOKENIZERS_PARALLELISM", False), ("KEYS_PER_GPU", False), ("PATH", False),
    ],
)  # fmt: skip
def test_a_name_is_secret_by_its_whole_words(name, secret):
    assert is_secret_name(name) is secret


def test_values_are_redacted_also_as_json_in_urls_and_line_by_line():
    key = "-----BEGIN-----\nMIIEabcdef/+=\n-----END-----"
    redactor = Redactor([TOKEN, 'pa"ss\\wörd', key])
    for text in (
        f"token={TOKEN}&x",
        json.dumps({"p": 'pa"ss\\wörd'}), "https://u:pa%22ss%5Cw%C3%B6rd@h/", "line MIIEabcdef/+= end",
        json.dumps(key), key,
    ):  # fmt: skip
        redacted = redactor.text(text)
        assert REDACTED in redacted
        assert not [one for one in (TOKEN, "MIIEabcdef", "ss\\w", "pa%22ss", "BEGIN") if one in redacted]


def test_short_values_are_left_for_they_would_blot_out_ordinary_words():
    assert Redactor(["1", "true", "12345"]).text("1 true 12345") == "1 true 12345"
    assert Redactor([]).text("anything") == "anything"


def test_a_longer_value_is_redacted_whole():
    assert Redactor(["secret", "secret-longer"]).text("a secret-longer b") == f"a {REDACTED} b"


def test_plain_values_are_redacted_at_every_depth():
    plain = {"env": {"HF_TOKEN": TOKEN}, TOKEN: [f"x{TOKEN}", (1, None, True)], "n": 1.5}
    assert Redactor([TOKEN]).plain(plain) == {
        "env": {"HF_TOKEN": REDACTED},
        REDACTED: [f"x{REDACTED}", [1, None, True]],
        "n": 1.5,
    }


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the box may be busy
@given(st.text('ABC\n/%\\"é', min_size=6), st.text("xyz\n"), st.text("xyz\n"))
def test_no_value_is_left_in_any_text(value, before, after):
    assert value not in Redactor([value]).text(before + value + after + value)
