"""Requests: whole or not there, in order, and nothing that lies there ends a supervisor."""

from __future__ import annotations

import os
import time

import pytest

from supervisor.edges import requests
from supervisor.edges.paths import Home


@pytest.fixture
def run(tmp_path):
    return Home(tmp_path).run("dflash")


def test_what_was_asked_is_read_oldest_first(run):
    assert requests.unread(run) == []
    ids = [requests.put(run, {"verb": verb, "from": "cli"}) for verb in ("up", "pause", "down")]
    found = requests.unread(run)
    assert [one.id for one in found] == sorted(ids) == ids
    assert [one.verb for one in found] == ["up", "pause", "down"]
    assert found[0].data == {"verb": "up", "from": "cli"}
    assert found[0].asked_wall_s == pytest.approx(time.time(), abs=60)
    assert requests.unread(run) == found


def test_a_request_is_taken_away_once_and_again_is_fine(run):
    request = requests.put(run, {"verb": "up"})
    assert requests.is_waiting(run)
    requests.remove(run, request)
    requests.remove(run, request)
    assert not requests.is_waiting(run)
    assert requests.unread(run) == []


def test_an_id_made_before_is_the_id_of_the_request(run):
    request = requests.new_id()
    assert requests.put(run, {"verb": "up"}, id=request) == request
    assert [one.id for one in requests.unread(run)] == [request]


def test_ids_sort_by_time_and_never_collide(run):
    ids = [requests.new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert [one[:19] for one in ids] == sorted(one[:19] for one in ids)


@pytest.mark.parametrize("bad", ["../../etc/passwd", "", "x", "1-2", f"{0:019d}-ABCDEF01"])
def test_an_id_is_not_a_path(run, bad):
    with pytest.raises(ValueError, match="not the id"):
        requests.remove(run, bad)
    with pytest.raises(ValueError, match="not the id"):
        requests.put(run, {"verb": "up"}, id=bad or "?")


def test_a_request_has_a_verb(run):
    with pytest.raises(ValueError, match="verb"):
        requests.put(run, {"name": "up"})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (f"{5:019d}-0123abcd.json", b'{"verb": "u'),
        (f"{5:019d}-0123abcd.json", b"[]"),
        (f"{5:019d}-0123abcd.json", b'{"verb": 3}'),
        (f"{5:019d}-0123abcd.json", b"\xff\xfe"),
        (f"{5:019d}-0123abcd.json", b""),
        ("notes.txt", b"hello"),
        ("up.json", b'{"verb": "up"}'),
    ],
)
def test_what_is_no_request_is_moved_aside_and_told_once(run, name, content):
    good = requests.put(run, {"verb": "up"})
    (run.requests / name).write_bytes(content)
    found, bad = requests.look(run)
    assert [one.id for one in found] == [good]
    assert [one.name for one in bad] == [name]
    assert bad[0].moved_to.read_bytes() == content
    assert bad[0].why
    assert requests.look(run) == (found, [])


def test_a_link_is_no_request(run, tmp_path):
    requests.put(run, {"verb": "up"})
    (tmp_path / "victim").write_text('{"verb": "down"}')
    (run.requests / f"{5:019d}-0123abcd.json").symlink_to(tmp_path / "victim")
    found, (bad,) = requests.look(run)
    assert [one.verb for one in found] == ["up"]
    assert bad.why == "not a regular file"
    assert (tmp_path / "victim").exists()


def test_a_request_that_is_taken_away_while_it_is_read_is_not_malformed(run, monkeypatch):
    requests.put(run, {"verb": "up"})
    monkeypatch.setattr(requests, "read_json", lambda path: None)
    assert requests.look(run) == ([], [])


def test_a_verb_killed_while_writing_leaves_nothing_that_is_read_and_nothing_for_ever(run):
    requests.put(run, {"verb": "up"})
    fresh, old = run.requests / ".a.json.1.x.tmp", run.requests / ".b.json.1.x.tmp"
    fresh.write_text("{")
    old.write_text("{")
    os.utime(old, (time.time() - 7200,) * 2)
    assert len(requests.unread(run)) == 1
    assert fresh.exists()
    assert not old.exists()
    requests.remove(run, requests.unread(run)[0].id)
    assert not requests.is_waiting(run)
