"""The server shows pages to whoever knows the token on this machine, and to nobody else."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator

import pytest

from supervisor.edges.web import HOST, Answer, Web

TOKEN = "t" * 32


def answers(path: str) -> Answer | None:
    return {"": Answer(b"<p>page</p>", "text/html", etag="e1"), "metrics": Answer(b"m 1\n", "text/plain")}.get(path)


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web(answers, TOKEN)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def ask(web: Web, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    link = http.client.HTTPConnection(HOST, web.server_address[1], timeout=60)
    try:
        link.request(method, path, headers={key.replace("_", "-"): value for key, value in headers.items()})
        answer = link.getresponse()
        return answer.status, answer.read(), dict(answer.headers)
    finally:
        link.close()


def test_whoever_knows_the_token_sees_the_page_and_the_metrics(web: Web):
    status, body, headers = ask(web, f"/{TOKEN}/")
    assert (status, body) == (200, b"<p>page</p>")
    assert headers["Content-Security-Policy"] == "default-src 'none'"
    assert ask(web, f"/{TOKEN}/metrics")[:2] == (200, b"m 1\n")
    assert web.address.endswith(f"/{TOKEN}/")


@pytest.mark.parametrize("path", ["/", "/metrics", f"/{TOKEN[:-1]}/", f"/{TOKEN}x/metrics", "//", "/%00/", "/%C3%BC/"])
def test_without_the_token_there_is_nothing(web: Web, path: str):
    status, body, headers = ask(web, path)
    assert status == 404
    assert b"page" not in body
    assert TOKEN not in str(headers)


def test_a_page_of_another_site_cannot_read_ours_by_a_name_that_points_here(web: Web):
    assert ask(web, f"/{TOKEN}/", Host="evil.example")[0] == 403
    assert ask(web, f"/{TOKEN}/", Host="127.0.0.1.evil.example:80")[0] == 403
    assert ask(web, f"/{TOKEN}/", Host="localhost:99")[0] == 200


def test_nothing_can_be_changed_through_it(web: Web):
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(web, f"/{TOKEN}/", method)[0] == 501


def test_a_page_that_the_reader_has_is_not_sent_again(web: Web):
    status, body, _ = ask(web, f"/{TOKEN}/", If_None_Match='"e1"')
    assert (status, body) == (304, b"")
    assert ask(web, f"/{TOKEN}/", If_None_Match='"e0"')[0] == 200


def test_head_says_how_long_and_sends_nothing(web: Web):
    status, body, headers = ask(web, f"/{TOKEN}/", "HEAD")
    assert (status, body, headers["Content-Length"]) == (200, b"", "11")


def test_it_listens_on_loopback_only(web: Web):
    assert web.server_address[0] == "127.0.0.1"
