"""The stand-in trainer: real processes that load, train, run out of memory and leave orphans. It trains nothing.

`python trainer.py FLAGS` is the launcher; it starts one worker for each GPU, in a session of its own and with the
same flags, as torchrun does. A worker holds memory of the simulated world for as long as it lives. Each step is a
barrier over all workers, so one that is stopped stops the job and one that dies fails it.

Rule 1: a worker that loses its launcher stays, deaf to SIGHUP, and keeps its memory (at most SUPERVISE_SIM_ORPHAN_S).
Rule 2: the numbers of the incident are in flags.py, its words in texts.py.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from supervisor.simulation import saves, texts
from supervisor.simulation.flags import OUT_OF_MEMORY, TOTAL_GIB, Job, Scenario, physical, read_job
from supervisor.simulation.world import World

SHARDS = 8
LOAD_S = 1.6
STEP_S = 0.3
TROUBLE_AFTER = 3  # steps before whatever goes wrong goes wrong
SAVE_EVERY = 5  # so nothing is saved between the start and the trouble at step 690 + 3
ROUND = 40  # a run ends at the next multiple of this
BARRIER_S = 600.0  # the default timeout of a collective
RANK = "SUPERVISE_SIM_RANK"
ENDLESS = (Scenario.SLOW, Scenario.SILENT, Scenario.FORGETS)


class Terminated(Exception):
    """SIGTERM or SIGINT arrived."""


class Worker(Struct):
    """A worker as its launcher sees it."""

    rank: int
    process: subprocess.Popen[bytes]
    wire: socket.socket

    def tell(self, word: str) -> None:
        """Sends one word; the dead do not hear it."""
        try:
            self.wire.sendall(f"{word}\n".encode())
        except OSError:
            return  # it is dead: the next `answered` says so

    def answered(self) -> bool:
        """True when the worker has answered, False when it is dead; waits as long as a collective would."""
        self.wire.settimeout(BARRIER_S)
        try:
            return bool(self.wire.recv(1))
        except OSError:
            return False


class Launcher:
    """Starts the workers and leads them through loading and training."""

    def __init__(self, job: Job, argv: list[str]) -> None:
        self.job = job
        self.argv = argv
        forgets = job.scenario is Scenario.FORGETS
        self.start = saves.step_of(job.resume) if job.resume and not forgets else 0
        self.workers: list[Worker] = []
        self.crippled = False

    def run(self) -> int:
        """The exit code of the job."""
        for caught in (signal.SIGTERM, signal.SIGINT):
            signal.signal(caught, _terminated)
        try:
            if self.job.output is not None:
                self.job.output.mkdir(parents=True, exist_ok=True)
            for rank, gpu in enumerate(self.job.gpus):
                self.workers.append(self._started(rank, gpu))
            return self._load() or self._train()
        except Terminated:
            for again in (signal.SIGTERM, signal.SIGINT):
                signal.signal(again, signal.SIG_IGN)
            say("Received 15 death signal, shutting down workers\n")
            self._end(self.workers)
            return 1

    def _started(self, rank: int, gpu: int) -> Worker:
        ours, theirs = socket.socketpair()
        environ = os.environ | {
            RANK: str(rank),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "SUPERVISE_SIM_SCENARIO": self.job.scenario.value,
            "SUPERVISE_SIM_GPU": str(gpu),
        }
        command = [sys.executable, __file__, *self.argv]
        process = subprocess.Popen(command, stdin=theirs.fileno(), env=environ, start_new_session=True)
        theirs.close()
        return Worker(rank, process, ours)

    def _load(self) -> int:
        if self.job.resume is not None:
            say(f"resuming from {self.job.resume} at step {self.start}\n")
        for shard in range(1, SHARDS + 1):
            say(f"loading shard {shard} of {SHARDS}\n")
            lost = self._barrier(f"load {shard}")
            if lost:
                return self._fail(lost)
            self._pause(LOAD_S / SHARDS)
        return 0

    def _train(self) -> int:
        step = self.start
        last = (step // ROUND + 1) * ROUND
        while step < last or self.crippled or self.job.scenario in ENDLESS:
            self._pause(STEP_S * (3 if self.crippled else 1))
            lost = self._barrier(self._word_for(step + 1))
            if lost and (self.job.scenario is not Scenario.SURVIVE or not self._drafters_left()):
                return self._fail(lost)
            self.crippled = self.crippled or bool(lost)
            step += 1
            self._report(step, last)
            if step == self.start + TROUBLE_AFTER and self.job.scenario is Scenario.EXIT1:
                say("giving up\n")
                self._end(self.workers)
                return 1
        self._end(self.workers)
        say(f"finished at step {step}\n")
        return 0

    def _word_for(self, step: int) -> str:
        """What the workers are told for this step."""
        if step != self.start + TROUBLE_AFTER + 1:
            return "step"
        if self.job.scenario in OUT_OF_MEMORY:
            return "peak"
        return self.job.scenario.value if self.job.scenario in (Scenario.HANG, Scenario.SILENT) else "step"

    def _report(self, step: int, last: int) -> None:
        """A line of progress; a checkpoint and a shard of output every few steps."""
        rate = 42.3 / (3 if self.crippled else 1) + step % 7 / 10
        say(f"step {step}/{last} | loss {2.0 + 200 / (step + 100):.4f} | lr 3.00e-05 | {rate:.1f} Ktok/s\n")
        if step % SAVE_EVERY:
            return
        path = Path(self.job.checkpoints.replace("*", str(step)))
        saves.save(path, step)
        say(f"saved {path}\n")
        if self.job.output is not None:
            saves.save_shard(self.job.output / f"shard_{step // SAVE_EVERY:05d}.safetensors", step)

    def _barrier(self, word: str) -> list[Worker]:
        """Tells every worker and waits for each: those that are lost.

        The heaviest step goes rank by rank, so that the log has the ranks in order.
        """
        lost: list[Worker] = []
        for group in [[each] for each in self.workers] if word == "peak" else [self.workers]:
            for worker in group:
                worker.tell(word)
            lost += [worker for worker in group if not worker.answered()]
        self.workers = [worker for worker in self.workers if worker not in lost]
        return lost

    def _drafters_left(self) -> bool:
        return any(self.job.gpus[worker.rank] in self.job.drafters for worker in self.workers)

    def _fail(self, lost: list[Worker]) -> int:
        """Ends the drafters that are left, says what failed and goes. Whoever is no drafter becomes an orphan."""
        for worker in lost:
            worker.process.wait(timeout=10)
        drafters = [each for each in self.workers if self.job.gpus[each.rank] in self.job.drafters]
        for worker in drafters:
            say(texts.connection_lost(worker.rank, datetime.now()))
            say(texts.closing(os.getpid(), worker.process.pid, datetime.now()))
        self._end(drafters)
        first = lost[0]
        code = first.process.returncode
        say(texts.worker_failed(os.getpid(), first.rank, first.process.pid, code, __file__, datetime.now()))
        return 1

    def _end(self, workers: Iterable[Worker]) -> None:
        """SIGTERM for these workers; one that does not end within 5 s is killed."""
        for worker in workers:
            worker.process.terminate()
        deadline = time.monotonic() + 5.0
        for worker in workers:
            try:
                worker.process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds / self.job.speed)


class Rank:
    """One worker: does what it is told, holds memory meanwhile."""

    def __init__(self, job: Job, rank: int, gpu: int) -> None:
        self.job = job
        self.rank = rank
        self.gpu = gpu
        self.need = job.need(gpu)
        self.world = World(job.world) if job.world else None
        self.index = physical(gpu, os.environ, self.world) if self.world else gpu
        self.held = 0.0
        self.util = 0.0
        self.busy = 94.0 if gpu in job.drafters else 97.0

    def run(self) -> int:
        """Serves for as long as there is a launcher, then stays; SIGTERM ends it."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with socket.socket(fileno=os.dup(0)) as wire:
            words = wire.makefile("r")
            for line in words:
                self._do(line.strip())
                wire.send(b"+")
        self._stay()
        return 0

    def _do(self, word: str) -> None:
        """One word of the launcher's. A hang is a word that is never answered."""
        if word.startswith("load "):
            self._take(self.need.loaded * int(word[5:]) / SHARDS - self.held, util=3.0)
        elif word == "peak":
            self._take(self.need.peak, util=self.busy)
            self._hold(self.held - self.need.peak, self.busy)
        elif word == "hang":
            self._hold(self.held, 100.0)
            time.sleep(self.job.orphan_s)
        elif word == "silent" and self.gpu == self.job.drafters[len(self.job.drafters) // 2]:
            self._hold(30.5, 0.0)
            self.busy = 0.0
        else:
            self._hold(self.held, self.busy)

    def _take(self, gib: float, util: float) -> None:
        """Takes memory, or dies of it as PyTorch would."""
        others: list[tuple[int, float]] = []
        free = TOTAL_GIB - self.held
        if self.world is not None:
            free = self.world.free_mib(self.index) / 1024
            held = self.world.held(self.index)
            others = [(each.pid, each.mib / 1024) for each in held if each.pid != os.getpid()]
        if gib > free:
            there = texts.Memory(tried=gib, free=free, total=TOTAL_GIB, in_use=self.held)
            say(texts.out_of_memory(self.rank, self.gpu, there, others))
            sys.exit(1)
        self._hold(self.held + gib, util)

    def _hold(self, gib: float, util: float) -> None:
        if self.world is not None and (gib, util) != (self.held, self.util):
            self.world.hold({self.index: gib * 1024}, util)
        self.held, self.util = gib, util

    def _stay(self) -> None:
        """An orphan: idle, still holding its memory."""
        self._hold(self.held, 0.0)
        deadline = time.monotonic() + self.job.orphan_s
        while time.monotonic() < deadline and (self.job.world is None or self.job.world.exists()):
            time.sleep(0.5)


def say(text: str) -> None:
    """Writes the text whole, so that lines of several processes never mix."""
    os.write(1, text.encode())


def main(argv: list[str]) -> int:
    """Launcher, or worker where a launcher started it."""
    job = read_job(argv, os.environ)
    rank = os.environ.get(RANK)
    if rank is not None:
        return Rank(job, int(rank), int(os.environ["SUPERVISE_SIM_GPU"])).run()
    return Launcher(replace(job, scenario=_this_time(job, argv)), argv).run()


def _this_time(job: Job, argv: list[str]) -> Scenario:
    """Writes this launch down in the world's starts.jsonl; its scenario, by how many there were before."""
    if job.world is None:
        return job.scenario
    starts = job.world / "starts.jsonl"
    before = len(starts.read_bytes().splitlines()) if starts.exists() else 0
    launch = {"pid": os.getpid(), "argv": argv, "visible": os.environ.get("CUDA_VISIBLE_DEVICES")}
    with starts.open("a") as file:
        file.write(json.dumps(launch) + "\n")
    times = os.environ.get("SUPERVISE_SIM_TIMES")
    if job.scenario is Scenario.FORGETS and not before:
        return Scenario.EXIT1
    return Scenario.WELL if times and before >= int(times) else job.scenario


def _terminated(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
