"""A box that outlives its supervisors: time, GPUs, processes, claims, logs, checkpoints. Nothing here is real.

Memory belongs to processes and drains after their death; a job ends when its leader does, its workers sit in sessions
of their own and live on. `started` is what the tests ask about: each job that was ever begun, and what was so then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from fake_specs import CHECKPOINTS, TOTAL_MIB, inventory
from msgspec import Struct
from msgspec.structs import replace

from supervisor.core.events import Leftover
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
    Owner,
    ProcessId,
    Proof,
    Reading,
    Unreadable,
)
from supervisor.core.kinds import Kind
from supervisor.core.seen import Problem, Request

WORKER_MIB = 70_000.0


@dataclass
class Proc:
    """A process of the run. `deaf` ignores SIGTERM, states D and X survive KILL, `writing`: beside the checkpoints."""

    pid: int
    attempt: int
    name: str
    pgid: int
    gpu: str | None = None
    mib: float = 0.0
    state: str = "S"
    wchan: str = ""
    deaf: bool = False
    writing: bool = False

    @property
    def id(self) -> ProcessId:
        return ProcessId(self.pid, self.pid * 10)

    @property
    def member(self) -> Member:
        proof = Proof.DESCENDANT if self.pid == self.pgid else Proof.TOKEN
        return Member(self.id, self.name, proof, self.state, self.pgid, self.pgid, self.wchan)


@dataclass
class Runner:
    """The runner of an attempt. `job` is told once it has started it."""

    id: ProcessId
    alive: bool = True
    started_job: bool = False
    leader: ProcessId | None = None


class Started(Struct, frozen=True):
    """A job was begun: with this, while these were alive and this much memory was held."""

    attempt: int
    argv: tuple[str, ...]
    env: dict[str, str]
    rungs: dict[str, int]
    checkpoint: Checkpoint | None
    alive: tuple[str, ...]
    held_mib: float


@dataclass
class World:
    """See the module."""

    gpu_count: int = 8
    boot_id: str = "boot-1"
    boot_s: float = 1000.0
    drain_s: float = 1.0
    runner_comes: bool = True
    job_starts: bool = True
    procs: dict[int, Proc] = field(default_factory=dict)
    runners: dict[int, Runner] = field(default_factory=dict)
    claims: dict[int, str] = field(default_factory=dict)
    launch_files: dict[int, Started] = field(default_factory=dict)
    exits: dict[int, ExitRecord] = field(default_factory=dict)
    logs: dict[int, list[Any]] = field(default_factory=dict)
    started: list[Started] = field(default_factory=list)
    draining: list[tuple[str, float, float]] = field(default_factory=list)
    residents: dict[str, tuple[float, Holder | None]] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    idle: set[str] = field(default_factory=set)
    checkpoints: dict[str, Checkpoint | Incomplete] = field(default_factory=dict)
    claimed: dict[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    ready_problems: tuple[Problem, ...] = ()
    launch_problem: str | None = None
    violations: list[str] = field(default_factory=list)
    output: str = "absent"
    """`absent`, `empty` or `full`."""
    left: list[Leftover] = field(default_factory=list)
    busy_paths: set[str] = field(default_factory=set)
    cut: list[str] = field(default_factory=list)
    pointer: str | None = None
    """What dead members left in shared memory and build folders."""
    asked: int = 0
    requests: list[Request] = field(default_factory=list)
    saved_watch: Any = None
    late_runners: int = 0
    inodes: int = 100
    aftermath: Any = None
    """What the witnesses say of the death of the newest attempt's job; None: nothing was asked."""
    printers: tuple[Any, ...] = ()
    hooks: dict[str, Any] = field(default_factory=dict)
    """How each hook will end: its exit code, or `hang`; 0 where it is not named."""
    hooks_ran: list[str] = field(default_factory=list)
    drift: Any = None
    room: Any = None
    """(MiB in use, limit, disks) of the host; None: nobody looked."""
    dumps: bool = True
    """False: whoever is asked what the processes are doing gives no answer."""
    silent_ranks: tuple[int, ...] = ()
    plot: list[tuple[Callable[[World], bool], Callable[[World], None]]] = field(default_factory=list)
    """What happens by itself: the first entry's deed is done once, as soon as its condition is true."""

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def now(self) -> Instant:
        return Instant(self.boot_id, self.boot_s, 1_767_225_600.0 + self.boot_s)

    def pass_time(self, seconds: float) -> None:
        self.boot_s = round(self.boot_s + seconds, 6)
        self.draining = [d for d in self.draining if d[2] > self.boot_s]
        while self.plot and self.plot[0][0](self):
            self.plot.pop(0)[1](self)

    @property
    def machine(self) -> MachineId:
        return MachineId(self.boot_id, "machine-1", "box")

    # ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def runner_arrives(self, n: int) -> None:
        """The runner reaches its claim: whoever finds one touches nothing."""
        if n in self.claims:
            self.late_runners += 1
            return
        self.claims[n] = "runner"
        pid = n * 100
        self.runners[n] = Runner(ProcessId(pid, pid * 10))
        if self.job_starts:
            self.job_begins(n)

    def job_begins(self, n: int) -> None:
        """The runner starts the job: a leader and one worker on each GPU."""
        runner, launch = self.runners[n], self.launch_files[n]
        if not runner.alive or runner.started_job:
            return
        alive = tuple(p.name for p in self.procs.values())
        held = max((self.used_mib(g.uuid) for g in inventory(self.gpu_count)), default=0.0)
        self.started.append(replace(launch, alive=alive, held_mib=held))
        runner.started_job = True
        leader = n * 100 + 1
        runner.leader = ProcessId(leader, leader * 10)
        self.procs[leader] = Proc(leader, n, "start_training.sh", pgid=leader)
        for gpu in inventory(self.gpu_count):
            pid = n * 100 + 10 + gpu.index
            self.procs[pid] = Proc(pid, n, f"rank{gpu.index}", pgid=pid, gpu=gpu.uuid, mib=WORKER_MIB)

    def of(self, name: str) -> Proc:
        """The newest process of that name."""
        return max((p for p in self.procs.values() if p.name == name), key=lambda p: p.pid)

    def die(self, proc: Proc, code: int | None = None, signal: int | None = None) -> None:
        """The process is gone; its memory drains. The leader's end is written down by a living runner."""
        if self.procs.pop(proc.pid, None) is None:
            return
        if proc.gpu is not None and self.drain_s > 0:
            self.draining.append((proc.gpu, proc.mib, self.boot_s + self.drain_s))
        runner = self.runners[proc.attempt]
        if runner.leader is not None and proc.pid == runner.leader.pid and runner.alive:
            self.exits[proc.attempt] = ExitRecord(code, signal, self.boot_s)
        if not any(p.attempt == proc.attempt for p in self.procs.values()):
            runner.alive = False

    def job_ends(self, code: int | None = None, signal: int | None = None, *, orphans: bool = True) -> None:
        """The leader ends so; its workers live on unless `orphans` is False."""
        leader = self.of("start_training.sh")
        if not orphans:
            for proc in [p for p in self.procs.values() if p.attempt == leader.attempt and p is not leader]:
                self.die(proc)
        self.die(leader, code, signal)

    def signal(self, pid: int, ticks: int, name: str) -> None:
        """What a process does about a signal."""
        proc = self.procs.get(pid)
        if proc is None or proc.id.start_ticks != ticks:
            return
        if name == "SIGKILL" and proc.state not in "DX":
            self.die(proc, signal=9)
        elif name != "SIGKILL" and not proc.deaf and proc.state not in "DX":
            self.die(proc, signal=15)

    def reboot(self) -> None:
        self.procs.clear()
        self.draining.clear()
        for runner in self.runners.values():
            runner.alive = False
        self.boot_id = f"boot-{int(self.boot_id.rpartition('-')[2]) + 1}"
        self.boot_s += 60.0

    # ── GPUs ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def used_mib(self, uuid: str, on_it: Iterable[Proc] | None = None) -> float:
        own = sum(p.mib for p in (self.procs.values() if on_it is None else on_it) if p.gpu == uuid)
        return own + sum(d[1] for d in self.draining if d[0] == uuid) + self.residents.get(uuid, (0.0, None))[0]

    def reading(self, index: int, uuid: str, *, processes: bool) -> GpuSeen:
        if uuid in self.unreadable:
            return Unreadable(uuid, index, self.boot_s, self.unreadable[uuid])
        on_it = [p for p in self.procs.values() if p.gpu == uuid]
        pids = tuple(p.pid for p in on_it)
        return Reading(
            gpu=uuid,
            index=index,
            began_boot_s=self.boot_s,
            used_mib=self.used_mib(uuid, on_it),
            total_mib=TOTAL_MIB,
            reserved_mib=0.0,
            util_pct=0.0 if uuid in self.idle or not pids else 95.0,
            pids=pids if processes else None,
        )

    def holders(self) -> tuple[Holder, ...]:
        own = [Holder(p.gpu, p.pid, "me", p.name, Owner.RUN, "dflash") for p in self.procs.values() if p.gpu]
        return (*own, *(holder for _, holder in self.residents.values() if holder is not None))

    # ── log and disk ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def current(self) -> int:
        """The newest attempt that was to be launched."""
        return max(self.launch_files, default=0)

    def log(self, item: Any) -> None:
        self.logs.setdefault(self.current, []).append(item)

    def hit(self, kind: Kind, text: str, **known: Any) -> None:
        line = len(self.logs.get(self.current, ())) + 1
        self.log(
            Hit(signature=str(kind), kind=kind, file="output.log", line=line, offset=line * 80, text=text, **known)
        )

    def oom(self, gpu: int, tried_mib: float = 4854.0, free_mib: float = 4680.0, **known: Any) -> None:
        text = f"torch.OutOfMemoryError: CUDA out of memory. GPU {gpu}: {tried_mib:.0f} MiB wanted"
        self.hit(Kind.GPU_OOM, text, gpu=gpu, tried_mib=tried_mib, free_mib=free_mib, **known)

    def save(self, step: int) -> None:
        """A complete checkpoint appears, or is rewritten."""
        path = f"{CHECKPOINTS}/step_{step}"
        self.inodes += 1
        mtime_ns = int(self.now().wall_s * 1e9)
        self.checkpoints[path] = Checkpoint(path=path, step=step, inode=self.inodes, mtime_ns=mtime_ns)

    def tear(self, step: int, why: str = "model.safetensors is cut short") -> None:
        path = f"{CHECKPOINTS}/step_{step}"
        self.checkpoints[path] = Incomplete(path=path, step=step, why=why)

    def ask(self, verb: str, **args: Any) -> str:
        self.asked += 1
        request = Request(id=f"r{self.asked}-{verb}", verb=verb, args=args)
        self.requests.append(request)
        return request.id
