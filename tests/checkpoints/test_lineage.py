"""Which checkpoint the next launch starts from."""

from __future__ import annotations

import json

import pytest

from supervisor.core.errors import Exit
from supervisor.core.evidence import Checkpoint, Incomplete
from supervisor.core.lineage import (
    NO_STEP,
    Asked,
    Fresh,
    FromCheckpoint,
    Lineage,
    NoCheckpoint,
    choose,
    gained,
)
from supervisor.core.spec import Resume
from supervisor.core.standing import LATE_NS, standing_claims
from supervisor.edges.codec import from_plain, to_plain

RESUME = Resume(from_="/c/step_*")
NOTHING = Asked()


def at(step: int, mtime: int = 1, path: str | None = None, real: str = "") -> Checkpoint:
    path = path or f"/c/step_{step}"
    return Checkpoint(path=path, step=step, inode=step + 10, mtime_ns=mtime, real=real or path)


def torn(step: int | None, why: str = "model.safetensors is cut off") -> Incomplete:
    return Incomplete(path=f"/c/step_{step}", step=step, why=why)


def ran(told: Checkpoint | None, *present: Checkpoint) -> Lineage:
    return Lineage().launched(told, present).taken(told)


def step_of(choice: object) -> int:
    assert isinstance(choice, FromCheckpoint)
    return choice.checkpoint.step


def test_without_a_resume_section_every_launch_is_fresh():
    assert isinstance(choose(Lineage(), [at(5)], None, NOTHING), Fresh)


def test_the_first_launch_takes_start_though_a_newer_one_lies_there():
    assert step_of(choose(Lineage(), [at(690), at(900)], RESUME, Asked(start=at(690)))) == 690


def test_a_launch_that_was_abandoned_does_not_use_up_start():
    lineage = Lineage().launched(at(690), [at(690), at(900)])
    assert step_of(choose(lineage, [at(690), at(900)], RESUME, Asked(start=at(690)))) == 690


def test_start_is_not_used_again_after_the_first_launch():
    lineage = ran(at(690), at(690)).written(at(700), 1)
    assert step_of(choose(lineage, [at(690), at(700)], RESUME, Asked(start=at(690)))) == 700


def test_an_incomplete_start_is_refused_and_the_newest_complete_one_named():
    choice = choose(Lineage(), [torn(690), at(600), at(500)], RESUME, Asked(start=torn(690), up="supervise up s.yaml"))
    assert isinstance(choice, NoCheckpoint)
    assert choice.exit is Exit.PREFLIGHT
    assert "cut off" in choice.why
    assert choice.next_command == "supervise up s.yaml --from /c/step_600"


def test_an_incomplete_start_with_nothing_else_says_so():
    choice = choose(Lineage(), [torn(690)], RESUME, Asked(start=torn(690)))
    assert isinstance(choice, NoCheckpoint)
    assert choice.next_command.endswith("--from none")


def test_a_run_without_start_takes_the_newest_complete_one_by_step_not_by_time():
    found = [at(600, mtime=9), at(650, mtime=3), torn(900)]
    assert step_of(choose(Lineage(), found, RESUME, NOTHING)) == 650


def test_two_of_one_step_are_told_apart_by_time():
    a, b = at(5, mtime=1, path="/c/a_5"), at(5, mtime=2, path="/c/b_5")
    choice = choose(Lineage(), [b, a], RESUME, NOTHING)
    assert isinstance(choice, FromCheckpoint)
    assert choice.checkpoint is b


def test_another_runs_checkpoint_is_refused_unless_named():
    claimed = {"/c/step_800": "other"}
    choice = choose(Lineage(), [at(700), at(800)], RESUME, Asked(claimed=claimed))
    assert isinstance(choice, NoCheckpoint)
    assert choice.exit is Exit.CONFLICT
    assert "run other" in choice.why
    assert choice.next_command.endswith("--from /c/step_800")
    assert step_of(choose(Lineage(), [at(800)], RESUME, Asked(claimed=claimed, named=at(800)))) == 800


def test_another_runs_checkpoint_is_never_in_play_later():
    lineage = ran(at(690), at(690))
    found = [at(690), at(700)]
    claimed = {"/c/step_700": "other"}
    assert gained(lineage, found, claimed) == ()
    assert step_of(choose(lineage, found, RESUME, Asked(claimed=claimed))) == 690


def test_what_another_run_puts_in_the_place_of_ones_own_is_not_taken():
    lineage = ran(at(690), at(690)).written(at(700), 1)
    found = [at(690), at(700, mtime=9)]
    assert step_of(choose(lineage, found, RESUME, Asked(claimed={"/c/step_700": "other"}))) == 690


