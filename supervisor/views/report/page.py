"""A report as one HTML page that asks for nothing: style, script and curves are inside. Text of logs stays text.

Rule 1: every text goes through `_t` (escaped, control characters shown); curves go through `_json`, in a block that no
browser runs.
Rule 2: the page's policy (CSP) allows the one script and the one style whose hashes it names, and no network; served
live it may also ask its own server.
"""

from __future__ import annotations

import html
import json
import time
from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from supervisor.views import words
from supervisor.views.report.blocks import Block, Facts, Lines, Pairs, Section, Table, Words
from supervisor.views.report.sections import BUDGET, is_told, sections, verdict
from supervisor.views.report.series import drawn, thinned

GOOD = {"finished": "good", "running": "good", "degraded": "warn", "halted": "bad", "stopped": "off"}
NO_SCRIPT = "Curves and lanes are drawn by a script, which this viewer does not run. The same in characters:"


def page(facts: Facts, *, live_s: float | None = None) -> str:
    """The whole page. `live_s`: its server has a newer one each so many seconds."""
    found = [section for section in sections(facts) if is_told(section)]
    style, script = _asset("page.css"), _script()
    body = "\n".join(_section(facts, section) for section in found)
    return _FRAME.format(
        csp=_policy(style, script, live=live_s is not None),
        title=_t(f"{facts.view.name}: {facts.view.phase}"),
        style=style,
        name=_t(facts.view.name),
        state=GOOD.get(facts.view.phase, "warn"),
        phase=_t(facts.view.phase),
        as_of=_t(words.clock(facts.at_s)),
        body=body,
        data=_json(_data(facts, live_s)),
        script=script,
    )


def _data(facts: Facts, live_s: float | None) -> dict[str, Any]:
    begin_s = facts.series.begin_s
    return {
        **drawn(facts.series, thinned(facts.series.points), facts.view.gpus),
        "end_s": facts.end_s,
        "zone_s": time.localtime(facts.end_s).tm_gmtoff,
        "live_s": live_s,
        "spans": [
            [span.kind, max(0.0, round(span.begin_s - begin_s, 1)), round(span.end_s - begin_s, 1), span.attempt]
            for span in facts.spans
        ],
        "marks": [
            [round(mark.at_s - begin_s, 1), words.safe(mark.kind), words.safe(mark.text), mark.attempt, mark.gpus]
            for mark in facts.marks
        ],
        "placed": [
            [index, words.safe(role), uuid]
            for uuid, (index, role) in sorted(facts.view.gpus.items(), key=lambda each: each[1][0] or 0)
        ],
    }


def _section(facts: Facts, section: Section) -> str:
    if section.attempt is not None:
        bad = " bad" if section.bad else ""
        inner = "".join(map(_block, section.blocks))
        title = _t(section.title)
        return f'<details class="attempt{bad}" id="{section.id}"><summary>{title}</summary>{inner}</details>'
    if section.id == "lanes":
        return _DRAWING.format(plain="".join(map(_block, section.blocks)), why=NO_SCRIPT)
    if section.id == "verdict":
        state = GOOD.get(facts.view.phase, "warn")
        rest = "".join(map(_block, section.blocks[1:]))
        return f'<section id="verdict" class="{state}"><p class="verdict">{_t(verdict(facts))}</p>{rest}</section>'
    bar = _bar(facts) if section.id == "budget" else ""
    inner = "".join(map(_block, section.blocks))
    return f'<section id="{section.id}"><h2>{_t(section.title)}</h2>{bar}{inner}</section>'


