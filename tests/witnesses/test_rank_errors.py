"""What elastic workers write as they die: which are read, in which order, by whom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.core.evidence import ProcessId
from supervisor.core.kinds import Kind
from supervisor.edges import proc, rank_errors
from supervisor.edges.ownership import Recorded
from supervisor.machines.printers import Printers, read_errors
from supervisor.signatures import Matcher

OOM = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 4.74 GiB. GPU 5 has a total capacity of 94.97 GiB of "
    "which 4.57 GiB is free. Including non-PyTorch memory, this process has 90.39 GiB memory in use. Of the allocated "
    "memory 85.12 GiB is allocated by PyTorch, and 4.10 GiB is reserved by PyTorch but unallocated."
)


def error_file(path: Path, message: str, at_s: int, stack: str = "Traceback (most recent call last):\n") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    extra = {"py_callstack": stack, "timestamp": str(at_s)}
    path.write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))
    return str(path)


def test_the_earliest_death_comes_first_whatever_the_files_order(tmp_path: Path):
    late = error_file(tmp_path / "0" / "error.json", "RuntimeError: late", 1700000009)
    early = error_file(tmp_path / "3" / "error.json", "ValueError: early", 1700000002)
    found = rank_errors.read_all([late, early], 0.0)
    assert [(one.rank, one.message) for one in found] == [(3, "ValueError: early"), (0, "RuntimeError: late")]


def test_the_tree_of_torchruns_log_dir_is_found_by_its_option(tmp_path: Path):
    path = error_file(tmp_path / "logs" / "none_x1" / "attempt_0" / "3" / "error.json", "ValueError: x", 1)
    for argv in (("torchrun", "--log-dir", str(tmp_path / "logs")), ("torchrun", f"--log_dir={tmp_path / 'logs'}")):
        assert rank_errors.in_log_dir(argv) == (path,)
    assert rank_errors.in_log_dir(("torchrun", "--log-dir")) == ()
    assert rank_errors.in_log_dir(("python", "train.py")) == ()


def test_a_file_of_an_earlier_attempt_is_not_read(tmp_path: Path):
    path = error_file(tmp_path / "error.json", "ValueError: old", 1)
    os.utime(path, (1000.0, 1000.0))
    assert rank_errors.read(path, 2000.0) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"message": 3}', '{"message": {"message": null}}', '"x"'])
def test_what_is_no_such_document_is_left_alone(tmp_path: Path, text: str):
    path = tmp_path / "error.json"
    path.write_text(text)
    assert rank_errors.read(str(path)) is None
    assert rank_errors.read(str(tmp_path / "none.json")) is None


def test_the_short_form_is_read_and_a_missing_time_is_the_files_own(tmp_path: Path):
    path = tmp_path / "error.json"
    path.write_text('{"message": "ValueError: x"}')
    os.utime(path, (5000.0, 5000.0))
    found = rank_errors.read(str(path))
    assert found is not None and (found.message, found.at_wall_s) == ("ValueError: x", 5000.0)


def test_a_known_text_in_it_is_a_hit_with_its_figures_and_the_writers_rank(tmp_path: Path):
    path = error_file(tmp_path / "1" / "error.json", OOM, 1700000002)
    (found,) = read_errors({path: 13}, 0.0, Matcher())
    (hit,) = [hit for hit in found.hits if hit.kind is Kind.GPU_OOM]
    assert (found.rank, hit.rank, hit.gpu, hit.file) == (13, 13, 5, path)
    assert (hit.tried_mib, hit.free_mib, hit.reserved_mib) == (4853.76, 4679.68, 4198.4)


def test_an_exception_nobody_knows_is_a_code_error_of_its_rank(tmp_path: Path):
    path = error_file(tmp_path / "2" / "error.json", "odd.Thing: x", 1, stack="")
    (found,) = read_errors({path: None}, 0.0, Matcher())
    assert [(hit.kind, hit.rank) for hit in found.hits] == [(Kind.CODE_ERROR, 2)]


WORKER = "print('up', flush=True); import sys; sys.stdin.read()"


def test_rank_gpus_and_error_file_come_from_the_workers_own_environment(tmp_path: Path):
    given = {"RANK": "13", "CUDA_VISIBLE_DEVICES": "5, 6,7", "TORCHELASTIC_ERROR_FILE": str(tmp_path / "e.json")}
    argv = [sys.executable, "-c", WORKER]
    with subprocess.Popen(argv, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        one = Recorded(ProcessId(worker.pid, proc.start_ticks(worker.pid) or 0), 1)
        printers = Printers()
        (seen,) = printers.look([one], [0, 1])
        worker.communicate(b"")
    assert (seen.pid, seen.rank, seen.visible) == (worker.pid, 13, ("5", "6", "7"))
    assert printers.look([one], []) == (seen,), "one that is gone is still known"
    assert printers.error_files() == {str(tmp_path / "e.json"): 13}


def test_the_error_file_of_a_relative_log_dir_keeps_the_rank_of_its_writer(tmp_path: Path):
    inside = Path("logs") / "none_x" / "attempt_0" / "1" / "error.json"
    given = {"PWD": str(tmp_path), "RANK": "9", "TORCHELASTIC_ERROR_FILE": str(inside)}
    argv = [sys.executable, "-c", WORKER, "--log-dir", "logs"]
    with subprocess.Popen(argv, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        printers = Printers()
        printers.look([Recorded(ProcessId(worker.pid, proc.start_ticks(worker.pid) or 0), 1)], [])
        path = error_file(tmp_path / inside, "ValueError: x", 1)
        assert printers.error_files() == {path: 9}
        worker.communicate(b"")


def test_a_process_without_a_choice_sees_every_gpu_of_the_box(tmp_path: Path):
    argv = [sys.executable, "-c", WORKER, "--log-dir", "logs"]
    with subprocess.Popen(argv, env={"PWD": str(tmp_path)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        one = Recorded(ProcessId(worker.pid, proc.start_ticks(worker.pid) or 0), 1)
        printers = Printers()
        (seen,) = printers.look([one], [0, 1])
        path = error_file(tmp_path / "logs" / "x" / "attempt_0" / "1" / "error.json", "ValueError: x", 1)
        assert printers.error_files() == {path: None}
        worker.communicate(b"")
    assert (seen.rank, seen.visible) == (None, ("0", "1"))
