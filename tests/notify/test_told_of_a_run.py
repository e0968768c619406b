"""A real run that tells somebody: what is told survives restarts, costs no recovery, and shows no address."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from boxes import Box, kill, until
from listening import Listening

pytestmark = pytest.mark.real

FAILS_ONCE = "if [ -e done ]; then echo step 2; sleep 1; exit 0; fi; touch done; echo step 1; sleep 0.2; exit 3"
NOTIFY = """\
health: {progress: {log: 'step (?P<step>[0-9]+)'}}
recovery: {backoff: {first: 500ms}}
notify:
  urls_from: TELL
  on: [started, failed, recovered, finished, halted]
  heartbeat: {url_from: PING, every: 10s}
"""


def test_a_night_is_told_by_a_webhook_and_the_heart_beats_and_no_file_holds_the_address(box: Box, listening: Listening):
    spec = box.spec("told", "echo id=$WANDB_RUN_ID $WANDB_RESUME; " + FAILS_ONCE, NOTIFY + "tracking: {wandb: true}\n")
    night = box.up(spec, TELL=listening.url("/200/s3cret"), PING=listening.url("/200/b3at"))
    night.wait()
    first, second = (night.output(attempt).splitlines()[0] for attempt in (1, 2))
    assert first == second  # the same run at its tracker
    assert re.fullmatch(r"id=told-[0-9a-f]{8} allow", first)
    told = until(lambda: listening.posted("finished") and listening.posted(), "the end to be told")
    assert [one["event"] for one in told] == ["started", "failed", "recovered", "finished"]
    assert len({one["id"] for one in told}) == 4
    until(lambda: ("GET", "/200/b3at", None) in listening.told, "a beat of the heart")
    until(lambda: night.supervisor is None, "the supervisor to end")
    until(lambda: not couriers(box), "the couriers to end")
    for path in night.dir.path.rglob("*"):
        if path.is_file():
            text = path.read_bytes()
            assert b"s3cret" not in text and b"b3at" not in text, path


def test_a_dead_address_costs_the_recovery_nothing_and_a_killed_supervisor_tells_nothing_twice(
    box: Box, listening: Listening
):
    job = "echo step 1; while [ ! -e go ]; do sleep 0.05; done; " + FAILS_ONCE
    spec = box.spec("told", job, NOTIFY)
    tell = f"{listening.url('/hang/1')} {listening.url('/200/2')}"
    night = box.up(spec, TELL=tell, PING=listening.url("/500/b3at"))
    until(lambda: any(path == "/200/2" for _, path, _ in listening.told), "the first message")
    kill(night.supervisor)
    Path(box.work / "go").touch()
    night.wait()  # while the first place hangs
    listening.release.set()

    def there() -> list[str]:
        return [plain["event"] for _, path, plain in listening.told if path == "/200/2"]

    until(lambda: "finished" in there(), "the end to be told")
    assert there() == ["started", "failed", "recovered", "finished"]
    # it would try the place that hung again for some minutes
    kill(*couriers(box))


def couriers(box: Box) -> list[int]:
    """Whoever still carries a message or a beat of the heart."""
    return [pid for pid, line in box.everybody().items() if "supervisor.courier" in line]
