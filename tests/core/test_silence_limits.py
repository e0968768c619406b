"""When a GPU counts as silent, at each limit; and what becomes of it as a verdict."""

from __future__ import annotations

import pytest
from changes import replace
from fake_specs import incident

from supervisor.core.evidence import Hit, Instant, MachineId, Reading
from supervisor.core.kinds import Kind
from supervisor.core.pending import Pending
from supervisor.core.phases import Phase
from supervisor.core.placing import RoleGpus
from supervisor.core.seen import Seen
from supervisor.core.silence import GpuWork, silences, suspected, util_below, work_seen
from supervisor.core.spec import Done, Silent
from supervisor.core.state import Attempt, State
from supervisor.core.verdicts import Wrong, judge
from supervisor.core.watch import Watch, begun

HERE = MachineId("b", "m", "h")
SPEC = incident()
ROLES = {role.name: tuple(f"GPU-{n}" for n in role.gpus) for role in SPEC.topology}
WORKS = GpuWork(usual_mib=70_000.0, worked=True)
FOR_S = 120.0


def role(**changes):
    """The spec with these changes of the drafter's role."""
    return replace(SPEC, topology=tuple(replace(r, **changes) if r.name == "drafter" else r for r in SPEC.topology))


def how(one: GpuWork, now_s: float, spec=SPEC, steps: int = 100, others: GpuWork = WORKS, **more) -> list[str]:
    """What is said of GPU 6 while the others are like this."""
    work = {f"GPU-{n}": others for n in range(8)} | {"GPU-6": one}
    return [found.how for found in silences(spec, ROLES, work, steps, now_s, **more) if found.uuid == "GPU-6"]


# ── its process is gone ──

GONE = replace(WORKS, gone_boot_s=100.0)


def test_a_process_that_is_gone_is_told_after_ten_seconds_or_a_shorter_for():
    assert how(GONE, 109.9) == []
    assert how(GONE, 110.0) == ["its process is gone while the job lives (68.4 GiB were held)"]
    assert how(GONE, 105.0, role(for_s=5.0)) != []
    assert how(GONE, 104.9, role(for_s=5.0)) == []


def test_where_all_are_gone_at_once_the_job_may_be_at_something_that_needs_none():
    assert how(GONE, 219.9, others=GONE) == []
    assert how(GONE, 220.0, others=GONE) != []
    assert how(GONE, 109.9, role(for_s=5.0), others=GONE) == []
    assert how(GONE, 110.0, role(for_s=5.0), others=GONE) != []


def test_a_role_that_may_finish_or_is_not_watched_has_no_silent_gpu():
    assert how(GONE, 1_000.0, role(may_finish=True)) == []
    assert how(GONE, 1_000.0, role(silent=Silent.OFF)) == []
    (found,) = silences(SPEC, ROLES, {"GPU-6": GONE, "GPU-7": WORKS}, 100, 110.0)
    assert (found.sure, found.role.name) == (True, "drafter")


# ── its memory fell ──

FELL = replace(WORKS, fell_boot_s=100.0, low_mib=1_000.0, alone_boot_s=100.0)


def test_a_fall_counts_after_thirteen_seconds_of_idling_while_others_work():
    assert how(FELL, 112.9) == []
    assert how(FELL, 113.0) == ["its memory fell from 68.4 to 1.0 GiB and it does nothing while others work"]
    assert how(replace(FELL, alone_boot_s=105.0), 117.9) == []
    assert how(replace(FELL, alone_boot_s=105.0), 118.0) != []
    assert how(replace(FELL, fell_boot_s=105.0), 117.9) == []
    assert how(replace(FELL, alone_boot_s=None), 200.0) == []
    assert how(FELL, 105.0, role(for_s=5.0)) != []
    assert how(FELL, 104.9, role(for_s=5.0)) == []
    assert how(FELL, 200.0, in_phase=True) == []


