"""What the next launch needs to know, looked at after the last process died; and the stale output, treated."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace

from supervisor.core.errors import Exit
from supervisor.core.events import ASIDE
from supervisor.core.evidence import Checkpoint, Gpu, Incomplete
from supervisor.core.placing import RoleGpus
from supervisor.core.seen import Clean, Problem, ReadySeen
from supervisor.core.spec import RunSpec
from supervisor.core.stale import Archive, OutputSeen, Remove, Treatment, decide
from supervisor.core.state import State
from supervisor.edges import host, output, proc, secrets, shards
from supervisor.edges.checkpoints import describe, pointed, scan
from supervisor.edges.ownership import new_token
from supervisor.edges.paths import Home, RunDir
from supervisor.machines import surroundings
from supervisor.machines.claims import claimed_checkpoints
from supervisor.machines.remains import Remains
from supervisor.machines.starting import placed_before

PORT_FREE_WITHIN_S = 20.0
"""So long a busy port is waited for before it is a reason not to launch: what died may still hold it for seconds."""

PORT_EVERY_S = 0.2

UNLISTED = "checkpoints cannot be listed"


class Ready:
    """One look for one launch."""

    def __init__(
        self,
        home: Home,
        run: RunDir,
        state: State,
        inventory: tuple[Gpu, ...],
        remains: Remains,
        redact: Callable[[str], str],
        *,
        locked: bool,
    ) -> None:
        assert state.spec is not None
        self._home = home
        self._run = run
        self._state = state
        self._spec = state.spec
        self._inventory = inventory
        self._remains = remains
        self._redact = redact
        self._locked = locked
        self._number = state.attempts_made + 1

    def look(self) -> ReadySeen:
        """Checkpoints, output, ports and places as they are now."""
        problems: list[Problem] = []
        if not self._locked:
            problems.append(Problem(exit=int(Exit.CONFLICT), text="another run has taken a GPU of this run"))
        stale = self._stale()
        stale_how, stale_to = _stale_words(stale)
        ports, busy = self._ports()
        problems += busy
        changed = self._surroundings()
        problems += [Problem(exit=int(Exit.PREFLIGHT), text=text) for text in changed.problems]
        left = self._remains.find(self._state)
        seen = ReadySeen(
            roles=self._roles(),
            stale_how=stale_how,
            stale_path=stale[0].path if stale else "",
            stale_to=stale_to,
            output_there=stale is None or stale[0].exists,
            leftovers=left.ours,
            told=(*left.told, *changed.warnings),
            ports=ports,
            token=new_token(self._run.name),
            run_dir=str(self._run.path),
            attempt_dir=str(self._run.attempt(self._number).path),
            problems=tuple(problems),
            cut=self._cut(),
        )
        return self._with_checkpoints(seen)

    def again(self, seen: ReadySeen) -> ReadySeen:
        """The same with the checkpoints as they are now: what was seen of them is older than a launch may go by."""
        problems = tuple(one for one in seen.problems if not one.text.startswith(UNLISTED))
        return self._with_checkpoints(replace(seen, problems=problems))

    def _with_checkpoints(self, seen: ReadySeen) -> ReadySeen:
        resume, from_ = self._spec.resume, self._state.from_
        if resume is None:
            return seen
        found: tuple[Checkpoint | Incomplete, ...] = ()
        problems = seen.problems
        try:
            found = scan(resume)
        except (OSError, TimeoutError) as error:
            problems = (*problems, Problem(exit=int(Exit.PREFLIGHT), text=f"{UNLISTED}: {error}"))
        return replace(
            seen,
            found=found,
            start=describe(resume.start, resume) if resume.start else None,
            named=describe(from_, resume) if from_ and from_ != "none" else None,
            claimed=claimed_checkpoints(self._home, self._run.name, found),
            pointer=pointed(resume) if resume.mode == "auto" else None,
            problems=problems,
            looked_boot_s=proc.now().boot_s,
        )

    def _surroundings(self) -> surroundings.Compared:
        """What the relaunch would run in, by pins, code and data. Before an episode's first launch it was looked at."""
        state, spec = self._state, self._spec
        if not surroundings.is_watched(spec) or self._number == state.episode_first:
            return surroundings.Compared()
        copy = surroundings.Compared()
        if state.code is not None:
            from supervisor.machines import code  # only for such runs

            looked = code.checked(spec, state.code)
            copy = surroundings.Compared(looked.problems, looked.warnings)
            if copy.problems:
                return copy
        known = secrets.load(self._run)
        rungs = state.plan.rungs if state.plan and state.plan.rungs else state.rungs
        now = surroundings.take(
            spec, rungs, known.job if known is not None else {}, self._inventory, self._redact, state.code
        )
        good, first = (surroundings.of_attempt(self._run, n) for n in (state.last_good, state.episode_first))
        found = surroundings.compared(spec, now, good, first)
        warnings = tuple(one for one in found.warnings if not one.startswith("pin"))
        return surroundings.Compared(found.problems, (*copy.warnings, *warnings))

    def clean(self, order: Clean) -> str:
        """Treat the output directory as the journal says; what was done, for people."""
        spec = self._placed()
        if order.how == ASIDE:
            return shards.ensure_aside(order.path, order.to or "")
        done = output.ensure_clean(order.path, order.how, order.to, spec.workdir, _protecting(spec))
        return done.why

    def _cut(self) -> tuple[tuple[str, str, str], ...]:
        """Output shards that the last attempt left cut off, each with the name that it will get."""
        pattern, attempt = self._placed().output.units, self._state.attempt
        if pattern is None or attempt is None:
            return ()
        found = shards.cut_off(pattern, attempt.began.wall_s)
        return tuple((path, shards.aside(path, attempt.number), why) for path, why in found)

    def _roles(self) -> dict[str, RoleGpus]:
        """The run's GPUs by UUID, with the indices that they have now: a reboot may shift them."""
        index = {gpu.uuid: gpu.index for gpu in self._inventory}
        roles = self._state.roles
        if not index or any(uuid not in index for role in roles.values() for uuid in role.uuids):
            return dict(roles)
        physical = {name: tuple(index[uuid] for uuid in role.uuids) for name, role in roles.items()}
        if all(physical[name] == role.physical for name, role in roles.items()):
            return dict(roles)
        everyone = sorted(n for numbers in physical.values() for n in numbers)
        return {
            name: RoleGpus(
                ordinals=tuple(everyone.index(n) for n in physical[name]), physical=physical[name], uuids=role.uuids
            )
            for name, role in roles.items()
        }

    def _ports(self) -> tuple[dict[str, int], list[Problem]]:
        """A port for each name; and who keeps a fixed one from us, after a while that lets a short-lived holder go."""
        fixed = {name: int(text) for name, text in self._spec.ports.items() if text.isdigit()}
        problems = []
        until = time.monotonic() + PORT_FREE_WITHIN_S
        for name, port in fixed.items():
            while (holder := host.port_holder(port)) is not None and time.monotonic() < until:
                time.sleep(PORT_EVERY_S)
            if holder is not None:
                text = f"port {port} ({name}) is in use by {holder}; end it, or write `ports: {{{name}: auto}}`"
                problems.append(Problem(exit=int(Exit.PREFLIGHT), text=text))
        ports = dict(fixed)
        for name in self._spec.ports:
            if name not in fixed:
                ports[name] = host.free_port(not_in=ports.values())
        return {name: ports[name] for name in self._spec.ports}, problems

    def _placed(self) -> RunSpec:
        return placed_before(self._run, self._spec, self._number, self._state.roles, self._state.rungs)

    def _stale(self) -> tuple[OutputSeen, Treatment] | None:
        spec = self._placed()
        if spec.output.dir is None:
            return None
        seen = output.look(spec.output.dir, spec.workdir, _protecting(spec))
        made = self._state.made_output
        return seen, decide(seen, spec.output.stale, made_by_run=made, attempt=self._state.attempts_made)


def _protecting(spec: RunSpec) -> list[str]:
    """What makes an output directory worth keeping: checkpoints, finished files, output shards."""
    progress = spec.health.progress
    globs = (
        spec.resume.from_ if spec.resume else None,
        progress.files if progress else None,
        spec.output.units,
    )
    return [pattern for pattern in globs if pattern]


def _stale_words(stale: tuple[OutputSeen, Treatment] | None) -> tuple[str, str | None]:
    match stale:
        case (_, Remove()):
            return "remove", None
        case (_, Archive(to=to)):
            return "archive", to
        case _:
            return "", None
