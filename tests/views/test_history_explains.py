"""A verdict explains itself: how sure, by which line, what else was seen and why it lost; in text and as JSON."""

from __future__ import annotations

from typing import Any

from recorded import T0_S

from supervisor.core.events import Failure
from supervisor.core.kinds import Kind
from supervisor.edges.codec import to_plain
from supervisor.views import history
from supervisor.views.run import AttemptView, RunView

FAILURE = Failure(
    kind=Kind.GPU_OOM,
    because="GPU 5 ran out of memory, short by 174 MiB (output.log:812)",
    code=1,
    gpu=5,
    printed_gpu=0,
    rank=13,
    tried_mib=4853.76,
    free_mib=4679.68,
    in_use_mib=92457.0,
    reserved_mib=4198.4,
    others=((4711, 72704.0),),
    log_line="torch.OutOfMemoryError: CUDA out of memory.",
    where="/s/output.log:812",
    signature="torch_new",
    confidence="high",
    lost=("collective_error at output.log:840 (nccl_abort): what others print after a gpu_oom",),
    evidence=("could not tell: the kernel's log (/dev/kmsg): Operation not permitted",),
    leftover="an orphan of attempt 1 (pid 4711) holds 71.0 GiB",
)


COPY = {"path": "/s/code/0001/tree", "top": "/w", "commit": "0123456789abcdef", "dirty": 3, "files": 12, "mib": 1.25}


def test_the_copy_of_the_code_is_told_with_its_commit():
    attempt = view().attempts[0]._replace(code={**COPY, "named": {}})
    of = RunView("dflash")._replace(attempts=(attempt,))
    told = " ".join(history.text(of, T0_S + 90, verbose=True).split())
    assert "code a copy of /w at 0123456789, 3 dirty: 12 files, 1.2 MiB, in /s/code/0001/tree" in told
    assert "a copy of" not in history.text(of, T0_S + 90)
    assert history.document(of)["attempts"][0]["code"] == COPY
    assert history.document(view())["attempts"][0]["code"] is None
    bare = RunView("dflash")._replace(attempts=(attempt._replace(code={**COPY, "commit": ""}),))
    assert "a copy of /w: 12 files" in " ".join(history.text(bare, T0_S + 90, verbose=True).split())


def view(failure: Failure | None = FAILURE) -> RunView:
    plain: dict[str, Any] | None = to_plain(failure) if failure else None
    attempt = AttemptView(number=2, intended_s=T0_S, ended_s=T0_S + 60, failure=plain, end={"code": 1})
    return RunView("dflash")._replace(attempts=(attempt,))


def test_the_text_explains_the_verdict_when_asked_to():
    told = " ".join(history.text(view(), T0_S + 90, verbose=True).split())
    assert "gpu_oom, confidence high, by torch_new" in told
    assert "92457 MiB in use by the process, 4198 MiB reserved but unallocated, pid 4711 holds 72704 MiB" in told
    assert "rank 13, printed as GPU 0" in told
    assert "/s/output.log:812: torch.OutOfMemoryError" in told
    assert "collective_error at output.log:840 (nccl_abort): what others print after a gpu_oom" in told
    assert "could not tell: the kernel's log" in told


def test_unasked_it_tells_the_deciding_line_only():
    told = " ".join(history.text(view(), T0_S + 90).split())
    assert "/s/output.log:812: torch.OutOfMemoryError" in told
    assert "confidence" not in told


def test_json_has_the_same_in_fields_of_their_own():
    end = history.document(view())["attempts"][0]["end"]
    assert (end["confidence"], end["rank"], end["printed_gpu"], end["gpu"]) == ("high", 13, 0, 5)
    assert (end["in_use_mib"], end["reserved_mib"]) == (92457.0, 4198.4)
    assert end["others"] == [{"pid": 4711, "mib": 72704.0}]
    assert end["lost"] == list(FAILURE.lost) and end["evidence"] == list(FAILURE.evidence)


def test_an_old_journals_failure_has_nothing_to_explain():
    old = view()._replace(attempts=(view().attempts[0]._replace(failure={"kind": "exit", "because": "exit code 1"}),))
    assert "verdict" not in history.text(old, T0_S + 90, verbose=True)
    end = history.document(old)["attempts"][0]["end"]
    assert (end["confidence"], end["others"], end["lost"]) == (None, [], [])


def test_an_attempt_that_still_runs_has_no_verdict():
    running = RunView("dflash")._replace(attempts=(AttemptView(number=1, intended_s=T0_S),))
    assert "verdict" not in history.text(running, T0_S + 90, verbose=True)
