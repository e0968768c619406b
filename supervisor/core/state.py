"""The state of a run, as values: what the loop knows from the journal. How it comes about is `core/fold.py`."""

from __future__ import annotations

from msgspec import Struct, field

from supervisor.core import events as ev
from supervisor.core.evidence import Checkpoint, ExitRecord, Instant, MachineId, ProcessId, Uuid
from supervisor.core.given import CodeCopy
from supervisor.core.kinds import Kind
from supervisor.core.lineage import Lineage
from supervisor.core.peaks import Peaks
from supervisor.core.phases import Phase
from supervisor.core.placing import RoleGpus, all_gpus
from supervisor.core.spec import RunSpec, Value

ANSWERED_KEPT = 200
"""How many answered request ids are remembered: a request's file is unlinked right after its answer."""

PAST_KEPT = 200
"""How many judged attempts of an episode are remembered; the budget's window is far shorter."""

PACES_KEPT = 20
TOLD_KEPT = 200
"""How many messages are remembered as told, each by its key and when."""


KILL = "SIGKILL"


def send_key(signal: str, group: bool) -> str:
    """How a signal of an attempt is named in `intended` and `sent`."""
    return f"{signal}:group" if group else signal


class Past(Struct, frozen=True, kw_only=True):
    """A failed attempt of this episode, as far as budgets need it. `at` is when it was judged.

    `rungs` are those it failed on, `moved` what was lowered after it, as `name from -> to`; `loaded` is the checkpoint
    that it began from where it made no progress, `drift` what had changed since an attempt before it made some.
    """

    attempt: int
    kind: Kind
    at: Instant
    gained: bool
    rule: str
    did: str
    lowered: bool
    rungs: dict[str, int] = field(default_factory=dict)
    gpu: int | None = None
    moved: tuple[str, ...] = ()
    loaded: str = ""
    drift: str = ""


class Attempt(Struct, frozen=True, kw_only=True):
    """The current or last attempt. `stop_at` is when its end was intended, `gone_at` when nobody was left."""

    number: int
    token: str
    argv: tuple[str, ...]
    rungs: dict[str, int]
    checkpoint: Checkpoint | None
    began: Instant
    ports: dict[str, int] = field(default_factory=dict)
    runner: ProcessId | None = None
    leader: ProcessId | None = None
    launched_at: Instant | None = None
    abandoned: bool = False
    progressed_at: Instant | None = None
    gained: int = 0
    first_step: int | None = None
    last_step: int | None = None
    end: ExitRecord | None = None
    failure: ev.Failure | None = None
    stop_at: Instant | None = None
    stopped_by: ev.By | None = None
    grace_s: float = 0.0
    intended: frozenset[str] = frozenset()
    sent: frozenset[str] = frozenset()
    signalled: frozenset[tuple[int, int, str]] = frozenset()
    kill_at: Instant | None = None
    gone_at: Instant | None = None
    dumping: ev.DumpIntended | None = None
    dumping_at: Instant | None = None
    dump: ev.Dumped | None = None
    dumped: tuple[tuple[str, int | None], ...] = ()
    """For what was feared, at which step, its processes were looked at; `dump` is what the last look found."""
    held_back: tuple[str, ...] = ()
    rehearsal: bool = False
    drift: ev.Drifted | None = None
    told: frozenset[str] = frozenset()
    """What the run goes on with, though it is not as it should be."""


class Waiting(Struct, frozen=True, kw_only=True):
    """A verb that was taken up and whose answer is due when what it asked for is so."""

    request: str
    verb: str


class Settled(Struct, frozen=True, kw_only=True):
    """What the last launch was made with: a refused `up` changes none of it."""

    spec: RunSpec
    rungs: dict[str, int]
    protected_sha256: str | None


