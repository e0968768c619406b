"""What an episode has tried so far, in words: the end of the sentence in which a halt says why. Decides nothing."""

from __future__ import annotations

from supervisor.core.plans import Failure
from supervisor.core.state import Past, State

TOLD = 6
"""So many different answers are told, the newest: a sentence, not a log (`history` has it all)."""

AS_IT_WAS = "relaunched as it was"


def tried(state: State, failure: Failure) -> str:
    """`; tried: relaunched as it was after hang (attempts 1, 2), ...`; empty where nothing was.

    Where every failure came from one GPU, that GPU is the likely cause and is said to be.
    """
    answered = [past for past in state.past if past.did == "relaunch"]
    if not answered:
        return ""
    attempts: dict[str, list[int]] = {}
    for past in answered:
        attempts.setdefault(_answer(past), []).append(past.attempt)
    suspect = _suspect(state, answered, failure)
    if list(attempts) == [f"{AS_IT_WAS} after {failure.kind.value}"]:  # the count of the same answer is told already
        return suspect
    told = [f"{what} ({_numbers(which)})" for what, which in attempts.items()][-TOLD:]
    return f"; tried: {', '.join(told)}{suspect}"


def _answer(past: Past) -> str:
    moved = ", ".join(past.moved)
    return f"{moved or AS_IT_WAS} after {past.kind.value}"


def _numbers(which: list[int]) -> str:
    return f"attempt{'s' if len(which) > 1 else ''} {', '.join(map(str, which))}"


def _suspect(state: State, answered: list[Past], failure: Failure) -> str:
    gpus = {past.gpu for past in answered} | {failure.gpu}
    if len(answered) < 2 or len(gpus) != 1 or failure.gpu is None or len(state.gpus) < 2:
        return ""
    return f". Every time it was GPU {failure.gpu}: look at that GPU first"
