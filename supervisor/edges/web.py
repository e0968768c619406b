"""A small HTTP server for pages and metrics: loopback only, a token in every address. No opinion on what is served.

Rule 1: it listens on 127.0.0.1 and nowhere else; a `Host` that is no name of loopback is refused, so that no page of
another site can read ours by a name that it points here.
Rule 2: an address without the token is answered like one that is not there, in constant time.
Rule 3: only GET and HEAD; nothing here changes anything. Each connection has a deadline, and there are few at a time.
"""

from __future__ import annotations

import hmac
import re
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

HOST = "127.0.0.1"
DEADLINE_S = 10.0
CONNECTIONS_MAX = 16
_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.I)
TOKEN = re.compile(r"[A-Za-z0-9_-]{16,200}")


class Answer(NamedTuple):
    """What an address shows. `etag` is the same as long as `body` is."""

    body: bytes
    type: str
    etag: str = ""
    policy: str = "default-src 'none'"


Answers = Callable[[str], "Answer | None"]
"""Path below the token, without leading slash -> what is there; None where nothing is."""


class Web(ThreadingHTTPServer):
    """Serves until `shutdown`. `port` 0 takes a free one; `address` is what to open."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, answers: Answers, token: str, port: int = 0) -> None:
        self.answers, self.token = answers, token
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__((HOST, port), _Handler)

    @property
    def address(self) -> str:
        """With the token: whoever knows it may read."""
        return f"http://{HOST}:{self.server_address[1]}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """As usual, but no more than so many at a time: the others are closed at once."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """In a thread of its own."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away in the middle is none of our business; anything else is told as usual."""
        import sys

        if not isinstance(sys.exc_info()[1], (ConnectionError, socket.timeout)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Web
    timeout = DEADLINE_S
    server_version = "supervise"
    sys_version = ""

    def do_GET(self) -> None:
        """The page, or 304 where the reader has it."""
        if not _LOOPBACK.fullmatch(self.headers.get("Host", "")):
            self._say(HTTPStatus.FORBIDDEN)
            return
        first, _, rest = urlsplit(self.path).path.lstrip("/").partition("/")
        if not hmac.compare_digest(first.encode(), self.server.token.encode()):
            self._say(HTTPStatus.NOT_FOUND)
            return
        found = self.server.answers(rest)
        if found is None:
            self._say(HTTPStatus.NOT_FOUND)
        elif found.etag and self.headers.get("If-None-Match") == f'"{found.etag}"':
            self._say(HTTPStatus.NOT_MODIFIED, found)
        else:
            self._say(HTTPStatus.OK, found)

    do_HEAD = do_GET

    def _say(self, status: HTTPStatus, found: Answer | None = None) -> None:
        body = found.body if found is not None and status == HTTPStatus.OK else b""
        if found is None:
            body = f"{status.value} {status.phrase}\n".encode()
        self.send_response(status)
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", found.type if found else "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
        if found is not None and found.etag:
            self.send_header("ETag", f'"{found.etag}"')
        self.send_header("Cache-Control", "no-store" if found is None or not found.etag else "no-cache")
        self.send_header("Content-Security-Policy", found.policy if found else "default-src 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: addresses hold the token."""
