"""What happened to a run and what was decided: the records of the journal. No behaviour here.

Rule 1: everything that changes the state of a run is one of these, and only `core/fold.py` folds them.
Rule 2: what is to be done stands here before it is done (`…Intended`); what came of it stands here after.
Rule 3: fields are only ever added, with a default, so that every old journal still reads.
No record holds a secret: commands and environments are redacted before they come here.
"""

from __future__ import annotations

from typing import Union, get_args

from msgspec import Struct, field

from supervisor.core.alive import Dumped as Dumped
from supervisor.core.alive import DumpIntended as DumpIntended
from supervisor.core.alive import HeldBack as HeldBack
from supervisor.core.around import Notified as Notified
from supervisor.core.around import NotifyIntended as NotifyIntended
from supervisor.core.between import ASIDE as ASIDE
from supervisor.core.between import BackoffBegan as BackoffBegan
from supervisor.core.between import BackoffOver as BackoffOver
from supervisor.core.between import Cleaned as Cleaned
from supervisor.core.between import CleanIntended as CleanIntended
from supervisor.core.between import Drifted as Drifted
from supervisor.core.between import ForeignHolders as ForeignHolders
from supervisor.core.between import HookEnded as HookEnded
from supervisor.core.between import HookIntended as HookIntended
from supervisor.core.between import Leftover as Leftover
from supervisor.core.between import LeftoversIntended as LeftoversIntended
from supervisor.core.between import LeftoversRemoved as LeftoversRemoved
from supervisor.core.between import NotZero as NotZero
from supervisor.core.between import Pruned as Pruned
from supervisor.core.between import PruneIntended as PruneIntended
from supervisor.core.between import Rehearsed as Rehearsed
from supervisor.core.between import VerifiedZero as VerifiedZero
from supervisor.core.evidence import Checkpoint, ExitRecord, MachineId, ProcessId, Uuid
from supervisor.core.given import CodeCopy
from supervisor.core.kinds import Kind
from supervisor.core.placing import RoleGpus
from supervisor.core.plans import By as By
from supervisor.core.plans import Ending as Ending
from supervisor.core.plans import Failure as Failure
from supervisor.core.plans import Plan as Plan
from supervisor.core.plans import Target as Target
from supervisor.core.spec import RunSpec
from supervisor.core.wellbeing import Foretold as Foretold
from supervisor.core.wellbeing import Paced as Paced
from supervisor.core.wellbeing import Regained as Regained


class SupervisorStarted(Struct, frozen=True, kw_only=True):
    """A supervisor took the run's lock and replayed the journal."""

    pid: int
    version: str


class Answered(Struct, frozen=True, kw_only=True):
    """The answer to a verb's request: its exit code and what it prints."""

    request: str
    verb: str
    exit: int
    text: str


class Accepted(Struct, frozen=True, kw_only=True):
    """A verb's request was taken up; its answer comes when what it asked for is so."""

    request: str
    verb: str


class EpisodeOpened(Struct, frozen=True, kw_only=True):
    """`up` was accepted: preflight begins. `from_`: None, `none`, or a path given with `--from`."""

    request: str
    spec: RunSpec
    machine: MachineId
    rungs: dict[str, int]
    protected_sha256: str
    from_: str | None = None


class PreflightRefused(Struct, frozen=True, kw_only=True):
    """Nothing was launched; `text` names every reason and its fix. `ending`: a halted run stays halted."""

    exit: int
    text: str
    ending: Ending = Ending.STOPPED


class PreflightPassed(Struct, frozen=True, kw_only=True):
    """The machine is fit for the launch. `roles`: which GPUs each role has on this box. `code`: the copy that attempts
    of the episode are launched from."""

    roles: dict[str, RoleGpus] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    floors: dict[Uuid, float] = field(default_factory=dict)
    code: CodeCopy | None = None


class LaunchIntended(Struct, frozen=True, kw_only=True):
    """Attempt `attempt` will be launched with this and nothing else.

    `knobs` and `protected` map param names to values as texts; `present` are the complete checkpoints seen
    just before (those above the one taken are out of play from here on). `output_there`: the output directory was
    there before this launch, so it is not one that the run made. `rehearsal`: the small run before the full one.
    """

    attempt: int
    argv: tuple[str, ...]
    rungs: dict[str, int]
    knobs: dict[str, str]
    protected: dict[str, str]
    checkpoint: Checkpoint | None
    token: str
    because: str
    env: dict[str, str] = field(default_factory=dict)
    present: tuple[Checkpoint, ...] = ()
    ports: dict[str, int] = field(default_factory=dict)
    roles: dict[str, RoleGpus] = field(default_factory=dict)
    output_there: bool = True
    rehearsal: bool = False


class Launched(Struct, frozen=True, kw_only=True):
    """The runner holds the claim of the attempt; `leader` is the job's first process, None until it is known."""

    attempt: int
    runner: ProcessId
    leader: ProcessId | None = None


