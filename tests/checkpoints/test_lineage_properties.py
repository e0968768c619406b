"""Whatever a run goes through, it never leaves its own branch."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from supervisor.core.evidence import Checkpoint, Incomplete
from supervisor.core.lineage import Asked, Fresh, FromCheckpoint, Lineage, NoCheckpoint, choose, gained
from supervisor.core.spec import Resume

RESUME = Resume(from_="/c/step_*")
STEPS = st.integers(min_value=1, max_value=12)


class Branches(RuleBasedStateMachine):
    """A trainer that writes, prunes and tears; a user who rolls back; a model of which branch each content is of.

    The model follows the training itself: `ancestors` are the contents that the running weights descend from.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lineage = Lineage()
        self.disk: dict[int, Checkpoint] = {}
        self.torn: set[int] = set()
        self.foreign: set[int] = set()
        self.parents: dict[Checkpoint, Checkpoint | None] = {}
        self.current: Checkpoint | None = None
        self.clock = 1
        self.attempt = 0
        self.running = False
        self.sideways = False
        self.named: set[Checkpoint] = set()
        self.rejected: set[Checkpoint] = set()

    def found(self) -> list[Checkpoint | Incomplete]:
        torn = [Incomplete(f"/c/step_{step}", step, "torn") for step in self.torn]
        return [*(c for step, c in self.disk.items() if step not in self.torn), *torn]

    def asked(self, **more: object) -> Asked:
        return Asked(claimed={f"/c/step_{step}": "other" for step in self.foreign}, **more)  # type: ignore[arg-type]

    def put(self, step: int) -> Checkpoint:
        self.clock += 1
        made = Checkpoint(f"/c/step_{step}", step, 1, self.clock, f"/c/step_{step}")
        self.disk[step] = made
        self.torn.discard(step)
        self.foreign.discard(step)
        return made

    def is_ancestor(self, one: Checkpoint) -> bool:
        at = self.current
        while at is not None:
            if at == one:
                return True
            at = self.parents.get(at)
        return False

    def launch(self, told: Checkpoint | None) -> None:
        present = [c for c in self.found() if isinstance(c, Checkpoint)]
        self.attempt += 1
        self.rejected |= {c for c in present if told is None or c.step > told.step}
        self.lineage = self.lineage.launched(told, present).taken(told)
        self.current, self.running = told, True

    @precondition(lambda self: not self.running and not self.lineage.begun)
    @rule(step=STEPS)
    def something_lies_there_from_before(self, step: int) -> None:
        self.parents[self.put(step)] = None

    @precondition(lambda self: not self.running)
    @rule(older=st.booleans())
    def relaunch(self, older: bool) -> None:
        choice = choose(self.lineage, self.found(), RESUME, self.asked(older=older))
        match choice:
            case FromCheckpoint(checkpoint=checkpoint):
                assert checkpoint.step not in self.torn
                assert checkpoint.step not in self.foreign or checkpoint in self.named
                assert checkpoint not in self.rejected, "a branch that was rejected"
                if self.lineage.begun and self.lineage.is_known(checkpoint) and not self.sideways:
                    assert self.is_ancestor(checkpoint), "not of this branch"
                if self.lineage.begun and not self.lineage.is_known(checkpoint):
                    assert self.lineage.first is not None and checkpoint.step < self.lineage.first.step
                self.launch(checkpoint)
            case Fresh():
                assert not self.lineage.had_one
                self.launch(None)
            case NoCheckpoint(next_command=command):
                assert "--from" in command

    @precondition(lambda self: not self.running)
    @rule(data=st.data())
    def the_user_goes_back(self, data: st.DataObject) -> None:
        whole = [c for c in self.found() if isinstance(c, Checkpoint)]
        named = data.draw(st.sampled_from([None, *whole]))
        asked = self.asked(fresh=True) if named is None else self.asked(named=named)
        choice = choose(self.lineage, self.found(), RESUME, asked)
        self.sideways |= named is not None and not self.is_ancestor(named)
        assert choice == (Fresh("--from none") if named is None else FromCheckpoint(named, "named with --from"))
        self.rejected.discard(named)  # type: ignore[arg-type]
        self.named |= {named} if named else set()
        self.launch(named)

    @precondition(lambda self: self.running)
    @rule(gap=st.integers(min_value=1, max_value=3))
    def the_trainer_writes(self, gap: int) -> None:
        step = (self.current.step if self.current else 0) + gap
        made = self.put(step)
        self.parents[made] = self.current
        self.current = made
        for new in gained(self.lineage, self.found(), {f"/c/step_{s}": "other" for s in self.foreign}):
            self.lineage = self.lineage.written(new, self.attempt)
        assert self.lineage.is_known(made)

    @precondition(lambda self: self.running)
    @rule()
    def the_attempt_ends(self) -> None:
        self.running = False

    @rule(step=STEPS)
    def one_is_torn(self, step: int) -> None:
        if step in self.disk:
            self.torn.add(step)

    @rule(step=STEPS)
    def one_is_pruned(self, step: int) -> None:
        self.disk.pop(step, None)
        self.torn.discard(step)

    @rule(step=STEPS)
    def another_run_writes_its_own(self, step: int) -> None:
        if step not in self.disk:
            self.put(step)
            self.foreign.add(step)

    @precondition(lambda self: not self.running)
    @rule(step=STEPS)
    def one_is_demoted(self, step: int) -> None:
        self.lineage = self.lineage.demoted(f"/c/step_{step}")

    @rule()
    def a_new_episode(self) -> None:
        if not self.running:
            self.lineage = self.lineage.episode_opened()

    @invariant()
    def the_choice_is_total(self) -> None:
        choose(self.lineage, self.found(), RESUME, self.asked())


TestBranches = Branches.TestCase
TestBranches.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
