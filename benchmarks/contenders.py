"""Who lives through the nights of `policy_nights`: an oracle, three habits, and the real policy. No world here."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from benchmarks.drawn_nights import NIGHT_S, RUNGS, TOTAL_MIB, Night
from supervisor.core import events as ev
from supervisor.core.evidence import Checkpoint, ExitRecord, Instant, MachineId, ProcessId
from supervisor.core.fold import fold
from supervisor.core.kinds import Kind
from supervisor.core.placing import RoleGpus
from supervisor.core.policy import plan_after
from supervisor.core.spec import Knob, Param, Params, Recovery, Resume, Role, RunSpec, Scalar
from supervisor.core.state import State

HERE = MachineId("boot", "machine", "box")
UUIDS = tuple(f"GPU-{n}" for n in range(8))


SPENT = ("load", "hang", "wait")
"""Where a night goes that does not train: loads, also those that die; hangs until they are noticed; stops, verifying,
backoff and outages. The rest is training, training that was lost, and a night that was given up."""


@dataclass
class Life:
    """One contender's night so far."""

    t: float = 0.0
    at: float = 0.0  # seconds of training at full speed
    saved: float = 0.0
    share: float = 1.0  # of the first rung's value
    productive_s: float = 0.0
    lost_s: float = 0.0
    trained_s: float = 0.0  # kept or lost
    kept: list[tuple[float, float]] = field(default_factory=list)  # (`at`, seconds) since the last save
    launches: int = 0
    oomed: bool = False
    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SPENT, 0.0))

    def passes(self, seconds: float, on: str) -> None:
        """Time that trains nothing; what lies beyond the night does not count."""
        self.spent[on] += max(0.0, min(seconds, NIGHT_S - self.t))
        self.t += seconds


@dataclass(frozen=True)
class Fate:
    """How an attempt ended: of what, how much was missing, whether it made progress, whether it hangs instead."""

    kind: Kind
    short_mib: float = 0.0
    progressed: bool = True
    orphans: bool = False


class Contender:
    """Answers an end: the seconds until the next launch and the share to launch with; None: it is over."""

    name = ""
    hang_s: float | None = None

    def answer(self, life: Life, night: Night, fate: Fate) -> tuple[float, float] | None:
        raise NotImplementedError


class Oracle(Contender):
    name, hang_s = "oracle", 0.0

    def answer(self, life: Life, night: Night, fate: Fate) -> tuple[float, float] | None:
        if fate.kind is not Kind.GPU_OOM:
            return 7.0, life.share
        return (7.0, RUNGS[night.fits_at] / RUNGS[0]) if night.fits_at < len(RUNGS) else None


class Torchrun(Contender):
    name = "torchrun"

    def answer(self, life: Life, night: Night, fate: Fate) -> tuple[float, float] | None:
        return (5.0, life.share) if life.launches <= 3 else None


class Until(Contender):
    name = "until"

    def answer(self, life: Life, night: Night, fate: Fate) -> tuple[float, float] | None:
        return 5.0, life.share


class Halve(Contender):
    name = "halve"

    def answer(self, life: Life, night: Night, fate: Fate) -> tuple[float, float] | None:
        half = fate.kind is Kind.GPU_OOM and life.share > 0.05
        return 5.0, life.share / 2 if half else life.share


class Supervise(Contender):
    """The real policy, asked as the loop asks it: from a state that is the fold of its records."""

    name, hang_s = "supervise", 150.0
    """A silent GPU is found after `for` (2 m) and a sweep; a hang with busy GPUs later, which the model leaves out."""

    def __init__(self) -> None:
        role = RoleGpus(ordinals=tuple(range(8)), physical=tuple(range(8)), uuids=UUIDS)
        knob = Knob(name="token_budget", rungs=tuple({"token_budget": Scalar(str(v), "int")} for v in RUNGS))
        params = Params(knobs=(knob,), how={"token_budget": Param(name="token_budget")})
        roles = (Role(name="gpus", gpus=tuple(map(str, range(8)))),)
        spec = RunSpec(
            name="night", command=("train",), file="night.yaml", workdir="/w", topology=roles, params=params,
            resume=Resume(from_="/w/step_*"), recovery=Recovery(),
        )  # fmt: skip
        self.state = State(run="night")
        self.told(0.0, ev.EpisodeOpened(request="r", spec=spec, machine=HERE, rungs={}, protected_sha256=""))
        self.told(0.0, ev.PreflightPassed(roles={"gpus": role}))
        self.plan: ev.Plan | None = None
        self.why = ""

    def told(self, t: float, *events: ev.Event) -> None:
        for event in events:
            self.state = fold(self.state, event, Instant("boot", t, t))

    def begin(self, life: Life) -> None:
        rungs = dict(self.plan.rungs) if self.plan and self.plan.rungs else dict(self.state.rungs)
        n, checkpoint = life.launches, None
        if life.saved:
            checkpoint = Checkpoint(f"/w/step_{int(life.saved)}", int(life.saved), int(life.saved), 1)
        launch = ev.LaunchIntended(
            attempt=n, argv=(), rungs=rungs, knobs={}, protected={}, checkpoint=checkpoint, token="t", because=""
        )
        self.told(life.t, launch, ev.Launched(attempt=n, runner=ProcessId(1, 1), leader=ProcessId(2, 2)))

    def answer(self, life: Life, night: Night, fate: Fate) -> tuple[float, float] | None:
        n, state = life.launches, self.state
        if fate.progressed:
            self.told(life.t, ev.FirstProgress(attempt=n, step=1, startup_s=night.load_s))
            if life.saved and (state.attempt is None or _saved(state) < int(life.saved)):
                made = Checkpoint(f"/w/step_{int(life.saved)}", int(life.saved), int(life.saved), 1)
                self.told(life.t, ev.CheckpointWritten(attempt=n, checkpoint=made, logged_step=None))
        failure = ev.Failure(kind=fate.kind, because=fate.kind.value, gpu=5, uuid=UUIDS[5])
        if fate.kind is Kind.GPU_OOM:
            asked = night.allocation_mib * life.share
            free = asked - fate.short_mib
            failure = replace(
                failure,
                tried_mib=asked,
                free_mib=free,
                total_mib=TOTAL_MIB,
                in_use_mib=TOTAL_MIB - free,
                short_by_mib=fate.short_mib,
                loaded_mib=night.loaded_mib,
            )
        self.told(life.t, ev.JobEnded(attempt=n, end=ExitRecord(1, None)))
        plan = plan_after(self.state, failure, Instant("boot", life.t, life.t))
        assert isinstance(plan, ev.Plan)
        self.told(life.t, ev.Judged(attempt=n, failure=failure, plan=plan))
        self.told(life.t, ev.StopIntended(attempt=n, by=ev.By.POLICY, grace_s=0, because="", plan=plan))
        self.told(life.t, ev.MembersGone(attempt=n), ev.VerifiedZero(attempt=n, waited_s=2.0))
        self.plan, self.why = plan, plan.because
        if plan.ending is not None:
            return None
        rung = plan.rungs.get("token_budget", self.state.rungs.get("token_budget", 0))
        return 8.0 + plan.wait_s, RUNGS[rung] / RUNGS[0]  # witnesses 1 s, stop 1 s, drain and `stable_for` 6 s


def _saved(state: State) -> int:
    return max((known.step for known in state.lineage.known), default=0)
