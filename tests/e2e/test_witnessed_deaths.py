"""Deaths that the log is silent about, and who else knew: the kernel, the workers' error files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from supervisor.edges import cgroup_kills

pytestmark = pytest.mark.real

ONCE = "recovery: {rules: [{on: [host_oom, killed, code_error, data_error, gpu_oom, exit], do: halt}]}\n"

EATER = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
print("step 1", flush=True)
time.sleep(3)
held = []
while True:
    held.append(bytearray(os.urandom(1 << 20)))
"""

WORKERS = """
import json, os, subprocess, sys, time
worker = '''
import json, os, sys, time
rank = int(os.environ["RANK"])
time.sleep(5 + rank)  # until the supervisor has read whose error file is where
text = "ValueError: shard 7 is torn" if rank == 1 else "RuntimeError: Connection closed by peer"
extra = {"py_callstack": "Traceback (most recent call last):", "timestamp": str(int(time.time()))}
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
    json.dump({"message": {"message": text, "extraInfo": extra}}, file)
sys.exit(1)
'''
ranks = []
for rank in (1, 2):
    given = {**os.environ, "RANK": str(rank), "TORCHELASTIC_ERROR_FILE": f"{sys.argv[1]}/error-{rank}.json"}
    ranks.append(subprocess.Popen([sys.executable, "-c", worker], env=given))
sys.exit(max(one.wait() for one in ranks))
"""


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A memory cgroup of 64 MiB, where this box lets us make one."""
    path = cgroup_kills.ROOT / "memory" / f"supervise-night-{os.getpid()}"
    try:
        path.mkdir()
        (path / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError:
        pytest.skip("no memory cgroup can be made here")
    yield path
    with suppress(OSError):
        path.rmdir()


def test_a_job_that_the_kernels_memory_killer_ended_is_host_oom(box, small_cgroup):
    script = box.write("eater.py", EATER)
    night = box.up(box.spec("eater", f"exec {sys.executable} {script} {small_cgroup}", ONCE))
    night.wait(9)
    end = night.history()["attempts"][0]["end"]
    assert (end["kind"], end["signal"]) == ("host_oom", 9)
    assert end["confidence"] == "high"
    assert "memory killer ended" in end["because"]
    assert any("memory killer" in said or "kernel log" in said for said in end["evidence"])


def test_a_workers_error_file_names_the_rank_that_died_first_and_why(box, tmp_path):
    script = box.write("launcher.py", WORKERS)
    night = box.up(box.spec("ranks", f"exec {sys.executable} {script} {tmp_path}", ONCE))
    night.wait(9)
    end = night.history()["attempts"][0]["end"]
    assert (end["rank"], end["code"]) == (1, 1)
    assert "shard 7 is torn" in end["log_line"]
    assert end["where"].startswith(f"{tmp_path}/error-1.json")
    told = box.supervise("history", "ranks", "-v", code=0).out
    assert "confidence" in told and json.dumps(end["kind"]).strip('"') in told
