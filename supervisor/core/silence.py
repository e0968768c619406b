"""Silent GPUs: what each GPU of a run is usually like, and since when one is not. What is done about it: `policy.py`.

Strong evidence: the holder is gone while the job lives; or memory fell by half and the GPU idles while others work.
Weak evidence: it idles for `for` while others work and the run goes on.
Rule 1: nothing is learned before the first progress, and unreadable is neither idle nor at work.
Rule 2: what the same GPU recovered from before in this attempt (sleep mode, offload) is no evidence.
Rule 3: inside a phase of `health.phases`, and once the last step is done, an idle GPU is no evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from supervisor.core.evidence import GpuSeen, Reading, Uuid
from supervisor.core.spec import Role, RunSpec, Silent

GONE_FOR_S = 10.0
"""A launcher gets this long to notice the death of a worker and to end by itself."""

FELL_FOR_S = 13.0
"""Idle with half its memory gone for so long. The first such reading comes up to a second after the fall, the look that
concludes up to a second after this: 15 s in all."""

SURE_AFTER_S = 10.0
"""A supervisor that has just begun to look (or whose box slept) looks for so long before it concludes from silence."""

STEPS_MEANWHILE, STEPPING_FOR_S = 2, 15.0
"""Weak evidence needs that the run goes on without the GPU: so many steps, the first of them so long ago."""

OTHERS_WITHIN_S = 10.0
"""Utilisation is an average of a moment: another GPU counts as working if it was seen at work within this time."""

ASK_FROM_S, ASK_UNTIL_S = 3.0, 30.0
"""Who holds a suspected GPU is asked for from then on, and not for ever: process lists cost milliseconds."""

ASKED_IN_VAIN = 20
"""Process lists that named nobody so often (a container, MIG) will not name anybody."""

FLOOR_MIB = 64.0
RECOVERED_KEPT = 8
SAME_MIB, SAME_SHARE = 1024.0, 0.1
"""Two falls are the same where they ended this close to each other: MiB, or this share of what is usual."""

DECAY = 0.98
"""What is usual follows a GPU that works with less, by this factor each reading: half of it in about 35 s."""


class GpuWork(Struct, frozen=True, kw_only=True):
    """One GPU since the first progress. `usual_mib`: in use while it works; `worked`: it was seen at work.

    Times, None where it is not so: `alone_boot_s` since when it idles while others work, `stepped_boot_s` the first
    step of the run after that; `fell_boot_s` since when at most half of what is usual is left, `low_mib` the least
    since then; `gone_boot_s` since when nobody holds it. `recovered_mib`: where falls ended that it came back from.
    """

    usual_mib: float = 0.0
    worked: bool = False
    alone_boot_s: float | None = None
    alone_steps: int = 0
    stepped_boot_s: float | None = None
    fell_boot_s: float | None = None
    low_mib: float = 0.0
    gone_boot_s: float | None = None
    recovered_mib: tuple[float, ...] = ()

    @property
    def fell_before(self) -> bool:
        """Whether it came back from the same fall earlier."""
        near = max(SAME_MIB, SAME_SHARE * self.usual_mib)
        return any(abs(self.low_mib - known) <= near for known in self.recovered_mib)

    def anew(self) -> GpuWork:
        """The same, with all clocks stopped: nobody looked for a while."""
        return replace(self, alone_boot_s=None, stepped_boot_s=None, fell_boot_s=None, gone_boot_s=None)


class Silence(Struct, frozen=True):
    """A GPU that fell silent, and how that is known."""

    uuid: Uuid
    role: Role
    how: str
    sure: bool


def util_below(spec: RunSpec | None, roles: Mapping[str, Sequence[Uuid]]) -> dict[Uuid, float]:
    """Below which utilisation each GPU idles, in percent, as its role says."""
    below = {role.name: role.util_below for role in spec.topology} if spec is not None else {}
    return {uuid: below[name] for name, uuids in roles.items() if name in below for uuid in uuids}


def work_seen(
    known: Mapping[Uuid, GpuWork],
    gpus: Mapping[Uuid, GpuSeen],
    worked_boot_s: Mapping[Uuid, float],
    low_since: Mapping[Uuid, float],
    holders: Mapping[Uuid, Sequence[int]],
    floors: Mapping[Uuid, float],
    steps: int,
) -> dict[Uuid, GpuWork]:
    """What is known after these readings. `worked_boot_s`: when each GPU was last at work, this reading included."""
    work = dict(known)
    for uuid, seen in gpus.items():
        one = known.get(uuid, GpuWork())
        if not isinstance(seen, Reading):
            work[uuid] = one.anew()
            continue
        one = _held(one, seen, bool(holders.get(uuid)), floors.get(uuid, 0.0) + FLOOR_MIB)
        if uuid not in low_since:
            work[uuid] = _at_work(one, seen) if seen.util_pct is not None else one
            continue
        others = any(other != uuid and seen.began_boot_s - at < OTHERS_WITHIN_S for other, at in worked_boot_s.items())
        work[uuid] = _idle(one, seen, steps, others)
    return work


def _held(one: GpuWork, seen: Reading, had_holder: bool, floor_mib: float) -> GpuWork:
    """Whether somebody holds it. A list that had a name and is empty now is the witness; else memory must tell."""
    if seen.pids:
        gone = False
    elif seen.pids is not None and had_holder:
        gone = True
    else:
        empty = one.usual_mib > 2 * floor_mib and seen.used_mib <= floor_mib
        gone = empty or (one.gone_boot_s is not None and seen.pids is None)
    if gone == (one.gone_boot_s is not None):
        return one
    return replace(one, gone_boot_s=seen.began_boot_s if gone else None)


def _at_work(one: GpuWork, seen: Reading) -> GpuWork:
    usual = one.usual_mib
    if seen.used_mib > usual:
        usual = seen.used_mib
    elif seen.used_mib < usual * 0.95:
        usual = max(seen.used_mib, usual * DECAY)
    is_news = one.alone_boot_s is not None or one.fell_boot_s is not None or one.gone_boot_s is not None
    if one.worked and usual == one.usual_mib and not is_news:
        return one
    back = _back(one).anew()
    return replace(back, usual_mib=usual, worked=True)


def _idle(one: GpuWork, seen: Reading, steps: int, others: bool) -> GpuWork:
    at = seen.began_boot_s
    if not others:
        one = one if one.alone_boot_s is None else replace(one, alone_boot_s=None, stepped_boot_s=None)
    elif one.alone_boot_s is None:
        one = replace(one, alone_boot_s=at, alone_steps=steps, stepped_boot_s=None)
    elif one.stepped_boot_s is None and steps > one.alone_steps:
        one = replace(one, stepped_boot_s=at)
    if seen.used_mib > one.usual_mib / 2:
        return one if one.fell_boot_s is None else replace(_back(one), fell_boot_s=None)
    if one.usual_mib <= 0.0:
        return one
    if one.fell_boot_s is None:
        return replace(one, fell_boot_s=at, low_mib=seen.used_mib)
    return one if seen.used_mib >= one.low_mib else replace(one, low_mib=seen.used_mib)


def _back(one: GpuWork) -> GpuWork:
    """It works or holds its memory again: the fall was none to worry about."""
    if one.fell_boot_s is None or one.fell_before:
        return one
    return replace(one, recovered_mib=(*one.recovered_mib, one.low_mib)[-RECOVERED_KEPT:])


def suspected(work: Iterable[GpuWork], gpus: Iterable[GpuSeen]) -> bool:
    """True while it should be asked who holds the GPUs: one of them may have lost its holder."""
    now_s = max((seen.began_boot_s for seen in gpus), default=0.0)
    for one in work:
        since = [at for at in (one.alone_boot_s, one.fell_boot_s, one.gone_boot_s) if at is not None]
        if since and ASK_FROM_S <= now_s - min(since) <= ASK_UNTIL_S:
            return True
    return False


def silences(
    spec: RunSpec,
    roles: Mapping[str, Sequence[Uuid]],
    work: Mapping[Uuid, GpuWork],
    steps: int,
    now_s: float,
    *,
    in_phase: bool = False,
) -> list[Silence]:
    """The GPUs that fell silent, role by role. `in_phase` True: a phase explains an idle one."""
    found: list[Silence] = []
    all_gone = bool(work) and all(one.gone_boot_s is not None for one in work.values())
    for role in spec.topology:
        if role.silent is Silent.OFF:
            continue
        known = [(uuid, work[uuid]) for uuid in roles.get(role.name, ()) if uuid in work]
        role_works = any(one.worked for _, one in known)
        for uuid, one in known:
            how = None
            if one.gone_boot_s is not None:
                how = _gone(role, one, now_s, all_gone)
            elif role_works and not in_phase:
                how = _fell(role, one, now_s) or _idles(spec, role, one, steps, now_s)
            if how is not None:
                found.append(Silence(uuid, role, how, one.gone_boot_s is not None))
    return found


def _gone(role: Role, one: GpuWork, now_s: float, all_gone: bool) -> str | None:
    """Where all GPUs of the run are left at once, the job may be at something that needs none: that gets `for`."""
    since = one.gone_boot_s
    limit = max(GONE_FOR_S, role.for_s) if all_gone else min(GONE_FOR_S, role.for_s)
    if role.may_finish or since is None or now_s - since < limit:
        return None
    return f"its process is gone while the job lives ({_gib(one.usual_mib)} GiB were held)"


def _fell(role: Role, one: GpuWork, now_s: float) -> str | None:
    if one.fell_boot_s is None or one.alone_boot_s is None or one.fell_before:
        return None
    if now_s - max(one.fell_boot_s, one.alone_boot_s) < min(FELL_FOR_S, role.for_s):
        return None
    fell = f"{_gib(one.usual_mib)} to {_gib(one.low_mib)} GiB"
    return f"its memory fell from {fell} and it does nothing while others work"


def _idles(spec: RunSpec, role: Role, one: GpuWork, steps: int, now_s: float) -> str | None:
    """Without steps nobody can tell a load, an evaluation or a save from a silent GPU."""
    stepped = one.stepped_boot_s
    if spec.health.progress is None or one.alone_boot_s is None or stepped is None:
        return None
    idle_s = now_s - one.alone_boot_s
    if idle_s < role.for_s or now_s - stepped < min(STEPPING_FOR_S, role.for_s):
        return None
    if steps - one.alone_steps < STEPS_MEANWHILE:
        return None
    return f"it has been below {role.util_below:g} % for {idle_s:.0f} s while others work"


def _gib(mib: float) -> str:
    return f"{mib / 1024:.1f}"


def in_words(found: Sequence[Silence], roles: Mapping[str, Sequence[Uuid]], numbers: Mapping[Uuid, int]) -> str:
    """`GPU 6 (drafter) fell silent: ...; running on 2 of 3 drafters`."""
    lost: dict[str, list[int]] = {}
    for one in found:
        lost.setdefault(one.role.name, []).append(numbers[one.uuid])
    who = " and ".join(
        f"GPU{'s' if len(gpus) > 1 else ''} {', '.join(map(str, gpus))} ({name})" for name, gpus in lost.items()
    )
    left = " and ".join(
        f"{len(roles[name]) - len(gpus)} of {len(roles[name])} {name}{'' if name.endswith('s') else 's'}"
        for name, gpus in lost.items()
    )
    of_first = "" if len(found) == 1 else f"of GPU {numbers[found[0].uuid]}: "
    return f"{who} fell silent: {of_first}{found[0].how}; running on {left}"