def test_another_runs_checkpoint_that_was_named_stays_in_play():
    lineage = ran(at(800), at(800))
    assert step_of(choose(lineage, [at(800)], RESUME, Asked(claimed={"/c/step_800": "other"}))) == 800


def test_a_claim_on_what_a_link_leads_to_counts():
    link = at(7, path="/c/last_7", real="/o/step_7")
    choice = choose(Lineage(), [link], RESUME, Asked(claimed={"/o/step_7": "other"}))
    assert isinstance(choice, NoCheckpoint)


def test_a_rolled_back_branch_is_never_resumed():
    bad = at(900)
    lineage = ran(at(500), at(500), bad).written(at(600), 1)
    assert step_of(choose(lineage, [at(500), at(600), bad], RESUME, NOTHING)) == 600


def test_a_rolled_back_branch_of_its_own_is_out_too():
    lineage = ran(at(500), at(500)).written(at(900), 1)
    lineage = lineage.launched(at(500), [at(500), at(900)]).taken(at(500))
    assert step_of(choose(lineage, [at(500), at(900)], RESUME, NOTHING)) == 500


def test_a_rejected_one_that_is_written_again_is_in_play():
    lineage = ran(at(500), at(500), at(900))
    again = at(900, mtime=2)
    assert gained(lineage, [at(500), again], {}) == (again,)
    lineage = lineage.written(again, 1)
    assert step_of(choose(lineage, [at(500), again], RESUME, NOTHING)) == 900


def test_a_new_link_to_a_rejected_one_is_rejected():
    bad = at(900)
    lineage = ran(at(500), at(500), bad)
    link = at(900, path="/c/last", real="/c/step_900")
    assert gained(lineage, [bad, link], {}) == ()
    assert step_of(choose(lineage, [at(500), link], RESUME, NOTHING)) == 500


def test_a_fresh_launch_rejects_all_that_lay_there():
    lineage = ran(None, at(900))
    assert isinstance(choose(lineage, [at(900)], RESUME, NOTHING), Fresh)
    lineage = lineage.written(at(100), 1)
    assert step_of(choose(lineage, [at(100), at(900)], RESUME, NOTHING)) == 100


def test_from_none_is_fresh():
    assert isinstance(choose(ran(at(5)), [at(5)], RESUME, Asked(fresh=True)), Fresh)


def test_a_named_one_is_taken_though_it_was_rejected_and_is_then_in_play():
    lineage = ran(at(500), at(500), at(900))
    assert step_of(choose(lineage, [at(900)], RESUME, Asked(named=at(900)))) == 900
    lineage = lineage.launched(at(900), [at(500), at(900)]).taken(at(900))
    assert step_of(choose(lineage, [at(500), at(900)], RESUME, NOTHING)) == 900


def test_a_named_incomplete_one_is_refused():
    assert isinstance(choose(ran(at(5)), [at(5)], RESUME, Asked(named=torn(6))), NoCheckpoint)


def test_a_demoted_one_gives_way_to_the_one_before_it():
    lineage = ran(at(500), at(500)).written(at(600), 1).written(at(700), 1).demoted("/c/step_700")
    assert step_of(choose(lineage, [at(500), at(600), at(700)], RESUME, NOTHING)) == 600


def test_older_ones_from_before_come_only_after_all_of_its_own_are_demoted():
    lineage = ran(at(690), at(600), at(690))
    found = [at(600), at(690)]
    assert isinstance(choose(lineage, [at(600)], RESUME, NOTHING), NoCheckpoint)
    assert step_of(choose(lineage.demoted("/c/step_690"), found, RESUME, NOTHING)) == 600


def test_a_demotion_lasts_for_an_episode_and_until_rewritten():
    lineage = ran(at(690), at(690)).demoted("/c/step_690")
    assert step_of(choose(lineage.episode_opened(), [at(690)], RESUME, NOTHING)) == 690
    again = at(690, mtime=2)
    assert step_of(choose(lineage.written(again, 1), [again], RESUME, NOTHING)) == 690


def test_what_a_demoted_link_leads_to_is_demoted():
    link = at(690, path="/c/last", real="/c/step_690")
    lineage = ran(link, link).demoted("/c/last")
    assert isinstance(choose(lineage, [link, at(690)], RESUME, NOTHING), NoCheckpoint)


def test_older_means_the_one_before_the_newest():
    lineage = ran(at(500), at(500)).written(at(600), 1)
    assert step_of(choose(lineage, [at(500), at(600)], RESUME, Asked(older=True))) == 500


