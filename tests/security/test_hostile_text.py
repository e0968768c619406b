"""Whatever stands in a log, a record or a name: no verb lets it reach the terminal as anything but text."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import recorded

from supervisor.core import events as ev
from supervisor.edges.codec import to_plain
from supervisor.edges.journal import Journal
from supervisor.edges.paths import RunDir

NASTY = (
    "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b31m\x1b]8;;http://evil/\x1b\\x\x1bP+q\x1b\\"
    "\r\x08\x08\x0b\x0c\x7f\x85\u202e\u2066\u200b\ufeff\u2028\udc9b"
)
HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
KEPT = {"boot_id", "machine_id", "uuid", "uuids", "kind", "ending", "by", "verb", "request", "tag", "proof", "state"}
"""Names that the program looks things up by; their values never come from a log."""

NIGHTS = {
    "halted": recorded.first_attempt() + recorded.second_attempt() + recorded.halt(),
    "running": recorded.first_attempt() + recorded.second_attempt() + [ev.Warned(text="careful")],
}


def poisoned(value: Any, key: str = "") -> Any:
    """The same with every text that may come from outside made nasty."""
    if isinstance(value, str):
        return value if key in KEPT else f"{value}{NASTY}"
    if isinstance(value, dict):
        return {name: poisoned(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [poisoned(each, key) for each in value]
    return value


def write(run: RunDir, events: list[ev.Event]) -> None:
    """The run's journal, poisoned."""
    run.path.mkdir(parents=True, mode=0o700)
    journal = Journal.open(run.journal, writer=True)
    for n, (event, entry) in enumerate(zip(events, recorded.entries(events), strict=True)):
        at = ev.Instant("b", 100.0 + n, entry.wall_s) if hasattr(ev, "Instant") else _at(n, entry.wall_s)
        plain = json.loads(json.dumps(to_plain(event)))
        journal.append(entry.type, plain if isinstance(event, ev.EpisodeOpened) else poisoned(plain), at)
    journal.close()


def _at(n: int, wall_s: float) -> Any:
    from supervisor.core.evidence import Instant

    return Instant("b", 100.0 + n, wall_s)


@pytest.fixture(params=NIGHTS)
def run(home, request: pytest.FixtureRequest) -> RunDir:
    """A run each of whose records tells something nasty, and whose supervisor repeats it."""
    made = home.run("dflash")
    write(made, NIGHTS[request.param])
    now = poisoned(recorded.now_json(time.time()))
    now["phase"] = "running" if request.param == "running" else "halted"
    now |= {"pending": [NASTY], "ahead": [NASTY], "less": NASTY, "would": NASTY, "load": NASTY, "dump": NASTY}
    made.now.write_text(json.dumps(now))
    if request.param == "running":
        made.open.touch()
    output = made.attempt(1).output
    output.parent.mkdir(parents=True)
    output.write_text(f"step 1 {NASTY}\n", errors="replace")
    return made


READING = [
    ("status",),
    ("status", "dflash"),
    ("status", "--all"),
    ("history", "dflash"),
    ("history", "dflash", "-v"),
    ("wait", "dflash", "--timeout", "1ms"),
    ("report", "dflash", "--text"),
    ("report", "dflash", "--md"),
    ("metrics",),
]


@pytest.mark.parametrize("argv", READING, ids=" ".join)
def test_a_verb_that_reads_prints_text_only(run: RunDir, supervise, argv: tuple[str, ...]):
    _, out, err = supervise(*argv)
    said = out + err
    assert said
    assert "Traceback" not in said
    assert HARMFUL.findall(said) == []


@pytest.mark.parametrize("verb", ["status", "history"])
def test_json_holds_no_control_character_as_itself(run: RunDir, supervise, verb: str):
    code, out, _ = supervise(verb, "dflash", "-o", "json")
    assert code == 0
    json.loads(out)
    assert HARMFUL.findall(out) == []


def test_a_log_and_its_name_are_shown_as_text(supervise, tmp_path: Path):
    log = tmp_path / f"log{NASTY.replace('/', '')}.txt"
    log.write_bytes(f"{NASTY}\nRuntimeError: CUDA error: out of memory {NASTY}\n".encode("utf-8", "replace"))
    code, out, err = supervise("scan", str(log))
    assert code == 0
    assert "out of memory" in out
    assert HARMFUL.findall(out + err) == []
    assert HARMFUL.findall(supervise("scan", "-o", "json", str(log))[1]) == []


def test_a_wrong_name_is_repeated_as_text(run: RunDir, supervise):
    for verb in ("status", "down", "logs", "history"):
        _, out, err = supervise(verb, f"dflash{NASTY}")
        assert "dflash" in err
        assert HARMFUL.findall(out + err) == []


def test_mistakes_of_a_spec_are_told_as_text(supervise, tmp_path: Path):
    spec = tmp_path / "a.yaml"
    keys = json.dumps(
        {"version": 1, "name": "a", "command": ["x"], f"k{NASTY}": NASTY, "workdir": NASTY}, ensure_ascii=True
    )
    spec.write_text(keys.replace("\\udc9b", ""))
    for verb in ("check", "up"):
        code, out, err = supervise(verb, str(spec))
        assert code == 5
        assert HARMFUL.findall(out + err) == []
