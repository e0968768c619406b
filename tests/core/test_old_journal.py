"""A journal of version 1, as it was written then: it reads, folds and goes on for ever. The file is never rewritten."""

from __future__ import annotations

from pathlib import Path

from fake_journals import MemoryJournal, folded, read_events
from fake_machine import FakeMachine
from fake_specs import CHECKPOINTS
from fake_world import World

from supervisor.core import events as ev
from supervisor.core.events import EVENT_TYPES
from supervisor.core.evidence import Checkpoint
from supervisor.core.phases import Phase
from supervisor.edges.journal import Journal
from supervisor.edges.journal_tail import read_plain
from supervisor.loop import Loop
from supervisor.views.fold import fold as seen_by_people
from supervisor.views.run import Entry

OLD = Path(__file__).parents[1] / "data" / "journal-v1.jsonl"


def test_every_record_of_it_is_still_known():
    types = {one.type for one in Journal.open(OLD, writer=False).read()}
    assert types <= set(EVENT_TYPES)
    assert len(types) >= 29


def test_it_folds_to_what_was_so_at_its_end():
    state = folded(read_events(OLD))
    assert (state.phase, state.attempts_made, state.episodes) == (Phase.FINISHED, 7, 5)
    assert state.rungs == {"token_budget": 1, "max_batch_size": 1}
    assert state.because == "the job ended with exit code 0"
    assert [known.step for known in state.lineage.known] == [690, 700, 710]
    assert state.waiting == ()


def test_people_see_the_same_run_as_the_supervisor():
    entries = [Entry(one["type"], one["at"]["wall_s"], one["data"]) for one in read_plain(OLD)]
    view = seen_by_people("dflash", entries)
    state = folded(read_events(OLD))
    assert view.phase == state.phase.value
    assert view.because == state.because
    assert view.knobs == {"token_budget": 45056, "max_batch_size": 48}
    assert [one.number for one in view.attempts] == [1, 2, 3, 4, 5, 6, 7]


def test_a_run_goes_on_from_it():
    records = read_events(OLD)
    world = World(boot_s=records[-1][1].boot_s + 60.0)
    for known in folded(records).lineage.known:
        world.checkpoints[known.path] = Checkpoint(path=known.path, step=known.step, inode=known.step, mtime_ns=1)
    journal = MemoryJournal(world)
    journal.records = list(records)
    opened = next(event for event, _ in reversed(records) if isinstance(event, ev.EpisodeOpened))
    world.asked = 100
    world.ask("up", spec=opened.spec)
    loop = Loop(journal, FakeMachine(world), ev.SupervisorStarted(pid=1, version="test"))
    while loop.state.phase is not Phase.STARTING or loop.state.waiting:
        assert loop.turn()
    assert loop.state.attempts_made == 8
    assert world.started[0].checkpoint is not None
    assert world.started[0].checkpoint.path == f"{CHECKPOINTS}/step_710"
    assert world.started[0].rungs == {"token_budget": 1, "max_batch_size": 1}
