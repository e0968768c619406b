"""The run spec, resolved: every default filled in, every scalar as it stands in the file.

Values only. How a file becomes one of these is `edges/specfile.py`; how one becomes a command is `core/render.py`.
Everything here goes through JSON (`run.json`, the journal) and comes back equal, so: only structs, tuples,
dicts with string keys, strings, numbers, booleans, None and enums.
"""

from __future__ import annotations

from enum import Enum
from typing import Union

from msgspec import Struct, field

from supervisor.core.around import Notify, Tracking
from supervisor.core.given import Hooks, Rehearsal, Watched
from supervisor.core.kinds import Kind


class Scalar(Struct, frozen=True):
    """A YAML scalar: `text` reaches the job as it stands; `tag` (YAML 1.2 core) serves comparison only.

    `tag` is one of `str int float bool null`; a quoted scalar is always `str`.
    """

    text: str
    tag: str = "str"

    @property
    def value(self) -> str | int | float | bool | None:
        """The typed value, for comparison."""
        if self.tag == "int":
            text = self.text.replace("_", "")
            return int(text, 0) if text.lower().startswith(("0x", "0o", "-0x", "+0x")) else int(text)
        if self.tag == "float":
            text = self.text.lower().replace("_", "")
            if text.lstrip("+-") in (".inf", ".nan"):
                return float(text.replace(".", "", 1))
            return float(text)
        if self.tag == "bool":
            return self.text.lower() == "true"
        if self.tag == "null":
            return None
        return self.text


Value = Union[Scalar, tuple[Scalar, ...]]  # noqa: UP007  # evaluated at run time on 3.10 by the codec


class Style(str, Enum):
    """How params reach the command."""

    ARGPARSE = "argparse"
    HYDRA = "hydra"
    ENV = "env"
    TEMPLATE = "template"


class Form(str, Enum):
    """How one flag is written: `--k v`, `--k=v`, or `--k` alone."""

    SPACE = "space"
    EQUALS = "equals"
    BARE = "bare"


class Param(Struct, frozen=True, kw_only=True):
    """How one param is written. `flag` begins with its dashes; `env` is a variable's name.

    `file`, `key`: set where the param is a value in a config file (`file:key` under `protected`).
    """

    name: str
    flag: str | None = None
    form: Form = Form.SPACE
    env: str | None = None
    aliases: tuple[str, ...] = ()
    file: str | None = None
    key: str | None = None


class Knob(Struct, frozen=True, kw_only=True):
    """What recovery may move. `rungs[0]` is the start, further along is down.

    A rung maps param names to values: one name (the knob's own) for a plain knob, several for a set.
    `venv`: the rungs' single value is the job's venv. `keep` is an expression that every rung must leave equal.
    """

    name: str
    rungs: tuple[dict[str, Scalar], ...]
    keep: str | None = None
    up: bool = False
    venv: bool = False


class Params(Struct, frozen=True, kw_only=True):
    """All params: `how` has one entry for every protected param and every name in a rung."""

    style: Style = Style.ARGPARSE
    protected: dict[str, Value] = field(default_factory=dict)
    knobs: tuple[Knob, ...] = ()
    how: dict[str, Param] = field(default_factory=dict)


class Silent(str, Enum):
    """What to do when a GPU of a role falls silent."""

    RELAUNCH = "relaunch"
    NOTIFY = "notify"
    HALT = "halt"
    OFF = "off"


class Role(Struct, frozen=True, kw_only=True):
    """GPUs of one role, as written: each an index (`"5"`) or a UUID (`"GPU-..."`)."""

    name: str
    gpus: tuple[str, ...]
    silent: Silent = Silent.RELAUNCH
    util_below: float = 5.0
    for_s: float = 120.0
    may_finish: bool = False


class Visible(str, Enum):
    """How CUDA_VISIBLE_DEVICES names the run's GPUs."""

    INDEX = "index"
    UUID = "uuid"
    NONE = "none"


class Stale(str, Enum):
    """What happens to the output directory before a launch."""

    KEEP = "keep"
    REMOVE_IF_EMPTY = "remove_if_empty"
    ARCHIVE = "archive"


class Resume(Struct, frozen=True, kw_only=True):
    """Checkpoints. `from_` is an absolute glob, `start` an absolute path or None.

    `args` are appended only where there is a checkpoint; they hold `${{ checkpoint.X }}`.
    `step` is a pattern with one group, `"none"`, or None for the default of the contract.
    """

    from_: str
    start: str | None = None
    args: tuple[str, ...] = ()
    complete: tuple[str, ...] = ()
    step: str | None = None
    if_none: str | None = None
    mode: str = "explicit"
    keep: int | None = None


class Output(Struct, frozen=True, kw_only=True):
    """The output directory (absolute) and what is done with a stale one; `units` is an absolute glob."""

    dir: str | None = None
    stale: Stale = Stale.KEEP
    units: str | None = None


class Progress(Struct, frozen=True, kw_only=True):
    """How progress is known. Patterns are re2 text; `in_` are absolute globs of further logs (empty: the output)."""

    log: str | None = None
    in_: tuple[str, ...] = ()
    stall_s: float | None = None  # None: auto
    files: str | None = None
    jsonl: dict[str, str] = field(default_factory=dict)
    heartbeat: str | None = None