@pytest.mark.parametrize(
    ("low", "before", "same"),
    [(1_000.0, 8_000.0, True), (1_000.0, 8_001.0, False), (9_000.0, 2_000.0, True), (9_000.0, 1_999.0, False)],
)
def test_a_fall_is_the_same_as_an_earlier_one_within_a_tenth_of_what_is_usual(low, before, same):
    fell = replace(FELL, low_mib=low, recovered_mib=(before,))
    assert fell.fell_before is same
    assert (how(fell, 113.0) == []) is same


def test_of_a_gpu_with_little_in_use_falls_are_the_same_within_a_gib():
    little = replace(FELL, usual_mib=4_000.0, low_mib=0.0)
    assert replace(little, recovered_mib=(1_024.0,)).fell_before
    assert not replace(little, recovered_mib=(1_025.0,)).fell_before
    assert not little.fell_before


# ── it idles ──

IDLES = replace(WORKS, alone_boot_s=100.0, alone_steps=50, stepped_boot_s=110.0)


def test_idling_counts_after_for_where_the_run_went_on_without_it():
    assert how(IDLES, 219.9) == []
    assert how(IDLES, 220.0) == ["it has been below 5 % for 120 s while others work"]
    assert how(IDLES, 220.0, steps=52) != []
    assert how(IDLES, 220.0, steps=51) == []
    assert how(replace(IDLES, stepped_boot_s=205.1), 220.0) == [], "its steps have just begun again"
    assert how(replace(IDLES, stepped_boot_s=205.0), 220.0) != []
    assert how(replace(IDLES, stepped_boot_s=None), 220.0) == []
    assert how(replace(IDLES, alone_boot_s=None), 220.0) == []
    assert how(replace(IDLES, stepped_boot_s=100.0), 105.0, role(for_s=5.0)) != []
    assert how(replace(IDLES, stepped_boot_s=100.1), 105.0, role(for_s=5.0)) == []
    bare = replace(SPEC, health=replace(SPEC.health, progress=None))
    assert how(IDLES, 220.0, bare) == []
    (found,) = silences(SPEC, ROLES, {"GPU-6": IDLES}, 100, 220.0)
    assert not found.sure


def test_a_gpu_of_a_role_of_which_none_ever_worked_is_not_silent():
    never = replace(IDLES, worked=False)
    assert how(never, 220.0, others=replace(WORKS, worked=False)) == []
    assert how(never, 220.0) != []


# ── what is known of a GPU after a reading ──


def reading(used: float, util: float | None = 0.0, boot_s: float = 200.0, pids=None) -> Reading:
    return Reading("GPU-6", 6, boot_s, used, 97_000.0, None, util, pids=pids)


def after(one: GpuWork, seen: Reading, *, idle: bool = True, worked=None, steps=50, holder=False, floor=0.0) -> GpuWork:
    """What is known of GPU 6 after it; `worked`: when another was last at work."""
    others = {"GPU-5": worked} if worked is not None else {}
    low = {"GPU-6": 190.0} if idle else {}
    holders = {"GPU-6": (7,)} if holder else {}
    return work_seen({"GPU-6": one}, {"GPU-6": seen}, others, low, holders, {"GPU-6": floor}, steps)["GPU-6"]


def test_it_is_alone_while_another_was_seen_at_work_within_ten_seconds():
    assert after(WORKS, reading(70_000.0), worked=190.1).alone_boot_s == 200.0
    assert after(WORKS, reading(70_000.0), worked=190.0).alone_boot_s is None
    alone = replace(WORKS, alone_boot_s=150.0, alone_steps=50, stepped_boot_s=160.0)
    ended = after(alone, reading(70_000.0), worked=190.0)
    assert (ended.alone_boot_s, ended.stepped_boot_s) == (None, None)
    itself = work_seen({}, {"GPU-6": reading(1.0)}, {"GPU-6": 200.0}, {"GPU-6": 190.0}, {}, {}, 1)["GPU-6"]
    assert itself.alone_boot_s is None


