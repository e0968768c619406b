"""What is usual for a GPU, and when one is silent: the cases that a transcript would not show."""

from __future__ import annotations

import pytest
from fake_specs import incident, uuid
from msgspec.structs import replace

from supervisor.core.evidence import Reading, Unreadable
from supervisor.core.silence import (
    ASK_UNTIL_S,
    DECAY,
    FELL_FOR_S,
    GONE_FOR_S,
    GpuWork,
    in_words,
    silences,
    suspected,
    work_seen,
)

ROLES = {"target": tuple(uuid(n) for n in range(5)), "drafter": tuple(uuid(n) for n in range(5, 8))}
FULL = 70_000.0


class Gpus:
    """Eight GPUs of which the sixth is told about, read once a second."""

    def __init__(self, *, holder: bool = False) -> None:
        self.now_s = 0.0
        self.work: dict[str, GpuWork] = {}
        self.worked: dict[str, float] = {}
        self.low: dict[str, float] = {}
        self.holders = {uuid(6): (66,)} if holder else {}
        self.steps = 0

    def see(
        self, used: float | None = FULL, util: float | None = 90.0, pids=None, *, others=90.0, step=True
    ) -> GpuWork:
        """One second later; GPU 6 shows this."""
        self.now_s += 1.0
        self.steps += step
        gpus = {uuid(n): self.reading(n, FULL, others) for n in range(8)}
        if used is None:
            gpus[uuid(6)] = Unreadable(uuid(6), 6, self.now_s, "GPU is lost")
        else:
            gpus[uuid(6)] = self.reading(6, used, util, pids)
        for one, seen in gpus.items():
            told = isinstance(seen, Reading) and seen.util_pct is not None
            if told and seen.util_pct < 5.0:
                self.low.setdefault(one, self.now_s)
            else:
                self.low.pop(one, None)
                if told:
                    self.worked[one] = self.now_s
        self.work = work_seen(self.work, gpus, self.worked, self.low, self.holders, {}, self.steps)
        self.suspects = suspected(self.work.values(), gpus.values())
        return self.work[uuid(6)]

    def reading(self, n: int, used: float, util: float | None, pids=None) -> Reading:
        return Reading(uuid(n), n, self.now_s, used, 97_000.0, None, util, pids=pids)

    def silent(self, spec=None, **how) -> list[str]:
        found = silences(spec or incident(), ROLES, self.work, self.steps, self.now_s, **how)
        return [one.how for one in found]


def test_what_is_usual_follows_a_gpu_that_works_with_less():
    gpus = Gpus()
    assert gpus.see().usual_mib == FULL
    assert gpus.see(used=72_000).usual_mib == 72_000
    assert gpus.see(used=71_000).usual_mib == 72_000, "within a twentieth it is the same"
    assert gpus.see(used=30_000).usual_mib == pytest.approx(72_000 * DECAY)
    for _ in range(60):
        gpus.see(used=30_000)
    assert 30_000 <= gpus.work[uuid(6)].usual_mib <= 30_000 / 0.95
    assert gpus.silent() == []


def test_a_fall_is_timed_from_when_the_others_work():
    gpus = Gpus()
    gpus.see()
    for _ in range(40):
        gpus.see(used=20_000, util=0, others=0)
    assert gpus.work[uuid(6)].fell_boot_s is not None
    assert gpus.silent() == [], "all of them idle"
    for _ in range(10):
        gpus.see(used=20_000, util=0)
    assert gpus.silent() == []
    for _ in range(6):
        gpus.see(used=19_000, util=0)
    (how,) = gpus.silent()
    assert how.startswith("its memory fell from 68.4 to 18.6 GiB")
    assert gpus.silent(in_phase=True) == []


def test_memory_that_comes_back_while_the_gpu_still_idles_is_a_recovery_too():
    gpus = Gpus()
    gpus.see()
    gpus.see(used=20_000, util=0)
    assert gpus.see(used=60_000, util=0).recovered_mib == (20_000,)
    gpus.see(used=20_500, util=0)
    assert gpus.see(used=60_000).recovered_mib == (20_000,), "the same fall is kept once"
    for _ in range(int(FELL_FOR_S) + 5):
        gpus.see(used=20_900, util=0)
    assert gpus.silent() == []


