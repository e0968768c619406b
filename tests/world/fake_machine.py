"""The loop's Machine over a `World`: what dies with a supervisor is here, what outlives it is there.

Every touch of the world goes through `touch`, where a test may kill the supervisor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fake_specs import inventory
from fake_world import Started, World

from supervisor.core.events import ASIDE, Dumped, DumpIntended, HookEnded, LeftoversRemoved, Pruned, PruneIntended
from supervisor.core.evidence import ExitRecord, Hit, RoomSeen, Sign, Step
from supervisor.core.placing import NotPlaced, lay_out
from supervisor.core.render import Placement, render
from supervisor.core.seen import (
    CheckFit,
    Clean,
    Follow,
    GetReady,
    Hook,
    JobSeen,
    Launch,
    MembersSeen,
    Order,
    PreflightSeen,
    Problem,
    Prune,
    ReadySeen,
    Rest,
    Seen,
    Stop,
    Tidy,
    Verify,
    Wait,
)
from supervisor.core.spec import Stale
from supervisor.core.state import State, send_key
from supervisor.core.watch import Memo, Watch, memo, recalled
from supervisor.edges.codec import from_plain, to_plain

PAUSES = {Launch: 0.1, Stop: 0.1, Verify: 0.1, Clean: 0.1, Tidy: 0.1, GetReady: 0.1}

HOLDERS_EVERY_S = 3.0


def _dumped(asked: DumpIntended, ranks: tuple[int, ...]) -> Dumped:
    path = f"/s/attempts/{asked.attempt:04}/dump.txt"
    return Dumped(attempt=asked.attempt, why=asked.why, step=asked.step, path=path, summary="8 stacks", ranks=ranks)


def no_touch(what: str) -> None:
    """Nobody is killed."""


class FakeMachine:
    """One supervisor's hold on the world."""

    def __init__(self, world: World, touch: Callable[[str], None] = no_touch, *, sleeps: bool = True) -> None:
        self.world = world
        self.touch = touch
        self.sleeps = sleeps
        self.orders: list[Order] = []
        self.closed = False
        self._sent: frozenset[str] = frozenset()
        self._stop: tuple[int, float] | None = None
        self._empty_looks = 0
        self._read = (0, 0)
        self._cleaned: str | None = None
        self._tidied: LeftoversRemoved | None = None
        self._checked = 0
        self._asked_s = float("-inf")
        self.shown: Mapping[str, Any] = {}

    # ── do ───────────────────────────────────────────────────────────────────────────────────────────────────────────

    def do(self, order: Order, state: State) -> None:
        self.touch(f"do {type(order).__name__}")
        self.orders.append(order)
        match order:
            case Launch():
                self._launch(state)
            case Stop():
                self._end(order, state)
            case Clean():
                self._cleaned = "removed it" if order.how == "remove" else f"renamed it to {order.to}"
                if order.how != ASIDE:
                    self.world.output = "absent"
            case Tidy():
                self.world.left = [one for one in self.world.left if one not in order.leftovers]
                self._tidied = LeftoversRemoved(removed=tuple(one.path for one in order.leftovers))
            case _:
                pass
        self.touch(f"done {type(order).__name__}")

    def _launch(self, state: State) -> None:
        attempt, spec, world = state.attempt, state.spec, self.world
        assert attempt is not None
        assert spec is not None
        self._cleaned = self._tidied = None
        if attempt.number in world.claims or world.launch_problem is not None:
            return
        place = Placement(
            attempt=attempt.number,
            attempt_dir=f"/s/attempts/{attempt.number:04}",
            run_dir="/s",
            rungs=attempt.rungs,
            checkpoint=attempt.checkpoint,
            gpus=state.roles,
            ports=attempt.ports,
            rehearsal=attempt.rehearsal,
        )
        made = render(spec, place)
        start = Started(attempt.number, made.argv, made.env, attempt.rungs, attempt.checkpoint, (), 0.0)
        world.launch_files.setdefault(attempt.number, start)
        self.touch("launch file written")
        if world.runner_comes:
            world.runner_arrives(attempt.number)

    def _end(self, order: Stop, state: State) -> None:
        attempt, world = state.attempt, self.world
        assert attempt is not None
        assert attempt.stop_at is not None
        if self._stop != (order.attempt, attempt.stop_at.boot_s):
            self._stop, self._sent, self._empty_looks = (order.attempt, attempt.stop_at.boot_s), frozenset(), 0
        if order.abandon and order.attempt not in world.claims:
            world.claims[order.attempt] = "supervisor"
            self.touch("claim taken")
        if order.send is None:
            return
        for target in order.targets:
            world.signal(target.id.pid, target.id.start_ticks, order.send)
        self._sent |= {send_key(order.send, order.group)}

    # ── look ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def look(self, order: Order, state: State) -> Seen:
        world = self.world
        world.requests = [r for r in world.requests if r.id not in state.answered]
        found: dict[str, Any] = {"at": world.now(), "machine": world.machine, "requests": tuple(world.requests)}
        match order:
            case CheckFit():
                found["preflight"] = self._fit(order)
            case Launch() | Follow():
                asks = isinstance(order, Follow) and order.processes
                found |= self._job(state) | {"gpus": self._gpus(processes=asks), "found": self._found(state)}
                found["violations"] = tuple(world.violations)
                found["drift"] = world.drift
                if world.room is not None:
                    found["room"] = RoomSeen(world.boot_s, *world.room)
                if isinstance(order, Follow) and order.dump is not None and world.dumps:
                    found["dumped"] = _dumped(order.dump, world.silent_ranks)
                if isinstance(order, Follow) and order.prune is not None:
                    found["pruned"] = self._prune(order.prune)
            case Stop():
                found |= {"job": self._job(state)["job"], "members": self._members(), "sent": self._sent}
                found["gpus"] = self._gpus()
            case Verify():
                found |= {"gpus": self._gpus(processes=order.holders), "members": self._members()}
                found["holders"] = self._holders() if order.holders else None
                found["early"] = self._ready(state)
            case Hook():
                found |= {"ready": self._ready(state), "hook": self._hook(order)}
            case GetReady() | Clean() | Tidy() | Prune():
                found |= {"ready": self._ready(state), "cleaned": self._cleaned, "tidied": self._tidied}
                found["cleaned_path"] = order.path if isinstance(order, Clean) else ""
                found["pruned"] = self._prune(order.prune) if isinstance(order, Prune) else None
            case Wait():
                found["gpus"] = self._gpus() if order.readings else {}
            case Rest():
                pass
        self.touch(f"look {type(order).__name__}")
        return Seen(**found)

    def _fit(self, order: CheckFit) -> PreflightSeen | None:
        """The checks take their time: the first look finds none."""
        self._checked += 1
        if self._checked == 1:
            return None
        world, resume = self.world, order.spec.resume
        box = inventory(world.gpu_count)
        roles = lay_out(order.spec, box)
        assert not isinstance(roles, NotPlaced)
        problems = list(world.problems)
        for gpu in box:
            if gpu.uuid in world.unreadable:
                problems.append(Problem(exit=6, text=f"GPU {gpu.index} cannot be read"))
            elif world.used_mib(gpu.uuid) > 64.0:
                problems.append(Problem(exit=6, text=f"GPU {gpu.index} is not empty"))
        named = world.checkpoints.get(order.from_) if order.from_ else None
        return PreflightSeen(
            problems=tuple(problems),
            roles=roles,
            found=tuple(world.checkpoints.values()),
            start=world.checkpoints.get(resume.start) if resume and resume.start else None,
            named=named,
            claimed=world.claimed,
            pointer=world.pointer,
        )

    def _job(self, state: State) -> dict[str, Any]:
        attempt, world = state.attempt, self.world
        assert attempt is not None
        n = attempt.number
        claim, runner = world.claims.get(n, "none"), world.runners.get(n)
        if claim != "runner" or runner is None:
            return {"job": JobSeen(claim=claim, problem=world.launch_problem)}
        end = world.exits.get(n)
        if end is None and not runner.alive and not any(p.attempt == n for p in world.procs.values()):
            end = ExitRecord(None, None)
        leader = runner.leader
        job = JobSeen(
            claim="runner",
            runner=runner.id,
            runner_alive=runner.alive,
            leader=leader,
            leader_alive=leader is not None and leader.pid in world.procs,
            exit=end,
        )
        return {"job": job, "aftermath": self.world.aftermath, "printers": self.world.printers, **self._log(n)}

    def _log(self, n: int) -> dict[str, Any]:
        lines = self.world.logs.get(n, [])
        at = self._read[1] if self._read[0] == n else 0
        self._read = (n, len(lines))
        fresh = lines[at:]
        now = self.world.boot_s
        return {
            "hits": tuple(one for one in fresh if isinstance(one, Hit)),
            "steps": tuple(
                Step(one.step, now, one.rate, one.loss, one.total) for one in fresh if isinstance(one, Step)
            ),
            "marks": tuple((one[0], one[1], now) for one in fresh if isinstance(one, tuple)),
            "signs": tuple(Sign(one.what, one.n, one.total, now) for one in fresh if isinstance(one, Sign)),
            "done_seen": "done" in fresh,
            "sigterm_seen": "sigterm" in fresh,
        }

    def _prune(self, intended: PruneIntended) -> tuple[PruneIntended, Pruned]:
        """Removes them from the disk; those that are busy stay."""
        paths = [one.path for one in intended.checkpoints]
        gone = tuple(path for path in paths if path not in self.world.busy_paths)
        for path in gone:
            self.world.checkpoints.pop(path, None)
        kept = tuple(f"{path}: busy" for path in paths if path not in gone)
        return intended, Pruned(removed=gone, kept=kept)

    def _members(self) -> MembersSeen:
        procs = self.world.procs.values()
        self._empty_looks = 0 if procs else self._empty_looks + 1
        writing = frozenset(p.pid for p in procs if p.writing)
        members = tuple(p.member for p in procs)
        return MembersSeen(members=members, empty_looks=self._empty_looks, writing=writing)

    def _holders(self) -> Any:
        """Asked now and then only, as process lists cost milliseconds under the driver's lock."""
        if self.world.boot_s - self._asked_s < HOLDERS_EVERY_S:
            return None
        self._asked_s = self.world.boot_s
        return self.world.holders()

    def _gpus(self, *, processes: bool = False) -> dict[str, Any]:
        box = inventory(self.world.gpu_count)
        return {gpu.uuid: self.world.reading(gpu.index, gpu.uuid, processes=processes) for gpu in box}

    def _found(self, state: State) -> Any:
        return tuple(self.world.checkpoints.values()) if state.spec and state.spec.resume else None

    def _hook(self, order: Hook) -> HookEnded | None:
        """A hook ends at the second look, as the world says; one that is to be ended at once, by a signal."""
        asked, world = order.hook, self.world
        code = None if order.stop else world.hooks.get(asked.hook, 0)
        if code == "hang":
            return None
        why = "it was not wanted any more" if order.stop else "no room in the bucket" if code else ""
        world.hooks_ran.append(" ".join(asked.argv))
        return HookEnded(attempt=asked.attempt, hook=asked.hook, code=code, why=why, took_s=1.0)

    def _ready(self, state: State) -> ReadySeen:
        world, spec = self.world, state.spec
        assert spec is not None
        stale = world.output == "empty" and spec.output.stale is not Stale.KEEP
        archive = world.output == "full" and spec.output.stale is Stale.ARCHIVE and state.made_output
        named = world.checkpoints.get(state.from_) if state.from_ else None
        start = world.checkpoints.get(spec.resume.start) if spec.resume and spec.resume.start else None
        folder = f"/s/attempts/{state.attempts_made + 1:04}"
        return ReadySeen(
            roles=state.roles,
            found=tuple(world.checkpoints.values()),
            start=start,
            named=named,
            claimed=world.claimed,
            stale_how="remove" if stale else ("archive" if archive else ""),
            stale_path=spec.output.dir or "",
            stale_to=f"{spec.output.dir}.stale-{state.attempts_made}" if archive else None,
            leftovers=tuple(world.left),
            cut=tuple((path, f"{path}.cut", "its last line is cut off") for path in world.cut),
            pointer=world.pointer,
            output_there=world.output != "absent",
            token=f"dflash:{state.attempts_made + 1}",
            run_dir="/s",
            attempt_dir=folder,
            problems=world.ready_problems,
        )

    # ── wait, memory, views, end ─────────────────────────────────────────────────────────────────────────────────────

    def wait(self, order: Order, seen: Seen) -> None:
        if self.sleeps:
            self.world.pass_time(PAUSES.get(type(order), 1.0))

    def recall(self, state: State) -> Watch | None:
        saved = self.world.saved_watch
        if saved is None or state.attempt is None:
            return None
        found = from_plain(saved["memo"], Memo)
        if found.attempt != state.attempt.number or found.boot_id != self.world.boot_id:
            return None
        self._read = tuple(saved["read"])
        return recalled(found)

    def remember(self, watch: Watch) -> None:
        self.touch("remember")
        if self._read[0] == watch.attempt:
            self.world.saved_watch = {"memo": to_plain(memo(watch)), "read": list(self._read)}

    def show(self, now: Mapping[str, Any]) -> None:
        self.touch("show")
        self.shown = now

    def close(self, state: State) -> None:
        self.touch("close")
        self.closed = True
