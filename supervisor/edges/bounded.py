"""A call that may hang (a dead network mount), given up on after a deadline. Nothing of what the call does.

A thread stuck in the kernel cannot be ended: it is left behind as a daemon and never waited for again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Box(Generic[T]):
    def __init__(self) -> None:
        self.value: T | None = None
        self.error: BaseException | None = None
        self.done = threading.Event()


def within(deadline_s: float, call: Callable[[], T], what: str) -> T:
    """What `call` returns or raises. Raises TimeoutError, naming `what`, when it has not come back in time."""
    if deadline_s <= 0:
        raise TimeoutError(f"{what}: no time left")
    box: _Box[T] = _Box()

    def run() -> None:
        try:
            box.value = call()
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, whatever it is
            box.error = error
        finally:
            box.done.set()

    threading.Thread(target=run, name=f"within: {what}", daemon=True).start()
    if not box.done.wait(deadline_s):
        raise TimeoutError(f"{what}: no answer within {deadline_s:g} s")
    if box.error is not None:
        raise box.error
    return box.value  # type: ignore[return-value]  # set where there is no error
