"""What is remembered of an attempt after each look, and what of it is told."""

from __future__ import annotations

import pytest
from changes import replace
from fake_specs import incident

from supervisor.core.aftermath import Printer
from supervisor.core.evidence import (
    Hit,
    Instant,
    MachineId,
    Member,
    ProcessId,
    Proof,
    Reading,
    Sign,
    Step,
    Unreadable,
)
from supervisor.core.kinds import Kind
from supervisor.core.pending import Pending, held, physical
from supervisor.core.phases import Phase
from supervisor.core.placing import RoleGpus
from supervisor.core.seen import MembersSeen, Seen
from supervisor.core.state import KILL, Attempt, State
from supervisor.core.watch import (
    INTERVALS_KEPT,
    PENDING_KEPT,
    TOLD_PER_ATTEMPT,
    Watch,
    begun,
    counted,
    looked,
    memo,
    recalled,
    told,
)

HERE = MachineId("b", "m", "h")
ROLES = {
    "target": RoleGpus(ordinals=(0,), physical=(4,), uuids=("GPU-4",)),
    "drafter": RoleGpus(ordinals=(1,), physical=(6,), uuids=("GPU-6",)),
}


def at(boot_s: float) -> Instant:
    return Instant("b", boot_s, 1_000.0 + boot_s)


def state(phase: Phase = Phase.RUNNING, **changes) -> State:
    attempt = Attempt(number=3, token="t", argv=(), rungs={}, checkpoint=None, began=at(0.0), launched_at=at(0.0))
    attempt = replace(attempt, **changes.pop("of", {}))
    return replace(State(run="r", spec=incident(), phase=phase, attempt=attempt, roles=ROLES), **changes)


def see(watch: Watch, boot_s: float, of: State | None = None, **what) -> Watch:
    return looked(watch, Seen(at=at(boot_s), machine=HERE, **what), of or state())


def new() -> Watch:
    return begun(3, at(0.0))


def reading(uuid: str, boot_s: float, used_mib: float = 9_000.0, util: float | None = 90.0, **more) -> Reading:
    return Reading(uuid, int(uuid[-1]), boot_s, used_mib, 97_000.0, None, util, **more)


def hit(n: int = 1, **more) -> Hit:
    return Hit(signature="s", kind=Kind.CUDA_ERROR, file="/o", line=n, offset=n, text="CUDA error", **more)


# ── steps ──


def test_only_a_growing_step_is_progress_and_what_it_does_not_say_stays():
    watch = see(new(), 10.0, steps=(Step(5, 10.0, rate=1.5, loss=2.5, total=100), Step(5, 11.0), Step(4, 12.0)))
    assert (watch.steps, watch.first_step, watch.last_step, watch.progress_boot_s) == (1, 5, 5, 10.0)
    watch = see(watch, 20.0, steps=(Step(6, 13.0),))
    assert (watch.steps, watch.first_step, watch.last_step) == (2, 5, 6)
    assert (watch.rate, watch.loss, watch.total) == (1.5, 2.5, 100)
    watch = see(watch, 20.0, steps=(Step(7, 14.0, rate=1.0, loss=2.0, total=90),))
    assert (watch.rate, watch.loss, watch.total) == (1.0, 2.0, 90)


def test_the_newest_intervals_between_steps_are_remembered_and_a_clock_that_ran_back_makes_none_negative():
    watch = new()
    for n in range(INTERVALS_KEPT + 3):
        watch = see(watch, float(n), steps=(Step(n, n * (n + 1) / 2),))
    assert watch.intervals == tuple(float(n) for n in range(3, INTERVALS_KEPT + 3))
    assert see(see(new(), 10.0, steps=(Step(1, 10.0),)), 11.0, steps=(Step(2, 9.0),)).intervals == (0.0,)


def test_the_slowest_pause_is_the_longest_between_two_signs_of_life_outside_a_phase():
    watch = see(new(), 10.0, steps=(Step(1, 10.0),))
    assert watch.slowest_s == 0.0, "before the first step nothing was paused"
    watch = see(watch, 50.0, steps=(Step(2, 50.0),))
    watch = see(watch, 60.0, signs=(Sign("bar", 1, 2, 60.0),))
    assert (watch.slowest_s, watch.bar_boot_s, watch.load) == (40.0, 60.0, Sign("bar", 1, 2, 60.0))
    watch = see(watch, 105.0, state(of={"gained": 1}))
    assert (watch.slowest_s, watch.saved_boot_s, watch.saved_at_steps, watch.gained) == (45.0, 105.0, 2, 1)
    assert watch.last_sign_boot_s == 105.0
    again = see(watch, 106.0, state(of={"gained": 2}), steps=(Step(3, 106.0),))
    assert (again.saved_at_steps, again.saved_and_gone_on) == (2, True)
    assert not watch.saved_and_gone_on


