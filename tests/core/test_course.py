"""What is remembered of an attempt's course, and what a new supervisor makes of it."""

from __future__ import annotations

import json

from fake_specs import incident
from msgspec.structs import replace

from supervisor.core.course import MARKS_KEPT, Course, ahead, followed, notes
from supervisor.core.evidence import ExitRecord, Hit, Instant, MachineId, Reading, RoomSeen, Step
from supervisor.core.kinds import Kind
from supervisor.core.now import now_document
from supervisor.core.phases import Phase
from supervisor.core.placing import RoleGpus
from supervisor.core.seen import Seen
from supervisor.core.silence import GpuWork
from supervisor.core.spec import Silent
from supervisor.core.state import Attempt, State
from supervisor.core.trends import BUCKET_S, WARM_S
from supervisor.core.verdicts import from_hits
from supervisor.core.watch import Memo, Watch, begun, looked, memo, recalled
from supervisor.edges.codec import from_plain, to_plain
from supervisor.edges.files import to_json

HERE = MachineId("boot", "machine", "host")
BEGAN = Instant("boot", 0.0, 1000.0)
ATTEMPT = Attempt(number=1, token="t", argv=(), rungs={}, checkpoint=None, began=BEGAN, progressed_at=BEGAN)
STATE = State(
    run="r",
    spec=incident(),
    phase=Phase.RUNNING,
    attempt=ATTEMPT,
    roles={"all": RoleGpus(ordinals=(0,), physical=(5,), uuids=("GPU-a",))},
)


def seen(boot_s: float, **what) -> Seen:
    return Seen(at=Instant("boot", boot_s, 1000.0 + boot_s), machine=HERE, **what)


def follow(course: Course, boot_s: float, state: State = STATE, *, inside: bool = False, **what) -> Course:
    return followed(course, seen(boot_s, **what), state, inside=inside)


def reading(boot_s: float, used_mib: float) -> dict[str, Reading]:
    return {"GPU-a": Reading("GPU-a", 5, boot_s, used_mib, 97_000.0, None, 90.0)}


def leaking() -> Course:
    course = Course()
    for minute in range(60):
        at = WARM_S + minute * 60.0
        course = follow(course, at, gpus=reading(at, 60_000 + 500.0 * minute))
    return course


def test_only_growing_steps_count_and_marks_stay_few():
    course = follow(Course(), 1.0, steps=(Step(5, 1.0), Step(5, 1.0), Step(4, 1.0), Step(6, 1.5)))
    assert (course.last_step, course.marks) == (6, ((1.5, 6),))
    assert follow(course, 2.0, steps=(Step(6, 2.0),)) is course
    told_again = follow(course, 2.0, steps=(Step(6, 2.0, loss=1.0),))
    assert told_again.losses.last_good == 6
    for n in range(MARKS_KEPT + 5):
        course = follow(course, 2.0 + n, steps=(Step(7 + n, 2.0 + n),))
    assert len(course.marks) == MARKS_KEPT
    assert len(follow(course, 100.0, steps=(Step(99, course.marks[-1][0] + 0.1),)).marks) == MARKS_KEPT


def test_a_phase_that_is_no_training_does_not_count_for_the_pace():
    course = follow(Course(), 1.0, steps=(Step(1, 1.0),))
    assert follow(course, 500.0, inside=True).pace.boot_s == 500.0


def test_failure_texts_of_a_loss_scale_are_counted():
    hit = Hit("x", Kind.NUMERIC, "output.log", 1, 0, "Current loss scale already at minimum")
    assert follow(Course(), 1.0, hits=(hit,)).losses.floors == 1


def test_caches_get_their_time_before_trends_are_looked_for():
    room = RoomSeen(5.0, 1.0, 10.0, (("/ck", 1.0, 10.0),))
    assert follow(Course(), WARM_S - 1, room=room).trends.host is None
    assert follow(Course(), WARM_S, replace(STATE, phase=Phase.STOPPING), room=room).trends.host is None
    assert follow(Course(), WARM_S, replace(STATE, attempt=None), room=room).trends.host is None
    assert follow(Course(), WARM_S, room=room).trends.host is not None


def test_a_leak_is_noted_once_and_shown_as_long_as_it_lasts():
    course = leaking()
    (noted,) = notes(STATE, course)
    assert noted.what == "GPU 5"
    assert noted.text.startswith("GPU 5 full in")
    assert notes(replace(STATE, foretold=("GPU 5",)), course) == ()
    assert ahead(STATE, course) == (noted.text,)
    flat = course
    for bucket in range(8):
        at = WARM_S + 3600 + bucket * BUCKET_S
        flat = follow(flat, at, gpus=reading(at, 80_000.0))
    assert ahead(STATE, flat) == ()


def test_nothing_is_noted_of_an_attempt_that_has_ended_or_is_none():
    ended = replace(STATE, attempt=replace(ATTEMPT, end=ExitRecord(0, None)))
    assert notes(ended, leaking()) == notes(replace(STATE, attempt=None), leaking()) == ()


