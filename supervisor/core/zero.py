"""Verified zero: when the GPUs of a run count as empty, and what a GPU's floor is. Nothing is launched here.

Rule 1: unreadable, unread, overdue or stale is not zero.
Rule 2: a floor is learned only while nobody holds the GPU; else it would make an orphan's memory lawful.
Rule 3: where the driver ever gave v2 figures, v1 figures decide nothing: they count what the driver reserves as used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from supervisor.core.evidence import GpuSeen, Holder, Reading, Unreadable, Uuid

SLACK_MIB = 64.0
"""How far above its floor a GPU may be: idle figures move by a few MiB."""

FLOOR_MIB_MAX = 1024.0
"""No idle driver keeps more (v1 on an idle H20 or B200: up to 1 GB); what is more is somebody's."""

FLOOR_MIB_MAX_UNSEEN = 128.0
"""The most where holders may hide from us: in a PID namespace of our own, or among processes we may not look into."""

FRESH_S = 5.0
"""A reading that began longer ago than this says nothing about now."""

STEADY_MIB = 16.0
"""Memory that moves by less stands still."""

LEARN_AFTER_S = 3.0
"""Memory that still drains has no holder any more either: a floor is learned only from what stands still this long."""


def learn_floor(seen: GpuSeen, holders: Iterable[Holder], *, sees_all: bool) -> float | None:
    """What an empty GPU shows, or None where that cannot be learned now.

    `holders` are those known of any GPU; `sees_all` False: we are in a PID namespace of our own, or some
    processes could not be looked into.
    """
    if isinstance(seen, Unreadable) or any(holder.gpu == seen.gpu for holder in holders):
        return None
    most = FLOOR_MIB_MAX if sees_all else FLOOR_MIB_MAX_UNSEEN
    return seen.used_mib if seen.used_mib <= most else None


def learn_floors(seen: Iterable[GpuSeen], holders: Iterable[Holder], *, sees_all: bool) -> dict[Uuid, float]:
    """The floors of those GPUs whose floor can be learned now; see `learn_floor`."""
    held = tuple(holders)
    learned = {each.gpu: learn_floor(each, held, sees_all=sees_all) for each in seen}
    return {gpu: floor for gpu, floor in learned.items() if floor is not None}


def is_drained(
    readings: Iterable[GpuSeen],
    of: Iterable[Uuid],
    floors: Mapping[Uuid, float],
    *,
    allow_mib: float = 0.0,
    v2_answers: bool = False,
) -> bool:
    """True only when every GPU of the run was read and is within 64 MiB of its floor.

    `allow_mib` is the user's consent to residents, per GPU. `v2_answers`: this driver gives v2 figures.
    """
    drained = {
        each.gpu
        for each in readings
        if isinstance(each, Reading) and _why_held(each, floors.get(each.gpu, 0.0) + allow_mib, v2_answers) is None
    }
    return frozenset(of) <= drained


def _why_held(reading: Reading, floor_mib: float, v2_answers: bool) -> str | None:
    """Why this reading does not show an empty GPU; None where it does."""
    if v2_answers and not reading.v2:
        return "only the older memory call answered, which counts what the driver reserves as used"
    if reading.used_mib > floor_mib + SLACK_MIB:
        return f"{reading.used_mib:.0f} MiB in use, its floor is {floor_mib:.0f} MiB"
    return None


