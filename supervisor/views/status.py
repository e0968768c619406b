"""What is: one run or several, as JSON and for people. Live values are those of `now.json`, the rest is recorded."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Any, NamedTuple

from supervisor.views import words
from supervisor.views.run import Plain, RunView, step_now

SCHEMA = "supervise.status/v1"
FAILURE_FIELDS = ("gpu", "code", "signal", "tried_mib", "free_mib", "total_mib", "short_by_mib", "log_line", "where")
PACE_STEPS, PACE_S = 10, 30.0
"""Before so many steps and so long a pace says nothing of the end."""
_WORST_FIRST = (9, 10, 3, 0)


class Look(NamedTuple):
    """A run as it stands. `now` is what its supervisor last said, `alive` whether it has one at this moment.

    `here` False: the run belongs to another machine. `damage` says what cannot be read of it, and where.
    `asked`: a verb's request waits for a supervisor to read it. `spent`: where its time went (`views/accounting.py`).
    """

    view: RunView
    now: Plain = MappingProxyType({})
    alive: bool = False
    here: bool = True
    at_s: float = 0.0
    damage: str = ""
    asked: bool = False
    spent: Plain = MappingProxyType({})

    @property
    def said_s(self) -> float | None:
        """When the supervisor last said what is (Unix time)."""
        said: float | None = self.now.get("as_of", {}).get("wall_s")
        return said

    @property
    def is_newest(self) -> bool:
        """Whether `now` is from after the last record: a supervisor writes it after it recorded."""
        return self.said_s is not None and self.said_s >= (self.view.last_s or 0.0)

    @property
    def phase(self) -> str:
        """The phase, from whichever is newer."""
        said = self.now.get("phase") if self.is_newest else None
        return str(said or self.view.phase)

    @property
    def of_attempt(self) -> bool:
        """Whether `now` speaks of the last attempt."""
        return bool(self.view.attempts) and self.now.get("attempt") == self.view.attempts[-1].number

    @property
    def step(self) -> int | None:
        """The last step known of the last attempt."""
        return step_now(self.view, self.now)

    def live(self, key: str) -> Any:
        """A value that is true only while the supervisor says so and the job trains; else None."""
        trains = self.phase in ("running", "degraded")
        return self.now.get(key) if self.alive and self.of_attempt and trains else None

    def said(self, key: str, else_: str) -> str:
        """A sentence from whichever is newer."""
        return str((self.now.get(key) if self.is_newest else None) or else_)


def document(looks: Iterable[Look]) -> dict[str, Any]:
    """`status -o json`."""
    return {"schema": SCHEMA, "runs": [_run(look) for look in looks]}


def exit_code(looks: Iterable[Look]) -> int:
    """For `--exit-code`: the worst of all, 9 halted, 10 degraded, 3 stopped, 0 otherwise."""
    codes = {"halted": 9, "degraded": 10, "stopped": 3}
    found = {codes.get(look.phase, 0) for look in looks}
    return next((code for code in _WORST_FIRST if code in found), 0)


def _run(look: Look) -> dict[str, Any]:
    view = look.view
    checkpoint = _checkpoint(look)
    return {
        "name": view.name,
        "phase": look.phase,
        "paused": view.paused,
        "wanted": view.wanted,
        "attempt": view.attempts[-1].number if view.attempts else 0,
        "restarts": view.restarts,
        "step": look.step,
        "rate": look.live("rate"),
        "loss": look.live("loss"),
        "eta_s": None if (left_s := eta_s(look)) is None else round(left_s),
        "total": view.spec.get("steps") or (look.now.get("total") if look.of_attempt else None),
        "checkpoint": checkpoint.get("path"),
        "checkpoint_step": checkpoint.get("step"),
        "knobs": dict(view.knobs),
        "protected": dict(view.protected),
        "protected_sha256": view.protected_sha256,
        "gpus": gpus(look),
        "last_failure": _last_failure(view),
        "supervisor": {"pid": _supervisor_pid(look), "alive": look.alive},
        "because": look.said("because", view.because),
        "load": _load(look) or None,
        "would": view.would or None,
        "dump": _dump(look).get("path") or None,
        "next": look.said("next", view.next_command),
        "as_of": words.iso(look.said_s if look.is_newest else view.last_s),
        "ended_at": None if view.is_open else words.iso(view.ended_s),
        "simulated": bool(view.spec.get("simulated")),
        "machine": {"host": view.machine.get("host"), "here": look.here},
        "ahead": list(look.live("ahead") or ()),
        "less": look.live("less") or None,
        "warnings": list(view.warnings),
        "accounting": dict(look.spent) or None,
        "asked": look.asked,
        "damage": look.damage or None,
    }


def gpus(look: Look) -> list[dict[str, Any]]:
    """The GPUs of the run by index. `state` is `ok`, `unreadable`, `stale` (nobody reads it now) or `unknown`.

    `owner` is `run` while the run is open, which keeps its GPUs over backoff and verify too; `foreign` or `unknown`
    with `holder` where a process that is not the run's was found on it when it was to be empty; None after the end.
    """
    placed = look.view.gpus
    strangers = _strangers(look.view)
    said = {each["uuid"]: each for each in look.now.get("gpus", ())}
    found = []
    for uuid in dict.fromkeys((*placed, *said)):
        now = said.get(uuid, {})
        index, role = placed.get(uuid, (now.get("index"), now.get("role")))
        state = now.get("state", "unknown")
        found.append(
            {
                "index": index,
                "uuid": uuid,
                "role": role,
                "used_mib": now.get("used_mib"),
                "total_mib": now.get("total_mib"),
                "util_pct": now.get("util_pct"),
                "peak_mib": now.get("peak_mib"),
                "state": state if look.alive or state == "unknown" else "stale",
                "temperature_c": now.get("temperature_c"),
                "power_w": now.get("power_w"),
                "why": now.get("why"),
                "owner": strangers[uuid]["owner"] if uuid in strangers else ("run" if look.view.is_open else None),
                "holder": strangers.get(uuid),
            }
        )
    return sorted(found, key=lambda each: (each["index"] is None, each["index"] or 0))


def _checkpoint(look: Look) -> Plain:
    """The newest one that is recorded; what a supervisor says beside it is what the attempt began from."""
    return look.view.checkpoint or look.now.get("checkpoint") or {}


def _load(look: Look) -> str:
    """How far the attempt's load is, while it starts."""
    said = look.now.get("load") if look.alive and look.of_attempt and look.phase == "starting" else None
    return str(said or "")