def test_a_phase_is_left_by_its_own_end_only():
    watch = see(new(), 20.0, steps=(Step(1, 10.0),), marks=(("eval", True, 20.0),))
    assert (watch.inside, watch.inside_boot_s) == ("eval", 20.0)
    assert see(watch, 30.0, marks=(("save", False, 30.0),)).inside == "eval"
    left = see(watch, 30.0, marks=(("eval", False, 30.0),))
    assert (left.inside, left.left_boot_s, left.last_sign_boot_s) == ("", 30.0, 30.0)
    nested = see(watch, 30.0, marks=(("save", True, 30.0),))
    assert (nested.inside, nested.inside_boot_s) == ("save", 30.0)


# ── GPUs ──


def test_a_gpu_idles_below_what_its_role_says_since_the_first_such_reading():
    watch = see(
        new(), 10.0, gpus={"GPU-4": reading("GPU-4", 10.0, util=4.9), "GPU-6": reading("GPU-6", 10.0, util=5.0)}
    )
    assert (watch.low_since, watch.worked_boot_s) == ({"GPU-4": 10.0}, {"GPU-6": 10.0})
    watch = see(watch, 11.0, gpus={"GPU-4": reading("GPU-4", 11.0, util=0.0)})
    assert watch.low_since == {"GPU-4": 10.0}
    lost = see(watch, 12.0, gpus={"GPU-4": Unreadable("GPU-4", 4, 12.0, "lost")})
    assert (lost.low_since, lost.worked_boot_s) == ({}, {"GPU-6": 10.0}), "unreadable is neither idle nor at work"
    assert set(lost.readings) == {"GPU-4", "GPU-6"}


def test_before_the_first_progress_nothing_is_learned_of_what_is_usual():
    busy = {"GPU-4": reading("GPU-4", 10.0)}
    assert see(new(), 10.0, state(Phase.STARTING), gpus=busy).work == {}
    assert see(new(), 10.0, gpus=busy).work["GPU-4"].worked


def test_who_holds_a_gpu_is_learned_while_nothing_is_wrong():
    named = {"GPU-4": reading("GPU-4", 10.0, pids=(7,)), "GPU-6": reading("GPU-6", 10.0, pids=())}
    watch = see(new(), 10.0, gpus=named)
    assert (watch.normal, watch.asked_in_vain) == ({"GPU-4": (7,)}, 0)
    nobody = {"GPU-6": reading("GPU-6", 11.0, pids=())}
    watch = see(watch, 11.0, gpus=nobody)
    assert (watch.normal, watch.asked_in_vain) == ({"GPU-4": (7,)}, 1)
    assert see(watch, 12.0, gpus={"GPU-6": reading("GPU-6", 12.0)}).asked_in_vain == 1, "it was not asked"
    ill = replace(watch, pending=(Pending(hit=hit(), seen_boot_s=11.0, uuid=None, steps_at=0),))
    assert see(ill, 12.0, gpus={"GPU-4": reading("GPU-4", 12.0, pids=(8,))}).normal == {"GPU-4": (7,)}


def test_process_lists_are_asked_for_while_something_is_open_and_not_for_ever():
    stepped = replace(new(), steps=1)
    assert stepped.asks_processes, "no normal is known yet"
    assert not new().asks_processes, "it has not begun to train"
    assert not replace(stepped, normal={"GPU-4": (7,)}).asks_processes
    assert replace(stepped, asked_in_vain=19).asks_processes
    assert not replace(stepped, asked_in_vain=20).asks_processes
    known = replace(stepped, normal={"GPU-4": (7,)})
    assert replace(known, suspects=True).asks_processes
    assert replace(known, pending=(Pending(hit=hit(), seen_boot_s=1.0, uuid=None, steps_at=0),)).asks_processes


# ── failure texts ──


def test_a_storm_of_texts_is_remembered_by_its_first():
    watch = see(replace(new(), steps=3), 10.0, hits=tuple(hit(n) for n in range(PENDING_KEPT + 1)))
    assert len(watch.pending) == PENDING_KEPT
    assert watch.pending[0].hit.line == 0
    assert (watch.pending[0].steps_at, watch.failure_text_at, watch.pending[0].seen_boot_s) == (3, 3, 10.0)


