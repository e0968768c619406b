"""`supervise serve`: the report of each run, live, and `/metrics`, for this machine only. Changes nothing.

Rule 1: nobody reads without the token of the address. It is a new one each time, or the one in `--token-file`.
Rule 2: a page is made at most once each `FRESH_S` per run, however many look at it, and less often where that takes
long: a box that trains has better things to do.
"""

from __future__ import annotations

import html
import os
import secrets
import threading
import time
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote, unquote

import click

from supervisor.cli import common, records, reporting
from supervisor.cli.metrics import told
from supervisor.core.errors import Exit, Refusal, SuperviseError
from supervisor.edges.files import write_atomic
from supervisor.edges.paths import Home
from supervisor.edges.web import TOKEN, Answer, Web
from supervisor.views import words
from supervisor.views.metrics import CONTENT_TYPE
from supervisor.views.report.page import page

LIVE_S = 5.0
"""How often an open page asks for a newer one."""
FRESH_S = 2.0
SHARE = 0.05
"""Of one core, at most, goes into making pages of one run."""
HTML = "text/html; charset=utf-8"
POLICY = "frame-ancestors 'none'"
"""What the pages' own policy, which stands in them, cannot say."""
INDEX_POLICY = "default-src 'none'; frame-ancestors 'none'"


@click.command("serve")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0 takes a free one.")
@click.option(
    "--token-file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Keep the token there (made with mode 0600), so that the address stays the same.",
)  # fmt: skip
def command(port: int, token_file: Path | None) -> None:
    """The report of each run, live, and /metrics for Prometheus, on 127.0.0.1 only; until Ctrl-C.

    From elsewhere: ssh -L PORT:127.0.0.1:PORT HOST, then open the address that is printed.
    """
    token = secrets.token_urlsafe(24) if token_file is None else _kept_token(token_file)
    try:
        web = Web(Pages(common.home()), token, port)
    except OSError as error:
        said = f"port {port} of 127.0.0.1: {error.strerror or error}. Name another by --port, or none for a free one"
        raise Refusal(Exit.CONFLICT, said) from error
    click.echo(web.address)
    common.say(f"metrics: {web.address}metrics; whoever has the address may read. Ctrl-C ends it; the runs go on")
    try:
        web.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        return
    finally:
        web.server_close()


def _kept_token(path: Path) -> str:
    """The token in the file; a new one where there is none. UsageError for a file that others can read."""
    try:
        with path.open(encoding="ascii") as file:
            mode, kept = os.fstat(file.fileno()).st_mode, file.read(1024).strip()
    except FileNotFoundError:
        made = secrets.token_urlsafe(24)
        write_atomic(path, f"{made}\n".encode(), mode=0o600)
        return made
    except UnicodeDecodeError:
        kept, mode = "", 0
    if mode & 0o077:
        raise click.UsageError(f"{path} can be read by others: chmod 600 {path}")
    if not TOKEN.fullmatch(kept):
        raise click.UsageError(f"{path} holds no token of 16 or more of A-Z a-z 0-9 _ -: remove it, a new one is made")
    return kept


class Pages:
    """What each address shows: `` the list of runs, `metrics`, `RUN/` a report."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._made: dict[str, tuple[float, Answer]] = {}  # when it is to be made anew, and what it is

    def __call__(self, path: str) -> Answer | None:
        """The answer; None where nothing is."""
        if path == "":
            return Answer(_index(self._home).encode(), HTML, policy=INDEX_POLICY)
        if path == "metrics":
            return Answer(told(self._home).encode(), CONTENT_TYPE)
        name = unquote(path.removesuffix("/"))
        if not path.endswith("/") or name not in self._home.names():
            return None
        with self._lock:
            stale_at_s, answer = self._made.get(name, (0.0, None))
            begun_s = time.monotonic()
            if answer is None or begun_s >= stale_at_s:
                answer = self._report(name)
                took_s = time.monotonic() - begun_s
                self._made[name] = (time.monotonic() + max(FRESH_S, took_s / SHARE), answer)
            return answer

    def _report(self, name: str) -> Answer:
        try:
            made = page(reporting.facts(self._home.run(name)), live_s=LIVE_S).encode()
        except SuperviseError as error:  # a damaged journal: said where one looks
            return Answer(f"{words.safe_block(str(error))}\n".encode(), "text/plain; charset=utf-8")
        return Answer(made, HTML, sha256(made).hexdigest()[:32], POLICY)


def _index(home: Home) -> str:
    """The list of runs."""
    rows = []
    for name in home.names():
        look = records.look(home.run(name))
        said = html.escape(f"{look.phase}: {words.safe(look.said('because', look.view.because))}")
        rows.append(f'<li><a href="{html.escape(quote(name))}/">{html.escape(words.safe(name))}</a> {said}</li>')
    listed = f"<ul>{''.join(rows)}</ul>" if rows else "<p>There is no run yet.</p>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>supervise</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"></head>'
        f"<body><h1>Runs</h1>{listed}</body></html>\n"
    )
