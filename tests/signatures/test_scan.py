"""`scan`: its document, its words, its exit codes, and the files that it must be able to read."""

from __future__ import annotations

import gzip
import json
import tracemalloc

import pytest
from click.testing import CliRunner
from variant_logs import NEW, TRACE, steps

from supervisor.cli import scan as module
from supervisor.cli.scan import command, scan_file, to_document, to_text
from supervisor.signatures import Matcher, lines
from supervisor.signatures.marks import MARKS

OOM = TRACE + "torch.OutOfMemoryError: " + NEW + "\n"


@pytest.fixture(scope="module")
def matcher():
    return Matcher(watch=MARKS, bulk=True)


def run(*args, stdin=None):
    return CliRunner().invoke(command, list(args), input=stdin)


def document(*args, stdin=None):
    return json.loads(run(*args, "-o", "json", stdin=stdin).stdout)


def test_the_document_has_the_fields_of_the_contract(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(steps(1) + OOM)
    answer = document(str(log))
    assert answer["schema"] == "supervise.scan/v1"
    (file,) = answer["files"]
    assert file["path"] == str(log)
    verdict = file["verdict"]
    assert {key: verdict[key] for key in ("kind", "rank", "gpu", "tried_mib", "free_mib", "total_mib", "line")} == {
        "kind": "gpu_oom",
        "rank": None,
        "gpu": 1,
        "tried_mib": 2560.0,
        "free_mib": 1280.0,
        "total_mib": 80998.4,
        "line": 8,
    }
    assert file["verdict"]["text"].startswith("torch.OutOfMemoryError: CUDA out of memory.")
    assert file["verdict"]["others"] == [{"pid": 991, "mib": 10240.0}]
    assert [hit["kind"] for hit in file["hits"]] == ["gpu_oom"]


def test_a_healthy_log_is_none_with_every_field_null(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(steps(1))
    verdict = document(str(log))["files"][0]["verdict"]
    assert verdict.pop("lost") == []
    assert verdict.pop("kind") == "none"
    assert set(verdict.values()) == {None}
    result = run(str(log))
    assert (result.exit_code, result.stdout) == (0, f"{log}: none\n")


def test_words_name_kind_line_figures_and_what_lost(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(steps(1) + OOM + "[rank0]: SystemExit: 1\n")
    result = run(str(log))
    assert result.exit_code == 0
    assert f"{log}: gpu_oom (confidence high)" in result.stdout
    assert f"{log}:8: torch.OutOfMemoryError" in result.stdout
    assert "GPU 1, wanted 2560 MiB, 1280 of 80998 MiB free, short by 1280 MiB" in result.stdout
    assert "process 991 holds 10240 MiB" in result.stdout
    assert "line 9: exit, an exit code or signal, no reason" in result.stdout


def test_what_later_steps_refute_is_told(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(OOM + steps(1))
    result = run(str(log))
    assert f"{log}: none" in result.stdout
    assert "training went on" in result.stdout
    assert document(str(log))["files"][0]["verdict"]["lost"][0]["kind"] == "gpu_oom"


def test_a_file_that_cannot_be_read_is_exit_1_and_the_others_are_still_judged(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(OOM)
    gone = str(tmp_path / "gone.log")
    for args in ((gone, str(log)), (gone, str(log), "-o", "json"), (str(tmp_path), str(log))):
        result = run(*args)
        assert result.exit_code == 1
        assert "gpu_oom" in result.stdout
    files = document(gone, str(log))["files"]
    assert [file["verdict"] is None for file in files] == [True, False]
    assert "No such file" in files[0]["error"]


def test_no_file_is_a_usage_error():
    assert run().exit_code == 2


def test_gzip_is_read_also_where_it_is_cut_off(tmp_path):
    log = tmp_path / "a.log.gz"
    whole = gzip.compress((steps(1) + OOM + steps(5, 1)).encode() + b"x" * 100_000)
    log.write_bytes(whole)
    assert document(str(log))["files"][0]["verdict"]["line"] == 8
    log.write_bytes(whole + whole)
    assert document(str(log))["files"][0]["verdict"]["kind"] == "gpu_oom"
    log.write_bytes(whole + b"\0" * 512)
    assert document(str(log))["files"][0]["verdict"]["kind"] == "gpu_oom"
    log.write_bytes(whole[:-20])
    assert document(str(log))["files"][0]["verdict"]["kind"] == "gpu_oom"


def test_standard_input_is_read():
    assert document("-", stdin=OOM)["files"][0]["verdict"]["line"] == 4


def test_an_empty_file_is_healthy(tmp_path):
    log = tmp_path / "a.log"
    log.touch()
    assert document(str(log))["files"][0]["verdict"]["kind"] == "none"


def test_line_numbers_hold_over_many_chunks(tmp_path, matcher, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 1000)
    log = tmp_path / "a.log"
    log.write_text(steps(1, 500) + OOM)
    report = scan_file(str(log), matcher)
    assert report.cause is not None
    assert report.cause.hit.line == 504


def test_a_storm_of_failures_is_read_in_bounded_memory(tmp_path, matcher):
    log = tmp_path / "a.log"
    storm = "".join(f"[rank{n % 8}]: torch.AcceleratorError: CUDA error: out of memory {n}\n" for n in range(20_000))
    log.write_text(OOM + storm)
    tracemalloc.start()
    report = scan_file(str(log), matcher)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.cause is not None
    assert (report.cause.hit.line, report.cause.hit.gpu) == (4, 1)
    assert peak < 32 << 20


def test_a_retried_failure_does_not_slow_the_rest_nor_hide_the_real_one(tmp_path, matcher, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 4096)
    log = tmp_path / "a.log"
    disk = TRACE + "OSError: [Errno 28] No space left on device\n"
    log.write_text(OOM + steps(1, 2000) + OOM + steps(2001, 2000) + disk)
    report = scan_file(str(log), matcher)
    assert report.cause is not None
    assert report.cause.hit.kind.value == "disk_full"
    assert len(report.fell) == 2


def test_a_gigabyte_of_progress_bars_in_small_is_read_with_bounded_memory(tmp_path, matcher):
    log = tmp_path / "bars.log"
    bar = b"".join(b"\r %3d%%|%s| %d/100000 [10:02<90:00, 1.2it/s]" % (n % 100, b"#" * 40, n) for n in range(1000))
    with log.open("wb") as stream:
        for _ in range(300):
            stream.write(bar)
        stream.write(b"\n" + OOM.encode())
    tracemalloc.start()
    report = scan_file(str(log), matcher)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.cause is not None
    assert report.cause.hit.line == 5
    assert peak < 8 << 20


def test_what_grep_and_scan_themselves_print_of_a_log_is_no_failure(tmp_path, matcher):
    log = tmp_path / "run.log"
    log.write_text("Traceback (most recent call last):\n[rank3] ERROR: RuntimeError: CUDA error: out of memory\n")

    report = scan_file(str(log), matcher)
    assert report.cause is not None
    printed = tmp_path / "said.txt"
    for said in (
        to_text(report),
        json.dumps(to_document([report]), indent=2),
        f"{log}:2: CUDA error: out of memory",
        "halted: cuda_error on rank 3: [rank3] ERROR: CUDA error: an illegal memory access was encountered (run.log:2)",
    ):
        printed.write_text(said + "\n")
        assert scan_file(str(printed), matcher).cause is None, said


def test_a_line_of_blanks_before_a_failure_takes_linear_time():
    assert not lines.is_mention(" " * 1_000_000)