def test_the_second_step_after_a_text_is_the_one_that_may_refute_it():
    watch = see(new(), 10.0, hits=(hit(gpu=0),))
    watch = see(watch, 11.0, steps=(Step(1, 11.0),))
    assert watch.pending[0].second_step_boot_s is None
    watch = see(watch, 12.0, steps=(Step(2, 12.0),))
    watch = see(watch, 13.0, steps=(Step(3, 13.0),))
    assert watch.pending[0].second_step_boot_s == 12.0


def refuted(*lines: int) -> Watch:
    """Texts of GPU 4, of which the run has refuted these lines' by going on with the holder it had."""
    watch = see(new(), 9.0, gpus={uuid: reading(uuid, 9.0, pids=(7,)) for uuid in ("GPU-4", "GPU-6")})
    watch = see(watch, 10.0, hits=tuple(hit(n, gpu=0 if n in lines else 1) for n in (1, 2)))
    watch = see(watch, 12.0, steps=(Step(1, 11.0), Step(2, 12.0)))
    return see(watch, 13.0, gpus={"GPU-4": reading("GPU-4", 12.5, pids=(7,))})


def test_a_text_that_the_run_has_refuted_is_dropped_and_the_last_one_forgets_when_it_was():
    watch = refuted(1)
    assert [one.hit.line for one in watch.pending] == [2]
    assert [one.hit.line for one in watch.dropped] == [1]
    assert watch.failure_text_at == 0
    assert refuted(1, 2).failure_text_at is None


def test_each_text_is_told_once_and_once_more_when_it_is_dropped():
    before = see(new(), 9.0)
    after = see(before, 10.0, hits=(replace(hit(1, gpu=1), text="x" * 600),))
    (said,) = told(before, after, state())
    assert (said.attempt, said.kind, said.where, said.gpu, said.dropped) == (3, Kind.CUDA_ERROR, "/o:1", 6, False)
    assert len(said.text) == 500
    assert told(after, see(after, 11.0), state()) == ()
    assert told(before, after, state(attempt=None)) == ()
    gone = refuted(1)
    (dropped,) = told(replace(gone, pending=(*gone.dropped, *gone.pending), dropped=()), gone, state())
    assert (dropped.dropped, dropped.where) == (True, "/o:1")


def test_a_trainer_that_catches_its_errors_does_not_fill_the_journal():
    before = replace(new(), hits_told=TOLD_PER_ATTEMPT - 1)
    after = see(before, 10.0, hits=(hit(1), hit(2)))
    assert len(told(before, after, state())) == 1
    full = counted(before, 1)
    assert full.hits_told == TOLD_PER_ATTEMPT
    assert told(full, replace(after, hits_told=TOLD_PER_ATTEMPT), state()) == ()
    assert told(counted(full, 5), after, state()) == ()


def test_marks_of_the_end_are_remembered():
    watch = see(new(), 10.0, done_seen=True)
    watch = see(watch, 11.0, sigterm_seen=True)
    assert (watch.done_seen, watch.sigterm_seen) == (True, True)


# ── which GPU a text means ──


def meant(of: Hit, *printers: Printer, holders: dict[str, tuple[int, ...]] | None = None) -> str | None:
    return physical(of, state(), printers, holders or {})


def test_an_ordinal_counts_along_what_the_printing_process_sees():
    assert meant(hit(gpu=1)) == "GPU-6"
    assert meant(hit(gpu=2)) is None
    assert meant(hit()) is None
    assert meant(hit(gpu=-1)) is None
    one, two = Printer(11, 0, ("4",)), Printer(12, 1, ("GPU-6",))
    assert meant(hit(gpu=0, rank=1), one, two) == "GPU-6"
    assert meant(hit(gpu=0, pid=11, rank=1), one, two) == "GPU-4", "the pid knows better than the rank"
    assert meant(hit(gpu=0), one, two) is None, "they differ"
    assert meant(hit(gpu=0), one, two, holders={"GPU-6": (12,)}) == "GPU-6", "only one of them holds what it would mean"
    assert meant(hit(gpu=1), one) is None
    assert meant(hit(gpu=0), Printer(13, 0, ("",))) is None
    assert meant(hit(gpu=1), Printer(13, 0, None)) == "GPU-6"
    assert meant(hit(gpu=2), Printer(13, 0, None)) is None