def test_older_twice_goes_back_twice():
    found = [at(500), at(600), at(700)]
    lineage = ran(at(500), at(500)).written(at(600), 1).written(at(700), 1)
    lineage = lineage.launched(at(600), found).taken(at(600))
    assert step_of(choose(lineage, found, RESUME, Asked(older=True))) == 500


def test_older_reaches_back_before_the_run():
    lineage = ran(at(690), at(600), at(690))
    assert step_of(choose(lineage, [at(600), at(690)], RESUME, Asked(older=True))) == 600


def test_older_with_nothing_before_is_refused():
    for lineage in (ran(at(690), at(690)), ran(None).written(at(690), 1)):
        choice = choose(lineage, [at(690)], RESUME, Asked(older=True))
        assert isinstance(choice, NoCheckpoint)
        assert choice.next_command.endswith("--from /c/step_690")


@pytest.mark.parametrize(
    ("if_none", "had_one", "fresh"),
    [(None, False, True), (None, True, False), ("fresh", True, True), ("fresh", False, True), ("fail", False, False)],
)
def test_no_checkpoint_is_fresh_until_the_run_has_had_one_then_a_failure(if_none, had_one, fresh):
    lineage = ran(at(5), at(5)) if had_one else Lineage()
    resume = Resume(from_="/c/step_*", if_none=if_none)
    choice = choose(lineage, [], resume, NOTHING)
    assert isinstance(choice, Fresh if fresh else NoCheckpoint)


def test_a_refusal_tells_what_is_torn_and_what_is_not_in_play():
    lineage = ran(at(500), at(500), at(900))
    choice = choose(lineage, [at(900), torn(600), torn(None, "no step in its name")], RESUME, NOTHING)
    assert isinstance(choice, NoCheckpoint)
    assert "step_600 is incomplete" in choice.why
    assert "step_900 is complete but not in play" in choice.why


def test_without_steps_the_time_of_writing_orders_and_rejects():
    def nameless(mtime: int, name: str) -> Checkpoint:
        return Checkpoint(path=f"/c/{name}", step=NO_STEP, inode=mtime, mtime_ns=mtime, real=f"/c/{name}")

    old, new, later = nameless(1, "a"), nameless(2, "b"), nameless(3, "c")
    assert choose(Lineage(), [new, old], RESUME, NOTHING) == FromCheckpoint(new, "the newest complete checkpoint")
    lineage = ran(old, old, new).written(later, 1)
    choice = choose(lineage, [old, new, later], RESUME, Asked(older=True))
    assert isinstance(choice, FromCheckpoint)
    assert choice.checkpoint is old


def test_a_checkpoint_is_gained_once():
    lineage = ran(at(500), at(500))
    assert gained(lineage, [at(500), at(700), at(600), torn(800)], {}) == (at(600), at(700))
    lineage = lineage.written(at(600), 1).written(at(700), 1)
    assert gained(lineage, [at(600, mtime=2), at(700)], {}) == ()


def test_what_came_late_into_a_checkpoint_is_told_when_nobody_writes_any_more():
    lineage = ran(at(500), at(500)).written(at(600), 1)
    late = at(600, mtime=2)
    assert gained(lineage, [late], {}) == ()
    assert gained(lineage, [late], {}, final=True) == (late,)
    lineage = lineage.written(late, 1)
    assert gained(lineage, [late], {}, final=True) == ()
    assert step_of(choose(lineage, [late], RESUME, Asked(claimed={"/c/step_600": "other"}))) == 600


def test_a_run_that_starts_from_ones_checkpoint_does_not_take_it_away():
    lineage = ran(at(500), at(500)).written(at(600), 1)
    assert step_of(choose(lineage, [at(500), at(600)], RESUME, Asked(claimed={"/c/step_600": "fork"}))) == 600


def test_a_claim_stands_only_on_what_was_recorded():
    old = at(700, mtime=10)
    claims = [("first", old), ("gone", at(800))]
    assert standing_claims(claims, [old, at(900), torn(800)]) == {"/c/step_700": "first"}
    late = at(700, mtime=10 + LATE_NS)
    assert standing_claims(claims, [late]) == {"/c/step_700": "first"}
    rewritten = at(700, mtime=11 + LATE_NS)
    assert standing_claims(claims, [rewritten]) == {}
    made_anew = Checkpoint("/c/step_700", 700, 99, 11, "/c/step_700")
    assert standing_claims(claims, [made_anew]) == {}
    assert standing_claims([*claims, ("second", made_anew)], [made_anew]) == {"/c/step_700": "second"}