class State(Struct, frozen=True, kw_only=True):
    """All that the loop knows of a run from its journal."""

    run: str
    phase: Phase = Phase.STOPPED
    entered: Instant | None = None
    paused: bool = False
    spec: RunSpec | None = None
    machine: MachineId | None = None
    protected: dict[str, Value] = field(default_factory=dict)
    protected_sha256: str | None = None
    settled: Settled | None = None
    rungs: dict[str, int] = field(default_factory=dict)
    from_: str | None = None
    roles: dict[str, RoleGpus] = field(default_factory=dict)
    code: CodeCopy | None = None
    attempt: Attempt | None = None
    attempts_made: int = 0
    episodes: int = 0
    refused: int = 0
    lowered_in: dict[str, int] = field(default_factory=dict)
    gained_in_episode: bool = False
    launched_in_episode: int = 0
    past: tuple[Past, ...] = ()
    plan: ev.Plan | None = None
    waited: bool = False
    foreign_wait_s: float = 0.0
    backoff_s: float = 0.0
    verify_from: Instant | None = None
    cleaning: ev.CleanIntended | None = None
    cleaned: bool = False
    set_aside: tuple[str, ...] = ()
    pruning: ev.PruneIntended | None = None
    unprunable: frozenset[str] = frozenset()
    tidying: ev.LeftoversIntended | None = None
    tidied: bool = False
    made_output: bool = False
    rehearsed: bool = False
    rehearsals: int = 0
    hook: ev.HookIntended | None = None
    hook_end: ev.HookEnded | None = None
    hooked: tuple[str, ...] = ()
    good: int | None = None
    episode_first: int = 0
    floors: dict[Uuid, float] = field(default_factory=dict)
    paces: tuple[ev.Paced, ...] = ()
    foretold: tuple[str, ...] = ()
    peaks: tuple[Peaks, ...] = ()
    lineage: Lineage = field(default_factory=Lineage)
    longest_start_s: float = 0.0
    last_start_s: float = 0.0
    would: str = ""
    """What recovery would have done, had it not been paused."""
    last_failure: ev.Failure | None = None
    waiting: tuple[Waiting, ...] = ()
    answered: tuple[str, ...] = ()
    because: str = "never launched"
    next_command: str = ""
    held: bool = False
    told: tuple[tuple[str, float], ...] = ()
    untold: tuple[ev.NotifyIntended, ...] = ()
    tracking_id: str = ""
    was_halted: bool = False
    """True where the last episode that ended was halted: an `up` that is refused changes nothing about that."""

    @property
    def gpus(self) -> tuple[Uuid, ...]:
        """The run's GPUs by UUID, in ascending order of their index: the order of the job's ordinals."""
        return tuple(place.uuid for place in all_gpus(self.roles))

    @property
    def indices(self) -> tuple[int, ...]:
        """NVML's indices of the run's GPUs, in the order of `gpus`."""
        return tuple(place.physical for place in all_gpus(self.roles))

    @property
    def last_good(self) -> int | None:
        """The last attempt that made progress; a rehearsal is none."""
        attempt = self.attempt
        if attempt is not None and attempt.progressed_at is not None and not attempt.rehearsal:
            return attempt.number
        return self.good

    @property
    def is_held_back(self) -> bool:
        """True while a relaunch after a failure is due that `pause` holds back; `restart` overrules it."""
        failed = self.attempt is not None and self.attempt.failure is not None
        relaunch = self.plan is not None and self.plan.ending is None
        return self.paused and failed and relaunch and not self.asked_to_restart

    @property
    def is_ending(self) -> bool:
        """True where no launch follows."""
        return self.plan is not None and self.plan.ending is not None

    @property
    def asked_to_restart(self) -> bool:
        """True while a `restart` waits for its answer."""
        return any(waiting.verb == "restart" for waiting in self.waiting)

    @property
    def may_have_left(self) -> bool:
        """True where the last attempt's processes were given up on: nobody has seen that they are gone."""
        attempt = self.attempt
        return self.phase.is_end and attempt is not None and attempt.stop_at is not None and attempt.gone_at is None
