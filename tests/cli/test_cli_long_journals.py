"""A journal of many records is read once; what was kept of it is never believed over the file."""

from __future__ import annotations

import json
import shutil

import pytest
import recorded

from supervisor.cli import records
from supervisor.core import events as ev
from supervisor.edges.journal_tail import PlainRecords
from supervisor.edges.paths import Home, RunDir

LIVE = recorded.first_attempt() + recorded.second_attempt()
LONG = [*LIVE, *(ev.Warned(text=f"warning {n % 7}") for n in range(records.KEPT_FROM))]


@pytest.fixture
def run(home: Home) -> RunDir:
    """A run whose long journal was read by a verb."""
    made = recorded.write(home.root, LONG)
    records.look(made)
    assert made.view.exists()
    return made


def shown(supervise) -> dict[str, object]:
    code, out, _ = supervise("status", "dflash", "-o", "json")
    assert code == 0
    return json.loads(out)["runs"][0]


def read_lines(monkeypatch) -> list[int]:
    """The numbers of the records that are read from now on."""
    seen: list[int] = []
    whole = PlainRecords.__iter__

    def counted(self):
        for record in whole(self):
            seen.append(record["n"])
            yield record

    monkeypatch.setattr(PlainRecords, "__iter__", counted)
    return seen


def test_a_long_journal_is_read_once_and_then_only_what_is_new(run, supervise, monkeypatch):
    seen = read_lines(monkeypatch)
    assert shown(supervise)["phase"] == "running"
    assert seen == []
    recorded.append(run, recorded.finish())
    assert shown(supervise)["phase"] == "finished"
    assert len(seen) == len(recorded.finish())


def test_a_short_journal_leaves_no_cache(home, supervise):
    made = recorded.write(home.root, LIVE, name="short")
    supervise("status", "short")
    assert not made.view.exists()


def test_the_cache_is_private(run):
    assert run.view.stat().st_mode & 0o777 == 0o600


def test_another_journal_in_its_place_is_read_anew(run, supervise):
    run.journal.unlink()
    recorded.append(run, LIVE + recorded.halt())
    assert shown(supervise)["phase"] == "halted"


def test_a_copy_from_a_backup_is_read_anew(run, supervise):
    """Shorter than what was read; and one of the same length with other records."""
    data = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join(data[: len(LIVE)]))
    assert shown(supervise)["phase"] == "running"
    assert shown(supervise)["last_failure"]["kind"] == "gpu_oom"
    other = recorded.write(run.path.parent.parent, [*LONG[:-1], ev.Warned(text="warning x")], name="other")
    size = run.journal.stat().st_size
    with open(run.journal, "r+b") as file:
        file.write(other.journal.read_bytes())
    assert run.journal.stat().st_size >= size
    assert "warning x" in records.view(run).warnings


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"code": null}', b"\x80\x04N.", b"null"])
def test_a_damaged_cache_is_no_cache(run, supervise, damage):
    run.view.write_bytes(damage)
    assert shown(supervise)["phase"] == "running"


def test_a_cache_of_other_code_is_no_cache(run, supervise, monkeypatch):
    kept = json.loads(run.view.read_text())
    run.view.write_text(json.dumps({**kept, "code": ["0.0.0", 1, 2, 3]}))
    seen = read_lines(monkeypatch)
    assert shown(supervise)["phase"] == "running"
    assert len(seen) == len(LONG)


def test_damage_behind_what_was_kept_is_told_and_nothing_is_kept_of_it(run, supervise):
    kept = run.view.read_bytes()
    with open(run.journal, "ab") as file:
        file.write(b"rubbish\nrubbish\n")
    code, out, _ = supervise("status", "dflash")
    assert code == 0
    assert "damaged" in out
    assert run.view.read_bytes() == kept


def test_a_torn_last_line_is_read_when_it_is_whole(run, supervise):
    size = run.journal.stat().st_size
    recorded.append(run, recorded.finish())
    whole = run.journal.read_bytes()
    run.journal.write_bytes(whole[: size + 20])
    assert shown(supervise)["phase"] == "running"
    run.journal.write_bytes(whole)
    assert shown(supervise)["phase"] == "finished"


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(home, supervise):
    made = recorded.write(home.root, LONG, name="dflash")
    made.view.mkdir()
    assert shown(supervise)["phase"] == "running"
    shutil.rmtree(made.view)