def test_the_first_step_of_the_run_after_that_is_remembered():
    alone = replace(WORKS, alone_boot_s=150.0, alone_steps=50)
    assert after(alone, reading(70_000.0), worked=199.0, steps=50).stepped_boot_s is None
    stepped = after(alone, reading(70_000.0), worked=199.0, steps=51)
    assert stepped.stepped_boot_s == 200.0
    assert after(stepped, reading(70_000.0, boot_s=210.0), worked=209.0, steps=52).stepped_boot_s == 200.0


def test_a_fall_is_to_half_of_what_is_usual_or_less_and_its_lowest_is_remembered():
    assert after(WORKS, reading(35_001.0)).fell_boot_s is None
    fell = after(WORKS, reading(35_000.0))
    assert (fell.fell_boot_s, fell.low_mib) == (200.0, 35_000.0)
    lower = after(fell, reading(30_000.0, boot_s=201.0))
    assert (lower.fell_boot_s, lower.low_mib) == (200.0, 30_000.0)
    assert after(lower, reading(31_000.0, boot_s=202.0)).low_mib == 30_000.0
    back = after(lower, reading(40_000.0, boot_s=203.0))
    assert (back.fell_boot_s, back.recovered_mib) == (None, (30_000.0,))
    assert after(GpuWork(), reading(0.0)).fell_boot_s is None, "nothing is usual yet"


def test_what_is_usual_rises_at_once_and_falls_slowly():
    assert after(WORKS, reading(71_000.0, 90.0), idle=False).usual_mib == 71_000.0
    assert after(WORKS, reading(66_500.0, 90.0), idle=False).usual_mib == 70_000.0, "within a twentieth"
    assert after(WORKS, reading(66_499.0, 90.0), idle=False).usual_mib == 68_600.0
    assert after(replace(WORKS, usual_mib=100.0), reading(94.0, 90.0), idle=False).usual_mib == 98.0
    works = after(replace(FELL, gone_boot_s=190.0), reading(70_000.0, 90.0, pids=(7,)), idle=False)
    assert (works.alone_boot_s, works.fell_boot_s, works.gone_boot_s) == (None, None, None)
    assert works.recovered_mib == (1_000.0,)
    again = after(replace(FELL, recovered_mib=(1_500.0,)), reading(70_000.0, 90.0), idle=False)
    assert again.recovered_mib == (1_500.0,), "that fall is known"


def test_its_holder_is_gone_by_the_list_or_where_there_is_none_by_its_memory():
    assert after(WORKS, reading(70_000.0, pids=()), holder=True).gone_boot_s == 200.0
    assert after(WORKS, reading(70_000.0, pids=())).gone_boot_s is None
    assert after(WORKS, reading(64.0)).gone_boot_s == 200.0
    assert after(WORKS, reading(65.0)).gone_boot_s is None
    assert after(WORKS, reading(164.0), floor=100.0).gone_boot_s == 200.0
    assert after(replace(WORKS, usual_mib=128.0), reading(0.0)).gone_boot_s is None, "it never had more than that"
    assert after(replace(WORKS, usual_mib=129.0), reading(0.0)).gone_boot_s == 200.0
    assert after(GONE, reading(70_000.0)).gone_boot_s == 100.0, "nobody was asked who holds it"
    assert after(GONE, reading(70_000.0, pids=())).gone_boot_s is None
    assert after(GONE, reading(70_000.0, pids=(7,))).gone_boot_s is None


def test_who_holds_a_suspect_is_asked_from_three_to_thirty_seconds_on():
    for clock in ("alone_boot_s", "fell_boot_s", "gone_boot_s"):
        one = replace(WORKS, **{clock: 197.0})
        assert suspected([one], [reading(1.0, boot_s=200.0)])
        assert not suspected([one], [reading(1.0, boot_s=199.9)])
        assert suspected([one], [reading(1.0, boot_s=227.0)])
        assert not suspected([one], [reading(1.0, boot_s=227.1)])
    earliest = replace(WORKS, alone_boot_s=150.0, fell_boot_s=197.0)
    assert not suspected([earliest], [reading(1.0)])
    assert not suspected([WORKS], [reading(1.0)])


