"""Samples keep the least and the most of what was in between, and touch nothing when they cannot be written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from supervisor.core.evidence import GpuSeen, Instant, Reading, Step, Unreadable
from supervisor.machines import samples as files
from supervisor.machines.samples import COARSE_EVERY_S, EARLY_S, Samples


def at(s: float) -> Instant:
    return Instant(boot_id="b", boot_s=s, wall_s=1000.0 + s)


def read(mib: float, util: float | None) -> GpuSeen:
    return Reading(gpu="G", index=0, began_boot_s=0.0, reserved_mib=0.0, used_mib=mib, total_mib=100.0, util_pct=util)


LATE_S = EARLY_S
"""From when on a line goes out each ten seconds only."""


def late(folder: Path) -> Samples:
    """Those of a supervisor that has been there for a while; its last line is of `LATE_S`."""
    samples = Samples(folder)
    samples.keep(at(0), {"G": read(1, 1)}, ())
    samples.keep(at(LATE_S), {"G": read(1, 1)}, ())
    (folder / "current.jsonl").unlink()
    return samples


def lines(folder: Path, name: str = "current.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_one_second_at_zero_between_two_lines_is_in_the_second(tmp_path: Path):
    samples = late(tmp_path / "samples")
    for s in range(1, 21):
        samples.keep(at(LATE_S + s), {"G": read(0, 0) if s == 14 else read(90, 95)}, ())
    first, second = lines(tmp_path / "samples")
    assert first["gpus"]["G"] == [90, 90, 95, 95, 95, 100]
    assert second["gpus"]["G"] == [0, 90, 95, 0, 95, 100]


def test_the_step_last_reported_since_the_line_before_is_kept_and_what_tells_nothing_is_no_line(tmp_path: Path):
    samples = late(tmp_path / "samples")
    samples.keep(at(LATE_S + 3), {}, (Step(7, 3.0, rate=1.5, loss=2.5),))
    samples.keep(at(LATE_S + 10), {}, ())
    samples.keep(at(LATE_S + 20), {}, ())
    assert [(each["step"], each["rate"], each["loss"]) for each in lines(tmp_path / "samples")] == [(7, 1.5, 2.5)]


def test_the_first_minutes_are_kept_each_second(tmp_path: Path):
    samples = Samples(tmp_path / "samples")
    for s in range(5):
        samples.keep(at(s), {"G": read(s, 0)}, ())
    assert [each["gpus"]["G"][1] for each in lines(tmp_path / "samples")] == [0, 1, 2, 3, 4]


def test_a_loss_that_is_no_number_is_none_and_the_line_is_json(tmp_path: Path):
    samples = Samples(tmp_path / "samples")
    samples.keep(at(0), {}, (Step(1, 0.0, rate=float("inf"), loss=float("nan")),))
    assert [lines(tmp_path / "samples")[0][key] for key in ("step", "rate", "loss")] == [1, None, None]


def test_a_gpu_that_cannot_be_read_is_none_and_not_zero(tmp_path: Path):
    samples = Samples(tmp_path / "samples")
    samples.keep(at(0), {"G": Unreadable(gpu="G", index=0, began_boot_s=0.0, why="lost")}, ())
    assert set(lines(tmp_path / "samples")[0]["gpus"]["G"]) == {None}


def test_a_coarse_line_holds_the_least_and_the_most_of_its_five_minutes(tmp_path: Path):
    samples = Samples(tmp_path / "samples")
    for s in range(int(COARSE_EVERY_S) * 2 + 10):
        steps = (Step(s, float(s), rate=1.5),) if s < COARSE_EVERY_S else ()
        samples.keep(at(s), {"G": read(0, 0) if s == 77 else read(90, 95)}, steps)
    first, second = lines(tmp_path / "samples", "coarse.jsonl")
    assert first["gpus"]["G"] == [0, 90, 95, 0, 95, 100]
    assert (first["wall_s"], first["span_s"], first["rate"]) == (1000.0 + COARSE_EVERY_S, COARSE_EVERY_S, 1.5)
    assert second["gpus"]["G"] == [90, 90, 95, 95, 95, 100]
    assert second["step"] is None


def test_what_was_unreadable_for_five_minutes_is_none_in_the_coarse_line_too(tmp_path: Path):
    samples = Samples(tmp_path / "samples")
    lost = Unreadable(gpu="G", index=0, began_boot_s=0.0, why="lost")
    for s in range(int(COARSE_EVERY_S) + 1):
        samples.keep(at(s), {"G": lost}, ())
    assert set(lines(tmp_path / "samples", "coarse.jsonl")[0]["gpus"]["G"]) == {None}


def test_however_long_a_run_lasts_its_files_are_bounded_and_its_first_days_are_known(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(files, "FILE_BYTES_MAX", 4000)
    samples, folder = late(tmp_path / "samples"), tmp_path / "samples"
    for s in range(0, 20_000, 10):
        samples.keep(at(LATE_S + 10 + s), {"G": read(90, 95)}, ())
    names = {"before.jsonl", "coarse.jsonl", "coarse-before.jsonl", "current.jsonl"}
    assert {path.name for path in folder.iterdir()} == names
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4 * 4200
    assert lines(folder, "coarse-before.jsonl")[0]["wall_s"] < lines(folder, "before.jsonl")[0]["wall_s"]
    assert lines(folder, "before.jsonl")[-1]["wall_s"] < lines(folder)[0]["wall_s"]


def test_a_full_disk_touches_nothing(tmp_path: Path):
    (tmp_path / "samples").write_text("a file where the folder should be")
    Samples(tmp_path / "samples").keep(at(0), {"G": read(1, 1)}, ())
    assert (tmp_path / "samples").read_text().startswith("a file")
