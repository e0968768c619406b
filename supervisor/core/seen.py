"""What one look at the world found, as one value; and what the state asks the world for. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union

from msgspec import Struct, field

from supervisor.core.aftermath import Aftermath, Printer
from supervisor.core.events import (
    Drifted,
    Dumped,
    DumpIntended,
    HookEnded,
    HookIntended,
    Leftover,
    LeftoversRemoved,
    Pruned,
    PruneIntended,
    Target,
)
from supervisor.core.evidence import (
    Checkpoint,
    ExitRecord,
    GpuSeen,
    Hit,
    Holder,
    Incomplete,
    Instant,
    MachineId,
    Member,
    ProcessId,
    RoomSeen,
    Sign,
    Step,
    Uuid,
)
from supervisor.core.given import CodeCopy
from supervisor.core.placing import RoleGpus
from supervisor.core.spec import RunSpec


class Request(Struct, frozen=True, kw_only=True):
    """A verb's request that the journal has not answered. `problem` is set where it could not be read."""

    id: str
    verb: str
    args: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


class JobSeen(Struct, frozen=True, kw_only=True):
    """The attempt's processes as known without a sweep. `claim` is `none`, `runner` or `supervisor`.

    `problem` is set where the launch could not be made (`protected: ...` for a violation found on the final command).
    """

    claim: str
    runner: ProcessId | None = None
    runner_alive: bool = False
    leader: ProcessId | None = None
    leader_alive: bool = False
    exit: ExitRecord | None = None
    problem: str | None = None


class MembersSeen(Struct, frozen=True, kw_only=True):
    """The answer of a sweep. `empty_looks` counts looks in a row that found nobody; `writing` are pids of members
    that write beside the checkpoints and whose file grew since the look before."""

    members: tuple[Member, ...]
    empty_looks: int
    writing: frozenset[int] = frozenset()
    could_not_see: tuple[str, ...] = ()


class Problem(Struct, frozen=True, kw_only=True):
    """One reason not to launch: the exit code it leads to, and what to do about it."""

    exit: int
    text: str


class PreflightSeen(Struct, frozen=True, kw_only=True):
    """What the checks before a launch found; all of them, not the first. `code`: the copy that was made."""

    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    roles: Mapping[str, RoleGpus] = field(default_factory=dict)
    floors: Mapping[Uuid, float] = field(default_factory=dict)
    found: tuple[Checkpoint | Incomplete, ...] = ()
    start: Checkpoint | Incomplete | None = None
    named: Checkpoint | Incomplete | None = None
    claimed: Mapping[str, str] = field(default_factory=dict)
    pointer: str | None = None
    code: CodeCopy | None = None


class ReadySeen(Struct, frozen=True, kw_only=True):
    """What the next launch needs to know, looked at after the last process died.

    `stale_how`: `remove`, `archive` or empty: what the Output rule asks for of `stale_path`. `leftovers`: files of
    dead members that are proven to be the run's and nobody's any more; `told`: what a person should know about
    others, which are left. `cut`: output shards that were cut off (path, the name for it, why). `pointer`: where a
    pointer file beside the checkpoints leads. `looked_boot_s`: when the checkpoints had been looked at; None: just now.
    """

    roles: Mapping[str, RoleGpus] = field(default_factory=dict)
    found: tuple[Checkpoint | Incomplete, ...] = ()
    start: Checkpoint | Incomplete | None = None
    named: Checkpoint | Incomplete | None = None
    claimed: Mapping[str, str] = field(default_factory=dict)
    looked_boot_s: float | None = None
    stale_how: str = ""
    stale_path: str = ""
    stale_to: str | None = None
    output_there: bool = True
    leftovers: tuple[Leftover, ...] = ()
    told: tuple[str, ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict)
    token: str = ""
    run_dir: str = ""
    attempt_dir: str = ""
    problems: tuple[Problem, ...] = ()
    cut: tuple[tuple[str, str, str], ...] = ()
    pointer: str | None = None


