"""The deadline of verify-zero, where nobody looked for a while."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from supervisor.core import events as ev
from supervisor.core.evidence import Instant, MachineId, Reading
from supervisor.core.phases import Phase
from supervisor.core.placing import RoleGpus
from supervisor.core.seen import Seen
from supervisor.core.spec import Resume, RunSpec
from supervisor.core.state import Attempt, State
from supervisor.core.stopping import LOOK_AT_LEAST_S, verifying
from supervisor.core.watch import begun, looked

SPEC = RunSpec(name="r", command=("true",), file="r.yaml", workdir="/")
BEFORE = Instant("before", 5_000.0, 100_000.0)


def state(verify_from: Instant) -> State:
    roles = {"all": RoleGpus(ordinals=(0,), physical=(0,), uuids=("GPU-a",))}
    return State(run="r", roles=roles, spec=SPEC, phase=Phase.VERIFYING, verify_from=verify_from)


def at_each(verify_from: Instant, boot_id: str, looks_s: tuple[float, ...], used_mib: float = 9_000) -> tuple:
    """What is decided after these looks of one supervisor. The wall clock is 200,000 s ahead of the boot clock."""
    watch = begun(0, Instant(boot_id, looks_s[0], 200_000.0 + looks_s[0]))
    said = ()
    for boot_s in looks_s:
        reading = {"GPU-a": Reading("GPU-a", 0, boot_s, used_mib, 90_000, None, None)}
        seen = Seen(at=Instant(boot_id, boot_s, 200_000.0 + boot_s), machine=MachineId(boot_id, "m", "h"), gpus=reading)
        watch = looked(watch, seen, state(verify_from))
        said = verifying(state(verify_from), watch, seen)
    return said


@pytest.mark.parametrize(("verify_from", "boot_id"), [(BEFORE, "after"), (Instant("b", 1.0, 200_001.0), "b")])
def test_a_supervisor_that_is_new_looks_before_it_gives_up(verify_from, boot_id):
    assert at_each(verify_from, boot_id, (900.0, 901.0)) == ()
    given_up = at_each(verify_from, boot_id, (900.0, 900.0 + LOOK_AT_LEAST_S))
    assert [type(one) for one in given_up] == [ev.NotZero, ev.EpisodeEnded]


def test_gpus_that_are_empty_after_a_reboot_are_verified_however_long_it_took():
    (verified,) = at_each(BEFORE, "after", (20.0, 21.0, 22.0, 23.0), used_mib=0)
    assert isinstance(verified, ev.VerifiedZero)


def test_a_disk_that_does_not_answer_keeps_no_run_from_its_end():
    resume = replace(SPEC, resume=Resume(from_="/c/step_*"))
    attempt = Attempt(number=1, token="t", argv=(), rungs={}, checkpoint=None, began=BEFORE, launched_at=BEFORE)
    waits = replace(state(Instant("b", 1.0, 200_001.0)), spec=resume, attempt=attempt)
    timeout_s = SPEC.recovery.verify_zero.timeout_s
    said = {}
    for waited_s in (timeout_s + 1.0, timeout_s + LOOK_AT_LEAST_S):
        at = Instant("b", 1.0 + waited_s, 0.0)
        reading = {"GPU-a": Reading("GPU-a", 0, at.boot_s, 9_000, 90_000, None, None)}
        seen = Seen(at=at, machine=MachineId("b", "m", "h"), gpus=reading)
        watch = looked(begun(1, Instant("b", 1.0, 0.0)), seen, waits)
        watch = replace(watch, zero_began_boot_s=1.0)
        said[waited_s] = [type(one) for one in verifying(waits, watch, seen)]
    assert list(said.values()) == [[], [ev.NotZero, ev.EpisodeEnded]]
