"""A supervisor as far as the guardian can see: takes the run's lock and stays, or ends by itself."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from supervisor.edges.locks import Lock
from supervisor.edges.paths import Home

home = Home(Path(os.environ["SUPERVISE_HOME"]))
run = home.run(sys.argv[1])
with open(run.path / "started.jsonl", "a") as file:
    told = {
        "pid": os.getpid(),
        "sid": os.getsid(0),
        "cwd": str(Path.cwd()),
        "env": dict(os.environ),
        "fds": sorted(int(path.name) for path in Path("/proc/self/fd").iterdir()),
        "int": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    }
    file.write(json.dumps(told) + "\n")
print("hello from the stand-in", flush=True)
if (run.path / "broken").exists():
    sys.exit(1)
lock = Lock.try_take(run.lock)
if lock is None:
    sys.exit(0)
(run.path / "pid").write_text(str(os.getpid()))
while True:
    signal.pause()