def _unseen(look: Look) -> str:
    """The pattern of a step, where the attempt prints, shows no load, and has no step: a wrong one shows here first."""
    pattern = words.pattern_of(look.view.spec)
    starts = look.alive and look.of_attempt and look.phase == "starting"
    waits = starts and look.now.get("last_line") and not look.now.get("load")
    return pattern if waits else ""


def _dump(look: Look) -> Plain:
    """What the processes of the last attempt were last seen doing."""
    dumps = look.view.attempts[-1].dumps if look.view.attempts else ()
    return dumps[-1] if dumps else {}


def _supervisor_pid(look: Look) -> int | None:
    if not look.alive:
        return None
    pid: int | None = look.now.get("supervisor", {}).get("pid") if look.is_newest else None
    return pid or look.view.supervisor_pid


def _last_failure(view: RunView) -> dict[str, Any] | None:
    failure = view.last_failure
    if failure is None:
        return None
    told = {key: failure.get(key) for key in FAILURE_FIELDS}
    at = {"attempt": failure.get("attempt"), "at": words.iso(failure.get("at_s"))}
    return {"kind": failure.get("kind"), **told, "because": failure.get("because"), **at}


def text(looks: list[Look], *, detailed: bool) -> str:
    """For people, 80 columns: a line for each run; below it, for open runs and where `detailed`, all that matters; for
    halted ones why, and what to type."""
    width = max((len(words.safe(look.view.name)) for look in looks), default=0)
    lines: list[str] = []
    for look in looks:
        lines.append(words.cut(_line(look, min(width, 40)), words.WIDTH))
        if look.damage:
            lines += words.wrapped("damaged", look.damage)
        if detailed or look.view.is_open or look.asked:
            lines += [*_details(look), ""]
        elif look.phase == "halted":
            lines += [*words.wrapped("because", look.said("because", look.view.because)), *_what_next(look), ""]
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join(lines) + "\n" if lines else ""


def _line(look: Look, width: int) -> str:
    view = look.view
    said = [look.phase + (", paused" if view.paused else "")]
    if view.attempts:
        said.append(f"attempt {view.attempts[-1].number}")
    if look.step is not None:
        total = view.spec.get("steps") or (look.now.get("total") if look.of_attempt else None)
        said.append(f"step {look.step}" + (f" of {total}" if total else ""))
    for key, shown in (("rate", "rate"), ("loss", "loss")):
        if (value := look.live(key)) is not None:
            said.append(f"{shown} {words.number(value)}")
    if not view.is_open and view.ended_s is not None:
        said.append(f"{words.duration(look.at_s - view.ended_s)} ago")
    if view.restarts:
        said.append(f"{view.restarts} restart" + ("s" if view.restarts > 1 else ""))
    return f"{words.safe(view.name).ljust(width)}  {'  '.join(said)}"


