"""A night of eight GPUs, the same each time: ten hours, three failures, a silent GPU, a second at zero."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent.parent / "views"))  # recorded.py

import recorded as r

from supervisor.core import events as ev
from supervisor.core.evidence import Checkpoint, ExitRecord, Instant, ProcessId
from supervisor.core.kinds import Kind
from supervisor.edges.codec import to_plain
from supervisor.edges.files import write_atomic
from supervisor.edges.journal import Journal
from supervisor.edges.paths import Home, RunDir

HOURS = 10.0
TOTAL_MIB = 97249
NASTY = "</script><script>document.title='pwned'</script><img src=x onerror=document.title='pwned'> \x1b[31m|*_`"
"""What a log may hold."""

# attempt, begin, first progress, end (hours), first and last step, rung
ATTEMPTS = (
    (1, 0.0, 0.4, 2.6, 690, 1490, 0),
    (2, 2.62, 3.0, 5.1, 1400, 2160, 1),
    (3, 5.13, 5.5, 6.2, 2100, 2360, 1),
    (4, 6.22, 6.6, 10.0, 2300, 3600, 2),
)


def step(n: int) -> Checkpoint:
    """A checkpoint of that step."""
    return Checkpoint(path=f"/w/checkpoints/step_{n}", step=n, inode=n, mtime_ns=n)


def events() -> list[tuple[float, ev.Event]]:
    """Records with their hour."""
    found: list[tuple[float, ev.Event]] = [
        (0.0, ev.SupervisorStarted(pid=999, version="0.1.0")),
        (0.0, replace(r.opened(), spec=replace(r.spec(), steps=4000, cost_per_hour=24.0))),
        (0.0, ev.PreflightPassed(roles=r.ROLES, warnings=("persistence mode is off",))),
        (0.0, ev.Cleaned()),
    ]
    for n, begin, progress, end, first, last, rung in ATTEMPTS:
        because = "first launch" if n == 1 else f"after the failure of attempt {n - 1}"
        found += [
            (begin, r.launch(n, rung, step(first), because)),
            (begin, ev.Launched(attempt=n, runner=ProcessId(n * 100, 1), leader=ProcessId(n * 100 + 1, 2))),
            (progress, ev.FirstProgress(attempt=n, step=first + 1, startup_s=(progress - begin) * 3600)),
        ]
        kept = ATTEMPTS[n][4] if n < 4 else last - 50
        found.append((end - 0.2, ev.CheckpointWritten(attempt=n, checkpoint=step(kept), logged_step=kept)))
        if n == 4:
            continue
        found += _failed(n, end, last)
    return found


def _failed(n: int, end: float, last: int) -> list[tuple[float, ev.Event]]:
    failure, plan, hits = r.OOM, r.LOWER, [(5, "CUDA out of memory"), (7, NASTY)]
    if n == 2:
        failure = ev.Failure(
            kind=Kind.SILENT_GPU, because="GPU 6 fell silent while the others kept training", gpu=6, uuid=r.UUIDS[6],
            evidence=("NVML: GPU 6 holds 31232 MiB at 0 %",), lost=("NCCL watchdog: an aftermath of it",),
        )  # fmt: skip
        plan, hits = ev.Plan(ending=None, because=failure.because), []
    if n == 3:
        failure = ev.Failure(kind=Kind.GPU_OOM, because=f"GPU 2: {NASTY}", gpu=2, log_line=NASTY, where="output.log:7")
        hits = []
    at = end
    return [
        *[
            (at, ev.HitSeen(attempt=n, kind=Kind.GPU_OOM, where="output.log:120", text=text, gpu=gpu))
            for gpu, text in hits
        ],
        (at, ev.JobEnded(attempt=n, end=ExitRecord(code=1, signal=None), first_step=1, last_step=last)),
        (at, ev.Judged(attempt=n, failure=failure, plan=plan, last_step=last)),
        (at, ev.StopIntended(attempt=n, by=ev.By.POLICY, grace_s=0.0, because="processes are left")),
        (at + 0.004, ev.MembersGone(attempt=n)),
        (at + 0.006, ev.VerifiedZero(attempt=n, waited_s=8.5, used_mib=(0.0,) * 8)),
        (at + 0.006, ev.Cleaned()),
    ]


def samples(hours: float = HOURS, every_s: float = 1.0) -> list[bytes]:
    """What a supervisor sampled; GPU 3 is at zero for one second at hour 4, GPU 6 is silent before hour 5.1."""
    chance = random.Random(8)
    lines = []
    for i in range(int(hours * 3600 / every_s)):
        hour = i * every_s / 3600
        of = next((each for each in reversed(ATTEMPTS) if each[1] <= hour), ATTEMPTS[0])
        lines.append(_line(i * every_s, hour, of, chance))
    return lines


def _line(at_s: float, hour: float, of: tuple[int, float, float, float, int, int, int], chance: random.Random) -> bytes:
    _, begin, progress, end, first, last, rung = of
    trains, loads = progress <= hour < end, begin <= hour < progress
    gpus = {}
    for gpu, uuid in enumerate(r.UUIDS):
        full = (62000 if gpu < 5 else 91000) - 3500 * rung + 400 * gpu
        share = 1.0 if trains else (hour - begin) / (progress - begin) if loads else 0.0
        mib = int(full * share + chance.random() * 300 * share)
        util = chance.randint(82, 99) if trains else chance.randint(0, 12) if loads else 0
        if gpu == 6 and 4.8 < hour < 5.1:
            util, mib = 0, 31232
        if gpu == 3 and abs(hour - 4.0) < 0.5 / 3600:
            util, mib = 0, 0
        gpus[uuid] = [mib, mib, util, util, util, TOTAL_MIB]
    told = trains and int(at_s) % 3 == 0
    step_now = int(first + (last - first) * (hour - progress) / (end - progress)) if trains else 0
    loss = 2.2 + 4.0 * 0.9993 ** (step_now - 600) + chance.gauss(0, 0.06)
    line = {
        "wall_s": r.T0_S + at_s,
        "gpus": gpus,
        "step": step_now if told else None,
        "rate": round(0.09 + chance.gauss(0, 0.004), 4) if told else None,
        "loss": round(loss, 4) if told else None,
    }
    return json.dumps(line, separators=(",", ":")).encode()


def write(home: Path, *, every_s: float = 1.0) -> RunDir:
    """The night as files of a run."""
    run = Home(home).run("dflash")
    run.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    journal = Journal.open(run.journal, writer=True)
    for hour, event in events():
        at = Instant(boot_id="b", boot_s=100.0 + hour * 3600, wall_s=r.T0_S + hour * 3600)
        journal.append(type(event).__name__, to_plain(event), at, sync=False)
    journal.close()
    run.open.touch()
    run.samples.mkdir(mode=0o700)
    (run.samples / "current.jsonl").write_bytes(b"\n".join(samples(every_s=every_s)) + b"\n")
    now = r.now_json(r.T0_S + HOURS * 3600, attempt=4, step=3600)
    write_atomic(run.now, json.dumps(now).encode())
    return run
