"""The user's own checks before a launch."""

from __future__ import annotations

import os
import time
from pathlib import Path

from supervisor.edges import proc
from supervisor.edges.checks import OUTPUT_CAP_BYTES, CheckResult, preflight_checks

ENVIRON = {"PATH": os.environ["PATH"], "NAME": "value"}


def until_ended(pid: int) -> None:
    """A killed process that is nobody's child here is gone, or a corpse, when its last system call has returned."""
    given_up_s = time.monotonic() + 60.0
    while (stat := proc.stat(pid)) is not None and stat.state not in "ZX":
        assert time.monotonic() < given_up_s, f"process {pid} lives on"
        time.sleep(0.01)


def run(tmp_path: Path, *scripts: str, deadline_s: float = 60.0) -> tuple[CheckResult, ...]:
    argvs = [("sh", "-c", script) for script in scripts]
    return preflight_checks(argvs, workdir=str(tmp_path), environ=ENVIRON, deadline_s=deadline_s)


def test_every_check_is_run_and_told_and_not_only_the_first_that_fails(tmp_path):
    yes, no, also = run(tmp_path, "pwd; echo $NAME", "echo no disk >&2; exit 3", "true")
    assert yes.ok and yes.output == f"{tmp_path}\nvalue\n"
    assert (no.ok, no.code, no.output) == (False, 3, "no disk\n")
    assert also.ok


def test_a_check_that_is_not_there_is_told(tmp_path):
    (gone,) = preflight_checks([["./absent"]], workdir=str(tmp_path), environ=ENVIRON, deadline_s=60.0)
    assert gone.code is None and "cannot be run" in gone.why


def test_a_check_that_was_killed_is_told(tmp_path):
    (killed,) = run(tmp_path, "kill -9 $$")
    assert killed.code is None and "signal 9" in killed.why


def test_a_check_that_hangs_is_ended_with_all_it_started_and_the_next_is_told_not_run(tmp_path):
    hung, late = run(tmp_path, "echo begun; sleep 600 & echo $! > pid; wait", "true", deadline_s=3.0)
    assert (hung.code, hung.output, hung.why) == (None, "begun\n", "did not end in time")
    assert "not run" in late.why
    pid = int((tmp_path / "pid").read_text())
    until_ended(pid)


def test_a_check_that_leaves_a_process_with_its_output_open_is_not_waited_for(tmp_path):
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    (left,) = run(tmp_path, "(read x < go) & echo done")
    assert left.ok and left.output == "done\n"
    fifo.write_text("x\n")


def test_only_the_end_of_a_long_output_is_kept(tmp_path):
    (long,) = run(tmp_path, "head -c 3000000 /dev/zero | tr '\\0' a; echo; echo the reason; exit 1")
    assert len(long.output) == OUTPUT_CAP_BYTES
    assert long.output.endswith("the reason\n") and long.code == 1


def test_a_check_that_closes_its_output_is_still_waited_for(tmp_path):
    (closed,) = run(tmp_path, "exec >&- 2>&-; exit 4")
    assert closed.code == 4
