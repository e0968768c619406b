"""The checks before an episode's first launch: is this box fit for it? Finds every reason against, each with its fix.

Nothing is changed here but the GPU locks, which are taken; whether to launch is decided in `core/launching.py`.
"""

from __future__ import annotations

import os
import select
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from supervisor.core.drift import diff
from supervisor.core.errors import Exit, Refusal
from supervisor.core.evidence import Checkpoint, Gpu, GpuSeen, Holder, Incomplete, Reading, Unreadable, Uuid
from supervisor.core.fitting import comparable, fits, takes_other_memory
from supervisor.core.given import CodeCopy
from supervisor.core.placing import NotPlaced, RoleGpus, lay_out, visible_conflict
from supervisor.core.seen import CheckFit, PreflightSeen, Problem
from supervisor.core.spec import RunSpec
from supervisor.core.state import State
from supervisor.core.zero import is_drained, learn_floors
from supervisor.edges import host, secrets
from supervisor.edges.checkpoints import describe, pointed, scan
from supervisor.edges.checks import preflight_checks
from supervisor.edges.command import command_path
from supervisor.edges.gpulocks import Conflict
from supervisor.edges.gpus import Gpus, GpusUnavailable
from supervisor.edges.holders import find_holders
from supervisor.edges.paths import Home, RunDir
from supervisor.edges.processes import Owners, ownership_of, sweep
from supervisor.edges.tmux import Tmux, TmuxMissing
from supervisor.machines import box, config_values, surroundings
from supervisor.machines.claims import claimed_checkpoints
from supervisor.machines.starting import placed_before

READ_WITHIN_S = 15.0
CHECKS_WITHIN_S = 300.0

Take = Callable[[tuple[Uuid, ...]], "Conflict | None"]


