"""One message to one place: a webhook, a command, or a service that apprise knows. Not what is told, nor when.

Rule 1: an address is a secret. It stands in no text that comes out of here, in no argv and in no log.
Rule 2: each delivery has a process of its own with a deadline: whatever hangs, in the resolver or in a library, is
ended with everything that it started.
Webhook and command are built in; any other scheme takes apprise (`pip install 'supervise-training[notify]'`).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

DEADLINE_S = 20.0
REQUEST_S = 10.0
ANSWER_CAP_BYTES = 2000
EXTRA = "pip install 'supervise-training[notify]'"
SCHEMA = "supervise.notice/v1"

Notice = Mapping[str, Any]
"""`id run host event title text at`: what a webhook gets as JSON, and a command on its standard input."""


class Place(Struct, frozen=True):
    """Where a message goes. `name` may be shown; `url` never."""

    name: str
    url: str = ""
    command: tuple[str, ...] = ()
    cwd: str | None = None

    def __repr__(self) -> str:
        """Without the address."""
        return f"Place({self.name})"


def places(urls: str, command: tuple[str, ...] = (), cwd: str | None = None) -> tuple[Place, ...]:
    """The addresses of a variable's value, which white space parts, and the command (run in `cwd`), if there is one."""
    found = [Place(_name(n, url), url) for n, url in enumerate(urls.split(), start=1)]
    if command:
        found.append(Place(f"command {os.path.basename(command[0])}", command=command, cwd=cwd))  # noqa: PTH119 - a name
    return tuple(found)


def _name(n: int, url: str) -> str:
    """The number and the scheme: the host of a mail or a chat says too much already."""
    scheme = url.partition("://")[0].lower()
    if scheme in ("http", "https"):
        return f"{n} (webhook)"
    return f"{n} ({scheme[:20]})" if "://" in url and scheme.isalnum() else f"{n} (no address)"


def deliver(place: Place, notice: Notice, deadline_s: float = DEADLINE_S) -> str:
    """Empty once it was taken; else why not, in words without the address."""
    return deliver_all((place,), notice, deadline_s)[place.name]


def deliver_all(places: Iterable[Place], notice: Notice, deadline_s: float = DEADLINE_S) -> dict[str, str]:
    """`deliver` to all at once, by name: one that hangs holds up no other."""
    until_s = time.monotonic() + deadline_s
    sent = {place.name: _started(_sender(place, notice)) for place in places}
    return {name: _ended(child, until_s, deadline_s) for name, child in sent.items()}


def _sender(place: Place, notice: Notice) -> Callable[[], str]:
    if place.command:
        return lambda: _run(place, notice)
    if place.url.partition("://")[0].lower() in ("http", "https"):
        return lambda: _post(place.url, notice)
    return lambda: _apprise(place.url, notice)


def get(url: str, deadline_s: float = DEADLINE_S) -> str:
    """One GET, for a heartbeat. Empty once it was answered with 2xx; else why not."""
    until_s = time.monotonic() + deadline_s
    return _ended(_started(lambda: _request(url, None, {})), until_s, deadline_s)


def _post(url: str, notice: Notice) -> str:
    # `text` and `content` are what chat services look for in a plain webhook; the rest is for programs.
    words = f"{notice.get('title', '')}\n{notice.get('text', '')}".strip()
    body = json.dumps({"schema": SCHEMA, **notice, "body": notice.get("text", ""), "text": words, "content": words})
    headers = {"Content-Type": "application/json", "Idempotency-Key": str(notice.get("id", ""))}
    return _request(url, body.encode(), headers)


def _request(url: str, body: bytes | None, headers: Mapping[str, str]) -> str:
    import urllib.error
    import urllib.request

    try:
        request = urllib.request.Request(url, body, {"User-Agent": "supervise", **headers})
        with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
            answer.read(ANSWER_CAP_BYTES)
            return "" if 200 <= answer.status < 300 else f"HTTP {answer.status}"
    except urllib.error.HTTPError as error:
        error.close()
        return f"HTTP {error.code}"
    except urllib.error.URLError as error:
        return _os_words(error.reason)
    except (OSError, ValueError) as error:
        return _os_words(error)


def _os_words(error: object) -> str:
    """Why, without what the error says of the address."""
    if isinstance(error, TimeoutError):
        return f"no answer within {REQUEST_S:.0f} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


def _run(place: Place, notice: Notice) -> str:
    words = {f"SUPERVISE_NOTICE_{key.upper()}": str(value) for key, value in notice.items()}
    try:
        done = subprocess.run(
            place.command,
            cwd=place.cwd,
            input=json.dumps({"schema": SCHEMA, **notice}).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **words},
        )
    except OSError as error:
        return f"{error.strerror}"
    return "" if done.returncode == 0 else f"exit {done.returncode}"


def _apprise(url: str, notice: Notice) -> str:
    import logging
    import warnings

    logging.disable(logging.CRITICAL)  # its log names addresses
    warnings.simplefilter("ignore")
    try:
        import apprise
    except ImportError:
        return f"this address takes apprise: {EXTRA}"
    service = apprise.Apprise()
    if not service.add(url):
        return "apprise does not know this kind of address"
    kinds = {"halted": "failure", "degraded": "warning", "waiting": "warning", "finished": "success"}
    kind = kinds.get(str(notice.get("event")), "info")
    taken = service.notify(body=str(notice.get("text", "")), title=str(notice.get("title", "")), notify_type=kind)
    return "" if taken else "not taken (apprise does not say why)"


def _started(send: Callable[[], str]) -> tuple[int, int]:
    """A process of its own that asks `send`: its pid, and the pipe in which it says what came of it."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(reads, writes, send)
    os.close(writes)
    return pid, reads


def _ended(child: tuple[int, int], until_s: float, deadline_s: float) -> str:
    """What the process said; it is ended with all that it started."""
    pid, reads = child
    try:
        return _answer(reads, until_s, deadline_s)
    finally:
        os.close(reads)
        # It and its session, which it may not have made yet: both are ours until it is waited for.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _child(reads: int, writes: int, send: Callable[[], str]) -> None:
    code = 1
    try:
        os.setsid()
        os.close(reads)
        said = send()
        os.write(writes, b"+" + said.encode("utf-8", "replace")[:ANSWER_CAP_BYTES])
        code = 0
    except BaseException as error:  # noqa: BLE001 - whatever a library raises is told by its name only
        os.write(writes, b"+" + type(error).__name__.encode())
    finally:
        os._exit(code)  # never back into the caller's code


def _answer(reads: int, until_s: float, deadline_s: float) -> str:
    poll = select.poll()
    poll.register(reads, select.POLLIN)
    said = b""
    while poll.poll(max(0.0, until_s - time.monotonic()) * 1000):
        block = os.read(reads, ANSWER_CAP_BYTES)
        if not block:
            return said[1:].decode("utf-8", "replace") if said else "the process that sent it died"
        said += block
    return f"no end within {deadline_s:.0f} s"