def _details(look: Look) -> list[str]:
    view = look.view
    lines = _gpu_lines(look)
    checkpoint = _checkpoint(look).get("path")
    if checkpoint:
        lines += words.wrapped("checkpoint", checkpoint)
    if view.knobs:
        lines += words.wrapped("knobs", words.pairs(view.knobs))
    if view.protected:
        lines += words.wrapped("locked", words.pairs(view.protected))
    if look.spent.get("ettr") is not None and view.attempts:
        lines += words.wrapped("time", words.time_words(look.spent))
    if view.last_failure is not None:
        lines += words.wrapped("last fault", words.failure_words(view.last_failure))
    if look.now.get("last_line") and look.of_attempt:
        lines += words.wrapped("last line", words.cut(words.safe(look.now["last_line"]), 200))
    if (left_s := eta_s(look)) is not None:
        lines += words.wrapped("to go", f"about {words.duration(left_s)}, at this attempt's mean pace")
    if load := _load(look):
        lines += words.wrapped("load", words.safe(load))
    if pattern := _unseen(look):
        lines += words.wrapped("waits for", f"the first line that health.progress.log finds: {pattern}")
    if less := look.live("less"):
        lines += words.wrapped("less", words.safe(less))
    for text in look.live("ahead") or ():
        lines += words.wrapped("ahead", words.safe(text))
    if dump := _dump(look):
        lines += words.wrapped("dump", words.safe(dump.get("path") or dump.get("problem")))
    lines += words.wrapped("because", look.said("because", view.because))
    if view.would:
        lines += words.wrapped("paused", words.safe(view.would))
    lines += _what_next(look)
    return lines


def _strangers(view: RunView) -> dict[str, Plain]:
    """By GPU, who else was found on it when it was last to be empty; nobody once the next attempt is on its way."""
    if not view.attempts or view.phase not in ("verifying", "backoff", "halted"):
        return {}
    return {each["gpu"]: each for each in view.attempts[-1].holders if each.get("owner") != "run"}


def _owner(of: Plain) -> str:
    holder = of["holder"]
    if holder is not None:
        return f"pid {holder.get('pid')} ({words.safe(str(holder.get('user')))})"
    if of["state"] == "stale" and of["owner"] is None:
        return "at its end"
    if of["state"] != "ok":
        return str(of["state"]) + (f": {words.safe(of['why'])}" if of["why"] else "")
    return str(of["owner"] or "-")


def _gpu_lines(look: Look) -> list[str]:
    found = gpus(look)
    if not found or (not look.view.is_open and all(each["used_mib"] is None for each in found)):
        return []
    role_width = min(16, max(4, *(len(words.safe(each["role"] or "-")) for each in found)))
    lines = [f"  GPU  {'role'.ljust(role_width)}  {'memory, GiB':>14}   peak   room  util   C    W  owner"]
    for each in found:
        role = words.cut(words.safe(each["role"] or "-"), role_width).ljust(role_width)
        index = "?" if each["index"] is None else each["index"]
        figures = _figures(each) if each["used_mib"] is not None else f"{'?':>14}"
        lines.append(words.cut(f"  {index:>3}  {role}  {figures}  {_owner(each)}", words.WIDTH))
    return lines


def _figures(of: Plain) -> str:
    """Memory, the attempt's peak and what it leaves free, utilisation, temperature, power; `-` for not known."""
    memory = f"{words.gib(of['used_mib'])} / {words.gib(of['total_mib'])}"
    known = of["peak_mib"] is not None and of["total_mib"] is not None
    peak, room = (words.gib(of["peak_mib"]), words.gib(of["total_mib"] - of["peak_mib"])) if known else ("-", "-")
    keys = (("util_pct", 4, "%"), ("temperature_c", 3, ""), ("power_w", 4, ""))
    rest = "  ".join(("-" if of[key] is None else f"{of[key]:.0f}{unit}").rjust(width) for key, width, unit in keys)
    return f"{memory:>14}  {peak:>5}  {room:>5}  {rest}"


def eta_s(look: Look) -> float | None:
    """Seconds to the last step at the attempt's mean pace; None where either is not known, or it is too early."""
    attempt = look.view.attempts[-1] if look.view.attempts else None
    total, step, said_s = look.view.spec.get("steps") or look.live("total"), look.live("step"), look.said_s
    if attempt is None or None in (total, step, said_s, attempt.first_step, attempt.startup_s, attempt.started_s):
        return None
    done = int(step) - (attempt.first_step or 0)
    took_s = (said_s or 0.0) - (attempt.started_s or 0.0) - (attempt.startup_s or 0.0)
    if done < PACE_STEPS or took_s < PACE_S:
        return None
    left = max(0, int(total) - int(step))
    return left * took_s / done


def _what_next(look: Look) -> list[str]:
    """What happens next, and how to stop it."""
    view, lines = look.view, []
    if look.asked:
        lines += words.wrapped("asked", "a request waits for its answer")
    name = words.safe(view.name)
    if not look.here:
        host = view.machine.get("host") or "another machine"
        lines += words.wrapped("machine", f"belongs to {host}; to move it here: supervise adopt {name} --here")
    elif (view.is_open or look.asked) and not look.alive:
        told = "no supervisor at this moment; the guardian starts one. If none comes: supervise adopt --all"
        lines += words.wrapped("supervisor", told)
    if not look.is_newest and look.alive and look.said_s is not None and look.at_s - look.said_s > 10:
        lines += words.wrapped("as of", f"{words.duration(look.at_s - look.said_s)} ago")
    after = look.said("next", view.next_command)
    if after:
        lines += words.wrapped("next", after)
    if view.is_open and look.here:
        if view.paused:
            lines += words.wrapped("to recover", f"supervise resume {name}")
        lines += words.wrapped("to stop", f"supervise down {name}")
    return lines
