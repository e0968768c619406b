"""Curves that fit a page: a second at zero survives, a gap is no zero, rolled-back steps are known as such."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import night

from supervisor.cli.reporting import sample_lines
from supervisor.edges.paths import Home
from supervisor.views.report.series import (
    BUCKETS_MAX,
    CELLS_MAX,
    EMPTY_U8,
    EMPTY_U16,
    Point,
    attributed,
    drawn,
    series,
    thinned,
)
from supervisor.views.run import AttemptView


def line(at_s: float, row: list[int | None], **more: object) -> bytes:
    return json.dumps({"wall_s": at_s, "gpus": {"G": row}, "step": None, **more}).encode()


def test_a_drop_to_zero_of_one_second_in_ten_hours_is_still_there():
    count = 10 * 3600
    lines = [line(s, [0, 0, 0, 0, 0, 100] if s == 25_000 else [90, 90, 95, 95, 95, 100]) for s in range(count)]
    (gpu,) = series(lines, 0.0, count).gpus
    assert len(gpu.low) <= BUCKETS_MAX + 1
    assert [value for value in gpu.low if value != EMPTY_U16].count(0) == 1
    assert min(gpu.util_low) == 0
    at = list(gpu.low).index(0)
    assert gpu.high[at] > 0


def test_a_sample_speaks_of_all_the_time_since_the_one_before():
    lines = [line(s, [50, 50, 9, 9, 9, 100]) for s in range(0, 601, 10)]
    (gpu,) = series(lines, 0.0, 600.0).gpus
    assert EMPTY_U16 not in gpu.low


def test_a_coarse_sample_speaks_of_its_five_minutes_and_a_hole_is_still_one():
    lines = [line(s, [50, 50, 9, 9, 9, 100], span_s=300.0) for s in (0, 300, 600, 1800)]
    (gpu,) = series(lines, 0.0, 1800.0).gpus
    assert EMPTY_U16 not in gpu.low[:600]
    assert gpu.low[1200] == EMPTY_U16


def test_coarse_samples_are_read_only_where_there_are_no_finer_ones(tmp_path):
    run = Home(tmp_path).run("r")
    run.samples.mkdir(parents=True)
    for name, times in {
        "coarse-before": (0, 300),
        "coarse": (600, 900),
        "before": (500, 510),
        "current": (900,),
    }.items():
        (run.samples / f"{name}.jsonl").write_bytes(b"\n".join(line(s, [1, 1]) for s in times) + b"\n")
    assert [json.loads(each)["wall_s"] for each in sample_lines(run)] == [0, 300, 500, 510, 900]
    with open(run.samples / "coarse.jsonl", "ab") as file:
        file.write(b'{"wall_s": 1')
    assert len(sample_lines(run)) == 5


def test_a_peak_of_one_second_is_still_there():
    lines = [line(s, [10, 97 if s == 777 else 10, 5, 5, 5, 100]) for s in range(36_000)]
    (gpu,) = series(lines, 0.0, 36_000.0).gpus
    assert gpu.peak_mib == 97
    assert max(value for value in gpu.high if value != EMPTY_U16) == round(0.97 * 65534)


def test_where_nothing_was_sampled_there_is_nothing_and_not_zero():
    lines = [line(s, [50, 50, 9, 9, 9, 100]) for s in (*range(100), *range(500, 600))]
    found = series(lines, 0.0, 600.0)
    (gpu,) = found.gpus
    gap = range(int(150 / found.bucket_s), int(450 / found.bucket_s))
    assert {gpu.low[at] for at in gap} == {EMPTY_U16}
    assert {gpu.util_high[at] for at in gap} == {EMPTY_U8}


def test_an_unreadable_gpu_is_a_gap_and_rows_of_older_versions_are_read():
    found = series([line(0, [None, None, None]), line(10, [40, 50, 7]), line(20, [None] * 6)], 0.0, 30.0)
    (gpu,) = found.gpus
    assert [at for at, value in enumerate(gpu.low) if value != EMPTY_U16] == list(range(1, 11))
    assert gpu.total_mib is None
    assert gpu.peak_mib == 50


@pytest.mark.parametrize("torn", [b"", b"{", b"[]", b"7", b'{"gpus": {}}', b'{"wall_s": "x", "gpus": {}}', b"\xff\xfe"])
def test_a_line_that_is_no_sample_is_passed_over(torn: bytes):
    assert len(series([line(0, [1, 1, 1]), torn, line(1, [1, 1, 1])], 0.0, 2.0).gpus) == 1


def test_sixty_four_gpus_take_no_more_room_than_eight():
    gpus = {f"G{n}": [1, 1, 1, 1, 1, 2] for n in range(64)}
    lines = [json.dumps({"wall_s": s, "gpus": gpus, "step": None}).encode() for s in range(0, 36_000, 60)]
    found = series(lines, 0.0, 36_000.0)
    assert sum(len(gpu.low) for gpu in found.gpus) <= CELLS_MAX + 64
    assert len(drawn(found, (), {})["gpus"]) == 64


def test_steps_that_a_later_launch_began_behind_are_lost_and_the_others_kept():
    attempts = (
        AttemptView(1, 0.0, checkpoint={"step": 0}),
        AttemptView(2, 100.0, checkpoint={"step": 50}),
        AttemptView(3, 200.0, checkpoint={"step": 40}),
    )
    points = [Point(10, 40, 1.0, None), Point(20, 45, 1.0, None), Point(30, 60, 1.0, None), Point(110, 51, 1.0, None),
              Point(210, 41, 1.0, None)]  # fmt: skip
    found = attributed(points, attempts)
    assert [(each.step, each.attempt, each.is_lost) for each in found] == [
        (40, 1, False), (45, 1, True), (60, 1, True), (51, 2, True), (41, 3, False),
    ]  # fmt: skip


def test_a_launch_that_never_began_throws_nothing_away():
    attempts = (AttemptView(1, 0.0), AttemptView(2, 100.0, checkpoint={"step": 0}, abandoned="a supervisor died"))
    assert not attributed([Point(10, 9, 1.0, None)], attempts)[0].is_lost


def test_a_spike_of_the_loss_survives_thinning():
    points = [Point(float(n), n, 99.0 if n == 31_337 else 2.0, 0.1) for n in range(100_000)]
    kept = thinned(points)
    assert len(kept) < 10_000
    assert max(point.loss or 0 for point in kept) == 99.0
    assert [point.wall_s for point in kept] == sorted(point.wall_s for point in kept)


def test_the_night_of_eight_gpus_is_told_whole():
    found = series(night.samples(every_s=20.0), night.r.T0_S, night.r.T0_S + night.HOURS * 3600)
    assert len(found.gpus) == 8
    assert len(found.points) > 100
