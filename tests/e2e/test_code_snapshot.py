"""A run that is launched from a copy of its code, with real processes: the tree is edited between two attempts."""

from __future__ import annotations

import sys

import pytest
from boxes import until
from repos import git

pytestmark = pytest.mark.real

TRAIN = """
import argparse, os, pathlib, time
import model
args = argparse.ArgumentParser()
args.add_argument("--config"); args.add_argument("--anchors", type=int)
given = args.parse_args()
text = pathlib.Path(given.config).read_text().strip()
pathlib.Path("out").mkdir(exist_ok=True)
(pathlib.Path("out") / str(os.getpid())).write_text(text)
print("step 1", model.TEXT, text, os.getcwd(), flush=True)
time.sleep(600)
"""

SPEC = """
version: 1
name: a
command: [./start.sh, --config, conf.yaml]
code: {snapshot: true, on_change: halt}
launch: {terminal: none}
params: {protected: {anchors: 1024, 'conf.yaml:anchors': 1024}}
health: {progress: {log: 'step (?P<step>[0-9]+)'}}
output: {dir: out}
"""


def test_each_attempt_runs_the_code_that_the_first_was_launched_with(box):
    """A start script, what it starts, what that imports and reads; edited and committed. Outputs stay at home."""
    box.write("train.py", TRAIN)
    box.write("model.py", "TEXT = 'old'\n")
    box.write("conf.yaml", "anchors: 1024\n")
    box.write("start.sh", f'#!/bin/sh\n{sys.executable} train.py "$@"\n', 0o755)
    git(box.work, "init", "-q")
    git(box.work, "add", ".")
    git(box.work, "commit", "-qm", "one")
    night = box.up(spec := box.write("a.yaml", SPEC))
    night.until("FirstProgress", attempt=1)
    until(lambda: night.dir.attempt(1).environment.exists(), "the fingerprint of attempt 1")
    box.write("train.py", "raise SystemExit('an edit that was not meant for this night')\n")
    box.write("start.sh", "#!/bin/sh\nexit 3\n", 0o755)
    box.write("model.py", "TEXT = 'new'\n")
    box.write("conf.yaml", "anchors: 512\n")
    git(box.work, "commit", "-qam", "two")
    box.supervise("restart", "a", "-y", code=0)
    night.until("FirstProgress", attempt=2)
    for attempt in (1, 2):
        assert night.output(attempt).strip() == f"step 1 old anchors: 1024 {box.work}"
    assert len(list((box.work / "out").iterdir())) == 2
    until(lambda: night.dir.attempt(2).environment.exists(), "the fingerprint of attempt 2")
    assert night.records("Drifted") == []
    warned = [one["data"]["text"] for one in night.records("Warned")]
    assert not [text for text in warned if "/dev/shm" not in text]  # all tests share that folder
    assert night.history()["attempts"][1]["argv"][0] == str(night.dir.code / "0001" / "tree" / "start.sh")
    (night.dir.code / "0001" / "tree" / "train.py").write_text("print('not what was copied')\n")
    assert "the copy of the code was changed: train.py" in box.supervise("restart", "a", "-y", code=9).err
    refused = box.supervise("up", "-d", str(spec), code=7).err
    assert "anchors is locked at 1024" in refused  # a new `up` would take the code as it is now
    assert not (night.dir.code / "0002").exists()
