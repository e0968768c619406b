"""200 stops of a job of 40 processes that hide and fork while they die, decoys beside it: `python benchmarks/storm.py`.

Asked for: no survivor, no decoy harmed. It is tests/processes/test_storm.py, as often as is said here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

STOPS = 200
REPO = Path(__file__).parents[1]


def main() -> int:
    """0 when every stop left nobody and harmed nobody."""
    stops = int(sys.argv[1]) if len(sys.argv) > 1 else STOPS
    began = time.monotonic()
    argv = [sys.executable, "-m", "pytest", "-q", "--no-header", "tests/processes/test_storm.py"]
    environ = {**os.environ, "STORM_STOPS": str(stops)}
    done = subprocess.run(argv, cwd=REPO, env=environ, capture_output=True, text=True, timeout=60 + 30 * stops)
    took_s = round(time.monotonic() - began)
    if done.returncode:
        print(done.stdout[-4000:])
    print(json.dumps({"stops": stops, "took_s": took_s, "held": done.returncode == 0}))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