class Seen(Struct, frozen=True, kw_only=True):
    """One look. What was not looked at is None or empty.

    `marks`: phases of `health.phases` entered (True) or left, and when. `signs`: what grew and is no step. `lagging`:
    more was written than was read yet. `cleaned` is of `cleaned_path`. `early`: what the next launch needs, looked at
    while GPUs are verified. `dumped`: the answer to the dump that was asked for.
    """

    at: Instant
    machine: MachineId
    requests: tuple[Request, ...] = ()
    job: JobSeen | None = None
    members: MembersSeen | None = None
    gpus: Mapping[Uuid, GpuSeen] = field(default_factory=dict)
    holders: tuple[Holder, ...] | None = None
    hits: tuple[Hit, ...] = ()
    steps: tuple[Step, ...] = ()
    done_seen: bool = False
    sigterm_seen: bool = False
    found: tuple[Checkpoint | Incomplete, ...] | None = None
    claimed: Mapping[str, str] = field(default_factory=dict)
    preflight: PreflightSeen | None = None
    ready: ReadySeen | None = None
    cleaned: str | None = None
    cleaned_path: str = ""
    tidied: LeftoversRemoved | None = None
    pruned: tuple[PruneIntended, Pruned] | None = None
    early: ReadySeen | None = None
    violations: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    sent: frozenset[str] = frozenset()
    last_line: str = ""
    aftermath: Aftermath | None = None
    awaiting: bool = False
    printers: tuple[Printer, ...] = ()
    marks: tuple[tuple[str, bool, float], ...] = ()
    signs: tuple[Sign, ...] = ()
    lagging: bool = False
    dumped: Dumped | None = None
    room: RoomSeen | None = None
    hook: HookEnded | None = None
    drift: Drifted | None = None

    @staticmethod
    def nothing() -> Seen:
        """Before the first look."""
        return Seen(at=Instant("", 0.0, 0.0), machine=MachineId("", "", ""))


class Rest(Struct, frozen=True, kw_only=True):
    """Nothing to do but to answer requests; the run is at an end."""


class CheckFit(Struct, frozen=True, kw_only=True):
    """Run the checks before a launch, take the GPU locks."""

    spec: RunSpec
    from_: str | None
    rungs: Mapping[str, int]


class Launch(Struct, frozen=True, kw_only=True):
    """Attempt `attempt` is to be running, or its claim taken."""

    attempt: int


class Follow(Struct, frozen=True, kw_only=True):
    """The attempt runs: read its logs and GPUs. `processes` True: ask NVML for process lists too. `dump`: see what
    its processes are doing, beside the loop. `quiet`: no step for a while, so look whether a bar still grows. `prune`:
    remove these checkpoints, beside the loop too."""

    attempt: int
    processes: bool = False
    dump: DumpIntended | None = None
    quiet: bool = False
    prune: PruneIntended | None = None


class Stop(Struct, frozen=True, kw_only=True):
    """The attempt is to end. `send` is the signal due now (None: only look). `group`: to the job's group, then CONT.

    `abandon` True: take the claim so that it can never start.
    """

    attempt: int
    send: str | None = None
    group: bool = False
    targets: tuple[Target, ...] = ()
    abandon: bool = False


class Verify(Struct, frozen=True, kw_only=True):
    """Read the GPUs fast; `holders` True: find out who holds them."""

    attempt: int
    holders: bool = False


class Clean(Struct, frozen=True, kw_only=True):
    """Treat the stale output directory as the journal says."""

    path: str
    how: str
    to: str | None


class Tidy(Struct, frozen=True, kw_only=True):
    """Remove these files, each where it is still the one that the journal names and nobody uses it."""

    leftovers: tuple[Leftover, ...]


class Prune(Struct, frozen=True, kw_only=True):
    """Remove these checkpoints, each where it is still the one that the journal names; nothing runs."""

    prune: PruneIntended


class GetReady(Struct, frozen=True, kw_only=True):
    """Look at checkpoints, output and ports for the next launch; nothing runs."""

    attempt: int


class Wait(Struct, frozen=True, kw_only=True):
    """Nothing runs and nothing may: backoff. `readings` True: read the GPUs, someone is waited for."""

    readings: bool = False


class Hook(Struct, frozen=True, kw_only=True):
    """This hook is to have run, for so long at most; `stop` True: it is to be ended."""

    hook: HookIntended
    timeout_s: float
    stop: bool = False


Order = Union[Rest, CheckFit, Launch, Follow, Stop, Verify, Clean, Tidy, Prune, GetReady, Wait, Hook]  # noqa: UP007
