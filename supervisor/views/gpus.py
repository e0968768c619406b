"""The GPUs of the box as JSON and as a table: memory, utilisation, whose, and who holds them. Asks nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from supervisor.core.evidence import Gpu, GpuSeen, Holder, Reading
from supervisor.views import words

SCHEMA = "supervise.gpus/v1"


class Shown(NamedTuple):
    """One GPU: what was read, who holds it, and the run that it belongs to by its lock or its holders.

    `run` and `user` are None where it is nobody's, `role` where the run is not one of this state directory.
    """

    gpu: Gpu
    seen: GpuSeen
    holders: tuple[Holder, ...] = ()
    run: str | None = None
    user: str | None = None
    role: str | None = None


def document(shown: Iterable[Shown], could_not_see: Sequence[str], zero: bool | None = None) -> dict[str, Any]:
    """`supervise.gpus/v1`. Figures of a GPU that cannot be read are null; `why` then says why not.

    `could_not_see` tells what may hide holders; `zero` is there when it was asked for.
    """
    plain: dict[str, Any] = {"schema": SCHEMA, "gpus": [_gpu(each) for each in shown]}
    plain["could_not_see"] = [*could_not_see]
    return plain if zero is None else {**plain, "zero": zero}


def _gpu(shown: Shown) -> dict[str, Any]:
    gpu, seen = shown.gpu, shown.seen
    read = seen if isinstance(seen, Reading) else None
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "used_mib": round(read.used_mib, 1) if read else None,
        "total_mib": round(gpu.total_mib, 1),
        "util_pct": read.util_pct if read else None,
        "run": shown.run,
        "user": shown.user,
        "role": shown.role,
        "why": None if isinstance(seen, Reading) else seen.why,
        "holders": [_holder(holder) for holder in shown.holders],
    }


def _holder(holder: Holder) -> dict[str, Any]:
    return {
        "pid": holder.pid,
        "user": holder.user,
        "cmdline": holder.cmdline,
        "run": holder.run,
        "owner": holder.owner.value,
    }


def text(shown: Iterable[Shown]) -> str:
    """A line for each GPU and one below it for each holder; none longer than 80 columns."""
    lines = [f"{'GPU':>4}{'used GiB':>10}{'of':>7}{'util':>6}  run"]
    for each in shown:
        lines += _lines(each)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _lines(shown: Shown) -> list[str]:
    seen = shown.seen
    whose = words.cut(_whose(shown), words.WIDTH - 29)
    total = words.gib(shown.gpu.total_mib)
    if not isinstance(seen, Reading):
        lines = [f"{shown.gpu.index:>4}{'?':>10}{total:>7}{'?':>6}  {whose}"]
        lines += words.wrapped("unreadable", seen.why, indent=6)
    else:
        util = "?" if seen.util_pct is None else f"{seen.util_pct:.0f}%"
        lines = [f"{shown.gpu.index:>4}{words.gib(seen.used_mib):>10}{total:>7}{util:>6}  {whose}"]
    return lines + [holder_line(holder) for holder in shown.holders]


def _whose(shown: Shown) -> str:
    if shown.run is None:
        return "-"
    role = f", {shown.role}" if shown.role else ""
    user = f" of {shown.user}" if shown.user else ""
    return words.safe(f"{shown.run}{user}{role}")


def holder_line(holder: Holder) -> str:
    """A process that holds a GPU, on one line: whose it is, its pid and user, its command as far as it fits."""
    pid = str(holder.pid) if holder.pid else "?"
    whose = f"run {holder.run}" if holder.run else holder.owner.value
    line = f"      held by pid {pid} of {holder.user} ({whose}): {holder.cmdline}"
    return words.cut(words.safe(line), words.WIDTH)


def who_holds(shown: Iterable[Shown]) -> list[str]:
    """`GPU 5: pid 7 of root (foreign): python …`, for the text of a refusal."""
    return [
        words.safe(f"GPU {each.gpu.index}:{holder_line(holder).removeprefix('      held by')}")
        for each in shown
        for holder in each.holders
    ]
