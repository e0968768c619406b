"""`supervise gpus`: who holds which GPU, and verify-zero alone. Works without any run; signals nothing."""

from __future__ import annotations

import json
import re
import select
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import click
from msgspec.structs import replace

from supervisor.cli import common, records
from supervisor.core.errors import Exit, Refusal, SuperviseError
from supervisor.core.evidence import Gpu, GpuSeen, Owner, Reading, Uuid
from supervisor.core.spec import VerifyZero
from supervisor.core.zero import LEARN_AFTER_S, ZeroWatch
from supervisor.edges import gpulocks, secrets
from supervisor.edges.gpus import Gpus, GpusUnavailable, resolve
from supervisor.edges.gpus_link import boot_s
from supervisor.edges.holders import HoldersSeen, find_holders, in_initial_pid_namespace
from supervisor.edges.paths import RunDir
from supervisor.edges.processes import Owners
from supervisor.edges.secrets import Redactor
from supervisor.views import gpus as view

POLL_S = 0.1  # while verifying: 10 Hz
HOLDERS_EVERY_S = 1.0  # process lists and /proc are asked only while memory is held, and no more often
STABLE_FOR_S = VerifyZero().stable_for_s
_RANGE = re.compile(r"(\d+)-(\d+)")


@click.command("gpus")
@common.output_option
@click.option("--gpus", "wanted", metavar="LIST", help="These only: 0-7, or 0,2,5-7, or UUIDs.")
@click.option("--wait-zero", is_flag=True, help="Wait until they are empty: 0, or 8 and who holds them.")
@click.option("--timeout", type=common.Duration(), default="5m", show_default=True, help="For --wait-zero.")
@click.option("--world", type=click.Path(path_type=Path, exists=True), hidden=True, help="A simulated box.")
def command(output: str, wanted: str | None, wait_zero: bool, timeout: float, world: Path | None) -> None:
    """Who holds which GPU: memory, utilisation, run and role, processes. A GPU belongs to the run that is wanted up.

    With --wait-zero it waits until the GPUs are verified empty, as before a launch. Nothing is ever signalled.
    """
    with closing(Gpus(world=world)) as gpus:
        try:
            there = gpus.list()
        except GpusUnavailable as error:  # unknown is not zero
            raise Refusal(Exit.NOT_ZERO if wait_zero else Exit.ERROR, str(error)) from error
        chosen = _chosen(wanted, there, gpus.unlisted, wait_zero)
        watch = _wait_zero(gpus, chosen, timeout) if wait_zero else None
        look = _look(gpus, chosen)
    zero = None if watch is None else watch.is_zero and not gpus.unlisted
    if output == "json":
        click.echo(json.dumps(view.document(look.shown, look.could_not_see, zero)))
    else:
        click.echo(view.text(look.shown), nl=False)
    for said in (*(f"not answering: {each}" for each in gpus.unlisted), *look.could_not_see):
        common.say(said)
    if zero is False:
        why = "; ".join(filter(None, (watch.why if watch else "", *gpus.unlisted)))
        common.say(f"not verified empty within {timeout:g} s: {why or 'memory was not steady for long enough'}")
        for line in view.who_holds(look.shown):
            common.say(line)
    common.leave(Exit.NOT_ZERO if zero is False else Exit.OK)


def _chosen(wanted: str | None, there: tuple[Gpu, ...], unlisted: tuple[str, ...], wait_zero: bool) -> tuple[Gpu, ...]:
    """The GPUs asked for, all by default. One that does not answer is not empty (8); one that is not there: usage."""
    if wanted is None:
        return there
    try:
        return resolve(ids_of(wanted), there, unlisted)
    except Refusal as error:
        raise Refusal(Exit.NOT_ZERO if wait_zero and unlisted else Exit.USAGE, str(error)) from error


def ids_of(wanted: str) -> tuple[str, ...]:
    """`0,2,5-7,GPU-…` as single ids, each once, in order."""
    found: dict[str, None] = {}
    for part in filter(None, re.split(r"[,\s]+", wanted)):
        span = _RANGE.fullmatch(part)
        if span is None:
            found[part] = None
        elif int(span[2]) - int(span[1]) > 1024:
            raise click.UsageError(f"--gpus {part}: no box has so many")
        else:
            found.update(dict.fromkeys(map(str, range(int(span[1]), int(span[2]) + 1))))
    if not found:
        raise click.UsageError("--gpus names no GPU: write 0-7, or 0,2,5-7, or UUIDs")
    return tuple(found)


# ── one look ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Look(NamedTuple):
    shown: tuple[view.Shown, ...]
    could_not_see: tuple[str, ...]


