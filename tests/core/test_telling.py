"""What a person is told, and when."""

from __future__ import annotations

import pytest
from fake_specs import incident
from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core import telling
from supervisor.core.around import NOTICES, Notify, Tracking
from supervisor.core.evidence import Holder, Instant, MachineId, Owner, ProcessId
from supervisor.core.fold import fold
from supervisor.core.kinds import Kind
from supervisor.core.phases import Phase
from supervisor.core.render import Placement, render
from supervisor.core.spec import Params
from supervisor.core.state import State
from supervisor.core.telling import Local, morning
from supervisor.core.watch import begun

MACHINE = MachineId("b", "m", "ct200")
ALL = Notify(on=tuple(NOTICES))


def at(wall_s: float = 0.0) -> Instant:
    return Instant("b", wall_s, wall_s)


class Night:
    """A run as its records come; `said` is what was to be told."""

    def __init__(self, notify: Notify | None = ALL) -> None:
        spec = incident(notify=notify)
        self.state = State(run="dflash")
        self.said: list[ev.NotifyIntended] = []
        self.wall_s = 0.0
        self.tell(
            ev.EpisodeOpened(request="1-a", spec=spec, machine=MACHINE, rungs={}, protected_sha256="x"),
            ev.PreflightPassed(),
        )
        self.launch(1)

    def tell(self, *events: ev.Event) -> list[ev.NotifyIntended]:
        fresh: list[ev.NotifyIntended] = []
        for event in events:
            before, self.state = self.state, fold(self.state, event, at(self.wall_s))
            for notice in telling.notices(before, event, self.state, at(self.wall_s)):
                self.state = fold(self.state, notice, at(self.wall_s))
                fresh.append(notice)
        self.said += fresh
        return fresh

    def launch(self, number: int) -> None:
        self.tell(
            ev.LaunchIntended(
                attempt=number, argv=("t",), rungs={}, knobs={}, protected={}, checkpoint=None, token="t", because="b"
            ),
            ev.Launched(attempt=number, runner=ProcessId(1, 1)),
        )

    def progress(self, number: int, step: int | None = 7) -> list[ev.NotifyIntended]:
        return self.tell(ev.FirstProgress(attempt=number, step=step, startup_s=12.0))

    def fail(self, number: int, ending: ev.Ending | None = None) -> list[ev.NotifyIntended]:
        failure = ev.Failure(kind=Kind.GPU_OOM, because="GPU 5 ran out of memory", gpu=5)
        return self.tell(
            ev.Judged(attempt=number, failure=failure, plan=ev.Plan(ending=ending, because="lower token_budget"))
        )

    def zero(self, number: int) -> None:
        self.tell(
            ev.StopIntended(attempt=number, by=ev.By.POLICY, grace_s=0.0, because="b"),
            ev.MembersGone(attempt=number),
            ev.VerifiedZero(attempt=number, waited_s=1.0),
        )


def test_a_night_with_one_failure_is_told_as_started_failed_recovered():
    night = Night()
    night.progress(1)
    night.fail(1)
    night.zero(1)
    night.launch(2)
    night.progress(2, step=None)
    assert [(one.on, one.key) for one in night.said] == [
        ("started", "started:1"),
        ("failed", "failed:1"),
        ("recovered", "recovered:2"),
    ]
    assert night.said[0].title == "dflash: started on ct200"
    assert "What follows: lower token_budget" in night.said[1].text
    assert night.said[2].text == "attempt 1 failed (gpu_oom); attempt 2 makes progress again, and alive"


def test_an_attempt_that_was_restarted_without_a_failure_is_nothing_to_tell():
    night = Night()
    night.progress(1)
    night.zero(1)
    night.launch(2)
    assert night.progress(2) == []


def test_progress_told_twice_is_one_recovery():
    night = Night()
    night.fail(1)
    night.zero(1)
    night.launch(2)
    assert len(night.progress(2)) == 1
    assert night.progress(2) == []


def test_a_halt_names_the_next_command_and_what_went_wrong():
    night = Night()
    assert night.fail(1, ev.Ending.HALTED) == []  # the halt itself is told, once the GPUs are verified
    night.zero(1)
    ended = ev.EpisodeEnded(ending=ev.Ending.HALTED, because="no rung left", next_command="supervise up s")
    (told,) = night.tell(ended)
    assert told.on == "halted"
    assert told.text == "no rung left\nNext: supervise up s\nattempt 1: gpu_oom, then halted"


def test_an_end_without_a_failure_says_so():
    night = Night()
    (told,) = night.tell(ev.EpisodeEnded(ending=ev.Ending.FINISHED, because="done"))
    assert told.text == "done\nNo failure in this episode."


def test_a_healthy_end_is_no_failure():
    night = Night()
    failure = ev.Failure(kind=Kind.NONE, because="exit 0")
    assert night.tell(ev.Judged(attempt=1, failure=failure, plan=ev.Plan(ending=None, because="b"))) == []