def test_a_claim_is_met_through_a_link_too():
    link = Checkpoint("/c/last", 700, at(700).inode, 1, "/c/step_700")
    assert standing_claims([("first", at(700))], [link]) == {"/c/last": "first"}


def test_a_lineage_goes_through_json_and_comes_back_equal():
    lineage = ran(at(500), at(500), at(900)).written(at(600), 1).demoted("/c/step_600")
    assert from_plain(json.loads(json.dumps(to_plain(lineage))), Lineage) == lineage


def test_a_forgotten_content_is_neither_new_nor_in_play_but_the_one_that_was_taken():
    """Contents up to the newest that was let go may have been ours: nobody can tell any more."""
    let_go = Lineage(begun=True, own_after_ns=50, out_after_ns=50)
    assert gained(let_go, [at(1, mtime=50)], {}) == ()
    assert [one.step for one in gained(let_go, [at(1, mtime=51)], {})] == [1]
    assert let_go.is_out(at(1, mtime=50))
    assert not let_go.is_out(at(1, mtime=51))
    assert not let_go.taken(at(1, mtime=50)).is_out(at(1, mtime=50))
    assert let_go.taken(at(2, mtime=50)).is_out(at(1, mtime=50))


def test_what_was_let_go_later_is_never_before_what_was_let_go_earlier():
    many = frozenset((f"/c/{n}", n, n) for n in range(1001))
    assert Lineage(out=many, out_after_ns=9_999).rejected(at(5, mtime=10_000)).out_after_ns == 9_999
    assert Lineage(out=many).rejected(at(5, mtime=10_000)).out_after_ns == 501
    assert Lineage(own=many, own_after_ns=9_999).written(at(5, mtime=10_000), 1).own_after_ns == 9_999
    assert Lineage(own=many).written(at(5, mtime=10_000), 1).own_after_ns == 500


def test_where_the_numbers_began_is_said_by_the_first_attempt_alone():
    assert Lineage().began_at(1, 7).first_began == 7
    assert Lineage(first_began=7).began_at(2, 9).first_began == 7


def test_one_that_was_taken_is_known_as_what_this_run_wrote_only_while_it_is_the_same():
    wrote = ran(None).written(at(5), 1, 9)
    assert wrote.taken(at(5)).known == wrote.known
    rewritten = wrote.taken(at(5, mtime=2))
    assert [(one.attempt, one.logged, one.step) for one in rewritten.known] == [(None, None, 5)]
    link = ran(at(7, path="/c/last", real="/c/step_7"))
    assert link.known[0].real == "/c/step_7"
    assert link.is_known(at(7))
    assert ran(at(7)).is_known(at(7, path="/c/last", real="/c/step_7"))
    assert not ran(at(7)).is_known(at(8))


def test_a_demoted_link_is_out_by_its_own_name_and_by_what_it_leads_to():
    demoted = ran(at(7)).demoted("/c/step_7")
    assert demoted.is_out(at(7))
    assert demoted.is_out(at(7, path="/c/last", real="/c/step_7"))
    assert not demoted.is_out(at(8))


def test_of_torn_ones_the_highest_is_named_and_of_whole_ones_out_of_play_the_newest():
    lineage = ran(at(5), at(5), at(8), at(9))
    lineage = lineage.demoted("/c/step_5")
    choice = choose(lineage, [at(8), at(9), torn(6), torn(7), torn(None)], RESUME, NOTHING)
    assert isinstance(choice, NoCheckpoint)
    assert "/c/step_7 is incomplete" in choice.why
    assert "/c/step_9 is complete but not in play" in choice.why
    assert choice.next_command.endswith("--from /c/step_9")


def test_why_a_launch_begins_from_nothing_is_said():
    assert choose(Lineage(), [], None, NOTHING) == Fresh("the spec has no resume section")
    assert choose(Lineage(), [], RESUME, NOTHING) == Fresh("there is no checkpoint yet")
    fresh = Resume(from_="/c/step_*", if_none="fresh")
    left = choose(ran(at(5)), [], fresh, NOTHING)
    assert left == Fresh("no checkpoint is left: resume.if_none is fresh")


def test_the_newest_of_a_pool_of_two_before_is_the_one_before():
    lineage = ran(at(5)).written(at(6), 1).written(at(7), 1).written(at(8), 1)
    choice = choose(lineage, [at(5), at(6), at(7), at(8)], RESUME, Asked(older=True))
    assert step_of(choice) == 7
    assert isinstance(choice, FromCheckpoint)
    assert choice.because == "the one before /c/step_8"
