"""What went wrong, what follows, and who is to be signalled: values that the records of the journal carry."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field

from supervisor.core.evidence import ProcessId, Proof, Uuid
from supervisor.core.kinds import Kind


class By(str, Enum):
    """Who ended a process."""

    USER = "user"
    POLICY = "policy"
    ITSELF = "itself"


class Ending(str, Enum):
    """The three ends of an episode."""

    FINISHED = "finished"
    STOPPED = "stopped"
    HALTED = "halted"


class Failure(Struct, frozen=True, kw_only=True):
    """What went wrong with an attempt. `gpu` is the physical index; sizes in MiB.

    `log_line` is the deciding line as it stood, `where` its `file:line`; `lost` says what else was seen and why
    it lost; `evidence` what was found beside the log. `printed_gpu` is the GPU as the text names it. `others` are
    (pid, MiB) of other holders that it names; `leftover` says which of them an earlier attempt left behind. `bad_step`
    is the first whose numbers are bad, `good_step` the last reported before. `loaded_mib`: the most
    that this GPU had in use while it idled before the first step.
    """

    kind: Kind
    because: str
    code: int | None = None
    signal: int | None = None
    gpu: int | None = None
    uuid: Uuid | None = None
    rank: int | None = None
    tried_mib: float | None = None
    free_mib: float | None = None
    total_mib: float | None = None
    short_by_mib: float | None = None
    log_line: str | None = None
    where: str | None = None
    signature: str | None = None
    lost: tuple[str, ...] = ()
    confidence: str = ""
    printed_gpu: int | None = None
    in_use_mib: float | None = None
    reserved_mib: float | None = None
    others: tuple[tuple[int, float], ...] = ()
    evidence: tuple[str, ...] = ()
    leftover: str | None = None
    bad_step: int | None = None
    good_step: int | None = None
    phase: str = ""
    loaded_mib: float | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """What follows once the GPUs are empty. `ending` None: a relaunch with `rungs` after `wait_s`.

    `rungs` maps each knob to the rung it stands on from now; `lowered` maps param names to (from, to) as texts.
    """

    ending: Ending | None
    because: str
    rungs: dict[str, int] = field(default_factory=dict)
    lowered: dict[str, tuple[str, str]] = field(default_factory=dict)
    from_older: bool = False
    wait_s: float = 0.0
    rule: str = ""
    next_command: str = ""

    @property
    def do(self) -> str:
        """One word for people and JSON."""
        return self.ending.value if self.ending else "relaunch"


class Target(Struct, frozen=True, kw_only=True):
    """A process about to be signalled, and the proof that it is ours."""

    id: ProcessId
    cmdline: str
    proof: Proof
    state: str = ""
