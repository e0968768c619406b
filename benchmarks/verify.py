"""From the memory of a dead job being at its floor to the record that says so: `python -m benchmarks.verify [ROUNDS]`.

Over a driver's library that is compiled here (tests/gpus/stub) and read through the real nvidia-ml-py, with eight GPUs.
Asked for: `stable_for` + 300 ms at most. And how often the driver was asked meanwhile: ten times a second and no more.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.box import Box, boot_s, box

STABLE_FOR_S = 0.5
ALLOWED_OVER_S = 0.3
ROUNDS = 10
STEPS = "import time\nn = 0\nwhile True:\n    n += 1\n    print(f'step {n}', flush=True)\n    time.sleep(0.1)\n"


def stub() -> ModuleType:
    """tests/gpus/nvml_stub.py, which is no package."""
    path = Path(__file__).parents[1] / "tests" / "gpus" / "nvml_stub.py"
    spec = importlib.util.spec_from_file_location("nvml_stub", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nvml_stub"] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def night() -> Iterator[tuple[Box, Any]]:
    """A run over eight GPUs that is relaunched whenever it is killed."""
    nvml = stub()
    with box() as b:
        state = nvml.StubState.of(b.root)
        b.environ |= state.environ(nvml.build_stub(b.root / "driver"))
        b.environ["SUPERVISE_DEV"] = str(b.root / "dev")
        job = b.script("job.py", STEPS)
        text = (
            f"command: [{job}]\ntopology: {{all: 8}}\nhealth: {{progress: {{log: 'step (?P<step>\\d+)'}}}}\n"
            "recovery:\n  max_attempts: 1000\n  backoff: {first: 1ms, cap: 1ms}\n"
            f"  verify_zero: {{stable_for: {STABLE_FOR_S * 1000:.0f}ms}}\n"
            "  rules: [{on: killed, do: relaunch, wait: 1ms}]\n"
        )
        b.run("up", "-d", str(b.spec("verify", text)))
        yield b, state


def main() -> int:
    """Each round kills the job while its memory is held, lets it drain a while later, and reads the journal."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    took: list[float] = []
    asked: list[float] = []
    with night() as (b, state):
        for n in range(1, rounds + 1):
            b.wait_for("verify", "FirstProgress", n)
            use(state, 70_000.0)
            members = (b.home / "runs" / "verify" / "attempts" / f"{n:04d}" / "members.jsonl").read_text()
            os.kill(json.loads(members.splitlines()[0])["pid"], signal.SIGKILL)
            b.wait_for("verify", "MembersGone", n)
            began, before = boot_s(), len(state.calls())
            time.sleep(0.7 + 0.037 * n)  # so that the fall meets another part of the tenth of a second each time
            calls = [call for call in state.calls()[before:] if "Memory" in call]
            asked.append(len(calls) / len(state.cards) / (boot_s() - began))
            use(state, 3.0)
            zero_s = boot_s()
            took.append(verified_s(b, n) - zero_s)
    worst = max(took)
    held = worst <= STABLE_FOR_S + ALLOWED_OVER_S
    ms = {"median_ms": round(statistics.median(took) * 1000), "worst_ms": round(worst * 1000)}
    allowed = round((STABLE_FOR_S + ALLOWED_OVER_S) * 1000)
    per_s = round(statistics.median(asked), 1)
    print(json.dumps({"rounds": rounds, **ms, "allowed_ms": allowed, "reads_per_gpu_per_s": per_s, "held": held}))
    return 0 if held else 1


def verified_s(b: Box, attempt: int) -> float:
    """When the GPUs were verified after this attempt: a wait before the relaunch verifies them once more."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for record in b.records("verify"):
            if record["type"] == "VerifiedZero" and record["data"]["attempt"] == attempt:
                return float(record["at"]["boot_s"])
        time.sleep(0.01)
    raise TimeoutError(f"the GPUs were not verified after attempt {attempt}")


def use(state: Any, used_mib: float) -> None:
    """So much is in use on each GPU from now on."""
    for card in state.cards:
        card.used_mib = used_mib
    state.write()


if __name__ == "__main__":
    sys.exit(main())
