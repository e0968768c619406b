"""A run's journal written by hand: the incident's night, as records of `core.events`. For tests of views and verbs."""

from __future__ import annotations

import json
from pathlib import Path

from supervisor.core import events as ev
from supervisor.core.evidence import Checkpoint, ExitRecord, Holder, Instant, MachineId, Owner, ProcessId, Proof
from supervisor.core.kinds import Kind
from supervisor.core.placing import RoleGpus
from supervisor.core.spec import Knob, Param, Params, Role, RunSpec, Scalar
from supervisor.edges import proc
from supervisor.edges.codec import to_plain
from supervisor.edges.journal import Journal
from supervisor.edges.paths import Home, RunDir
from supervisor.views.run import Entry

T0_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z
UUIDS = tuple(f"GPU-0000000{n}" for n in range(8))
ROLES = {
    "target": RoleGpus(ordinals=tuple(range(5)), physical=tuple(range(5)), uuids=UUIDS[:5]),
    "drafter": RoleGpus(ordinals=(5, 6, 7), physical=(5, 6, 7), uuids=UUIDS[5:]),
}
STEP_690 = Checkpoint(path="/w/checkpoints/step_690", step=690, inode=1, mtime_ns=1)
STEP_710 = Checkpoint(path="/w/checkpoints/step_710", step=710, inode=2, mtime_ns=2)
HERE = MachineId(boot_id="b", machine_id=proc.machine_id(), host="box")


def spec(name: str = "dflash") -> RunSpec:
    """The incident's spec, resolved, as far as people see it."""

    def rungs(param: str, *texts: str) -> Knob:
        return Knob(name=param, rungs=tuple({param: Scalar(text, "int")} for text in texts))

    return RunSpec(
        name=name,
        command=("scripts/start_training.sh",),
        file="/w/dflash.yaml",
        workdir="/w",
        topology=(Role(name="target", gpus=("0", "1", "2", "3", "4")), Role(name="drafter", gpus=("5", "6", "7"))),
        params=Params(
            protected={"anchors": Scalar("1024", "int"), "layers": (Scalar("1", "int"), Scalar("2", "int"))},
            knobs=(rungs("token_budget", "49152", "45056", "40960"), rungs("max_batch_size", "64", "48", "32")),
            how={"anchors": Param(name="anchors", flag="--anchors")},
        ),
        steps=2000,
        warnings=("notify is not built yet, without effect",),
    )


def opened(name: str = "dflash", machine: MachineId = HERE) -> ev.EpisodeOpened:
    """`up` was accepted."""
    rungs = {"token_budget": 0, "max_batch_size": 0}
    return ev.EpisodeOpened(request="r1", spec=spec(name), machine=machine, rungs=rungs, protected_sha256="ab" * 32)


def launch(attempt: int, rung: int, checkpoint: Checkpoint, because: str) -> ev.LaunchIntended:
    """An attempt on that rung of both knobs."""
    knobs = {"token_budget": ("49152", "45056", "40960")[rung], "max_batch_size": ("64", "48", "32")[rung]}
    return ev.LaunchIntended(
        attempt=attempt,
        argv=("scripts/start_training.sh", "--token-budget", knobs["token_budget"]),
        rungs={"token_budget": rung, "max_batch_size": rung},
        knobs=knobs,
        protected={"anchors": "1024"},
        checkpoint=checkpoint,
        token="t",
        because=because,
    )


OOM = ev.Failure(
    kind=Kind.GPU_OOM,
    because="GPU 5 ran out of memory, short by 174 MiB",
    gpu=5,
    uuid=UUIDS[5],
    rank=0,
    tried_mib=4853.76,
    free_mib=4679.68,
    short_by_mib=174.08,
    log_line="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.74 GiB.",
    where="output.log:120",
)
LOWER = ev.Plan(
    ending=None,
    because="GPU 5 ran out of memory, short by 174 MiB",
    rungs={"token_budget": 1, "max_batch_size": 1},
    lowered={"token_budget": ("49152", "45056"), "max_batch_size": ("64", "48")},
    rule="dflash.yaml:44",
)


