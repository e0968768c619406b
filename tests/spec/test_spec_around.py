"""`notify` and `tracking`: who is told, and which trackers the job reports to."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.core.around import BY_DEFAULT, Notify, Tracking
from supervisor.core.errors import SpecError
from supervisor.core.spec import RunSpec
from supervisor.edges import specfile

HEAD = "version: 1\nname: run\ncommand: [python, train.py]\n"


def load(folder: Path, text: str, **environ: str) -> RunSpec:
    path = folder / "s.yaml"
    path.write_text(HEAD + text)
    return specfile.load(path, environ)


def test_notify_has_defaults_that_wake_nobody_for_nothing(tmp_path: Path):
    spec = load(tmp_path, "notify: {}\n", SUPERVISE_NOTIFY="https://x")
    assert spec.notify == Notify(urls_from="SUPERVISE_NOTIFY", on=BY_DEFAULT)
    assert spec.warnings == ()


def test_every_key_of_notify(tmp_path: Path):
    text = (
        "notify: {urls_from: TELL, on: [halted, halted, failed], command: [tell, --me], "
        'heartbeat: {url_from: PING, every: 1m}, morning: "08:30"}\n'
    )
    assert load(tmp_path, text, PING="http://x").notify == Notify(
        urls_from="TELL",
        on=("halted", "failed"),
        command=("tell", "--me"),
        heartbeat_from="PING",
        heartbeat_every_s=60.0,
        morning="08:30",
    )


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("notify: {on: [haltd]}", "notify.on[0]: must be one of started, "),
        ("notify: {heartbeat: {url_from: PING, every: 1s}}", "notify.heartbeat.every: must be 10s at least"),
        ('notify: {morning: "25:00"}', 'notify.morning: must be a time of day such as "08:00"'),
        ("notify: {command: tell me}", "notify.command: a command is a list of words; write [tell, me]"),
        ("tracking: {mlflow: 12}", "tracking.mlflow: must be the id of an MLflow run"),
        ("tracking: {wandb: a/b}", "tracking.wandb: a run's id at W&B is"),
        ("tracking: {tensorboard: {loss: x}}", "tracking.tensorboard: logdir is required"),
    ],
)
def test_mistakes_are_told_with_what_is_wanted(tmp_path: Path, text: str, mistake: str):
    with pytest.raises(SpecError, match=r"s\.yaml:4:") as caught:
        load(tmp_path, text + "\n")
    assert mistake in str(caught.value)


def test_a_rule_that_tells_and_a_notify_that_does_not_listen_is_warned_of(tmp_path: Path):
    text = "notify: {on: [halted]}\nrecovery: {rules: [{on: hang, do: notify}]}\n"
    (warning,) = load(tmp_path, text, SUPERVISE_NOTIFY="https://x").warnings
    assert "does not name degraded" in warning


def test_variables_that_are_not_set_are_named(tmp_path: Path):
    warnings = load(tmp_path, "notify: {heartbeat: {url_from: PING}}\n").warnings
    assert ["SUPERVISE_NOTIFY is not set" in warnings[0], "PING is not set" in warnings[1]] == [True, True]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("wandb: true", Tracking(wandb="auto")),
        ("wandb: false", Tracking()),
        ("wandb: my-run", Tracking(wandb="my-run")),
        ("wandb: {resume: must}", Tracking(wandb="auto", wandb_resume="must")),
        ("wandb: {id: x1}", Tracking(wandb="x1")),
        ("mlflow: 0123456789abcdef0123456789abcdef", Tracking(mlflow="0123456789abcdef0123456789abcdef")),
        ("tensorboard: /tb", Tracking(tensorboard="/tb")),
        ("tensorboard: {logdir: /tb, loss: l, rate: r}", Tracking(tensorboard="/tb", loss="l", rate="r")),
    ],
)
def test_tracking_in_its_forms(tmp_path: Path, text: str, wanted: Tracking):
    assert load(tmp_path, f"tracking: {{{text}}}\n").tracking == wanted


def test_a_logdir_starts_in_the_workdir(tmp_path: Path):
    tracking = load(tmp_path, "tracking: {tensorboard: tb}\n").tracking
    assert tracking is not None and tracking.tensorboard == str(tmp_path / "tb")
