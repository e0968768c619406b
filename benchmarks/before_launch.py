"""What is looked at before a launch, timed: the fingerprint of a venv, and the preflight without the user's own checks.

    python -m benchmarks.before_launch [ROUNDS]

The venvs: one of 300 packages that is made here (`made`: real metadata files, small stand-ins for the code), this
project's own, and one with torch where there is one (.venv-torch). The peers look at the same venv in the same run:
`importlib.metadata` by its own interpreter, and `pip list`. The floor is that interpreter doing nothing.
The preflight is that of the second `up` of a run over eight GPUs (a driver's library compiled here), with a history to
compare with, five complete checkpoints, a watched environment, a port and a secret: from the record that opens the
episode to the one that says it passed, as the journal has them.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.box import Box, box
from benchmarks.verify import STEPS, stub
from supervisor.edges.environment import start_fingerprint

FINGERPRINT_S, PREFLIGHT_S = 1.0, 2.0
PACKAGES, TRACKED = 300, 500
ROUNDS = 5
LISTS = "import importlib.metadata as m; print(len({d.metadata['Name']: d.version for d in m.distributions()}))"
CHECKPOINTS, PORT = 5, 29_517


def main() -> int:
    """One JSON object; 1 where a bound is missed."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with tempfile.TemporaryDirectory(prefix="supervise-bench-") as folder:
        work = repository(Path(folder, "work"))
        venvs = {f"{PACKAGES} packages": made(Path(folder, "venv")), "this project's": Path(sys.prefix)}
        torch = Path(__file__).parents[1] / ".venv-torch"
        if torch.exists():
            venvs["with torch"] = torch
        prints = {what: fingerprint(venv, work, rounds) for what, venv in venvs.items()}
    took = preflights(rounds)
    told = {"preflight_ms": [round(1000 * one) for one in (statistics.median(took), max(took))]}
    held = max(took) <= PREFLIGHT_S and all(one["worst_ms"] <= 1000 * FINGERPRINT_S for one in prints.values())
    print(json.dumps({"fingerprints": prints, **told, "rounds": rounds, "held": held}))
    return 0 if held else 1


# ── the fingerprint ──────────────────────────────────────────────────────────────────────────────────────────────────