class Fit:
    """One preflight. `check` runs beside the loop and may take as long as the user's own checks."""

    def __init__(
        self,
        home: Home,
        run: RunDir,
        order: CheckFit,
        gpus: Gpus | None,
        take: Take,
        redact: Callable[[str], str],
        state: State,
    ) -> None:
        self._home = home
        self._run = run
        self._order = order
        self._spec = order.spec
        self._gpus = gpus
        self._take = take
        self._redact = redact
        self._state = state
        self._readings: Mapping[Uuid, GpuSeen] = {}
        self._problems: list[Problem] = []
        self._warnings: list[str] = list(order.spec.warnings)
        known = secrets.load(run)
        self._env: Mapping[str, str] = known.job if known is not None else {}

    def check(self) -> tuple[PreflightSeen, tuple[Gpu, ...]]:
        """All checks; and the GPUs of this box."""
        spec = self._spec
        inventory, roles = self._places()
        floors = self._empty_gpus(inventory, roles)
        self._problems += [Problem(exit=int(Exit.PREFLIGHT), text=text) for text in self._box(roles)]
        for violation in config_values.violations(spec, None):
            text = f"{violation}.\n  next: put that value back, or give the spec another `name` and protect the new one"
            self._refuse(text, Exit.CONFLICT)
        self._surroundings(inventory, floors)
        found, start, named = self._checkpoints()
        if not spec.simulated:
            self._rest(roles, found)
        claimed = claimed_checkpoints(self._home, self._run.name, found) if spec.resume else {}
        code = self._code()
        seen = PreflightSeen(
            problems=tuple(self._problems),
            warnings=tuple(self._warnings),
            roles=roles,
            floors=floors,
            found=found,
            start=start,
            named=named,
            claimed=claimed,
            pointer=pointed(spec.resume) if spec.resume and spec.resume.mode == "auto" else None,
            code=code,
        )
        return seen, inventory

    def _code(self) -> CodeCopy | None:
        """The copy that the episode runs from, made last: where anything else refuses, nothing is copied."""
        if self._problems or self._spec.code is None or not self._spec.code.snapshot:
            return None
        from supervisor.machines import code  # only for such runs

        taken = code.take(self._home, self._run, self._spec, self._env, self._state.episodes)
        self._warnings += taken.warnings
        for text in taken.problems:
            self._refuse(text)
        return taken.code

    # ── GPUs ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _refuse(self, text: str, exit_code: Exit = Exit.PREFLIGHT) -> None:
        self._problems.append(Problem(exit=int(exit_code), text=text))

    def _places(self) -> tuple[tuple[Gpu, ...], dict[str, RoleGpus]]:
        if self._gpus is None:
            return (), {}
        try:
            inventory = self._gpus.list()
        except GpusUnavailable as why:
            self._refuse(str(why))
            return (), {}
        roles = lay_out(self._spec, inventory)
        if isinstance(roles, NotPlaced):
            silent = f". Not answering: {'; '.join(self._gpus.unlisted)}" if self._gpus.unlisted else ""
            self._refuse(f"{roles.why}{silent}; correct `topology` in {self._spec.file}, or see: supervise gpus")
            return inventory, {}
        conflict = visible_conflict(self._spec, self._env, roles)
        if conflict is not None:
            self._refuse(conflict)
        return inventory, roles

    def _empty_gpus(self, inventory: tuple[Gpu, ...], roles: Mapping[str, RoleGpus]) -> dict[Uuid, float]:
        """Takes the locks, then wants one reading of each GPU at its floor. The floors that could be learned."""
        uuids = tuple(uuid for role in roles.values() for uuid in role.uuids)
        if not uuids or self._gpus is None:
            return {}
        try:
            conflict = self._take(uuids)
        except Refusal as refused:
            self._refuse(str(refused))
            return {}
        if conflict is not None:
            self._refuse(f"{conflict}\n  next: supervise down {conflict.run}", Exit.CONFLICT)
            return {}
        readings = self._readings = self._read(uuids)
        gpus = [gpu for gpu in inventory if gpu.uuid in uuids]
        pids = {uuid: seen.pids or () for uuid, seen in readings.items() if isinstance(seen, Reading)}
        held = find_holders(gpus, pids, Owners(self._home).of)
        floors = learn_floors(readings.values(), held.holders, sees_all=held.sees_all)
        fixed = self._spec.recovery.verify_zero.floor_mib
        if fixed is not None:
            floors |= dict.fromkeys(uuids, fixed)
        if self._spec.preflight.gpus_empty:
            self._want_empty(readings, uuids, floors, held.holders)
        return floors

    def _read(self, uuids: tuple[Uuid, ...]) -> dict[Uuid, GpuSeen]:
        assert self._gpus is not None
        began = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._gpus.ask(uuids, processes=True)
        poll = select.poll()
        poll.register(self._gpus.fileno(), select.POLLIN)
        while True:
            readings = self._gpus.take()
            fresh = {uuid: seen for uuid, seen in readings.items() if seen.began_boot_s >= began}
            if fresh.keys() >= set(uuids) or time.clock_gettime(time.CLOCK_BOOTTIME) - began > READ_WITHIN_S:
                missing = {uuid: Unreadable(uuid, None, began, "no answer in time") for uuid in uuids}
                return {**missing, **fresh}
            poll.poll(100)

    def _want_empty(
        self,
        readings: Mapping[Uuid, GpuSeen],
        uuids: tuple[Uuid, ...],
        floors: Mapping[Uuid, float],
        holders: tuple[Holder, ...],
    ) -> None:
        allow = self._spec.recovery.verify_zero.foreign.allow_mib
        v2 = any(isinstance(seen, Reading) and seen.v2 for seen in readings.values())
        for uuid in uuids:
            seen = readings[uuid]
            if is_drained((seen,), (uuid,), floors, allow_mib=allow, v2_answers=v2):
                continue
            if isinstance(seen, Unreadable):
                self._refuse(f"GPU {uuid} cannot be read: {seen.why}. Unreadable is not empty; see `supervise doctor`")
                continue
            mine = [h for h in holders if h.gpu == uuid]
            who = "; ".join(f"pid {h.pid} ({h.user}, {h.owner.value}) {h.cmdline[:80]}" for h in mine)
            need = int(seen.used_mib + 64)
            self._refuse(
                f"GPU {seen.index} is not empty: {seen.used_mib:.0f} MiB in use"
                f" by {who or 'nobody that can be seen from here'}.\n"
                f"  next: end it, or consent to it in the spec:"
                f" recovery: {{verify_zero: {{foreign: {{allow: {need}MiB}}}}}}"
            )

    # ── the box ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _box(self, roles: Mapping[str, RoleGpus]) -> Iterator[str]:
        """Reasons of the box itself, each with its fix."""
        spec = self._placed(roles)
        if not Path(spec.workdir).is_dir():
            yield f"workdir {spec.workdir} is not a directory; correct `workdir` in {spec.file}"
        else:
            try:
                command_path(spec.command[0], spec.workdir, self._env.get("PATH", os.defpath))
            except Refusal as refused:
                yield str(refused)
        ladder = [rung[knob.name].text for knob in spec.params.knobs if knob.venv for rung in knob.rungs]
        for venv in ladder or ([spec.venv] if spec.venv else []):
            if not Path(venv, "bin").is_dir():
                yield f"venv {venv} has no bin folder; make it (python -m venv {venv}) or correct `venv`"
        yield from self._left()
        if spec.launch.terminal == "tmux":
            try:
                Tmux(self._home).version()
            except TmuxMissing as missing:
                yield f"{missing}; or write `launch: {{terminal: none}}` in the spec to run without it"
        yield from self._ports(spec)
        yield from self._disk(spec)
        for name in self._missing_secrets():
            yield f"secret {name} is not set in the environment of `up`; export it there, or take it out of `secrets`"
        yield from self._user_checks(spec)

    def _left(self) -> Iterator[str]:
        """Processes of an earlier attempt: nothing is launched beside them."""
        ownership = ownership_of(self._run)
        members = sweep(ownership, self._home).members if ownership is not None else ()
        if members:
            who = "; ".join(f"pid {member.id.pid} {member.cmdline[:80]}" for member in members[:4])
            text = f"{len(members)} processes of an earlier attempt still live: {who}"
            yield f"{text}\n  next: supervise down --leftovers"

    def _user_checks(self, spec: RunSpec) -> Iterator[str]:
        """The spec's own checks; the last words of each no are shown."""
        results = preflight_checks(
            spec.preflight.checks, workdir=spec.workdir, environ=self._env, deadline_s=CHECKS_WITHIN_S
        )
        names = {*spec.secrets, *filter(secrets.is_secret_name, self._env)}
        hidden = secrets.Redactor(self._env[name] for name in names if name in self._env)  # nobody else knows them yet
        for result in results:
            if not result.ok:
                words = hidden.text(result.output).strip().splitlines()
                why = result.why or f"exit code {result.code}"
                yield f"preflight check {shlex.join(result.argv)}: {why}: {words[-1] if words else 'it said nothing'}"

    def _placed(self, roles: Mapping[str, RoleGpus]) -> RunSpec:
        return placed_before(self._run, self._spec, 1, roles, self._order.rungs)

    def _missing_secrets(self) -> list[str]:
        return [] if self._spec.simulated else [name for name in self._spec.secrets if name not in self._env]

    def _ports(self, spec: RunSpec) -> Iterator[str]:
        for name, text in spec.ports.items():
            holder = host.port_holder(int(text)) if text.isdigit() else None
            if holder is not None:
                yield f"port {text} ({name}) is in use by {holder}; end it, or write `ports: {{{name}: auto}}`"

    def _disk(self, spec: RunSpec) -> Iterator[str]:
        want = spec.preflight.disk_free_mib
        if want is None:
            return
        try:
            free = host.disk_free_mib(spec.output.dir or spec.workdir)
        except OSError as error:
            yield f"free space where {spec.output.dir or spec.workdir} is cannot be told: {error}"
            return
        if free < want:
            where = spec.output.dir or spec.workdir
            text = f"{free:.0f} MiB are free where {where} is, {want:.0f} MiB are wanted (preflight.disk_free)"
            yield f"{text}\n  next: df -h {where}"

    # ── history ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _surroundings(self, inventory: tuple[Gpu, ...], floors: Mapping[Uuid, float]) -> None:
        """What the job would run in, against pins and against the last attempt that made progress; will it fit?"""
        spec, state = self._spec, self._state
        good = surroundings.of_attempt(self._run, state.last_good)
        if spec.simulated or (good is None and not surroundings.is_watched(spec)):
            self._fits({}, floors)
            return
        now = surroundings.take(spec, self._order.rungs, self._env, inventory, self._redact)
        found = surroundings.compared(spec, now, good, None)
        self._warnings += found.warnings
        for text in found.problems:
            self._refuse(text)
        drift = surroundings.drifted(self._run, 0, state.last_good, now)
        if drift is not None:
            self._warnings.append(drift.words)
        self._fits(now, floors)

    def _fits(self, now: Mapping[str, object], floors: Mapping[Uuid, float]) -> None:
        """Expected peaks against what is free; with no history it is said that there is none."""
        spec, peaks = self._spec, comparable(self._state.peaks, self._order.rungs)
        if spec.simulated or not self._readings:
            return
        before = {one.attempt: surroundings.of_attempt(self._run, one.attempt) for one in peaks}
        same = [
            one
            for one in peaks
            if (told := before[one.attempt]) is not None and not takes_other_memory(diff(told, now))
        ]
        found = fits(same, self._readings, floors)
        for text in found.problems:
            self._refuse(f"{text}\n  next: end what holds it (supervise gpus), or lower a knob: up --set KNOB=VALUE")
        self._warnings += found.warnings
        if not found.known:
            self._warnings.append("memory fit: no attempt has trained with these knobs in this environment yet")

    def _rest(self, roles: Mapping[str, RoleGpus], found: tuple[Checkpoint | Incomplete, ...]) -> None:
        """Room for checkpoints, shared memory, limits, the output directory."""
        spec = self._placed(roles)
        said = box.found(spec, found)
        self._warnings += said.warnings
        for text in said.problems:
            self._refuse(text)

    # ── checkpoints ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _checkpoints(
        self,
    ) -> tuple[tuple[Checkpoint | Incomplete, ...], Checkpoint | Incomplete | None, Checkpoint | Incomplete | None]:
        resume, from_ = self._spec.resume, self._order.from_
        if resume is None:
            if from_ not in (None, "none"):
                self._refuse("--from needs a `resume:` section in the spec")
            return (), None, None
        try:
            found = scan(resume)
        except (OSError, TimeoutError) as error:
            self._refuse(f"checkpoints cannot be listed: {error}")
            return (), None, None
        start = describe(resume.start, resume) if resume.start else None
        named = describe(os.path.abspath(from_), resume) if from_ and from_ != "none" else None  # noqa: PTH100
        return found, start, named
