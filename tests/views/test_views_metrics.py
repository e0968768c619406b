"""Metrics say what is known, in base units, and nothing else; what a log says cannot become a line of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import recorded
from recorded import T0_S, UUIDS, entries

from supervisor.views import metrics
from supervisor.views.accounting import accounting, document
from supervisor.views.fold import fold
from supervisor.views.status import Look

LINE = re.compile(r'([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\} (-?[\d.e+-]+)')


def look(events, *, alive: bool = True, at_s: float = T0_S + 1000.0, **now) -> Look:
    told = entries(events)
    said = {**recorded.now_json(at_s), **now}
    return Look(fold("dflash", told), said, alive=alive, at_s=at_s, spent=document(accounting(told, at_s)))


NIGHT = recorded.first_attempt() + recorded.second_attempt()


def values(text: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = LINE.fullmatch(line)
            assert match, line
            found[f"{match[1]}{{{match[2]}}}"] = float(match[3])
    return found


def test_each_metric_has_its_help_and_type_once_before_its_samples():
    text = metrics.text([look(NIGHT), look(NIGHT)._replace(view=fold("other", entries(NIGHT)))])
    named = re.findall(r"^# TYPE (\w+) (?:gauge|counter)$", text, re.M)
    assert len(named) == len(set(named))
    assert set(named) <= set(metrics.NAMES)
    current = ""
    for line in text.splitlines():
        current = line.split()[2] if line.startswith("# TYPE") else current
        assert line.startswith("#") or line.partition("{")[0] == current


def test_the_night_in_metrics():
    found = values(metrics.text([look(NIGHT)]))
    assert found['supervise_phase{run="dflash",phase="running"}'] == 1
    assert sum(value for name, value in found.items() if name.startswith("supervise_phase{")) == 1
    assert found['supervise_step{run="dflash"}'] == 812
    assert found['supervise_failures_total{run="dflash",kind="gpu_oom"}'] == 1
    assert found['supervise_attempts_total{run="dflash"}'] == 2
    gpu = f'{{run="dflash",gpu="0",uuid="{UUIDS[0]}",role="target"}}'
    assert found[f"supervise_gpu_memory_used_bytes{gpu}"] == 90000 * 1024 * 1024
    assert found[f"supervise_gpu_utilization_ratio{gpu}"] == 0.94


def test_an_unreadable_gpu_has_no_memory_and_not_zero():
    found = values(metrics.text([look(NIGHT)]))
    gpu = f'{{run="dflash",gpu="6",uuid="{UUIDS[6]}",role="drafter"}}'
    assert found[f"supervise_gpu_readable{gpu}"] == 0
    assert f"supervise_gpu_memory_used_bytes{gpu}" not in found


def test_without_a_supervisor_nothing_is_said_of_gpus_rate_or_loss():
    text = metrics.text([look(NIGHT, alive=False)])
    assert not re.search("gpu_memory|supervise_rate|supervise_loss", text)
    assert 'supervise_supervisor_alive{run="dflash"} 0' in text


def test_a_role_from_a_spec_cannot_forge_a_metric():
    gpus = [{"index": 0, "uuid": 'G"\n', "role": 'a"} 1\nforged{x="\\', "used_mib": 1.0, "state": "ok"}]
    events = [event for event in NIGHT if type(event).__name__ != "PreflightPassed"]
    text = metrics.text([look(events, gpus=gpus)])
    assert not re.search("^forged", text, re.M)
    values(text)


def test_a_run_that_was_never_launched_has_metrics_too():
    found = values(metrics.text([Look(fold("new", []))]))
    assert found['supervise_run_open{run="new"}'] == 0
    assert metrics.text([]) == ""


def test_the_dashboard_asks_only_for_metrics_that_there_are():
    text = (Path(__file__).parents[2] / "configs" / "grafana-dashboard.json").read_text()
    board = json.loads(text)
    asked = set(re.findall(r"supervise_\w+", text))
    assert asked <= set(metrics.NAMES)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) > 10
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in board["panels"])