def first_attempt() -> list[ev.Event]:
    """From `up` to the out-of-memory on GPU 5, up to verified zero."""
    leader = ProcessId(pid=4001, start_ticks=77)
    orphan = ev.Target(id=ProcessId(4002, 78), cmdline="python train_dflash.py --rank 5", proof=Proof.TOKEN)
    return [
        ev.SupervisorStarted(pid=999, version="0.1.0"),
        opened(),
        ev.PreflightPassed(roles=ROLES, warnings=("persistence mode is off",)),
        ev.Cleaned(),
        launch(1, 0, STEP_690, "first launch"),
        ev.Launched(attempt=1, runner=ProcessId(4000, 76)),
        ev.Launched(attempt=1, runner=ProcessId(4000, 76), leader=leader),
        ev.Answered(request="r1", verb="up", exit=0, text="dflash: attempt 1 launched"),
        ev.FirstProgress(attempt=1, step=691, startup_s=22.5),
        ev.CheckpointWritten(attempt=1, checkpoint=STEP_710, logged_step=711),
        ev.HitSeen(attempt=1, kind=Kind.GPU_OOM, where="output.log:120", text="CUDA out of memory", gpu=5),
        ev.JobEnded(attempt=1, end=ExitRecord(code=1, signal=None), first_step=691, last_step=712),
        ev.Judged(attempt=1, failure=OOM, plan=LOWER, last_step=712),
        ev.StopIntended(attempt=1, by=ev.By.POLICY, grace_s=0.0, because="processes are left"),
        ev.SignalIntended(attempt=1, signal="SIGTERM", group=True, targets=(orphan,)),
        ev.SignalIntended(attempt=1, signal="SIGKILL", group=False, targets=(orphan,)),
        ev.SignalSent(attempt=1, signal="SIGKILL", group=False),
        ev.MembersGone(attempt=1),
        ev.VerifiedZero(attempt=1, waited_s=4.25, used_mib=(0.0,) * 8),
        ev.Cleaned(did="removed /w/out/dflash"),
    ]


def second_attempt() -> list[ev.Event]:
    """The relaunch, up to its first progress."""
    return [
        launch(2, 1, STEP_710, "GPU 5 ran out of memory; token_budget 49152 -> 45056, max_batch_size 64 -> 48"),
        ev.Launched(attempt=2, runner=ProcessId(4100, 90), leader=ProcessId(4101, 91)),
        ev.FirstProgress(attempt=2, step=711, startup_s=20.0),
    ]


def finish() -> list[ev.Event]:
    """Attempt 2 ends as it should."""
    none = ev.Failure(kind=Kind.NONE, because="the job ended with exit code 0 at step 2000")
    plan = ev.Plan(ending=ev.Ending.FINISHED, because=none.because)
    return [
        ev.JobEnded(attempt=2, end=ExitRecord(code=0, signal=None), first_step=711, last_step=2000),
        ev.Judged(attempt=2, failure=none, plan=plan, last_step=2000),
        ev.StopIntended(attempt=2, by=ev.By.POLICY, grace_s=60.0, because="nothing may be left"),
        ev.MembersGone(attempt=2),
        ev.VerifiedZero(attempt=2, waited_s=2.0, used_mib=(0.0,) * 8),
        ev.EpisodeEnded(ending=ev.Ending.FINISHED, because=none.because),
    ]


def halt() -> list[ev.Event]:
    """Attempt 2 is ended by a fault that leaves a stranger's process on GPU 5, and the run is halted."""
    failure = ev.Failure(kind=Kind.CODE_ERROR, because="NameError in train.py", log_line="NameError: name 'x'")
    plan = ev.Plan(
        ending=ev.Ending.HALTED, because="code_error: no relaunch mends it", next_command="supervise logs dflash"
    )
    stranger = Holder(gpu=UUIDS[5], pid=31, user="eve", cmdline="python other.py", owner=Owner.FOREIGN, used_mib=900.0)
    return [
        ev.JobEnded(attempt=2, end=ExitRecord(code=None, signal=11), last_step=730),
        ev.Judged(attempt=2, failure=failure, plan=plan, last_step=730),
        ev.StopIntended(attempt=2, by=ev.By.POLICY, grace_s=60.0, because="processes are left"),
        ev.MembersGone(attempt=2),
        ev.NotZero(attempt=2, waited_s=300.0, why="GPU 5 holds 900 MiB", used_mib=(0.0,) * 8, holders=(stranger,)),
        ev.EpisodeEnded(
            ending=ev.Ending.HALTED, because="GPU 5 holds 900 MiB", next_command="supervise gpus", held=True
        ),
    ]