class ZeroWatch(Struct, frozen=True, kw_only=True):
    """What was read of a run's GPUs since verifying began. Times are CLOCK_BOOTTIME seconds of one boot.

    `from_boot_s`: readings that began before do not count. `low_since` is when the first of an unbroken series of
    empty readings began, `moved_boot_s` when the last reading that differed from the one before it began.
    """

    of: tuple[Uuid, ...]
    floors: Mapping[Uuid, float] = field(default_factory=dict)
    allow_mib: float = 0.0
    from_boot_s: float = 0.0
    v2_answers: bool = False
    members_left: bool = False
    last: Mapping[Uuid, GpuSeen] = field(default_factory=dict)
    low_since: Mapping[Uuid, float] = field(default_factory=dict)
    moved_boot_s: Mapping[Uuid, float] = field(default_factory=dict)

    def seen(self, readings: Iterable[GpuSeen], members_left: bool) -> ZeroWatch:
        """The watch after one more look. A reading that was there before, or that began too early, adds nothing."""
        watch = replace(self, members_left=members_left, low_since={} if members_left else self.low_since)
        for each in readings:
            if each.gpu in self.of and each.began_boot_s >= self.from_boot_s:
                watch = watch._read(each)
        return watch

    def _read(self, new: GpuSeen) -> ZeroWatch:
        before = self.last.get(new.gpu)
        if before is not None and not _is_newer(new, before):
            return self
        v2_answers = self.v2_answers or (isinstance(new, Reading) and new.v2)
        low = dict(self.low_since)
        if not self.members_left and self._is_low(new, v2_answers):
            low.setdefault(new.gpu, new.began_boot_s)
        else:
            low.pop(new.gpu, None)
        moved = self.moved_boot_s
        if _has_moved(before, new):
            moved = {**moved, new.gpu: new.began_boot_s}
        return replace(self, v2_answers=v2_answers, last={**self.last, new.gpu: new}, low_since=low, moved_boot_s=moved)

    def _is_low(self, seen: GpuSeen, v2_answers: bool) -> bool:
        return is_drained((seen,), (seen.gpu,), self.floors, allow_mib=self.allow_mib, v2_answers=v2_answers)

    def verified(self, now_boot_s: float, stable_for_s: float) -> bool:
        """True only when no member is left and all GPUs together were read as empty over `stable_for_s`, until now.

        With 0 one empty reading of each is enough. A run without GPUs is verified when no member is left.
        """
        if self.members_left:
            return False
        if not self.of:
            return True
        if any(gpu not in self.low_since for gpu in self.of):
            return False
        began = [self.last[gpu].began_boot_s for gpu in self.of]
        if now_boot_s - min(began) > FRESH_S:
            return False
        return min(began) - max(self.low_since[gpu] for gpu in self.of) >= stable_for_s

    def learned(self, now_boot_s: float, holders: Iterable[Holder], *, sees_all: bool) -> ZeroWatch:
        """The watch with the floors that can be learned now: memory steady, no member left, no holder of that GPU.

        What is known stays; see `learn_floor` for `sees_all`. The next readings are judged by it.
        """
        if self.members_left or self.steady_for_s(now_boot_s) < LEARN_AFTER_S:
            return self
        fresh = learn_floors(self.last.values(), holders, sees_all=sees_all)
        return replace(self, floors={**fresh, **self.floors})

    def steady_for_s(self, now_boot_s: float) -> float:
        """For how long no GPU's memory has moved; 0 while one was not read or cannot be."""
        if not self.of or any(not isinstance(self.last.get(gpu), Reading) for gpu in self.of):
            return 0.0
        return max(0.0, now_boot_s - max(self.moved_boot_s[gpu] for gpu in self.of))

    def used_mib(self) -> tuple[float | None, ...]:
        """What each GPU of the run had in use at its newest reading, in the run's order; None for an unread one."""
        newest = (self.last.get(gpu) for gpu in self.of)
        return tuple(seen.used_mib if isinstance(seen, Reading) else None for seen in newest)

    def why_not(self) -> str:
        """What stands against zero now, for people: the first thing of each kind; empty where only time is missing."""
        if self.members_left:
            return "processes of the run are left"
        for gpu in self.of:
            match self.last.get(gpu):
                case None:
                    return f"GPU {gpu} has not been read yet"
                case Unreadable(index=index, why=why):
                    return f"GPU {gpu if index is None else index} cannot be read: {why}"
                case reading:
                    floor = self.floors.get(gpu, 0.0) + self.allow_mib
                    held = _why_held(reading, floor, self.v2_answers)
                    if held is not None:
                        return f"GPU {reading.index}: {held}"
        return ""


def _is_newer(new: GpuSeen, before: GpuSeen) -> bool:
    """Of two that began together, one that came to nothing replaces one that did not, never the other way round."""
    if new.began_boot_s == before.began_boot_s:
        return isinstance(new, Unreadable) and isinstance(before, Reading)
    return new.began_boot_s > before.began_boot_s


def _has_moved(before: GpuSeen | None, new: GpuSeen) -> bool:
    if not isinstance(before, Reading) or not isinstance(new, Reading):
        return True
    return abs(before.used_mib - new.used_mib) > STEADY_MIB
