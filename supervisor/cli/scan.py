"""`scan FILE...`: what a log says went wrong. Reads any size in bounded memory; asks nothing of a run."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import click
from msgspec import Struct

from supervisor.cli.common import say
from supervisor.core.evidence import Hit, WatchHit
from supervisor.core.rootcause import Cause, Mark, refuted, root_cause
from supervisor.signatures import Matcher, Scanner
from supervisor.signatures.marks import MARKS, to_mark
from supervisor.views.words import safe_lines

_CHUNK = 512 << 10  # stays in the cache of one core between the passes over it
_PACKED = 64 << 10
_GZIP = b"\x1f\x8b"

#: Hits and marks kept of one file: a storm of the same text says nothing more.
_HITS = 300
_MARKS = 256
_SHOWN = 100

_FIELDS = ("rank", "gpu", "tried_mib", "free_mib", "total_mib", "line", "text")


class Report(Struct, frozen=True):
    """What one file says. `cause` None: healthy. `fell` are texts that later lines refute; `error`: not readable."""

    path: str
    cause: Cause | None
    hits: tuple[Hit, ...] = ()
    fell: tuple[tuple[Hit, str], ...] = ()
    error: str | None = None


class _Judge:
    """Keeps what matters of one file while it is read."""

    def __init__(self, matcher: Matcher, path: str, recount: Callable[[int, int], int] | None) -> None:
        self._scanner = Scanner(matcher, path, recount=recount, whole_file=True)
        self._path = path
        self._hits: list[Hit] = []
        self._marks: list[Mark] = []
        self._fell: list[tuple[Hit, str]] = []
        self._chunks = 0
        self._next = 1

    def feed(self, data: bytes) -> None:
        """Read on. After 1, 2, 4 ... chunks since the last hit, see whether all was refuted meanwhile."""
        self._take(self._scanner.feed(data))
        self._chunks += 1
        if self._hits and self._chunks >= self._next:
            self._next = 2 * self._chunks
            self._settle()

    def end(self) -> Report:
        """The report; the file is over."""
        self._take(self._scanner.end())
        stands, fell = refuted(self._hits, self._marks)
        all_fell = (*self._fell, *fell)
        cause = root_cause(stands, refuted=all_fell)
        return Report(self._path, cause, tuple(self._hits), all_fell)

    def _take(self, found: Sequence[Hit | WatchHit]) -> None:
        for hit in found:
            if isinstance(hit, Hit):
                if not self._hits:
                    self._chunks, self._next = 0, 1
                self._hits.append(hit)
            else:
                mark = to_mark(hit)
                if mark is not None:
                    self._marks.append(mark)
        if len(self._hits) > _HITS:
            del self._hits[_HITS * 2 // 3 : -_HITS // 3]
        if len(self._marks) > _MARKS:
            del self._marks[_MARKS // 4 : -_MARKS * 3 // 4]

    def _settle(self) -> None:
        stands, fell = refuted(self._hits, self._marks)
        if not stands:
            self._fell = [*self._fell, *fell][:_SHOWN]
            self._hits.clear()
            self._marks.clear()
            self._scanner.watching = False


def scan_file(path: str, matcher: Matcher) -> Report:
    """The report of one file (`-`: standard input), plain or gzip."""
    try:
        with _opened(path) as stream:
            head = stream.peek(2)[:2] if hasattr(stream, "peek") else b""
            if head == _GZIP:
                judge = _Judge(matcher, path, None)
                chunks = _unpacked(stream)
            else:
                judge = _Judge(matcher, path, _recounter(path) if path != "-" else None)
                chunks = iter(lambda: stream.read(_CHUNK), b"")
            for chunk in chunks:
                judge.feed(chunk)
            return judge.end()
    except OSError as error:
        return Report(path, None, error=f"{error.strerror or error}")


def _opened(path: str) -> IO[bytes]:
    return click.open_file(path, "rb") if path == "-" else Path(path).open("rb", buffering=_CHUNK)


def _unpacked(stream: IO[bytes]) -> Iterator[bytes]:
    """The text of a gzip file of any number of parts; one that is cut off or damaged is read as far as it goes."""
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    for data in iter(lambda: stream.read(_PACKED), b""):
        while data:
            try:
                text = unpacker.decompress(data, _CHUNK)
            except zlib.error:
                return
            if text:
                yield text
            data = unpacker.unconsumed_tail
            if unpacker.eof:
                data = unpacker.unused_data.lstrip(b"\0")
                unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)


def _recounter(path: str) -> Callable[[int, int], int] | None:
    """Counts line breaks of a part of the file; None where it cannot be read twice."""
    if not Path(path).is_file():
        return None

    def recount(begin: int, end: int) -> int:
        count = 0
        with Path(path).open("rb", buffering=0) as stream:
            stream.seek(begin)
            while begin < end:
                data = stream.read(min(_CHUNK, end - begin))
                if not data:
                    break
                count += data.count(b"\n")
                begin += len(data)
        return count

    return recount


def to_document(reports: Sequence[Report]) -> dict[str, Any]:
    """`supervise.scan/v1`."""
    return {"schema": "supervise.scan/v1", "files": [_file(report) for report in reports]}


def _file(report: Report) -> dict[str, Any]:
    if report.error is not None:
        return {"path": report.path, "verdict": None, "hits": [], "error": report.error}
    verdict: dict[str, Any] = {"kind": "none", **dict.fromkeys(_FIELDS)}
    lost: tuple[tuple[Hit, str], ...] = report.fell
    if report.cause is not None:
        verdict = {**_hit(report.cause.hit), "confidence": report.cause.confidence.value}
        lost = report.cause.lost
    verdict["lost"] = [{**_hit(hit), "why": why} for hit, why in lost[:_SHOWN]]
    return {"path": report.path, "verdict": verdict, "hits": [_hit(hit) for hit in report.hits[:_SHOWN]]}


def _hit(hit: Hit) -> dict[str, Any]:
    return {
        "kind": hit.kind.value,
        "rank": hit.rank,
        "gpu": hit.gpu,
        "tried_mib": hit.tried_mib,
        "free_mib": hit.free_mib,
        "total_mib": hit.total_mib,
        "line": hit.line,
        "text": hit.text,
        "signature": hit.signature,
        "weight": hit.weight.value,
        "in_use_mib": hit.in_use_mib,
        "reserved_mib": hit.reserved_mib,
        "others": [{"pid": pid, "mib": mib} for pid, mib in hit.others],
    }


def to_text(report: Report) -> str:
    """The report for people: kind, deciding line, what lost and why."""
    if report.error is not None:
        return f"{report.path}: cannot be read: {report.error}"
    lost = report.fell
    if report.cause is None:
        lines = [f"{report.path}: none"]
    else:
        hit = report.cause.hit
        lost = report.cause.lost
        lines = [f"{report.path}: {hit.kind} (confidence {report.cause.confidence.value})"]
        lines.append(f"  {report.path}:{hit.line}: {hit.text[:400]}")
        lines += [f"  {facts}" for facts in (_facts(hit),) if facts]
    if lost:
        lines.append("  also seen:")
        lines += [f"    line {hit.line}: {hit.kind}, {why}: {hit.text[:120]}" for hit, why in lost[:10]]
        lines += [f"    and {len(lost) - 10} more (-o json)"] * (len(lost) > 10)
    return "\n".join(lines)


def _facts(hit: Hit) -> str:
    parts = []
    if hit.rank is not None:
        parts.append(f"rank {hit.rank}")
    if hit.gpu is not None:
        parts.append(f"GPU {hit.gpu}")
    if hit.tried_mib is not None:
        parts.append(f"wanted {hit.tried_mib:.0f} MiB")
    if hit.free_mib is not None:
        total = f" of {hit.total_mib:.0f}" if hit.total_mib is not None else ""
        parts.append(f"{hit.free_mib:.0f}{total} MiB free")
    if hit.short_by_mib is not None:
        parts.append(f"short by {hit.short_by_mib:.0f} MiB")
    if hit.in_use_mib is not None:
        parts.append(f"{hit.in_use_mib:.0f} MiB in use by the process")
    if hit.reserved_mib is not None:
        parts.append(f"{hit.reserved_mib:.0f} MiB reserved but unallocated")
    parts += [f"process {pid} holds {mib:.0f} MiB" for pid, mib in hit.others]
    return ", ".join(parts)


@click.command("scan")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def scan(files: tuple[str, ...], output: str) -> None:
    """Say what went wrong in a log of any trainer, and why that and nothing else.

    Exit 0 whatever was found, 1 if a file cannot be read.
    """
    matcher = Matcher(watch=MARKS, bulk=True)
    reports = [scan_file(path, matcher) for path in files]
    if output == "json":
        click.echo(json.dumps(to_document(reports), indent=2))
    else:
        click.echo("\n".join(safe_lines(to_text(report)) for report in reports))
    if any(report.error is not None for report in reports):
        if output == "json":
            for report in reports:
                if report.error is not None:
                    say(to_text(report))
        sys.exit(1)


command: click.Command = scan
