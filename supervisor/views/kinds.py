"""docs/failure-kinds.md: what each kind of failure means, what is done about it, and by which texts it is known.

    python -m supervisor.views.kinds > docs/failure-kinds.md

Made of the catalogue and the policy, so that it cannot say anything else than they do; a test compares.
"""

from __future__ import annotations

import sys

from supervisor.core.evidence import Weight
from supervisor.core.kinds import Kind
from supervisor.core.policy import POLICY, WAITS, BuiltIn
from supervisor.signatures import CATALOGUE, Text

EXAMPLE_MAX = 160

MEANING: dict[Kind, str] = {
    Kind.GPU_OOM: "A GPU had too little memory for what the job asked of it, from whichever library the text comes.",
    Kind.HOST_OOM: "The box, the container or the job's cgroup ran out of memory; mostly the kernel killed a process.",
    Kind.GPU_FAULT: "A GPU is broken or was lost: memory errors, NVLink, the bus, a hardware Xid.",
    Kind.CUDA_ERROR: "A kernel went wrong on a GPU that is not broken: an illegal access, an assert, a failed library.",
    Kind.COLLECTIVE_TIMEOUT: "Ranks waited for one that did not come; the rank that prints nothing is the suspect.",
    Kind.COLLECTIVE_ERROR: "The connection between ranks failed: NCCL, gloo, InfiniBand.",
    Kind.DISK_FULL: "No space, no inode or no quota was left where the job writes.",
    Kind.SHM_FULL: "/dev/shm is full or too small; also a bus error in a data loader's worker.",
    Kind.CHECKPOINT_ERROR: "A checkpoint could not be read, or does not fit the model.",
    Kind.DATA_ERROR: "The data could not be parsed, or has the wrong shape or keys.",
    Kind.NUMERIC: "The loss became NaN or infinite, or the loss scale is at its minimum.",
    Kind.CODE_ERROR: "An exception of the job's own code, also a missing name or module of its own.",
    Kind.ENV_ERROR: "The installation does not fit: a missing package, shared object, symbol, driver or command.",
    Kind.PORT_IN_USE: "A port that the job listens on is taken.",
    Kind.NETWORK_ERROR: "A file system or server did not answer: EIO, ESTALE, timeouts, HTTP 5xx and 429, resets.",
    Kind.PREEMPTED: "Somebody else ended the job: a scheduler, a time limit, a shutdown, a SIGTERM that was not ours.",
    Kind.KILLED: "The job was gone by SIGKILL without a word, or is gone and nobody knows how.",
    Kind.SEGFAULT: "A process crashed in native code.",
    Kind.HANG: "No step was made for longer than `health.progress.stall` allows.",
    Kind.SILENT_GPU: "A GPU idles while the others train on, or a worker of a live job is gone without a word.",
    Kind.STARTUP_TIMEOUT: "No progress was made within `health.startup_timeout` of the launch.",
    Kind.LOST_PROGRESS: "The job began further back than the checkpoint it was told to start from.",
    Kind.SLOW: "The job steps at less than seven tenths of its best for ten minutes and more.",
    Kind.PROTECTED_VIOLATION: "A protected param reached the job with another value, or was to be changed.",
    Kind.EXIT: "The job ended non-zero and nothing explains it.",
    Kind.NONE: "A healthy end, a log without a failure, or a stop by the user.",
}

WEIGHTS: dict[Weight, str] = {
    Weight.CAUSE: "names the reason",
    Weight.GENERIC: "an exception without a known text",
    Weight.AFTERMATH: "what others print once one has failed",
    Weight.SUMMARY: "an exit code or a signal",
    Weight.WARNED: "advice of Python's",
    Weight.WRAPPER: "points at another text",
    Weight.NOISE: "printed at any end, never a cause",
}

HEAD = """# Kinds of failure
Written by `python -m supervisor.views.kinds > docs/failure-kinds.md` from the catalogue of failure texts and the
built-in policy; do not edit it by hand.

An explicit rule under `recovery.rules` wins over the built-in policy for every kind but `protected_violation`. Counts
start anew when a checkpoint was gained. A text alone is no verdict: it becomes one when the job, the process or the
GPU proves it, and is dropped when the run goes on.

An end that names no reason is looked into beside the log: the kernel's log, the job's memory cgroup, the driver, the
room left on disk and in /dev/shm, the workers' error files. `supervise history -v` tells what each of them said, also
"could not tell". An out-of-memory text that names an orphan of an earlier attempt moves no knob: the orphan is ended
and the run relaunched as it was.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_overview(), *(line for kind in Kind for line in _section(kind))])


def policy_words(kind: Kind) -> str:
    """What the built-in policy does about a kind, in a few words."""
    row = POLICY.get(kind)
    if row is None:
        return "nothing to do"
    if row.tells:
        return "tell; the run goes on"
    if row.lower:
        return "lower all knobs that no rule names by one rung and relaunch; halt at the last rungs"
    if not row.times:
        return "halt"
    return _relaunch_words(kind, row)


def _relaunch_words(kind: Kind, row: BuiltIn) -> str:
    times = {1: "once", 2: "twice", 3: "three times"}[row.times]
    words = f"relaunch as it was, {times}"
    if row.from_older:
        words += ", from the checkpoint before"
    if kind is Kind.GPU_FAULT:
        words += ", if every GPU answers healthy"
    return words + (", after a wait" if kind in WAITS else "") + "; then halt"


def _overview() -> list[str]:
    rows = [f"| [`{kind}`](#{kind}) | {_texts_count(kind)} | {policy_words(kind)} |" for kind in Kind]
    return ["| kind | texts | built-in policy |", "|---|---|---|", *rows, ""]


def _texts(kind: Kind) -> list[Text]:
    return [text for text in CATALOGUE if text.kind is kind and not text.note]


def _texts_count(kind: Kind) -> str:
    return str(len(_texts(kind))) if _texts(kind) else "-"


def _section(kind: Kind) -> list[str]:
    lines = [f"## {kind}", MEANING[kind], "", f"Built-in policy: {policy_words(kind)}.", ""]
    texts = _texts(kind)
    if texts:
        rows = [f"| `{one.name}` | {WEIGHTS[one.weight]} | {_code(one.example)} | {one.source} |" for one in texts]
        lines += ["| text | weight | example | source |", "|---|---|---|---|", *rows, ""]
    return lines


def _code(example: str) -> str:
    """The example's first line as a table cell."""
    line = example.strip().partition("\n")[0].replace("|", "\\|")
    cut = line if len(line) <= EXAMPLE_MAX else f"{line[: EXAMPLE_MAX - 1]}…"
    return f"`` {cut} ``" if "`" in cut else f"`{cut}`"


if __name__ == "__main__":
    sys.stdout.write(page())