def gone(used_mib: float, boot_s: float = 20.0, pids: tuple[int, ...] | None = (), **changes) -> float | None:
    """Since when the holder of GPU 4 is gone, after one reading."""
    one = Pending(**{"hit": hit(), "seen_boot_s": 10.0, "uuid": "GPU-4", "steps_at": 0, **changes})
    return held(one, {"GPU-4": reading("GPU-4", boot_s, used_mib, pids=pids)}, ("GPU-4", "GPU-6")).gone_since_boot_s


def test_a_holder_is_gone_since_the_first_reading_that_did_not_list_it():
    assert gone(9_000.0, holders={"GPU-4": (7,)}) == 20.0
    assert gone(9_000.0, holders={"GPU-4": (7,)}, gone_since_boot_s=15.0) == 15.0
    assert gone(9_000.0, pids=(7, 8), holders={"GPU-4": (7,)}, gone_since_boot_s=15.0) is None
    assert gone(9_000.0, pids=(8,), holders={"GPU-4": (7,)}) == 20.0
    assert gone(64.0) == 20.0
    assert gone(65.0) is None
    assert gone(0.0, pids=None) is None, "nobody asked who holds it"
    assert gone(0.0, boot_s=10.0) == 10.0
    assert gone(0.0, boot_s=9.9) is None, "that reading is older than the text"


# ── what is kept while a stop and the proof of zero go on ──


def test_the_wait_for_a_kill_begins_when_this_supervisor_has_sent_it():
    stopping = state(Phase.STOPPING)
    assert see(new(), 10.0, stopping).kill_began_boot_s is None
    sent = see(new(), 10.0, stopping, sent=frozenset({KILL}))
    assert sent.kill_began_boot_s == 10.0
    assert see(sent, 20.0, stopping, sent=frozenset({KILL})).kill_began_boot_s == 10.0
    assert see(sent, 20.0, stopping).kill_began_boot_s == 10.0
    assert see(sent, 20.0, state(Phase.VERIFYING)).kill_began_boot_s is None


@pytest.mark.parametrize("phase", [Phase.VERIFYING, Phase.BACKOFF])
def test_zero_is_looked_for_from_when_the_last_process_was_gone(phase):
    spec = incident()
    rules = spec.recovery.verify_zero
    rules = replace(rules, floor_mib=30.0, foreign=replace(rules.foreign, allow_mib=20.0))
    spec = replace(spec, recovery=replace(spec.recovery, verify_zero=rules))
    of = state(phase, verify_from=at(5.0), spec=spec, floors={"GPU-4": 10.0, "GPU-9": 1.0})
    gpus = {"GPU-4": reading("GPU-4", 4.9), "GPU-6": reading("GPU-6", 5.0)}
    watch = see(new(), 6.0, of, gpus=gpus)
    assert set(watch.zero.last) == {"GPU-6"}, "a reading from before says nothing"
    assert (watch.zero.floors, watch.zero.allow_mib) == ({"GPU-4": 30.0, "GPU-6": 30.0, "GPU-9": 1.0}, 20.0)
    assert watch.zero_began_boot_s == 6.0
    member = Member(ProcessId(7, 1), "x", Proof.TOKEN, "S")
    left = see(watch, 7.0, of, members=MembersSeen(members=(member,), empty_looks=0))
    assert (left.zero.members_left, left.zero_began_boot_s) == (True, 6.0)
    assert not see(left, 8.0, of, members=MembersSeen(members=(), empty_looks=1)).zero.members_left
    anew = see(watch, 9.0, replace(of, verify_from=at(8.0)))
    assert (anew.zero.last, anew.zero_began_boot_s) == ({}, 9.0)
    over = see(watch, 9.0, state())
    assert (over.zero, over.zero_from, over.holders) == (None, None, ())
    assert not over.is_zero(9.0, 0.0)
    before = replace(of, verify_from=Instant("another boot", 5_000.0, 0.0))
    assert set(see(new(), 6.0, before, gpus=gpus).zero.last) == {"GPU-4", "GPU-6"}, "its clock began anew"


def test_a_memo_is_what_another_supervisor_begins_with():
    watch = see(new(), 10.0, steps=(Step(1, 10.0),), gpus={"GPU-4": reading("GPU-4", 10.0)})
    again = recalled(memo(watch))
    assert memo(again) == memo(watch)
    assert (again.readings, again.looked_boot_s, again.zero) == ({}, None, None)
