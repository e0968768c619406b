"""A report as plain text of 80 columns and as Markdown. What is said is `sections`; nothing is added here."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from supervisor.views import words
from supervisor.views.report.blocks import Block, Facts, Lines, Pairs, Section, Table, Words
from supervisor.views.report.sections import is_told, sections

LABEL = 12


def text(facts: Facts) -> str:
    """For a terminal or a mail: 80 columns, except for lines of logs and of tables that need more."""
    lines = [f"{words.safe(facts.view.name)}: report of {words.clock(facts.at_s)}"]
    for section in filter(is_told, sections(facts)):
        lines += ["", words.safe(section.title), "-" * min(words.WIDTH, len(words.safe(section.title)))]
        for block in section.blocks:
            lines += _text(block)
    return "\n".join(lines) + "\n"


def _text(block: Block) -> list[str]:
    match block:
        case Words(said):
            return words.hanging(words.safe(said), by=0) or [""]
        case Pairs(rows):
            return [line for label, said in rows for line in words.wrapped(label, said, label_width=LABEL)]
        case Table(head, rows, right):
            return [words.cut(line.rstrip(), 160) for line in _aligned([head, *rows], right)]
        case Lines(lines, _):
            return [f"  {words.safe(line)}" if not block.drawn else line.rstrip() for line in lines]


def _aligned(rows: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    cells = [[words.safe(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]


def markdown(facts: Facts) -> str:
    """For a chat or a ticket: CommonMark with tables; no text of a log can become markup."""
    out = [f"# {_escaped(facts.view.name)}: report of {words.clock(facts.at_s)}", ""]
    for section in filter(is_told, sections(facts)):
        out += [f"{'###' if section.attempt is not None else '##'} {_escaped(section.title)}", ""]
        for block in section.blocks:
            out += [*_markdown(section, block), ""]
    return "\n".join(out).rstrip() + "\n"


def _markdown(section: Section, block: Block) -> Iterable[str]:
    match block:
        case Words(said):
            return [f"**{_escaped(said)}**" if section.id == "verdict" else _escaped(said)]
        case Pairs(rows):
            return [f"- {_escaped(label)}: {_escaped(said)}" for label, said in rows]
        case Table(head, rows, right):
            rule = ["---:" if at in right else "---" for at in range(len(head))]
            return [_row(map(_escaped, head)), _row(rule), *(_row(map(_escaped, row)) for row in rows)]
        case Lines(lines, _):
            shown = [words.safe(line) for line in lines]
            longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
            fence = "`" * max(3, longest + 1)
            return [fence, *shown, fence]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(said: str) -> str:
    """Inline text: characters that mean something in Markdown or HTML stand for themselves."""
    return re.sub(r"([\\`*_\[\]|#~!])", r"\\\1", html.escape(words.safe(said), quote=False))
