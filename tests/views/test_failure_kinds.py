"""The page of failure kinds is what the catalogue and the policy say now."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.core.kinds import Kind
from supervisor.core.policy import POLICY
from supervisor.views import kinds

PAGE = Path(__file__).parents[2] / "docs" / "failure-kinds.md"


def test_the_page_is_current():
    assert PAGE.read_text() == kinds.page()


def test_every_kind_has_its_section_and_every_kind_but_none_its_policy():
    for kind in Kind:
        assert f"\n## {kind}\n" in kinds.page()
    assert set(Kind) - set(POLICY) == {Kind.NONE}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("lower all knobs", "gpu_oom"),
        (
            "relaunch as it was, three times",
            "host_oom hang silent_gpu collective_timeout collective_error cuda_error segfault killed shm_full "
            "network_error port_in_use preempted",
        ),
        ("relaunch as it was, twice, after a wait", "exit"),
        ("relaunch as it was, once;", "startup_timeout"),
        ("relaunch as it was, once, from the checkpoint before", "checkpoint_error"),
        ("relaunch as it was, once, if every GPU answers healthy", "gpu_fault"),
        ("tell; the run goes on", "slow"),
        ("halt", "code_error env_error data_error disk_full numeric lost_progress protected_violation"),
    ],
)
def test_the_policy_is_that_of_the_contract(words: str, named: str):
    said = {kind.value for kind in Kind if kinds.policy_words(kind).startswith(words)}
    assert said == set(named.split())
