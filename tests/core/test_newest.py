"""Which of many past checkpoints are remembered, and which are let go."""

from __future__ import annotations

from supervisor.core.newest import BEFORE_ALL, HALF, KEPT_MAX, highest_steps, newest_contents, newest_known


def contents(count: int) -> frozenset[tuple[str, int, int]]:
    """Each a nanosecond after the one before; the paths are in another order than the times."""
    return frozenset((f"/c/{(7 * n) % count}", n, 10 + n) for n in range(count))


def test_up_to_a_thousand_all_are_remembered():
    assert (KEPT_MAX, HALF) == (1000, 500)
    assert newest_contents(contents(KEPT_MAX)) == (contents(KEPT_MAX), BEFORE_ALL)
    assert newest_contents(frozenset()) == (frozenset(), BEFORE_ALL)
    known = tuple(range(KEPT_MAX))
    assert newest_known(known) == known
    told = frozenset((f"/c/{n}", n) for n in range(KEPT_MAX))
    assert highest_steps(told) == told


def test_beyond_that_half_stays_the_newest_and_the_newest_of_those_let_go_is_told():
    kept, let_go_ns = newest_contents(contents(KEPT_MAX + 1))
    assert sorted(one[2] for one in kept) == list(range(10 + KEPT_MAX + 1 - HALF, 10 + KEPT_MAX + 1))
    assert let_go_ns == 10 + KEPT_MAX - HALF
    told = frozenset((f"/c/{KEPT_MAX - n}", n) for n in range(KEPT_MAX + 1))
    assert sorted(step for _, step in highest_steps(told)) == list(range(KEPT_MAX + 1 - HALF, KEPT_MAX + 1))


def test_the_one_that_a_run_began_from_stays_beside_the_newest():
    assert newest_known(tuple(range(KEPT_MAX + 1))) == (0, *range(2, KEPT_MAX + 1))
    assert len(newest_known(tuple(range(2 * KEPT_MAX)))) == KEPT_MAX
