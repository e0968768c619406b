"""The page in a real browser: it draws, a click opens an attempt, text of a log stays text, and no network is asked."""

from __future__ import annotations

import http.client
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # night.py, browser.py
import browser as driving
import night

from supervisor.cli import reporting, serve
from supervisor.edges.paths import Home
from supervisor.edges.web import Web
from supervisor.views.report.page import page

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(driving.PROGRAM is None, reason="NO CHROMIUM HERE: the report is not tested in a browser"),
]


@pytest.fixture(scope="module")
def run_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("night")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(night.r, "T0_S", time.time() - night.HOURS * 3600)
        night.write(home, every_s=10.0)
    return home


@pytest.fixture(scope="module")
def address(run_home: Path) -> str:
    to = run_home / "night.html"
    to.write_text(page(reporting.facts(Home(run_home).run("dflash"))), encoding="utf-8")
    return to.as_uri()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[driving.Browser]:
    found = driving.Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture
def web_page(chromium: driving.Browser, address: str) -> driving.Browser:
    chromium.errors.clear()
    chromium.open(address)
    return chromium


LANES = "document.querySelectorAll('#lane-box .lane[data-gpu] canvas').length"


def test_the_page_draws_a_lane_for_each_gpu_and_complains_of_nothing(web_page: driving.Browser):
    assert web_page.value(LANES) == 8
    assert web_page.value("document.querySelectorAll('#lane-box path.mark').length") >= 3
    assert web_page.value("document.querySelectorAll('#curve-box path.gone').length") == 2
    assert web_page.errors == []


def test_a_click_on_a_failure_opens_its_attempt_and_another_on_the_summary_closes_it(web_page: driving.Browser):
    attempt = "document.querySelector('#attempt-1')"
    assert web_page.value(f"{attempt}.open") is False
    web_page.click("#lane-box .lane[data-gpu='5'] path.mark")
    web_page.until(f"{attempt}.open")
    assert "short by 174 MiB" in web_page.value(f"{attempt}.innerText")
    web_page.click("#attempt-1 summary")
    web_page.until(f"!{attempt}.open")
    assert web_page.errors == []


def test_one_second_at_zero_reaches_the_bottom_of_its_lane(web_page: driving.Browser):
    """Blue pixels of the memory's line at hour 4 of GPU 3, down to the ground; at hour 4.5 there are none."""
    column = """((hour) => {
        const c = document.querySelector("#lane-box .lane[data-gpu='3'] canvas"), g = c.getContext("2d");
        const at = Math.round(c.width * hour / 10), box = g.getImageData(at - 3, c.height - 8, 7, 5).data;
        let dark = 0;
        for (let i = 0; i < box.length; i += 4) if (box[i + 2] - box[i] > 90 && box[i + 3] > 120) dark++;
        return dark;
    })"""
    assert web_page.value(f"{column}(4.0)") > 0
    assert web_page.value(f"{column}(4.5)") == 0


def test_zoom_shows_less_time_and_all_of_it_again(web_page: driving.Browser):
    whole = web_page.value("document.querySelector('#window').textContent")
    web_page.click("[data-do=in]")
    assert web_page.value("document.querySelector('#window').textContent") != whole
    web_page.click("[data-do=all]")
    assert web_page.value("document.querySelector('#window').textContent") == whole


def test_text_of_a_log_stays_text(web_page: driving.Browser):
    assert web_page.value("document.title").startswith("dflash")
    assert web_page.value("document.querySelectorAll('img, iframe, object, embed, link').length") == 0
    assert web_page.value("document.querySelectorAll('script').length") == 2
    assert "onerror=" in web_page.value("document.querySelector('#attempt-3').textContent")


@pytest.mark.parametrize("width, dark", [(390, False), (390, True), (1200, True)])
def test_nothing_is_wider_than_a_phone_in_light_and_dark(
    chromium: driving.Browser, address: str, width: int, dark: bool
):
    chromium.errors.clear()
    chromium.open(address, width=width, dark=dark)
    assert chromium.value("document.documentElement.scrollWidth") <= width
    assert chromium.value(LANES) == 8
    ground = chromium.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)")
    assert (sum(ground) < 300) is dark
    assert chromium.errors == []


def test_a_live_page_follows_the_run_and_keeps_what_was_opened(
    chromium: driving.Browser, run_home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(serve, "LIVE_S", 0.3)
    monkeypatch.setattr(serve, "FRESH_S", 0.0)
    monkeypatch.setattr(serve, "SHARE", 1e9)
    web = Web(serve.Pages(Home(run_home)), "t" * 32)
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        link = http.client.HTTPConnection("127.0.0.1", web.server_address[1], timeout=30)
        link.request("GET", f"/{'t' * 32}/")
        assert b"dflash/" in link.getresponse().read()
        link.close()
        chromium.errors.clear()
        chromium.open(f"{web.address}dflash/")
        while not chromium.value("document.querySelector('#attempt-2').open"):
            chromium.click("#attempt-2 summary")  # again where a newer page came between press and release
        first = chromium.value("document.querySelector('#as-of').textContent")
        chromium.until(f"document.querySelector('#as-of').textContent !== {first!r}")
        assert chromium.value("document.querySelector('#attempt-2').open") is True
        assert chromium.value(LANES) == 8
        assert [each for each in chromium.errors if "favicon" not in each] == []
    finally:
        web.shutdown()
        thread.join()
        web.server_close()
        chromium.ask("Page.navigate", url="about:blank")