def user_stop() -> list[ev.Event]:
    """`down` during attempt 2."""
    leader = ev.Target(id=ProcessId(4101, 91), cmdline="bash start_training.sh", proof=Proof.DESCENDANT)
    plan = ev.Plan(ending=ev.Ending.STOPPED, because="stopped by the user")
    return [
        ev.Accepted(request="r2", verb="down"),
        ev.StopIntended(attempt=2, by=ev.By.USER, grace_s=60.0, because="down", plan=plan, last_step=720),
        ev.SignalIntended(attempt=2, signal="SIGTERM", group=True, targets=(leader,)),
        ev.JobEnded(attempt=2, end=ExitRecord(code=None, signal=15)),
        ev.MembersGone(attempt=2),
        ev.VerifiedZero(attempt=2, waited_s=2.0, used_mib=(0.0,) * 8),
        ev.EpisodeEnded(ending=ev.Ending.STOPPED, because="stopped by the user", next_command="supervise up /w/x.yaml"),
        ev.Answered(request="r2", verb="down", exit=0, text="dflash: stopped"),
    ]


def entries(events: list[ev.Event], *, from_s: float = T0_S, every_s: float = 10.0) -> list[Entry]:
    """As they come out of a journal."""
    return [
        Entry(type(event).__name__, from_s + n * every_s, json.loads(json.dumps(to_plain(event))))
        for n, event in enumerate(events)
    ]


def write(
    home: Path, events: list[ev.Event], *, name: str = "dflash", from_s: float = T0_S, is_open: bool = True
) -> RunDir:
    """A run's folder with that journal."""
    run = Home(home).run(name)
    run.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    append(run, events, from_s=from_s)
    if is_open:
        run.open.touch()
    return run


def append(run: RunDir, events: list[ev.Event], *, from_s: float = T0_S) -> None:
    """More records."""
    journal = Journal.open(run.journal, writer=True)
    for n, event in enumerate(events):
        at = Instant(boot_id="b", boot_s=100.0 + n, wall_s=from_s + n * 10.0)
        journal.append(type(event).__name__, to_plain(event), at)
    journal.close()


def now_json(at_s: float, *, attempt: int = 2, phase: str = "running", step: int = 812) -> dict[str, object]:
    """What a supervisor says of that run."""
    gpus = [
        {
            "index": n,
            "uuid": UUIDS[n],
            "role": "target" if n < 5 else "drafter",
            "used_mib": 90000.0 + n,
            "total_mib": 97249.28,
            "util_pct": 94.0,
            "temperature_c": 61.0,
            "power_w": 512.0,
            "state": "ok",
            "why": None,
        }
        for n in range(8)
    ]
    gpus[6] |= {"used_mib": None, "util_pct": None, "state": "unreadable", "why": "GPU is lost"}
    return {
        "schema": "supervise.now/v1",
        "as_of": {"boot_id": "b", "boot_s": 1.0, "wall_s": at_s},
        "supervisor": {"pid": 4242, "start_ticks": 5},
        "phase": phase,
        "paused": False,
        "attempt": attempt,
        "step": step,
        "rate": 3.42,
        "loss": 2.25,
        "total": 2000,
        "checkpoint": {"path": "/w/checkpoints/step_800", "step": 800},
        "because": "making progress",
        "next": "nothing to do; watching",
        "gpus": gpus,
        "last_line": "step 812 \x1b[31mloss\x1b[0m 2.25",
    }
