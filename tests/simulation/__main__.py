"""As many random nights as are asked for: `python -m tests.simulation --nights 100000 --seed 1`.

A night that breaks a promise is told with its seed, cut down to what it needs, with its transcript: exit 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "world")]

from broken import first_broken, minimised  # noqa: E402  # the folders of the tests come first
from lives import Life  # noqa: E402
from plots import plot_of  # noqa: E402


def main() -> int:
    """0: all promises were kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--nights", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first night; the next ones count up")
    asked = parser.parse_args()
    began_s = time.monotonic()
    for seed in range(asked.seed, asked.seed + asked.nights):
        why = first_broken(plot_of(seed))
        if why is not None:
            short = minimised(plot_of(seed))
            life = Life(short)
            print(f"seed {seed}: {why}\n\ncut down to:\n{short}\n")
            print(f"{first_broken(short, life)}\n")
            print("\n".join(life.transcript))
            return 1
    took_s = time.monotonic() - began_s
    each_ms = 1000 * took_s / asked.nights
    print(f"{asked.nights} nights from seed {asked.seed}: no promise broken, {each_ms:.0f} ms each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
