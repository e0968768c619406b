"""A ladder of venvs: the environment that worked can be fallen back to."""

from __future__ import annotations

import pytest
from fake_specs import incident

from supervisor.core.errors import SpecError
from supervisor.core.evidence import Instant
from supervisor.core.render import Placement, render, venv_of
from supervisor.core.spec import RunSpec
from supervisor.core.state import Attempt
from supervisor.edges import specfile
from supervisor.machines.starting import _other_venv

LADDER = "params: {knobs: {venv: {value: .venv, ladder: [.venv-cu128]}, batch: {value: 8, ladder: [4]}}}\n"


def load(tmp_path, more: str = LADDER) -> RunSpec:
    spec = tmp_path / "s.yaml"
    spec.write_text(f"version: 1\nname: run\ncommand: [python, train.py, '${{{{ venv }}}}']\n{more}")
    return specfile.load(spec, {})


def test_the_first_rung_is_the_venv_and_no_rung_is_a_param(tmp_path):
    spec = load(tmp_path)
    assert spec.venv == f"{tmp_path}/.venv"
    assert venv_of(spec, {}) == spec.venv
    place = Placement(attempt=1, attempt_dir="/a", run_dir="/r", rungs={"venv": 1})
    assert render(spec, place).argv == ("python", "train.py", f"{tmp_path}/.venv-cu128", "--batch", "8")


def test_a_path_that_the_spec_sets_begins_with_the_venv_of_the_rung(tmp_path):
    spec = load(tmp_path, LADDER + "env: {PATH: /opt/bin}\n")
    place = Placement(attempt=1, attempt_dir="/a", run_dir="/r", rungs={"venv": 1})
    assert render(spec, place).env["PATH"] == f"{tmp_path}/.venv-cu128/bin:/opt/bin"


def test_the_attempt_gets_the_environment_of_its_rung(tmp_path):
    spec = load(tmp_path)
    at = Instant("b", 1.0, 1.0)
    environ = {"PATH": f"{tmp_path}/.venv/bin:/usr/bin"}

    def on(rung: int) -> dict[str, str]:
        attempt = Attempt(number=1, token="t", argv=(), rungs={"venv": rung}, checkpoint=None, began=at)
        return _other_venv(spec, attempt, environ)

    other = f"{tmp_path}/.venv-cu128"
    assert on(0) == {}
    assert on(1) == {"PATH": f"{other}/bin:/usr/bin", "VIRTUAL_ENV": other}
    (tmp_path / ".venv-cu128" / "conda-meta").mkdir(parents=True)
    assert on(1) == {
        "PATH": f"{other}/bin:/usr/bin", "CONDA_PREFIX": other, "CONDA_DEFAULT_ENV": ".venv-cu128", "VIRTUAL_ENV": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "mistake"),
    [
        ("venv: other\n" + LADDER, "is not the first rung of venv"),
        ("params: {knobs: {venv: {value: a, ladder: [b]}, v: {venv: true, value: c, ladder: [d]}}}\n", "already"),
        ("params: {knobs: {venv: {value: a, ladder: [b], flag: --venv}}}\n", "does not go with a ladder of venvs"),
    ],
)
def test_what_cannot_be_is_a_mistake(tmp_path, more, mistake):
    with pytest.raises(SpecError, match=mistake):
        load(tmp_path, more)


def test_a_run_without_a_ladder_has_the_venv_of_its_spec():
    assert venv_of(incident(venv="/w/.venv"), {}) == "/w/.venv"
