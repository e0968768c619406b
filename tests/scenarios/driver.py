"""A night told in commands: each changes the world, then the real loop takes its turns until it has nothing to say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import words
from evening import specs_options, witnessed
from fake_journals import Killed, MemoryJournal
from fake_machine import FakeMachine
from fake_specs import CHECKPOINTS, incident, uuid
from fake_world import Proc, World
from msgspec.structs import replace

from supervisor.core.aftermath import Aftermath, Printer
from supervisor.core.events import Drifted, Leftover, Paced, SupervisorStarted
from supervisor.core.evidence import Holder, Owner, Sign, Step, Weight
from supervisor.core.kinds import Kind
from supervisor.core.seen import Problem
from supervisor.core.spec import Param, RunSpec, Scalar
from supervisor.edges.specfile.sets import apply_set
from supervisor.loop import Loop

_OPTION = re.compile(r"\w+=")
QUIET = 3
"""So many turns in a row without a word, and there is nothing to say: two looks must find nobody."""


class Night:
    """One transcript. `run` answers with what was said since the command."""

    def __init__(self) -> None:
        self.world = World(runner_comes=True)
        self.journal = MemoryJournal(self.world)
        self.spec: RunSpec = incident()
        self.loop: Loop | None = None
        self.machine = FakeMachine(self.world)
        self.starts = 0
        self.away_s = 0.0
        self._told = 0
        self._order = ""
        self.world.save(690)

    def run(self, line: str) -> list[str]:
        """The records and the order that this command led to; none where it begins with `given`."""
        name, *rest = shlex.split(line)
        if name == "given":
            self.run(shlex.join(rest))
            return []
        options = {k: v for k, _, v in (word.partition("=") for word in rest if _OPTION.match(word))}
        plain = [word for word in rest if not _OPTION.match(word)]
        command: Callable[..., Any] = getattr(self, f"do_{name.replace('-', '_')}")
        said: list[str] = []
        if name == "shown":
            return self.do_shown(*plain)
        for pause in command(*plain, **options) or (None,):
            if pause is not None:
                self.world.pass_time(pause)
            said += self._settle()
        return said

    def _settle(self) -> list[str]:
        quiet, said = 0, []
        while quiet < QUIET:
            if self.loop is None and not self._starts():
                return said
            assert self.loop is not None
            before = len(self.journal.records)
            try:
                if not self.loop.turn():
                    self.loop.machine.close(self.loop.state)
                    self.loop = None
            except Killed:
                self.loop = None
                self.world.pass_time(self.away_s)
            news = self._news()
            said += news
            quiet = 0 if len(self.journal.records) > before or news else quiet + 1
        return said

    def _starts(self) -> bool:
        """A guardian would start a supervisor for an open run or a request that nobody read."""
        if not self.world.requests and not self.starts:
            return False
        self.machine = FakeMachine(self.world, sleeps=False)
        loop = Loop(self.journal, self.machine, SupervisorStarted(pid=1, version="test"))
        unread = any(r.id not in loop.state.answered for r in self.world.requests)
        if loop.state.phase.is_end and not unread:
            self._told = len(self.journal.records)
            return False
        self.starts += 1
        self.loop = loop
        return True

    def _news(self) -> list[str]:
        fresh = self.journal.records[self._told :]
        self._told = len(self.journal.records)
        said = [words.record(event) for event, _ in fresh if not isinstance(event, (SupervisorStarted, Paced))]
        order = words.order(self.machine.orders[-1]) if self.machine.orders else self._order
        changed, self._order = order != self._order, order
        return [order, *said] if changed else said

    def do_together(self, *lines: str) -> None:
        """All of these before the next look."""
        for line in lines:
            name, *rest = shlex.split(line)
            for _ in getattr(self, f"do_{name.replace('-', '_')}")(*rest) or ():
                pass

    # ── the evening ──────────────────────────────────────────────────────────────────────────────────────────────────

    def do_spec(self, **options: str) -> None:
        self.spec = specs_options(self.spec, options)

    def do_rule(self, **options: str) -> None:
        """Rules stand before those of the incident's spec, in the order in which they are told."""
        from evening import rule

        recovery = self.spec.recovery
        mine = [one for one in recovery.rules if one.where.startswith("rule")]
        rest = [one for one in recovery.rules if not one.where.startswith("rule")]
        made = rule(options, f"rule {len(mine) + 1}")
        self.spec = replace(self.spec, recovery=replace(recovery, rules=(*mine, made, *rest)))

    def do_no_rules(self) -> None:
        self.spec = replace(self.spec, recovery=replace(self.spec.recovery, rules=()))

    def do_protect(self, **options: str) -> None:
        params = self.spec.params
        protected = {**params.protected, **{k: Scalar(v, "int") for k, v in options.items()}}
        how = {**params.how, **{k: Param(name=k) for k in options}}
        self.spec = replace(self.spec, params=replace(params, protected=protected, how=how))

    def do_fit(self, verdict: str, *texts: str, exit: str = "6") -> None:
        """`fit ok`, or `fit refused TEXT... exit=6`; several refusals add up."""
        if verdict == "ok":
            self.world.problems = ()
        else:
            self.world.problems += tuple(Problem(exit=int(exit), text=text) for text in texts)

    def do_ready(self, *texts: str) -> None:
        """What stands against the next launch when it is prepared; nothing without a text."""
        self.world.ready_problems = tuple(Problem(exit=6, text=text) for text in texts)

    def do_hook(self, name: str, how: str) -> None:
        """`hook before_launch 3`: its exit code; `hang`: it does not end by itself."""
        self.world.hooks[name] = how if how == "hang" else int(how)

    def do_drift(self, since: str, *suspects: str) -> None:
        """What the newest attempt's environment differs in from attempt `since`."""
        told = tuple(suspects)
        many = " (not separable)" if len(told) > 1 else ""
        number = self.world.current
        self.world.drift = Drifted(attempt=number, since=int(since), changes=told, suspects="; ".join(told) + many)

    def do_runner(self, how: str) -> None:
        """`never`: it is started and never reaches the claim; `stuck`: it claims and does not start the job."""
        self.world.runner_comes = how != "never"
        self.world.job_starts = how != "stuck"

    def do_launch(self, problem: str = "") -> None:
        self.world.launch_problem = problem or None

    # ── verbs ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def do_up(self, **options: str) -> None:
        sets = {k: v for k, v in options.items() if k != "from"}
        args: dict[str, Any] = {"spec": self.spec, "rungs": apply_set(self.spec, sets)}
        if "from" in options:
            at = options["from"]
            args["from"] = at if at == "none" else f"{CHECKPOINTS}/{at}"
        self.world.ask("up", **args)

    def do_ask(self, verb: str, **options: str) -> None:
        """down, restart, pause, resume, adopt, or any word."""
        self.world.ask(verb, **options)

    def do_ask_unreadable(self) -> None:
        self.world.ask("up")
        self.world.requests[-1] = replace(self.world.requests[-1], problem="the request cannot be read", id="r0-odd")

    # ── the job ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def do_claim(self) -> None:
        """The runner of the newest attempt reaches its claim."""
        self.world.runner_arrives(self.world.current)

    def do_taken_by_a_supervisor(self) -> None:
        self.world.claims[self.world.current] = "supervisor"

    def do_job_begins(self) -> None:
        self.world.job_begins(self.world.current)

    def do_step(self, *numbers: str, total: str = "", loss: str = "", rate: str = "") -> Any:
        """Steps, a second apart."""
        known = {"total": int(total) if total else None, "loss": float(loss) if loss else None}
        for number in numbers:
            self.world.log(Step(int(number), 0.0, rate=float(rate) if rate else None, **known))
            yield 1.0

    def do_steps(self, first: str, last: str, every: str, by: str = "1", rate: str = "") -> Any:
        """`steps 700 760 30s by=10 rate=42`: from the first to the last, so far apart."""
        for number in range(int(first), int(last) + 1, int(by)):
            self.world.log(Step(number, 0.0, rate=float(rate) if rate else None))
            yield _seconds(every)

    def do_room(self, used: str, limit: str, free: str = "9000000") -> None:
        """Memory of the host and free room where the checkpoints are, in MiB, from now on."""
        self.world.room = (float(used), float(limit), (("/w", float(free), 10_000_000.0),))

    def do_fills(self, what: str, mib: str, duration: str, stays: str = "") -> Any:
        """`fills 5 60 1h`: so much more memory of that GPU (or of the `host`) each minute, for so long; `stays=2`: at
        every second minute it goes back to where it was."""
        for minute in range(int(_seconds(duration) / 60)):
            more = -float(mib) if stays and minute % int(stays) else float(mib)
            if what == "host":
                used, limit, disks = self.world.room
                self.world.room = (used + more, limit, disks)
            else:
                before = self.world.residents.get(uuid(int(what)), (0.0, None))[0]
                self.world.residents[uuid(int(what))] = (before + more, None)
            yield 30.0
            step = max((one.step for one in self.world.logs[self.world.current] if isinstance(one, Step)), default=690)
            self.world.log(Step(step + 1, 0.0))
            yield 30.0

    def do_oom(
        self, gpu: str, wanted: str = "4854", free: str = "4680", rank: str = "", holder: str = "", total: str = ""
    ) -> None:
        """`holder=PID:MIB`: another process that the text names; `total`: the size of the GPU, where it says that."""
        pid, _, mib = holder.partition(":")
        others = ((int(pid), float(mib)),) if holder else ()
        rank_ = int(rank) if rank else None
        total_ = float(total) if total else None
        self.world.oom(int(gpu), float(wanted), float(free), rank=rank_, others=others, total_mib=total_)

    def do_text(self, kind: str, text: str, gpu: str = "", weight: str = "cause") -> None:
        self.world.hit(Kind(kind), text, gpu=int(gpu) if gpu else None, weight=Weight(weight))

    def do_says(self, what: str) -> None:
        """`done` or `sigterm`."""
        self.world.log(what)

    def do_enters(self, phase: str) -> None:
        self.world.log((phase, True))

    def do_leaves(self, phase: str) -> None:
        self.world.log((phase, False))

    def do_grows(self, what: str, n: str, total: str) -> None:
        """A bar or a load shows this count."""
        self.world.log(Sign(what, int(n), int(total), 0.0))

    def do_train(self, first: str, last: str, every: str = "1s") -> Any:
        """Steps from `first` to `last`."""
        for number in range(int(first), int(last) + 1):
            self.world.log(Step(number, 0.0))
            yield _seconds(every)

    def do_shown(self, *keys: str) -> list[str]:
        """What now.json says."""
        return [f"shown {key}={self.machine.shown[key]}" for key in keys]

    def do_dumps(self, how: str = "", missing: str = "") -> None:
        """`hang`: there is no answer; `missing=2,5`: these ranks did not report."""
        self.world.dumps = how != "hang"
        self.world.silent_ranks = tuple(map(int, missing.split(","))) if missing else ()

    def do_save(self, *steps: str) -> None:
        for step in steps:
            self.world.save(int(step))

    def do_tear(self, step: str) -> None:
        self.world.tear(int(step))

    def do_busy_path(self, step: str) -> None:
        """This checkpoint cannot be removed."""
        self.world.busy_paths.add(f"{CHECKPOINTS}/step_{step}")

    def do_pointer(self, step: str) -> None:
        """Where the pointer file beside the checkpoints leads."""
        self.world.pointer = f"{CHECKPOINTS}/step_{step}"

    def do_cut(self, *paths: str) -> None:
        """Output shards that a dead writer cut off."""
        self.world.cut = list(paths)

    def do_lose(self, step: str) -> None:
        del self.world.checkpoints[f"{CHECKPOINTS}/step_{step}"]

    def do_exit(self, code: str = "", signal: str = "", orphans: str = "") -> None:
        """The job's leader ends; `orphans=yes` leaves its workers."""
        self.world.job_ends(int(code) if code else None, int(signal) if signal else None, orphans=bool(orphans))

    def do_dies(self, name: str) -> None:
        self.world.die(self.world.of(name), signal=9)

    def do_kill_runner(self) -> None:
        self.world.runners[self.world.current].alive = False

    def do_process(self, name: str, **options: str) -> None:
        """`process rank5 deaf=yes`, `state=D wchan=...`, `writing=yes`, `state=S`."""
        proc = self.world.of(name)
        for key, value in options.items():
            setattr(proc, key, value if key in ("state", "wchan") else value == "yes")

    def do_violation(self, text: str) -> None:
        self.world.violations.append(text)

    def do_witness(self, what: str, **of: str) -> None:
        """`oom_kill pid=`, `xid code= gpu=`, `cgroup kills=`, `unfit gpu=`, `room free=`, `orphan pid= attempt=`,
        `rank n= text=`, `silent`: what the witnesses beside the log will say."""
        told = witnessed(what, of, self.world.boot_s)
        self.world.aftermath = replace(self.world.aftermath or Aftermath(), **told)

    def do_sees(self, rank: str, visible: str) -> None:
        """The process of this rank sees these GPUs."""
        printer = Printer(int(rank), int(rank), tuple(visible.split(",")))
        self.world.printers = (*self.world.printers, printer)

    def do_forget_witnesses(self) -> None:
        self.world.aftermath = None

    # ── the box ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def do_memory(self, gpu: str, used: str, owner: str = "", pid: str = "4242") -> None:
        """Memory that belongs to no process of ours; `owner` names a holder."""
        gpu = uuid(int(gpu))
        holder = Holder(gpu, int(pid), "eve", "python other.py", Owner(owner)) if owner else None
        self.world.residents[gpu] = (float(used), holder)

    def do_unreadable(self, gpu: str, why: str = "GPU is lost") -> None:
        self.world.unreadable[uuid(int(gpu))] = why

    def do_readable(self, gpu: str) -> None:
        del self.world.unreadable[uuid(int(gpu))]

    def do_holds(self, gpu: str, mib: str) -> None:
        """The processes on this GPU hold so much from now on."""
        for proc in [p for p in self.world.procs.values() if p.gpu == uuid(int(gpu))]:
            proc.mib = float(mib)

    def do_busy(self, gpu: str) -> None:
        self.world.idle.discard(uuid(int(gpu)))

    def do_idle(self, gpu: str) -> None:
        self.world.idle.add(uuid(int(gpu)))

    def do_claimed(self, step: str, by: str) -> None:
        self.world.claimed[f"{CHECKPOINTS}/step_{step}"] = by

    def do_output(self, how: str) -> None:
        self.world.output = how

    def do_leave(self, path: str) -> None:
        """A dead member left a file that the next launch would meet."""
        left = Leftover(path=path, what="shared memory", proof="made by pid 105", device=1, inode=len(path))
        self.world.left.append(left)

    def do_reboot(self) -> None:
        self.world.reboot()
        self.loop = None

    def do_supervisor_killed(self) -> None:
        self.loop = None

    def do_kill_after(self, record: str, away: str = "0s") -> None:
        """The supervisor is killed as soon as the next record of that type is on the disk; the next comes so late."""
        self.journal.kill_after = record
        self.away_s = _seconds(away)

    def do_tick(self, duration: str) -> Any:
        """Time passes, in steps that no deadline slips through."""
        left = _seconds(duration)
        pace = 0.5 if left <= 60 else (5.0 if left <= 900 else 30.0)
        while left > 0:
            yield min(pace, left)
            left -= pace

    def do_job_reappears(self, name: str) -> None:
        """A process that hid from the sweeps is seen again."""
        n = self.world.current
        self.world.procs[n * 100 + 99] = Proc(n * 100 + 99, n, name, pgid=n * 100 + 99)


def _seconds(duration: str) -> float:
    return float(duration.rstrip("smh")) * {"s": 1, "m": 60, "h": 3600}[duration[-1]]