def _look(gpus: Gpus, chosen: Sequence[Gpu]) -> _Look:
    seen = _read(gpus, [gpu.uuid for gpu in chosen], processes=True)
    found = _holders(chosen, seen)
    roles = _roles()
    return _Look(tuple(_shown(gpu, seen[gpu.uuid], found, roles) for gpu in chosen), found.could_not_see)


def _read(gpus: Gpus, uuids: Sequence[Uuid], processes: bool) -> dict[Uuid, GpuSeen]:
    """A reading of each GPU that began after this call; ends at the latest when the edge's own deadline does."""
    asked_boot_s = boot_s()
    gpus.ask(uuids, processes)
    while True:
        seen = gpus.take()
        if all(uuid in seen and seen[uuid].began_boot_s >= asked_boot_s for uuid in uuids):
            return seen
        select.select([gpus], [], [], POLL_S)


def _holders(chosen: Sequence[Gpu], seen: Mapping[Uuid, GpuSeen]) -> HoldersSeen:
    home = common.home()
    lists = {uuid: each.pids for uuid, each in seen.items() if isinstance(each, Reading) and each.pids is not None}
    found = find_holders(chosen, lists, Owners(home).of)
    hide: dict[str, Redactor] = {}
    for run in {holder.run for holder in found.holders if holder.owner is Owner.RUN and holder.run}:
        hide[run] = _redactor(home.run(run))
    redacted = (
        replace(holder, cmdline=hide[holder.run].text(holder.cmdline)) if holder.run in hide else holder
        for holder in found.holders
    )
    return HoldersSeen(tuple(redacted), found.could_not_see)


def _redactor(run: RunDir) -> Redactor:
    """Of our own runs the secret values are known, and a command line may show one."""
    known, named = None, set()
    with suppress(SuperviseError, ValueError):  # damaged files are `status`'s to tell
        known = secrets.load(run)
        named = {*records.view(run).spec.get("secrets", ())}
    values = {} if known is None else {**known.own, **known.job}
    return Redactor(value for name, value in values.items() if name in named or secrets.is_secret_name(name))


def _shown(gpu: Gpu, seen: GpuSeen, found: HoldersSeen, roles: Mapping[tuple[str, Uuid], str]) -> view.Shown:
    """A GPU is the run's that has its lock, also while it lies idle between attempts; else that of its holders."""
    holders = tuple(holder for holder in found.holders if holder.gpu == gpu.uuid)
    lock = gpulocks.who(gpu.uuid)
    runs = {holder.run: holder.user for holder in holders if holder.run}
    if lock is not None:
        run, user = lock.run, lock.user
    elif len(runs) == 1:
        ((run, user),) = runs.items()
    else:
        return view.Shown(gpu, seen, holders)
    return view.Shown(gpu, seen, holders, run, user, roles.get((run, gpu.uuid)))


def _roles() -> dict[tuple[str, Uuid], str]:
    """The roles of GPUs in the open runs of this state directory; a run whose journal is damaged has none."""
    home = common.home()
    roles = {}
    for name in home.names():
        if home.run(name).open.exists():
            with suppress(SuperviseError):
                roles.update({(name, uuid): role for uuid, (_, role) in records.view(home.run(name)).gpus.items()})
    return roles


# ── verify-zero ──────────────────────────────────────────────────────────────────────────────────────────────────────


class _Zero(NamedTuple):
    is_zero: bool
    why: str


def _wait_zero(gpus: Gpus, chosen: Sequence[Gpu], timeout_s: float) -> _Zero:
    """Reads at 10 Hz until the GPUs are verified empty or the time is up."""
    began_s = boot_s()
    uuids = tuple(gpu.uuid for gpu in chosen)
    watch = ZeroWatch(of=uuids, from_boot_s=began_s)
    looked_s = began_s
    while True:
        gpus.ask(uuids)
        select.select([gpus], [], [], POLL_S)
        watch = watch.seen(gpus.take().values(), members_left=False)
        now_s = boot_s()
        if watch.verified(now_s, STABLE_FOR_S):
            return _Zero(True, "")
        if now_s - began_s >= timeout_s:
            return _Zero(False, watch.why_not())
        if watch.steady_for_s(now_s) >= LEARN_AFTER_S and watch.why_not() and now_s - looked_s >= HOLDERS_EVERY_S:
            watch, looked_s = _learned(gpus, chosen, watch), now_s
        select.select([], [], [], max(0.0, POLL_S - (boot_s() - now_s)))


def _learned(gpus: Gpus, chosen: Sequence[Gpu], watch: ZeroWatch) -> ZeroWatch:
    """What stands still and is nobody's is the GPU's own."""
    seen = _read(gpus, watch.of, processes=True)
    found = _holders(chosen, seen)
    sees_all = found.sees_all and in_initial_pid_namespace()
    return watch.seen(seen.values(), members_left=False).learned(boot_s(), found.holders, sees_all=sees_all)
