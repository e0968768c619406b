"""What a report tells of: a fold over a run's records and samples. No words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from supervisor.views.accounting import CLASSES, accounting, document
from supervisor.views.fold import fold
from supervisor.views.report.blocks import Facts, Given, Locked, Mark, Span
from supervisor.views.report.series import Point, Series, attributed, series
from supervisor.views.run import ENDS, Entry, Plain, RunView, next_phase, trigger

HITS_KEPT = 40
"""Failure texts kept of an attempt: a storm of the same says nothing more."""


def gathered(name: str, entries: Sequence[Entry], at_s: float, given: Given, since_s: float | None = None) -> Facts:
    """The facts of a run up to `at_s`. `since_s`: what is drawn, and the attempts, begin there (Unix time)."""
    view = fold(name, entries)
    end_s = at_s if view.is_open else (view.ended_s or view.last_s or at_s)
    first_s = next((each.wall_s for each in entries if each.type == "EpisodeOpened"), end_s)
    begin_s = first_s if since_s is None else min(end_s, max(first_s, since_s))
    curves = series(given.lines, begin_s, end_s)
    points = attributed(_with_scalars(curves.points, given.scalars, begin_s, end_s), view.attempts)
    return Facts(
        view=view,
        at_s=at_s,
        begin_s=begin_s,
        end_s=max(end_s, begin_s + 1.0),
        spent=document(accounting(entries, at_s if view.is_open else None)),
        spans=tuple(span for span in _spans(entries, end_s) if span.end_s > begin_s),
        marks=tuple(mark for mark in _marks(view, entries) if mark.at_s >= begin_s),
        hits=_hits(entries),
        drifts={each.fields["attempt"]: each.fields for each in entries if each.type == "Drifted"},
        locked=_locked(entries),
        series=_placed(curves, view)._replace(points=points),
        shown=tuple(each for each in view.attempts if (each.ended_s or end_s) >= begin_s),
        given=given,
    )


def _placed(curves: Series, view: RunView) -> Series:
    order = {uuid: index for uuid, (index, _) in view.gpus.items()}
    return curves._replace(gpus=tuple(sorted(curves.gpus, key=lambda gpu: order.get(gpu.uuid, 1_000))))


def _with_scalars(
    points: Iterable[Point], scalars: Mapping[str, Iterable[tuple[float, int, float]]], begin_s: float, end_s: float
) -> list[Point]:
    """A tracker's scalars in place of what the log says of the same."""
    found = list(points)
    if losses := [each for each in scalars.get("loss", ()) if begin_s <= each[0] <= end_s]:
        found = [point._replace(loss=None) for point in found]
        found += [Point(at_s, step, value, None) for at_s, step, value in losses]
    if rates := [each for each in scalars.get("rate", ()) if begin_s <= each[0] <= end_s]:
        found = [point._replace(rate=None) for point in found]
        found += [Point(at_s, step, None, value) for at_s, step, value in rates]
    return [point for point in found if point.loss is not None or point.rate is not None]


def _spans(entries: Iterable[Entry], end_s: float) -> list[Span]:
    """The run's time by phase; a job that has ended is being cleared away, whatever the phase says."""
    spans: list[Span] = []
    phase, kind, since_s, ended = "stopped", "", 0.0, False
    number: int | None = None
    for entry in entries:
        by, was = trigger(entry), number
        if by == "LaunchIntended":
            number, ended = entry.fields.get("attempt"), False
        elif by == "EpisodeOpened":
            number, ended = None, False
        ended = ended or by == "JobEnded"
        phase = next_phase(phase, by)
        found = "" if phase in ENDS else CLASSES.get(phase, "")
        found = "verify" if ended and found in ("productive", "degraded", "load") else found
        if found != kind or by in ("LaunchIntended", "EpisodeOpened"):
            if kind and entry.wall_s > since_s:
                spans.append(Span(kind, since_s, entry.wall_s, was))
            kind, since_s = found, entry.wall_s
    if kind and end_s > since_s:
        spans.append(Span(kind, since_s, end_s, number))
    return spans


def _marks(view: RunView, entries: Iterable[Entry]) -> list[Mark]:
    """Verdicts, with all GPUs that the failure texts of that attempt name."""
    named: dict[int, set[int]] = {}
    begun: dict[int, float] = {}
    marks = []
    for entry in entries:
        of = entry.fields
        number = of.get("attempt", 0)
        match entry.type:
            case "LaunchIntended":
                named[number] = set()
                begun.pop(number, None)
            case "HitSeen" if not of.get("dropped"):
                begun.setdefault(number, entry.wall_s)
                if of.get("gpu") is not None:
                    named.setdefault(number, set()).add(of["gpu"])
            case "HitSeen":
                begun.pop(number, None)
                named.get(number, set()).discard(of.get("gpu", -1))
            case "Judged" | "Degraded":
                failure = of.get("failure", {})
                if failure.get("kind", "none") == "none":
                    continue
                gpus = named.get(number, set()) | ({failure["gpu"]} if failure.get("gpu") is not None else set())
                at_s = min(begun.get(number, entry.wall_s), entry.wall_s)
                text = str(failure.get("because", ""))
                marks.append(Mark(at_s, str(failure["kind"]), text, number, tuple(sorted(gpus))))
            case _:
                pass
    return marks


def _locked(entries: Iterable[Entry]) -> dict[int, Locked]:
    sha256, found = "", {}
    for entry in entries:
        if entry.type == "EpisodeOpened":
            sha256 = str(entry.fields.get("protected_sha256") or "")
        elif entry.type == "LaunchIntended" and entry.fields.get("protected"):
            found[entry.fields["attempt"]] = Locked(entry.fields["protected"], sha256)
    return found


def _hits(entries: Iterable[Entry]) -> dict[int, tuple[Plain, ...]]:
    found: dict[int, tuple[Plain, ...]] = {}
    for entry in entries:
        if entry.type == "HitSeen" and "attempt" in entry.fields:
            number = entry.fields["attempt"]
            if len(found.get(number, ())) < HITS_KEPT:
                found[number] = (*found.get(number, ()), {**entry.fields, "wall_s": entry.wall_s})
    return found