class LaunchAbandoned(Struct, frozen=True, kw_only=True):
    """The supervisor holds the claim: this attempt will never start."""

    attempt: int
    because: str


class FirstProgress(Struct, frozen=True, kw_only=True):
    """The attempt made its first progress; `step` is None where the spec has no progress rule and it is alive."""

    attempt: int
    step: int | None
    startup_s: float


class CheckpointWritten(Struct, frozen=True, kw_only=True):
    """A complete checkpoint of this attempt appeared; `logged_step` is the last step seen in the log then."""

    attempt: int
    checkpoint: Checkpoint
    logged_step: int | None


class CheckpointDemoted(Struct, frozen=True, kw_only=True):
    """This checkpoint is not used again in this episode."""

    path: str
    because: str


class HitSeen(Struct, frozen=True, kw_only=True):
    """A failure text was read. Not a verdict; `dropped` True: the run went on and refuted it."""

    attempt: int
    kind: Kind
    where: str
    text: str
    gpu: int | None = None
    dropped: bool = False


class JobEnded(Struct, frozen=True, kw_only=True):
    """The job's leader ended, or nobody is left and the exit status is unknown. `peaks`: MiB, the most by GPU."""

    attempt: int
    end: ExitRecord
    first_step: int | None = None
    last_step: int | None = None
    peaks: dict[Uuid, float] = field(default_factory=dict)


class Judged(Struct, frozen=True, kw_only=True):
    """What was wrong with the attempt, and what will be done about it."""

    attempt: int
    failure: Failure
    plan: Plan
    first_step: int | None = None
    last_step: int | None = None


class StopIntended(Struct, frozen=True, kw_only=True):
    """The attempt will be ended. `grace_s` counts from this record. `plan` says what follows (None: as judged)."""

    attempt: int
    by: By
    grace_s: float
    because: str
    plan: Plan | None = None
    first_step: int | None = None
    last_step: int | None = None


class SignalIntended(Struct, frozen=True, kw_only=True):
    """These processes will get this signal. `group` True: the job's process group, then CONT."""

    attempt: int
    signal: str
    group: bool
    targets: tuple[Target, ...]


class SignalSent(Struct, frozen=True, kw_only=True):
    """The signal went out to all that were still there."""

    attempt: int
    signal: str
    group: bool


class MembersGone(Struct, frozen=True, kw_only=True):
    """Two looks in a row found no process of the run."""

    attempt: int


class Unkillable(Struct, frozen=True, kw_only=True):
    """A process survived KILL in uninterruptible sleep; nothing more is signalled."""

    attempt: int
    id: ProcessId
    cmdline: str
    wchan: str


class Degraded(Struct, frozen=True, kw_only=True):
    """The attempt goes on with less than was asked for, by a rule that says to tell and not to act."""

    attempt: int
    failure: Failure


class Planned(Struct, frozen=True, kw_only=True):
    """What follows was changed while the attempt was being ended (the user asked)."""

    plan: Plan


class EpisodeEnded(Struct, frozen=True, kw_only=True):
    """The end of an episode. `next_command` is what to type now.

    `held` True: processes or memory of the run may be left, or GPUs could not be read; `down` then answers 8.
    """

    ending: Ending
    because: str
    next_command: str = ""
    held: bool = False


class PauseSet(Struct, frozen=True, kw_only=True):
    """Automatic recovery is off (`paused`) or on again."""

    paused: bool


class MachineMoved(Struct, frozen=True, kw_only=True):
    """`adopt --here`: the run belongs to this machine from now on; recorded processes are void."""

    machine: MachineId


class Warned(Struct, frozen=True, kw_only=True):
    """Something that a person should know and that changes nothing."""

    text: str


Event = Union[  # noqa: UP007
    SupervisorStarted,
    Answered,
    Accepted,
    EpisodeOpened,
    PreflightRefused,
    PreflightPassed,
    LaunchIntended,
    Launched,
    LaunchAbandoned,
    FirstProgress,
    CheckpointWritten,
    CheckpointDemoted,
    HitSeen,
    JobEnded,
    Judged,
    StopIntended,
    SignalIntended,
    SignalSent,
    MembersGone,
    Unkillable,
    VerifiedZero,
    ForeignHolders,
    NotZero,
    CleanIntended,
    Cleaned,
    LeftoversIntended,
    LeftoversRemoved,
    PruneIntended,
    Pruned,
    BackoffBegan,
    BackoffOver,
    Degraded,
    Planned,
    EpisodeEnded,
    PauseSet,
    MachineMoved,
    Warned,
    NotifyIntended,
    Notified,
    DumpIntended,
    Dumped,
    HeldBack,
    Paced,
    Regained,
    Foretold,
    HookIntended,
    HookEnded,
    Rehearsed,
    Drifted,
]

EVENT_TYPES: dict[str, type[Event]] = {cls.__name__: cls for cls in get_args(Event)}
"""Record type in the journal → class."""
