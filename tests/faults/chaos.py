"""A real run on a box with a stub driver, and somebody who kills whoever he likes. What must hold is asked after each.

Nothing lost: every record that was ever read stays, numbered without a gap. Nothing doubled: each attempt's job says
itself that it began, once, and never beside another. Told: deaths that the journal can know of are in it.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "gpus")]

from boxes import Box, Night, is_alive, kill, until  # noqa: E402  # the folders of the tests come first
from nvml_stub import StubState, build_stub  # noqa: E402

from supervisor.edges import proc  # noqa: E402

JOB = r"""#!/bin/sh
echo "$1 $$" >> starts
trap 'exit 0' TERM
n=0; while :; do n=$((n+1)); echo "step $n"; sleep 0.1 & wait $!; done
"""
SPEC = r"""version: 1
name: chaos
topology: {t: {gpus: [0, 1], silent: off}}
command: [./job.sh, '${{ attempt.number }}']
health: {progress: {log: 'step (?P<step>\d+)'}}
recovery:
  max_attempts: 100000
  stop: {grace: 5s}
  verify_zero: {stable_for: 200ms}
  rules: [{on: [killed, exit], do: relaunch, wait: 1ms}]
"""
WHO = ("supervisor", "supervisor", "guardian", "understudy", "tmux", "runner", "leader")
OUR_WATCH = ("supervisor", "guardian", "understudy")
MOST_AT_ONCE = 3


class Chaos:
    """One run, and kills until somebody has had enough."""

    def __init__(self, box: Box, seed: int) -> None:
        self.box = box
        self.dice = random.Random(seed)
        self.killed: Counter[str] = Counter()
        self.rounds: list[str] = []
        self.introduced = 0
        """Supervisors that were killed after their first record."""
        self._seen: list[dict[str, object]] = []
        cards = StubState.of(box.root)
        box.environ |= cards.environ(build_stub(box.root / "driver"))
        (box.root / "dev").mkdir()
        box.write("job.sh", JOB, 0o755)
        self.night: Night = box.up(box.write("chaos.yaml", SPEC))
        self.night.until("FirstProgress", attempt=1)

    @property
    def kills(self) -> int:
        """So many processes were killed."""
        return sum(self.killed.values())

    def starts(self) -> list[tuple[int, int]]:
        """(attempt, pid) as the jobs wrote them down themselves."""
        path = self.box.work / "starts"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(attempt), int(pid)) for attempt, pid in (line.split() for line in lines)]

    def round(self) -> None:
        """Kill one to three of those who are there, at once; wait until all are there again; judge."""
        there = self.everybody()
        chosen = self.dice.sample(sorted(there), self.dice.randint(1, MOST_AT_ONCE))
        if set(OUR_WATCH) <= set(chosen):
            chosen.remove(self.dice.choice(OUR_WATCH))  # nobody would be left who could start another
        victims = {name: there[name] for name in chosen if is_alive(there[name])}
        self.introduced += bool(self.night.has("SupervisorStarted", pid=victims.get("supervisor")))
        self.rounds.append(" ".join(f"{name}={pid}" for name, pid in victims.items()))
        kill(*victims.values())
        until(lambda: not any(map(is_alive, victims.values())), "whoever is killed is dead")
        self.killed.update([*victims])
        attempt = self.attempt()
        if "leader" in victims:
            self.night.until("JobEnded", attempt=attempt)
            self.night.until("FirstProgress", attempt=attempt + 1)
        elif "runner" in victims:
            self._end_of_a_job_without_its_runner(attempt)
        self.judge()

    def everybody(self) -> dict[str, int]:
        """All of them, as soon as they are there."""

        def there() -> dict[str, int]:
            found = {
                "supervisor": self.night.supervisor,
                "guardian": self.box.guardian,
                "understudy": next(iter(self.box.understudies()), None),
                "tmux": self.box.tmux,
                "runner": self.night.runner(self.attempt()),
                "leader": self._leader(),
            }
            living = {name: pid for name, pid in found.items() if pid and is_alive(pid)}
            return living if set(WHO) <= living.keys() else {}

        return until(there, lambda: f"everybody is there again after {self.rounds[-3:]}: {self._who_lacks()}")

    def _leader(self) -> int | None:
        members = self.night.members(self.attempt())
        return members[0] if members else None

    def _who_lacks(self) -> str:
        return f"supervisor {self.night.supervisor}, guardian {self.box.guardian}, {self.box.everybody()}"

    @staticmethod
    def _is_job(pid: int) -> bool:
        """Still that process, and not another one that got its number since."""
        return is_alive(pid) and any(word.endswith("job.sh") for word in proc.argv(pid))

    def attempt(self) -> int:
        """The newest that was launched."""
        return max((int(one["data"]["attempt"]) for one in self.night.records("LaunchIntended")), default=0)

    def _end_of_a_job_without_its_runner(self, attempt: int) -> None:
        """The job goes on though nobody will know how it ends; then it is ended, for the next round needs a runner."""
        steps = self.night.output(attempt).count("step")
        until(lambda: self.night.output(attempt).count("step") > steps, "the job goes on without its runner")
        text = f"the runner of attempt {attempt} was killed"
        until(lambda: any(text in one["data"]["text"] for one in self.night.records("Warned")), "it is told")
        kill(self._leader())
        self.night.until("FirstProgress", attempt=attempt + 1)

    def judge(self) -> None:
        """Nothing lost, nothing doubled."""
        starts = self.starts()
        counts = Counter(attempt for attempt, _ in starts)
        assert set(counts.values()) <= {1}, f"begun twice: {counts} after {self.rounds[-1]}"
        living = [(attempt, pid) for attempt, pid in starts if self._is_job(pid)]
        assert len(living) <= 1, f"alive at once: {living} after {self.rounds[-1]}"
        records = self.night.records()
        assert records[: len(self._seen)] == self._seen, f"records were lost after {self.rounds[-1]}"
        assert [one["n"] for one in records] == list(range(1, len(records) + 1))
        self._seen = records

    def end(self) -> None:
        """`down`, and what history tells of it all."""
        self.everybody()
        self.night.down()
        self.judge()
        assert not [pid for _, pid in self.starts() if self._is_job(pid)]
        started = len(self.night.records("SupervisorStarted"))
        assert self.introduced < started, f"{started} supervisors, {self.killed}"
        warned = [str(one["data"]["text"]) for one in self.night.records("Warned")]
        assert sum("the runner of attempt" in text for text in warned) >= 1 or not self.killed["runner"]
        assert any("tmux server was gone" in text for text in warned) or not self.killed["tmux"]
        said = self.box.supervise("history", "chaos", "-v", code=0).out
        assert said.count("SupervisorStarted") == started
        attempts = self.night.history()["attempts"]
        assert [one["number"] for one in attempts] == list(range(1, len(attempts) + 1))
        assert len(attempts) == len(self.starts())
        assert all(one["end"]["kind"] in ("killed", "exit", "none") for one in attempts)
        assert all(max(one["verified_zero"]["used_mib"]) == 0 for one in attempts)
