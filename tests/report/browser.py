"""A headless Chromium, driven over its debugging pipe (Chrome DevTools Protocol), standard library only."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

WITHIN_S = 60.0
PROGRAM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


class Browser:
    """One page. `errors`: what the console and the page's own policy complained of."""

    def __init__(self, profile: Path) -> None:
        assert PROGRAM is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        self.errors: list[str] = []
        self._number, self._buffer = 0, b""
        self._own = tempfile.TemporaryDirectory(prefix="chromium-")  # it leaves its socket's folder there when it ends
        # The program reads commands at 3 and answers at 4, which a shell puts there.
        line = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", line, PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-extensions", "--disable-background-networking", "--hide-scrollbars",
             f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": self._own.name},
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._session = ""
        pages = [each for each in self.ask("Target.getTargets")["targetInfos"] if each["type"] == "page"]
        target = pages[0]["targetId"] if pages else self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to one command; what the page complains of meanwhile is kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline_s = time.monotonic() + WITHIN_S
        while True:
            said = self._next(deadline_s)
            if said.get("id") == self._number:
                assert "error" not in said, said
                return dict(said["result"])
            self._hear(said)

    def _next(self, deadline_s: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, "the browser does not answer"
            if select.select([self._in], [], [], left_s)[0]:
                got = os.read(self._in, 1 << 20)
                assert got, "the browser has gone"
                self._buffer += got
        first, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(first))

    def _hear(self, said: dict[str, Any]) -> None:
        params = said.get("params", {})
        match said.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(params["exceptionDetails"])[:500])
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.errors.append(json.dumps(params["args"])[:500])
            case "Network.requestWillBeSent" if not params["request"]["url"].startswith(("file:", "http://127.0.0.1:")):
                self.errors.append(f"asked the network for {params['request']['url']}")
            case _:
                pass

    def open(self, address: str, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Go there and wait until the page has drawn."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        value = "dark" if dark else "light"
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])
        self.ask("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && document.documentElement.dataset.drawn !== undefined")

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until the expression is true."""
        deadline_s = time.monotonic() + WITHIN_S
        while not self.value(expression):
            assert time.monotonic() < deadline_s, expression
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """A real click into the middle of the first element that matches."""
        at = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'});"
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    def picture(self, to: Path) -> None:
        """The whole page as a PNG."""
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        to.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """End it and wait for its end."""
        self.process.terminate()
        try:
            self.process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._in)
        os.close(self._out)
        self._own.cleanup()