def test_a_gpu_that_never_worked_is_silent_only_where_its_peers_work():
    gpus = Gpus()
    for _ in range(130):
        gpus.see(used=900, util=0)
    assert len(gpus.silent()) == 1
    target_only = replace(incident(), topology=(incident().topology[0], replace(incident().topology[1], gpus=("6",))))
    found = silences(target_only, {"target": ROLES["target"], "drafter": (uuid(6),)}, gpus.work, gpus.steps, gpus.now_s)
    assert found == [], "a role that never worked is as it usually is"


def test_without_a_progress_rule_only_the_strong_evidence_counts():
    spec = incident()
    spec = replace(spec, health=replace(spec.health, progress=None))
    gpus = Gpus()
    gpus.see()
    for _ in range(200):
        gpus.see(util=0)
    assert gpus.silent(spec) == []
    for _ in range(20):
        gpus.see(used=10, util=0)
    assert len(gpus.silent(spec)) == 1


def test_one_step_in_a_long_silence_is_not_enough():
    gpus = Gpus()
    gpus.see()
    for second in range(200):
        gpus.see(util=0, step=second == 100)
    assert gpus.silent() == []
    gpus.see(util=0)
    assert len(gpus.silent()) == 1


def test_steps_that_have_just_come_back_are_not_enough():
    gpus = Gpus()
    gpus.see()
    for _ in range(200):
        gpus.see(util=0, step=False)
    for _ in range(5):
        gpus.see(util=0)
    assert gpus.silent() == [], "an evaluation has just ended"


def test_an_empty_list_of_one_that_had_a_holder_is_a_gpu_left_alone():
    gpus = Gpus(holder=True)
    gpus.see()
    gpus.see(used=60_000, util=0, pids=())
    for _ in range(int(GONE_FOR_S)):
        gpus.see(used=60_000, util=0)
    assert gpus.silent() == ["its process is gone while the job lives (68.4 GiB were held)"]
    assert gpus.see(used=60_000, util=0, pids=(77,)).gone_boot_s is None, "somebody holds it again"
    assert gpus.silent() == []


def test_an_empty_list_where_nobody_was_ever_listed_tells_nothing():
    gpus = Gpus()
    gpus.see()
    assert gpus.see(util=0, pids=()).gone_boot_s is None
    assert gpus.see(used=30, util=0, pids=()).gone_boot_s is not None, "the memory tells"
    assert gpus.see(used=30_000, util=0, pids=()).gone_boot_s is None


def test_a_driver_that_tells_no_utilisation_knows_no_idle_gpu():
    gpus = Gpus()
    for _ in range(300):
        gpus.see(util=None)
    assert gpus.work[uuid(6)] == GpuWork()
    assert gpus.silent() == []


def test_a_gpu_that_cannot_be_read_stops_every_clock():
    gpus = Gpus()
    gpus.see()
    for _ in range(119):
        gpus.see(util=0)
    gpus.see(used=None)
    for _ in range(60):
        gpus.see(util=0)
    assert gpus.silent() == []


def test_lists_are_asked_for_a_while_only():
    gpus = Gpus()
    gpus.see()
    assert not gpus.suspects
    asked = 0
    for _ in range(60):
        gpus.see(used=20_000, util=0)
        asked += gpus.suspects
    assert asked == ASK_UNTIL_S - 3.0 + 1
    assert not suspected([], [])


def test_the_words_name_the_gpus_role_by_role():
    gpus = Gpus()
    gpus.see()
    gone = replace(gpus.work[uuid(6)], gone_boot_s=1.0)
    gpus.work |= {uuid(n): gone for n in (0, 5, 6)}
    found = silences(incident(), ROLES, gpus.work, 1, 60.0)
    numbers = {uuid(n): n for n in range(8)}
    assert in_words(found, ROLES, numbers) == (
        "GPU 0 (target) and GPUs 5, 6 (drafter) fell silent: of GPU 0: its process is gone while the job lives "
        "(68.4 GiB were held); running on 4 of 5 targets and 1 of 3 drafters"
    )
