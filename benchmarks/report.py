"""The report of ten hours of eight GPUs sampled each second: size, time to make it, time to draw it in Chromium.

Asked for: at most 1 MB and 1 s to draw. The night is tests/report/night.py; a supervisor samples each ten seconds, so a
real one is a tenth of it. Drawing counts from the navigation to the last line drawn, in a fresh profile.

    python -m benchmarks.report [ROUNDS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "report"))

import browser as driving
import night

from supervisor.cli import reporting
from supervisor.views.report.page import page
from supervisor.views.report.text import markdown, text


def main(argv: list[str]) -> int:
    """Prints size and times."""
    rounds = int(argv[0]) if argv else 5
    with tempfile.TemporaryDirectory() as folder:
        night.r.T0_S = time.time() - night.HOURS * 3600
        for every_s in (1.0, 10.0):
            home = Path(folder) / f"{every_s:.0f}"
            run = night.write(home, every_s=every_s)
            began_s = time.process_time()
            facts = reporting.facts(run)
            gathered_s = time.process_time() - began_s
            made = page(facts)
            made_s = time.process_time() - began_s - gathered_s
            to = home / "night.html"
            to.write_text(made, encoding="utf-8")
            print(f"{night.HOURS:.0f} h, 8 GPUs, a sample each {every_s:.0f} s: {len(made.encode()) / 1e6:.2f} MB")
            print(f"  text {len(text(facts)) / 1e3:.1f} kB, Markdown {len(markdown(facts)) / 1e3:.1f} kB")
            print(f"  CPU: {gathered_s:.2f} s to read and fold, {made_s:.2f} s to write the page")
            if driving.PROGRAM is None:
                print("  no Chromium here: drawing is not measured")
                continue
            times_ms = [_draw_ms(to, Path(folder) / f"profile{every_s:.0f}-{n}") for n in range(rounds)]
            print(f"  drawn: median {statistics.median(times_ms):.0f} ms, worst of {rounds} {max(times_ms)} ms")
    return 0


def _draw_ms(page_file: Path, profile: Path) -> int:
    """Milliseconds from the navigation until all is drawn, by the page's own clock."""
    chromium = driving.Browser(profile)
    try:
        chromium.open(page_file.as_uri())
        assert chromium.errors == [], chromium.errors
        return int(chromium.value("document.documentElement.dataset.drawn"))
    finally:
        chromium.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
