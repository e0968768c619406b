"""How soon a job that prints on and on is read again. Only times; who reads and sleeps is elsewhere."""

from __future__ import annotations

CHATTY_S, REST_S = 1.0, 0.2
"""Words after a second of silence are read at once; words that follow them sooner, five times a second."""


class Chatter:
    """Remembers when the job's words were read last. Times are of one clock, in seconds."""

    def __init__(self) -> None:
        self._read_s = self._rest_until_s = float("-inf")

    def was_read(self, now_s: float) -> None:
        """There were words, and none of them is a reason to look at the run."""
        if now_s - self._read_s < CHATTY_S:
            self._rest_until_s = now_s + REST_S
        self._read_s = now_s

    def rests_s(self, now_s: float) -> float:
        """For how long words are let gather before they are read; 0 when they are read as they come."""
        return max(0.0, self._rest_until_s - now_s)