def _bar(facts: Facts) -> str:
    """The time budget as one bar."""
    wall_s = facts.spent.get("wall_s") or 1.0
    parts, at = [], 0.0
    for key, title in BUDGET:
        width = 1000 * (facts.spent.get(f"{key}_s") or 0.0) / wall_s
        if width > 0:
            parts.append(
                f'<rect class="k-{key}" x="{at:.2f}" width="{width:.2f}" height="20"><title>{_t(title)}</title></rect>'
            )
        at += width
    keys = "".join(
        f'<span><i class="k-{key}"></i>{_t(title)}</span>' for key, title in BUDGET if facts.spent.get(f"{key}_s")
    )
    said = _t(verdict(facts))
    return (
        f'<svg class="budget" viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label="{said}">'
        f'{"".join(parts)}</svg><p class="legend">{keys}</p>'
    )


def _block(block: Block) -> str:
    match block:
        case Words(said):
            return f"<p>{_t(said)}</p>"
        case Pairs(rows):
            return "<dl>" + "".join(f"<dt>{_t(label)}</dt><dd>{_t(said)}</dd>" for label, said in rows) + "</dl>"
        case Table(head, rows, right):
            heads = "".join(f"<th{_side(at, right)}>{_t(cell)}</th>" for at, cell in enumerate(head))
            body = "".join(f"<tr>{''.join(_cells(head, row, right))}</tr>" for row in rows)
            return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
        case Lines(lines, _):
            return "<pre>" + "\n".join(_t(line) for line in lines) + "</pre>"


def _cells(head: tuple[str, ...], row: tuple[str, ...], right: tuple[int, ...]) -> list[str]:
    cells = []
    for at, cell in enumerate(row):
        is_link = head[at] == "attempt" and cell.isdigit()
        inner = f'<a href="#attempt-{cell}">{cell}</a>' if is_link else _t(cell)
        cells.append(f"<td{_side(at, right)}>{inner}</td>")
    return cells


def _side(at: int, right: tuple[int, ...]) -> str:
    return ' class="n"' if at in right else ""


def _t(said: object) -> str:
    return html.escape(words.safe(said), quote=True)


def _json(value: Any) -> str:
    """JSON in which nothing can end the block that it stands in."""
    said = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return said.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _script() -> str:
    """One function, so that no name of it is the page's."""
    return f'"use strict";\n(() => {{\n{_asset("draw.js")}{_asset("page.js")}}})();\n'


def _policy(style: str, script: str, *, live: bool) -> str:
    hashes = [b64encode(sha256(text.encode()).digest()).decode() for text in (style, script)]
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; connect-src {connect}; "
        "base-uri 'none'; form-action 'none'"
    )


_DRAWING = """<section id="lanes"><h2>GPUs over time</h2>
<noscript><p>{why}</p>{plain}</noscript>
<div class="tools" role="toolbar" aria-label="Time shown">
<button type="button" data-do="out" title="Show more time (-)" aria-label="Show more time">&minus;</button>
<button type="button" data-do="in" title="Show less time (+)" aria-label="Show less time">+</button>
<button type="button" data-do="left" title="Earlier (left arrow)" aria-label="Earlier">&larr;</button>
<button type="button" data-do="right" title="Later (right arrow)" aria-label="Later">&rarr;</button>
<button type="button" data-do="all" title="All (0)">All</button>
<output id="window"></output></div>
<div id="lane-box" tabindex="0" aria-label="Lanes: drag to zoom, click a band to open its attempt"></div>
<p class="legend" id="lane-legend"></p></section>
<section id="curves"><h2>Loss and rate</h2>
<div class="tools" role="toolbar" aria-label="Axis">
<button type="button" data-by="time" aria-pressed="true">By time</button>
<button type="button" data-by="step" aria-pressed="false">By step</button>
<span class="legend"><span><i class="k-line"></i>kept</span><span><i class="k-gone"></i>rolled back</span></span></div>
<div id="curve-box"></div></section>"""

_FRAME = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{csp}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title><style>{style}</style></head>
<body><header><h1>{name}</h1><span class="phase {state}">{phase}</span><span id="as-of">as of {as_of}</span></header>
<main>{body}</main>
<div id="tip" hidden></div>
<script type="application/json" id="data">{data}</script>
<script>{script}</script></body></html>
"""
