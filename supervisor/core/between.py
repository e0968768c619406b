"""Records of what happens between two attempts: zero, cleaning, leftovers, checkpoints no longer kept, backoff.

Part of `core/events.py`.
"""

from __future__ import annotations

from msgspec import Struct, field

from supervisor.core.evidence import Checkpoint, Holder, Uuid

ASIDE = "aside"
"""How a cut-off output shard is treated: renamed, and nothing else of the output is touched."""


class VerifiedZero(Struct, frozen=True, kw_only=True):
    """Every GPU of the run was read and stayed at its floor. `used_mib` in the order of the run's GPUs."""

    attempt: int
    waited_s: float
    used_mib: tuple[float, ...] = ()
    floors: dict[Uuid, float] = field(default_factory=dict)


class ForeignHolders(Struct, frozen=True, kw_only=True):
    """Nothing of ours is left, but others hold the run's GPUs: they are waited for, never signalled."""

    attempt: int
    holders: tuple[Holder, ...]
    wait_s: float


class NotZero(Struct, frozen=True, kw_only=True):
    """Time is up and memory is still held, or a GPU could not be read."""

    attempt: int
    waited_s: float
    why: str
    used_mib: tuple[float, ...] = ()
    holders: tuple[Holder, ...] = ()


class CleanIntended(Struct, frozen=True, kw_only=True):
    """The stale output directory (`remove`, `archive`) or a cut-off shard (`aside`) will be treated so."""

    path: str
    how: str
    to: str | None = None


class Cleaned(Struct, frozen=True, kw_only=True):
    """The output directory is fit for the launch; `did` says what was done, empty for nothing."""

    did: str = ""


class Leftover(Struct, frozen=True, kw_only=True):
    """A file of a dead process that the next launch would meet. Device and inode say which file; a new one of that
    name is another. `what`: `shared memory` or `build lock`; `proof`: why it is the run's and nobody's any more."""

    path: str
    what: str
    proof: str
    device: int
    inode: int
    mib: float = 0.0


class LeftoversIntended(Struct, frozen=True, kw_only=True):
    """These files will be removed before the next launch."""

    leftovers: tuple[Leftover, ...]


class LeftoversRemoved(Struct, frozen=True, kw_only=True):
    """None of the intended files is in the way any more, but for those in `kept`, each with its reason."""

    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


class PruneIntended(Struct, frozen=True, kw_only=True):
    """These checkpoints of the run will be renamed and removed: `resume.keep` newer ones are complete."""

    checkpoints: tuple[Checkpoint, ...]


class Pruned(Struct, frozen=True, kw_only=True):
    """None of the intended ones is there any more, but for those in `kept`, each with its reason."""

    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    freed_mib: float = 0.0


class BackoffBegan(Struct, frozen=True, kw_only=True):
    """The relaunch waits this long, counted from this record."""

    wait_s: float
    because: str


class BackoffOver(Struct, frozen=True, kw_only=True):
    """The wait is over (or what was waited for is so): the GPUs are verified once more."""


class HookIntended(Struct, frozen=True, kw_only=True):
    """This command of the spec will run, as a member of the run: `before_launch` of attempt `attempt`, or after it."""

    attempt: int
    hook: str
    argv: tuple[str, ...]
    token: str
    env: dict[str, str] = field(default_factory=dict)


class HookEnded(Struct, frozen=True, kw_only=True):
    """It ended. `code` None: it was not to be started, killed, or out of time; `why` says which, or its last words."""

    attempt: int
    hook: str
    code: int | None
    why: str = ""
    took_s: float = 0.0

    @property
    def words(self) -> str:
        """One line for people."""
        how = "failed" if self.code is None else f"ended with exit code {self.code}"
        return f"the hook {self.hook} {how}" + (f": {self.why}" if self.why else "")


class Rehearsed(Struct, frozen=True, kw_only=True):
    """The rehearsal has passed: it is ended, and the full run follows."""

    attempt: int
    steps: int
    took_s: float


class Drifted(Struct, frozen=True, kw_only=True):
    """What differs from attempt `since`, the last that made progress, most suspicious first; `suspects` names those
    that may explain a failure, and says so where they cannot be told apart."""

    attempt: int
    since: int
    changes: tuple[str, ...]
    suspects: str

    @property
    def words(self) -> str:
        """One line for people."""
        return f"changed since attempt {self.since}, the last that made progress: {self.suspects}"