def test_many_failures_are_told_by_the_last_ones():
    night = Night()
    for number in range(1, 11):
        night.fail(number)
        night.zero(number)
        night.launch(number + 1)
    (told,) = night.tell(ev.EpisodeEnded(ending=ev.Ending.STOPPED, because="by the user"))
    assert "2 failures before\nattempt 3: gpu_oom, then relaunch" in told.text


def test_warnings_degraded_and_foreign_holders_are_told_once_each():
    night = Night()
    warned, degraded = ev.Warned(text="disk nearly full"), ev.Failure(kind=Kind.SILENT_GPU, because="lost GPU 6", gpu=6)
    foreign = ev.ForeignHolders(attempt=1, holders=(Holder("GPU-1", 9, "eve", "python x", Owner.FOREIGN),), wait_s=60.0)
    for _ in range(2):
        night.tell(warned, ev.Degraded(attempt=1, failure=degraded), foreign)
        night.tell(ev.Foretold(attempt=1, what="GPU 5", text="GPU 5 full in 40 min at this rate", full_in_s=2400))
    assert [one.on for one in night.said] == ["warned", "degraded", "waiting", "foretold"]
    assert "pid 9 of eve: python x" in night.said[2].text
    assert night.said[3].text == "attempt 1: GPU 5 full in 40 min at this rate"


def test_a_relaunch_that_pause_holds_back_is_told_and_a_wait_that_ends_by_itself_is_not():
    night = Night()
    night.fail(1)
    night.zero(1)
    assert night.tell(ev.BackoffBegan(wait_s=5.0, because="after exit")) == []
    night.tell(ev.PauseSet(paused=True))
    (told,) = night.tell(ev.BackoffBegan(wait_s=0.0, because="recovery is paused; next: supervise resume dflash"))
    assert (told.on, told.key) == ("waiting", "waiting:paused 1")


@pytest.mark.parametrize("notify", [None, Notify(on=("halted",))])
def test_what_was_not_asked_for_is_not_told(notify):
    night = Night(notify)
    night.progress(1)
    night.fail(1)
    assert night.said == []


def test_a_record_before_the_first_spec_tells_nothing():
    state = State(run="dflash")
    assert telling.notices(state, ev.Warned(text="x"), state, at()) == ()


def test_a_storm_is_held_back_but_never_an_end():
    night = Night()
    for n in range(telling.PER_HOUR + 3):
        night.tell(ev.Warned(text=f"warning {n}"))
    assert [one.held_back for one in night.said] == [False] * telling.PER_HOUR + [True] * 3
    assert [one.key for one in night.state.untold] == [f"warned:warning {n}" for n in range(telling.PER_HOUR)]
    (end,) = night.tell(ev.EpisodeEnded(ending=ev.Ending.HALTED, because="b"))
    assert not end.held_back
    night.wall_s = 2 * telling.HOUR_S
    (later,) = night.tell(ev.Warned(text="an hour later"))
    assert not later.held_back


def test_what_was_delivered_is_not_waiting_any_more_and_what_cannot_be_is_given_up():
    night = Night()
    night.tell(ev.Warned(text="a"), ev.Warned(text="b"))
    night.tell(ev.Notified(key="warned:a"))
    assert [one.key for one in night.state.untold] == ["warned:b"]
    assert telling.given_up(night.state, telling.STALE_S) == ()
    (up,) = telling.given_up(night.state, telling.STALE_S + 1)
    assert (up.key, bool(up.why)) == ("warned:b", True)


def local(time: str, wall_s: float) -> Local:
    hour, _, minute = time.partition(":")
    return Local("2026-12-01", int(hour) * 60 + int(minute), wall_s)


def test_the_morning_is_summed_up_once_at_its_time():
    night = Night(replace(ALL, morning="08:00"))
    night.progress(1)
    watch = replace(begun(1, at()), last_step=1200, total=5000)
    assert morning(night.state, watch, local("07:59", 40_000.0)) == ()
    (told,) = morning(night.state, watch, local("08:00", 40_060.0))
    assert told.key == "morning:2026-12-01"
    assert told.text == "running, attempt 1, step 1200 of 5000\nNo failure in this episode."
    night.state = fold(night.state, told, at(40_060.0))
    assert morning(night.state, watch, local("08:01", 40_120.0)) == ()
    assert morning(night.state, watch, local("09:00", 43_660.0)) == ()


def test_a_run_that_began_after_the_morning_has_no_night_to_sum_up():
    night = Night(replace(ALL, morning="08:00"))
    assert morning(night.state, begun(1, at()), local("08:05", 200.0)) == ()


@pytest.mark.parametrize(
    "state",
    [State(run="r"), Night(ALL).state, replace(Night(replace(ALL, morning="08:00")).state, phase=Phase.HALTED)],
)
def test_no_morning_where_none_is_asked_for_or_nothing_is_open(state):
    assert morning(state, begun(0, at()), local("08:00", 40_000.0)) == ()


