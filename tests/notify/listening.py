"""A web server on loopback that keeps what it is told, and answers with the status that its path names."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Listening:
    """As a context manager. `told` are (method, path, JSON or None), in the order in which they came."""

    def __enter__(self) -> Listening:
        self.told: list[tuple[str, str, Any]] = []
        self.release = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(json.loads(body))

            def _answer(self, plain: Any) -> None:
                outer.told.append((self.command, self.path, plain))
                if self.path.startswith("/hang"):
                    outer.release.wait(30)
                code = int(self.path.strip("/").partition("/")[0]) if self.path.strip("/")[:3].isdigit() else 200
                self.send_response(code)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def posted(self, event: str | None = None) -> list[Any]:
        """The messages that came, of this kind or all."""
        found = [plain for method, _, plain in self.told if method == "POST"]
        return [one for one in found if event is None or one.get("event") == event]