def test_a_gpu_idles_as_its_role_says():
    below = util_below(role(util_below=20.0), {**ROLES, "gone": ("GPU-9",)})
    assert (below["GPU-0"], below["GPU-6"]) == (5.0, 20.0)
    assert "GPU-9" not in below
    assert util_below(None, ROLES) == {}


# ── the verdict ──


def verdicts(spec=SPEC, boot_s: float = 220.0, phase: Phase = Phase.RUNNING, **watched) -> list[Wrong]:
    places = {name: RoleGpus(tuple(map(int, ids)), tuple(map(int, ids)), ROLES[name]) for name, ids in IDS.items()}
    attempt = Attempt(number=1, token="t", argv=(), rungs={}, checkpoint=None, began=Instant("b", 0.0, 0.0))
    state = State(run="r", spec=spec, phase=phase, attempt=attempt, roles=places)
    work = {f"GPU-{n}": WORKS for n in range(8)} | {"GPU-6": IDLES}
    made: Watch = replace(begun(1, Instant("b", 0.0, 0.0)), steps=100, last_step=100, progress_boot_s=219.0, work=work)
    seen = Seen(at=Instant("b", boot_s, boot_s), machine=HERE)
    return [one for one in judge(state, replace(made, **watched), seen) if isinstance(one, Wrong)]


IDS = {one.name: one.gpus for one in SPEC.topology}


def test_a_silent_gpu_is_named_by_its_number_and_its_role():
    (found,) = verdicts()
    failure = found.failure
    assert (failure.kind, failure.gpu, failure.uuid, failure.confidence) == (Kind.SILENT_GPU, 6, "GPU-6", "medium")
    assert failure.because.endswith("running on 2 of 3 drafters")
    work = {f"GPU-{n}": WORKS for n in range(8)} | {"GPU-6": GONE}
    assert verdicts(work=work)[0].failure.confidence == "high"


def test_nothing_is_concluded_while_it_starts_before_it_was_looked_at_or_after_the_last_step():
    assert verdicts(phase=Phase.STARTING) == []
    assert verdicts(looking_since_boot_s=210.1) == []
    assert verdicts(looking_since_boot_s=210.0) != []
    assert verdicts(total=100) == []
    assert verdicts(total=101) != []
    assert verdicts(replace(SPEC, done=Done(step=100))) == []
    assert verdicts(replace(SPEC, done=Done(step=101))) != []
    assert verdicts(work={}) == []


def test_those_whose_role_asks_for_more_than_to_tell_come_first():
    work = {f"GPU-{n}": WORKS for n in range(8)} | {"GPU-0": GONE, "GPU-6": GONE}
    told = verdicts(replace(SPEC, topology=tuple(replace(r, silent=s) for r, s in MIXED)), work=work)
    assert [one.failure.gpu for one in told] == [6, 0]
    halts = replace(SPEC, topology=tuple(replace(r, silent=s) for r, s in HALTS))
    (both,) = verdicts(halts, work=work)
    assert both.failure.gpu == 6, "the one that asks for a halt decides"
    assert "GPU 0 (target) and GPU 6 (drafter)" in both.failure.because


MIXED = list(zip(SPEC.topology, (Silent.NOTIFY, Silent.RELAUNCH), strict=True))
HALTS = list(zip(SPEC.topology, (Silent.RELAUNCH, Silent.HALT), strict=True))


def test_a_failure_text_decides_the_kind_of_what_fell_silent():
    hit = Hit(signature="s", kind=Kind.CUDA_ERROR, file="/o", line=1, offset=0, text="CUDA error", gpu=6)
    pending = (Pending(hit=hit, seen_boot_s=219.0, uuid="GPU-6", steps_at=100),)
    (found,) = verdicts(pending=pending)
    assert (found.failure.kind, found.failure.gpu) == (Kind.CUDA_ERROR, 6)