def test_the_summary_says_that_recovery_is_paused():
    state = replace(Night().state, paused=True, attempt=None)
    assert telling.summary(state, begun(0, at())).startswith("starting, recovery paused\n")


def test_the_heart_beats_while_the_run_is_open_and_nobody_is_waited_for():
    night = Night()
    assert telling.is_in_order(night.state)
    night.fail(1)
    assert telling.is_in_order(night.state)  # a recovery is in order
    assert not telling.is_in_order(replace(night.state, paused=True))
    assert not telling.is_in_order(replace(night.state, phase=Phase.HALTED))


@pytest.mark.parametrize(
    ("tracking", "wanted"),
    [
        (Tracking(wandb="auto"), {"WANDB_RUN_ID": "dflash-1f2e", "WANDB_RESUME": "allow"}),
        (Tracking(wandb="mine", wandb_resume="must"), {"WANDB_RUN_ID": "mine", "WANDB_RESUME": "must"}),
        (Tracking(mlflow="ab" * 16), {"MLFLOW_RUN_ID": "ab" * 16}),
        (None, {}),
    ],
)
def test_every_attempt_is_the_same_run_at_the_trackers(tracking, wanted):
    spec = incident(tracking=tracking, params=Params(), command=("t",), topology=())
    for number in (1, 2):
        place = Placement(attempt=number, attempt_dir="/a", run_dir="/r", tracking_id="0000001764-1f2e")
        env = render(spec, place).env
        assert {name: env[name] for name in env if name.startswith(("WANDB", "MLFLOW"))} == wanted


def test_the_runs_word_for_trackers_stays_over_episodes():
    night = Night()
    night.tell(
        ev.EpisodeEnded(ending=ev.Ending.STOPPED, because="b"),
        ev.EpisodeOpened(request="2-b", spec=incident(), machine=MACHINE, rungs={}, protected_sha256="x"),
    )
    assert night.state.tracking_id == "1-a"


def test_more_than_ten_messages_in_the_last_hour_are_held_back():
    night = Night()
    night.wall_s = 5_000.0
    told = tuple((f"{n}", 1_400.1 + n) for n in range(10))
    night.state = replace(night.state, told=told)
    (held,) = night.tell(ev.Warned(text="a"))
    assert held.held_back
    for few in (told[1:], (("0", 1_400.0), *told[1:]), (("0", 5_000.1), *told[1:])):
        night.state = replace(night.state, told=few)
        (sent,) = night.tell(ev.Warned(text="a"))
        assert not sent.held_back


def test_what_was_not_delivered_within_an_hour_is_given_up():
    note = ev.NotifyIntended(key="a", on="failed", title="", text="")
    of = State(run="r", untold=(note,), told=(("a", 100.0),))
    assert telling.given_up(of, 3_700.0) == ()
    assert [one.key for one in telling.given_up(of, 3_700.1)] == ["a"]
    assert telling.given_up(replace(of, told=()), 9_999.0) == ()


def test_the_morning_has_an_hour_and_needs_a_night_that_was_seen():
    night = Night(replace(ALL, morning="08:30"))

    def said(minutes: int, began_s: float = 0.0) -> int:
        now_s = 100_000.0 + 60.0 * minutes
        night.state = replace(night.state, attempt=replace(night.state.attempt, began=at(began_s)))
        return len(morning(night.state, begun(1, at()), Local("2026-12-01", minutes, now_s)))

    assert [said(minutes) for minutes in (509, 510, 569, 570)] == [0, 1, 1, 0]
    due_s = 100_000.0 + 60.0 * 510
    assert said(520, began_s=due_s - 60.0) == 1
    assert said(520, began_s=due_s - 59.9) == 0


def test_the_past_is_told_in_its_last_eight_lines():
    night = Night()
    lowered = ev.Plan(ending=None, because="b", lowered={"a": ("2", "1")})
    failure = ev.Failure(kind=Kind.GPU_OOM, because="b")
    for _ in range(8):
        night.tell(ev.Judged(attempt=1, failure=failure, plan=lowered))
    lines = telling.summary(night.state, begun(1, at())).splitlines()
    assert lines[0] == "starting, attempt 1"
    assert lines[1:] == ["attempt 1: gpu_oom, knobs lowered, then relaunch"] * 8
    night.tell(ev.Judged(attempt=1, failure=failure, plan=ev.Plan(ending=None, because="b")))
    lines = telling.summary(night.state, replace(begun(1, at()), last_step=7, total=9)).splitlines()
    assert lines[0] == "starting, attempt 1, step 7 of 9"
    assert lines[1] == "1 failures before"
    no_step = telling.summary(night.state, replace(begun(1, at()), total=9)).splitlines()
    assert no_step[0] == "starting, attempt 1", "a total without a step says nothing"
    assert lines[-1] == "attempt 1: gpu_oom, then relaunch"