class Health(Struct, frozen=True, kw_only=True):
    """What is watched. Durations in seconds; `startup_timeout_s` None means the default of the contract."""

    startup_timeout_s: float | None = None
    progress: Progress | None = None
    phases: tuple[dict[str, str | float], ...] = ()
    silent_util_below: float = 5.0
    silent_for_s: float = 120.0
    lost_progress: str = "halt"
    numeric_steps: int = 3


class Done(Struct, frozen=True, kw_only=True):
    """What finished means besides exit 0: at most one of the three is set."""

    step: int | None = None
    file: str | None = None
    log: str | None = None


class Do(str, Enum):
    """What a rule asks for."""

    RELAUNCH = "relaunch"
    HALT = "halt"
    NOTIFY = "notify"


class Rule(Struct, frozen=True, kw_only=True):
    """One recovery rule; all selectors that are set must hold. `where` is `file:line` of the rule.

    `lower` are knob names; `one_of` True means: the cheapest one of them, not all together.
    """

    on: tuple[Kind, ...]
    do: Do
    lower: tuple[str, ...] = ()
    one_of: bool = False
    role: str | None = None
    phase: str | None = None
    match: str | None = None
    after_s: float | None = None
    times: int | None = None
    from_older: bool = False
    wait_s: float | None = None
    where: str = ""


class Foreign(Struct, frozen=True, kw_only=True):
    """Foreign holders: how long to wait for them, and what the user allows per GPU."""

    wait_s: float = 0.0
    allow_mib: float = 0.0


class VerifyZero(Struct, frozen=True, kw_only=True):
    """When a GPU counts as empty. `floor_mib` None means learned."""

    stable_for_s: float = 2.0
    timeout_s: float = 300.0
    floor_mib: float | None = None
    foreign: Foreign = field(default_factory=Foreign)


class Recovery(Struct, frozen=True, kw_only=True):
    """Recovery: budget, stop, verify-zero, backoff, rules in order."""

    max_attempts: int = 6
    per_s: float = 12 * 3600.0
    stop_signal: str = "SIGTERM"
    grace_s: float = 60.0
    verify_zero: VerifyZero = field(default_factory=VerifyZero)
    backoff_first_s: float = 5.0
    backoff_cap_s: float = 600.0
    rules: tuple[Rule, ...] = ()


class Signature(Struct, frozen=True, kw_only=True):
    """A failure text of the user's."""

    name: str
    kind: Kind
    match: str


class Launch(Struct, frozen=True, kw_only=True):
    """Where the job runs: `terminal` is `tmux` or `none`; `pty` gives it a terminal."""

    terminal: str = "tmux"
    pty: bool = False


class Preflight(Struct, frozen=True, kw_only=True):
    """What must hold before a launch."""

    gpus_empty: bool = True
    disk_free_mib: float | None = None
    checks: tuple[tuple[str, ...], ...] = ()


class ConfigFile(Struct, frozen=True, kw_only=True):
    """A config file rendered per attempt: `set` maps a dotted key to text with substitutions. `from_` is absolute.

    `quoted` are the keys whose text stands in quotes in the spec: it stays a string, whatever it looks like.
    """

    name: str
    from_: str
    set: dict[str, str] = field(default_factory=dict)
    quoted: tuple[str, ...] = ()


class RunSpec(Struct, frozen=True, kw_only=True):
    """A whole run, resolved. Paths are absolute except `command`, which is as written.

    `env` holds what the spec sets (secret values replaced by `<secret>`; the real ones are in secrets.json).
    `secrets` are the names whose values are never shown. `warnings` were found when the file was read; `pins_at` is
    the `file:line` of each pin.
    """

    name: str
    command: tuple[str, ...]
    file: str
    workdir: str
    venv: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    topology: tuple[Role, ...] = ()
    visible: Visible = Visible.INDEX
    launch: Launch = field(default_factory=Launch)
    params: Params = field(default_factory=Params)
    files: tuple[ConfigFile, ...] = ()
    resume: Resume | None = None
    output: Output = field(default_factory=Output)
    ports: dict[str, str] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)
    pins_warn: bool = False
    pins_freeze: bool = False
    pins_at: dict[str, str] = field(default_factory=dict)
    code: Watched | None = None
    data: Watched | None = None
    rehearsal: Rehearsal | None = None
    hooks: Hooks | None = None
    preflight: Preflight = field(default_factory=Preflight)
    logs: tuple[str, ...] = ()
    health: Health = field(default_factory=Health)
    done: Done | None = None
    recovery: Recovery = field(default_factory=Recovery)
    signatures: tuple[Signature, ...] = ()
    steps: int | None = None
    cost_per_hour: float | None = None
    notify: Notify | None = None
    tracking: Tracking | None = None
    simulated: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def up_command(self) -> str:
        """The command that starts this run again; a simulated run never as a real one."""
        return f"supervise up {'--simulate ' if self.simulated else ''}{self.file}"

    @property
    def gpus(self) -> tuple[str, ...]:
        """All GPUs of the run as written, in the order of the roles."""
        return tuple(gpu for role in self.topology for gpu in role.gpus)