def test_a_new_supervisor_remembers_it_all():
    course = leaking()
    for n in range(400):
        course = follow(course, 5000.0 + n, steps=(Step(n, 5000.0 + n, rate=4.0, loss=float("nan")),))
    watch = replace(begun(1, BEGAN), course=course)
    assert recalled(from_plain(to_plain(memo(watch)), Memo)).course == course


def test_a_loss_that_is_no_number_is_none_in_json():
    watch = replace(begun(1, BEGAN), loss=float("nan"))
    shown = now_document(STATE, watch, seen(5.0))
    assert shown["loss"] is None
    assert b"NaN" not in to_json(shown)
    assert now_document(STATE, replace(watch, loss=2.5), seen(5.0))["loss"] == 2.5


def test_a_role_that_nobody_watches_is_still_said_to_have_lost_a_gpu():
    spec = incident()
    topology = tuple(replace(role, silent=Silent.OFF) if role.name == "drafter" else role for role in spec.topology)
    drafters = ("GPU-5", "GPU-6", "GPU-7")
    state = replace(
        STATE,
        spec=replace(spec, topology=topology),
        roles={"drafter": RoleGpus(ordinals=(5, 6, 7), physical=(5, 6, 7), uuids=drafters)},
    )
    work = {uuid: GpuWork(usual_mib=70_000.0, worked=True) for uuid in drafters}
    work["GPU-6"] = replace(work["GPU-6"], gone_boot_s=100.0)
    watch = replace(begun(1, BEGAN), work=work)
    assert now_document(state, watch, seen(150.0))["less"].endswith("running on 2 of 3 drafters")
    assert now_document(state, watch, seen(101.0))["less"] == ""
    assert now_document(replace(state, spec=spec), watch, seen(150.0))["less"] == ""
    assert now_document(replace(state, spec=None), watch, seen(150.0))["less"] == ""
    assert now_document(replace(state, phase=Phase.STOPPING), watch, seen(150.0))["less"] == ""
    assert now_document(state, begun(1, BEGAN), seen(150.0))["less"] == ""


# ── what a load brought ──────────────────────────────────────────────────────────────────────────────────────────────


LOADING = replace(STATE, phase=Phase.STARTING, attempt=replace(ATTEMPT, progressed_at=None))


def at_load(
    watch: Watch, boot_s: float, used_mib: float, util_pct: float = 0.0, state: State = LOADING, **what
) -> Watch:
    gpus = {"GPU-a": Reading("GPU-a", 5, boot_s, used_mib, 97_000.0, None, util_pct)}
    return looked(watch, seen(boot_s, gpus=gpus, **what), state)


def test_what_a_gpu_idles_with_before_the_first_step_is_what_the_load_brought():
    watch = at_load(at_load(begun(1, BEGAN), 1.0, 20_000.0), 2.0, 45_000.0)
    watch = at_load(watch, 3.0, 96_000.0, util_pct=97.0)
    assert watch.course.loaded == {"GPU-a": 45_000.0}
    assert at_load(watch, 4.0, 0.0).course.loaded == {"GPU-a": 45_000.0}, "the memory of the dead drains"


def test_after_the_first_step_an_idle_gpu_tells_nothing_of_the_load():
    watch = at_load(begun(1, BEGAN), 1.0, 45_000.0)
    stepped = at_load(watch, 2.0, 96_000.0, steps=(Step(1, 2.0),))
    assert stepped.course.loaded == {"GPU-a": 45_000.0}
    assert at_load(watch, 2.0, 96_000.0, state=STATE).course.loaded == {"GPU-a": 45_000.0}
    assert at_load(watch, 2.0, 96_000.0, state=replace(LOADING, attempt=None)).course.loaded == {"GPU-a": 45_000.0}


def test_a_process_that_hangs_after_its_failure_tells_nothing_of_the_load():
    hit = Hit("torch", Kind.GPU_OOM, "output.log", 1, 0, "CUDA out of memory", gpu=0)
    watch = at_load(begun(1, BEGAN), 1.0, 45_000.0)
    assert at_load(watch, 2.0, 96_000.0, hits=(hit,)).course.loaded == {"GPU-a": 45_000.0}


def test_what_a_load_brought_outlives_the_supervisor_and_the_failure_tells_it():
    hit = Hit("torch", Kind.GPU_OOM, "output.log", 1, 0, "CUDA out of memory", gpu=0)
    saved = to_json(to_plain(memo(at_load(begun(1, BEGAN), 1.0, 45_000.0))))
    watch = recalled(from_plain(json.loads(saved), Memo))
    failed = at_load(watch, 2.0, 96_000.0, hits=(hit,))
    assert from_hits(LOADING, failed, "it ended").loaded_mib == 45_000.0
    other = replace(failed, pending=tuple(replace(p, hit=replace(hit, kind=Kind.CUDA_ERROR)) for p in failed.pending))
    assert from_hits(LOADING, other, "it ended").loaded_mib is None
