"""Kills on the real thing, as many as are asked for: `python -m tests.faults --kills 500 --seed 1 --minutes 60`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from chaos import Box, Chaos  # the folder of these tests comes first


def main() -> int:
    """0: nothing was lost, nothing doubled. 1: the round that broke it, and where its files are."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0, help="end then, with fewer kills")
    asked = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="supervise-faults-"))
    box = Box(root)
    began_s = time.monotonic()
    chaos = None
    try:
        chaos = Chaos(box, asked.seed)
        while chaos.kills < asked.kills and time.monotonic() - began_s < 60 * asked.minutes:
            chaos.round()
        chaos.end()
    except BaseException as error:  # noqa: BLE001 - told with its seed, whatever it is
        rounds = "\n".join(chaos.rounds[-10:]) if chaos else ""
        traceback.print_exc()
        print(f"seed {asked.seed}: {type(error).__name__}: {error}\nlast rounds:\n{rounds}\nfiles: {root}")
        box.close()
        return 1
    box.close()
    told = ", ".join(f"{name} {count}" for name, count in sorted(chaos.killed.items()))
    print(f"{chaos.kills} kills in {len(chaos.rounds)} rounds, {time.monotonic() - began_s:.0f} s: {told}")
    print(f"{len(chaos.starts())} attempts, none twice; no record lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
