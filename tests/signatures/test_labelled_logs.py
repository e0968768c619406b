"""What logs say, as an expert labelled them, and as the variants written for these tests demand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from heldout_logs import HELD_OUT
from variant_logs import VARIANTS
from variant_logs_more import MORE

from supervisor.cli.scan import scan_file, to_document
from supervisor.signatures import Matcher
from supervisor.signatures.marks import MARKS

LOGS = Path(__file__).with_name("failure_logs")
LABELS = [json.loads(line) for line in (LOGS / "labels.jsonl").read_text().splitlines()]
FIELDS = ("rank", "gpu", "tried_mib", "free_mib", "total_mib")


@pytest.fixture(scope="module", params=[False, True], ids=["re2", "hyperscan"])
def matcher(request):
    return Matcher(watch=MARKS, bulk=request.param)


def verdict(path, matcher):
    return to_document([scan_file(str(path), matcher)])["files"][0]["verdict"]


def test_labelled_logs_get_their_kind_and_no_healthy_one_is_flagged(matcher):
    verdicts = {label["id"]: verdict(LOGS / f"{label['id']}.log", matcher) for label in LABELS}
    wrong = [label["id"] for label in LABELS if verdicts[label["id"]]["kind"] != label["label"]]
    flagged = [label["id"] for label in LABELS if label["label"] == "none" and label["id"] in wrong]
    assert len(LABELS) == 140
    assert flagged == []
    assert len(wrong) <= 2, wrong


def test_every_figure_of_the_labelled_logs_is_exact(matcher):
    for label in LABELS:
        found = verdict(LOGS / f"{label['id']}.log", matcher)
        assert {field: found[field] for field in FIELDS} == {field: label[field] for field in FIELDS}, label["id"]


@pytest.mark.parametrize(("name", "expected", "log"), VARIANTS, ids=[name for name, _, _ in VARIANTS])
def test_variants(name, expected, log, matcher, tmp_path):
    path = tmp_path / "run.log"
    path.write_bytes(log.encode())
    found = verdict(path, matcher)
    assert {field: found[field] for field in expected} == expected


@pytest.mark.parametrize(("name", "kind", "log"), MORE, ids=[name for name, _, _ in MORE])
def test_more_variants(name, kind, log, matcher, tmp_path):
    path = tmp_path / "run.log"
    path.write_bytes(log.encode())
    assert verdict(path, matcher)["kind"] == kind


@pytest.mark.parametrize(("name", "expected", "log"), HELD_OUT, ids=[name for name, _, _ in HELD_OUT])
def test_logs_that_were_missed_once(name, expected, log, matcher, tmp_path):
    path = tmp_path / "run.log"
    path.write_text(log)
    found = verdict(path, matcher)
    assert {field: found[field] for field in expected} == expected


def test_the_names_of_the_variants_are_distinct():
    names = [name for name, *_ in (*VARIANTS, *MORE, *HELD_OUT)]
    assert len(names) == len(set(names))


def test_several_failures_appended_after_each_other_are_judged_by_the_last_attempt(matcher, tmp_path):
    path = tmp_path / "run.log"
    oom = next(log for name, _, log in VARIANTS if name == "torch_two_ranks")
    disk = next(log for name, _, log in VARIANTS if name == "disk_plain")
    again = "launcher attempt=2 resuming from step_1\n"
    path.write_text(oom + again + "".join(f"step {n} | loss 2.1 | lr 1e-4\n" for n in range(5)) + disk)
    assert verdict(path, matcher)["kind"] == "disk_full"
