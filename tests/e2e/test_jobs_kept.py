"""What `resume.keep` gives up and what a dead writer cut off, with a real job and a real supervisor."""

from __future__ import annotations

from pathlib import Path

import pytest
from boxes import Box
from test_jobs_checkpoints import MORE, SAVES, STEPS, checkpoint, resumed

pytestmark = pytest.mark.real

KEEP = 'resume: {from: "ckpt/step_*", arg: --resume, complete: [model.bin], start: step_10, keep: 1}\n'


def test_the_newest_of_its_own_stays_and_a_cut_off_shard_is_set_aside(box: Box) -> None:
    checkpoint(box, "step_10")
    write = 'mkdir -p out; printf \'{"a": 1}\\n{"a"\' > out/1.jsonl; printf \'{"a": 1}\\n\' > out/2.jsonl'
    script = f'{SAVES}case "$*" in *step_10) {write}; save 20; save 30; echo step 31; kill -KILL $$;; esac\n{STEPS}'
    night = box.up(box.spec("a", script, f'{MORE}{KEEP}output: {{units: "out/*.jsonl"}}\n'))
    night.until("FirstProgress", attempt=2)
    assert resumed(night, 2) == "step_30"
    assert {path.name for path in (box.work / "ckpt").iterdir()} == {"step_10", "step_30"}
    assert [Path(one).name for one in night.records("Pruned")[-1]["data"]["removed"]] == ["step_20"]
    assert {path.name for path in (box.work / "out").iterdir()} == {".1.jsonl.cut-1", "2.jsonl"}
    spent = night.status()["accounting"]
    assert spent["attempts"] == 2
    assert 0.0 <= spent["ettr"] <= 1.0