def fingerprint(venv: Path, work: Path, rounds: int) -> dict[str, Any]:
    """Ours, the peers and the floor, taken by turns: milliseconds, medians but for `worst_ms`."""
    python = str(venv / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "list", "--format=freeze", "--disable-pip-version-check"]
    found = 0

    def ours() -> None:
        nonlocal found
        told = start_fingerprint(
            workdir=str(work), argv=["python", "train_0.py"], environ=dict(os.environ), venv=str(venv), redact=str
        ).wait()
        if told["unknown"]:
            raise RuntimeError(f"not told: {told['unknown']}")
        found = len(told["packages"])

    ways: dict[str, Callable[[], None]] = {
        "ours": ours,
        "importlib": lambda: _run([python, "-c", LISTS]),
        "pip": lambda: _run(pip),
        "floor": lambda: _run([python, "-c", "pass"]),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            began = time.monotonic()
            way()
            took[name].append(1000 * (time.monotonic() - began))
    medians = {f"{name}_ms": round(statistics.median(each)) for name, each in took.items()}
    return {"packages": found, **medians, "worst_ms": round(max(took["ours"]))}


def _run(argv: list[str]) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run(argv, check=True, capture_output=True, timeout=120, env=environ)


def made(venv: Path, count: int = PACKAGES) -> Path:
    """A venv with so many packages: metadata of a median of 6 KiB and up to 100 (as of the real ones here), records of
    up to 3,000 files, ten modules each; one in thirty has a folder name without its version, as old installers left."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=120)
    site = next(venv.glob("lib/python3*/site-packages"))
    draw = random.Random(0)
    for n in range(count):
        name, version = f"package_{n:03d}", f"{draw.randrange(9)}.{draw.randrange(30)}.{draw.randrange(9)}"
        head = f"Metadata-Version: 2.1\nName: package-{n:03d}\nVersion: {version}\nSummary: one of many\n"
        size = min(100_000, int(draw.lognormvariate(8.7, 1.0)))
        old = n % 30 == 29
        info = site / (f"{name}.egg-info" if old else f"{name}-{version}.dist-info")
        info.mkdir()
        info.joinpath("PKG-INFO" if old else "METADATA").write_text(head + "\n" + "word " * (size // 5))
        files = min(3000, int(draw.lognormvariate(3.5, 1.4)))
        info.joinpath("RECORD").write_text("".join(f"{name}/m{k}.py,sha256=x,{k}\n" for k in range(files)))
        info.joinpath("WHEEL").write_text("Wheel-Version: 1.0\n")
        site.joinpath(name).mkdir()
        for k in range(10):
            site.joinpath(name, f"m{k}.py").write_text("x = 1\n")
    return venv


def repository(work: Path) -> Path:
    """A working directory under git: scripts and configs, two of them dirty."""
    for n in range(TRACKED):
        file = work / ("." if n < 10 else f"part{n % 20}") / f"train_{n}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"x = {n}\n" * 50)
    as_one = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], [*as_one, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", "-C", str(work), *words], check=True, capture_output=True, timeout=60)
    for n in (0, 11):
        next(work.rglob(f"train_{n}.py")).write_text("x = 'dirty'\n")
    return work


# ── the preflight ────────────────────────────────────────────────────────────────────────────────────────────────────


def preflights(rounds: int) -> list[float]:
    """Seconds of each preflight that has a history."""
    took: list[float] = []
    with night() as b:
        for n in range(rounds + 1):
            b.run("up", "-d", "before.yaml")
            b.wait_for("before", "FirstProgress", n + 1)
            records = b.records("before")
            opened, passed = (
                [one for one in records if one["type"] == kind][-1]["at"]["boot_s"]
                for kind in ("EpisodeOpened", "PreflightPassed")
            )
            if n:
                took.append(passed - opened)
            b.run("down", "before", "-y")
    return took


@contextmanager
def night() -> Iterator[Box]:
    """A run as such runs are: eight GPUs, checkpoints, a venv of 300 packages that is watched, a port, a secret."""
    nvml = stub()
    with box() as b:
        state = nvml.StubState.of(b.root)
        b.environ |= state.environ(nvml.build_stub(b.root / "driver"))
        b.environ |= {"SUPERVISE_DEV": str(b.root / "dev"), "BENCH_TOKEN": "not-a-secret"}
        repository(b.work)
        venv = made(b.root / "venv")
        for n in range(CHECKPOINTS):
            checkpoint(b.work / "checkpoints" / f"step_{100 + n}")
        job = b.script("job.py", STEPS)
        b.spec("before", SPEC.format(python=venv / "bin" / "python", job=job, venv=venv, port=PORT))
        yield b


SPEC = """command: [{python}, {job}]
venv: {venv}
topology: {{all: 8}}
secrets: [BENCH_TOKEN]
ports: {{master: {port}}}
resume: {{from: checkpoints/step_*}}
pins: {{freeze: true}}
preflight: {{disk_free: 1MiB}}
health: {{progress: {{log: 'step (?P<step>\\d+)'}}}}
"""


def checkpoint(folder: Path) -> None:
    """A complete one of four shards, in safetensors."""
    folder.mkdir(parents=True)
    names = {}
    for shard in range(1, 5):
        name = f"model-{shard:05d}-of-00004.safetensors"
        head = json.dumps({f"w{shard}": {"dtype": "F32", "shape": [1 << 16], "data_offsets": [0, 1 << 18]}}).encode()
        folder.joinpath(name).write_bytes(len(head).to_bytes(8, "little") + head + bytes(1 << 18))
        names[f"w{shard}"] = name
    index = {"metadata": {"total_size": 4 << 18}, "weight_map": names}
    folder.joinpath("model.safetensors.index.json").write_text(json.dumps(index))
    folder.joinpath("config.json").write_text("{}")


if __name__ == "__main__":
    sys.exit(main())
