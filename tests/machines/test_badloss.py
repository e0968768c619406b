"""A progress pattern also sees the line whose loss is no number."""

from __future__ import annotations

import pytest

from supervisor.core.spec import Health, Progress, RunSpec
from supervisor.edges.paths import AttemptDir
from supervisor.machines.badloss import also_bad
from supervisor.machines.trail import Trail


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"step (?P<step>\d+) \| loss (?P<loss>[\d.]+)", "step 7 | loss nan"),
        (r"step (?P<step>\d+) loss=(?P<loss>-?\d+(?:\.\d+)?(e[+-]\d+)?),", "step 7 loss=-inf,"),
        (r"step (?P<step>\d+) \(loss (?P<loss>[^)\]]+?)\)", "step 7 (loss NaN)"),
        (r"step (?P<step>\d+) loss (?P<loss>[]\d.]+)", "step 7 loss inf"),
        (r"step (?P<step>\d+) loss \((?P<loss>\(?\d[.)\d]*)\)", "step 7 loss (Infinity)"),
        (r"step (?P<step>\d+)(?: loss (?P<loss>[\d.]+))?", "step 7 loss nan"),
    ],
)
def test_the_step_and_the_loss_are_read(pattern: str, line: str, tmp_path):
    health = Health(progress=Progress(log=pattern))
    spec = RunSpec(name="r", command=("x",), file="r.yaml", workdir=str(tmp_path), health=health)
    attempt = AttemptDir(n=1, path=tmp_path)
    attempt.output.write_text(f"{line}\n")
    trail = Trail(spec, attempt, None)
    try:
        steps = trail.look(1.0, ended=True).steps
    finally:
        trail.close()
    bad = [step for step in steps if step.loss is not None]
    assert bad[-1].step == 7
    assert bad[-1].loss is not None
    assert not -1e300 < bad[-1].loss < 1e300


@pytest.mark.parametrize("pattern", [r"step (?P<step>\d+)", r"loss (?P<loss>[\d.]+"])
def test_a_pattern_without_a_loss_has_none(pattern: str):
    assert also_bad(pattern) is None
