"""Who may have printed: what a process sees is read from the environment that it runs with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from supervisor import runner
from supervisor.core.evidence import ProcessId
from supervisor.edges import proc
from supervisor.edges.ownership import Recorded
from supervisor.machines.printers import Printers

Start = Callable[..., Recorded]


@pytest.fixture
def start() -> Iterator[Start]:
    begun: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **environ: str) -> Recorded:
        code = "import sys; print(flush=True); sys.stdin.read()"
        argv = [sys.executable, "-c", code, *words]
        child = subprocess.Popen(argv, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        begun.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return Recorded(ProcessId(child.pid, proc.start_ticks(child.pid) or 0), child.pid)

    yield start
    for child in begun:
        child.communicate()


def test_a_process_sees_what_its_environment_says_and_without_a_choice_the_box(start):
    chosen, free = start(CUDA_VISIBLE_DEVICES="2,5", RANK="1"), start(PATH="/bin")
    found = Printers().look([chosen, free], [0, 1])
    assert [(one.rank, one.visible) for one in found] == [(1, ("2", "5")), (None, ("0", "1"))]


def test_the_runners_fork_is_not_taken_for_the_job_that_it_becomes(start):
    fork = start(runner.__file__, "attempts/0001", PATH="/bin")
    job = start(runner.__file__, SUPERVISE_TOKEN="run:1", CUDA_VISIBLE_DEVICES="5")
    (known,) = Printers().look([fork, job], [0, 1])
    assert known.visible == ("5",)
