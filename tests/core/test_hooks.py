"""Hooks: when one is due, and what waits for it."""

from __future__ import annotations

from fake_specs import incident
from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core import hooks
from supervisor.core.evidence import Instant, MachineId
from supervisor.core.given import Hooks
from supervisor.core.seen import Seen
from supervisor.core.state import Attempt, State

AT = Instant("b", 1.0, 1.0)
ENDED = Attempt(number=3, token="dflash:3", argv=(), rungs={}, checkpoint=None, began=AT, launched_at=AT)
AFTER = State(run="dflash", spec=incident(hooks=Hooks(after_stop=("upload",))), attempt=ENDED, attempts_made=3)


def test_the_hook_after_a_stop_waits_for_the_look_at_what_comes_next():
    assert hooks.after_stop(AFTER, None) == ()
    assert hooks.after_stop(replace(AFTER, hooked=("after_stop:3",)), None) is None


def test_the_answer_to_another_hook_is_no_answer():
    running = ev.HookIntended(attempt=4, hook="before_launch", argv=("sync",), token="dflash:4")
    end = ev.HookEnded(attempt=3, hook="after_stop", code=0)
    seen = Seen(at=AT, machine=MachineId("b", "m", "box"), hook=end)
    assert hooks.running(replace(AFTER, hook=running), seen) == ()
