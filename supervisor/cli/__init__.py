"""The command `supervise`: its verbs by name. What a verb's name leads to is in `verbs`, which imports click.

Rule 1: data on stdout, talk on stderr.
Rule 2: nothing here, in `verbs` or in `common` imports what only one verb needs: `status` and `logs` have 120 ms.
Rule 3: a verb is one module that exports `command`; it ends by `common.leave(code)` or by raising a SuperviseError.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Any

VERBS: dict[str, str] = {
    "up": "check, launch and supervise a run (or adopt a live one)",
    "down": "end a run: stop, verify that its GPUs are empty",
    "restart": "end the attempt and launch anew from the newest checkpoint",
    "pause": "no automatic recovery until `resume`",
    "resume": "automatic recovery on again",
    "status": "what is: phase, step, GPUs by role, what happens next",
    "logs": "the job's output",
    "attach": "the job's terminal (read-only unless --rw)",
    "history": "what was: attempts, causes, decisions",
    "report": "the night on one page: for a browser, a mail or a chat",
    "serve": "the same page live, and metrics, on this machine only",
    "metrics": "figures for Prometheus or a textfile collector",
    "wait": "wait until a run is running or done",
    "check": "is this spec valid?",
    "gpus": "who holds which GPU; wait until they are empty",
    "scan": "what do these logs say went wrong?",
    "adopt": "a supervisor for every open run; move a run to this machine",
    "init": "write a first spec",
    "schema": "the JSON Schema of the spec",
    "doctor": "what of this machine will cost a night, each with its fix",
    "service": "supervisors after a reboot: service install",
    "completion": "completion for bash, zsh or fish",
    "notify": "try who is told of a run: notify test",
}
"""Verb → what `--help` says of it. The module is `supervisor.cli.VERB`."""


GC_AFTER = 50_000
"""Modules live as long as the verb: looking through them while they are imported costs a tenth of it."""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of `supervise`; ends the process with the exit code of the contract."""
    gc.set_threshold(GC_AFTER)
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["up"] and not {"-h", "--help"} & set(words):
        from supervisor.cli import warm

        warm.start_early()
    sys.exit(run(argv))


def run(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code."""
    from supervisor.cli import verbs

    return verbs.run(argv)


def __getattr__(name: str) -> Any:
    if name == "Verbs":  # importing click here would keep `up` from starting its supervisor before anything else
        from supervisor.cli.verbs import Verbs

        return Verbs
    raise AttributeError(name)
