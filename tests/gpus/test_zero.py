"""Verified zero: every GPU, by UUID, read, at its floor, for long enough. Core only: values in, values out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.evidence import GpuSeen, Holder, Owner, Reading, Unreadable
from supervisor.core.zero import ZeroWatch, is_drained, learn_floor, learn_floors

A, B = "GPU-a", "GPU-b"
GIB = 1024.0


def read(gpu: str = A, used: float = 0.0, at: float = 0.0, v2: bool = True) -> Reading:
    return Reading(
        gpu=gpu,
        index=0 if gpu == A else 1,
        began_boot_s=at,
        used_mib=used,
        total_mib=97249.0,
        reserved_mib=600.0 if v2 else None,
        util_pct=0.0,
        v2=v2,
    )


def lost(gpu: str = A, at: float = 0.0, index: int | None = 0) -> Unreadable:
    return Unreadable(gpu, index, at, "GPU is lost")


def holder(gpu: str = A) -> Holder:
    return Holder(gpu, 7, "root", "python", Owner.UNKNOWN)


def watched(*looks: GpuSeen | tuple[GpuSeen, ...], of: tuple[str, ...] = (A,), **options: object) -> ZeroWatch:
    watch = ZeroWatch(of=of, **options)  # type: ignore[arg-type]
    for look in looks:
        watch = watch.seen(look if isinstance(look, tuple) else (look,), members_left=False)
    return watch


# ── one look ──


def test_every_gpu_of_the_run_must_be_read() -> None:
    assert is_drained([read(A), read(B)], [A, B], {})
    assert not is_drained([read(A)], [A, B], {})


def test_an_unreadable_gpu_is_not_a_drained_gpu() -> None:
    assert not is_drained([read(A), lost(B)], [A, B], {})


def test_another_runs_gpu_neither_helps_nor_hinders() -> None:
    assert is_drained([read(A), read(B, used=70 * GIB)], [A], {})


def test_a_gpu_within_64_mib_of_its_floor_is_drained_and_one_beyond_is_not() -> None:
    assert is_drained([read(used=87 + 64)], [A], {A: 87.0})
    assert not is_drained([read(used=87 + 65)], [A], {A: 87.0})
    assert not is_drained([read(used=87)], [A], {})


def test_residents_that_the_user_allows_are_added_to_the_floor() -> None:
    assert is_drained([read(used=500)], [A], {}, allow_mib=450)
    assert not is_drained([read(used=515)], [A], {}, allow_mib=450)


def test_v1_decides_nothing_where_v2_answers() -> None:
    assert not is_drained([read(v2=False)], [A], {}, v2_answers=True)
    assert is_drained([read(used=600, v2=False)], [A], {A: 600.0})


# ── floors ──


def test_a_floor_is_learned_while_nobody_holds_the_gpu() -> None:
    assert learn_floor(read(used=87), [holder(B)], sees_all=True) == 87


def test_a_floor_is_never_learned_while_a_holder_exists() -> None:
    assert learn_floor(read(used=87), [holder(A)], sees_all=True) is None


def test_an_orphans_70_gib_are_no_floor_even_if_nobody_is_seen() -> None:
    assert learn_floor(read(used=70 * GIB), [], sees_all=True) is None
    assert learn_floor(read(used=1024), [], sees_all=True) == 1024
    assert learn_floor(read(used=1025), [], sees_all=True) is None


def test_where_holders_may_hide_a_floor_is_at_most_128_mib() -> None:
    assert learn_floor(read(used=128), [], sees_all=False) == 128
    assert learn_floor(read(used=129), [], sees_all=False) is None


def test_no_floor_is_learned_from_a_gpu_that_cannot_be_read() -> None:
    assert learn_floors([lost(A), read(B, used=5)], [], sees_all=True) == {B: 5}


def test_a_floor_is_not_learned_from_memory_that_still_drains() -> None:
    watch = watched(read(at=10.0, used=900), read(at=11.0, used=800))
    assert watch.learned(12.0, [], sees_all=True) is watch
    assert watch.learned(14.0, [], sees_all=True).floors == {A: 800}
    assert watch.learned(14.0, [holder(A)], sees_all=True).floors == {}


def test_a_floor_is_not_learned_while_members_are_left() -> None:
    watch = watched(read(at=10.0, used=800)).seen([], members_left=True)
    assert watch.learned(14.0, [], sees_all=True) is watch


def test_a_floor_that_is_known_stays() -> None:
    assert watched(read(at=10.0, used=80), floors={A: 0.0}).learned(14.0, [], sees_all=True).floors == {A: 0.0}


def test_readings_after_the_floor_was_learned_are_judged_by_it() -> None:
    watch = watched(read(at=10.0, used=800)).learned(13.0, [], sees_all=True)
    assert watch.seen([read(at=13.1, used=800)], members_left=False).verified(13.2, stable_for_s=0.0)


# ── over time ──


def test_zero_must_hold_for_stable_for() -> None:
    watch = watched(read(at=10.0), read(at=11.9))
    assert not watch.verified(12.0, stable_for_s=2.0)
    assert watched(read(at=10.0), read(at=11.9), read(at=12.0)).verified(12.0, stable_for_s=2.0)


def test_the_first_launch_needs_one_such_reading() -> None:
    assert watched(read(at=10.0)).verified(10.1, stable_for_s=0.0)
    assert not watched().verified(10.1, stable_for_s=0.0)


def test_one_rebound_restarts_the_stability_clock() -> None:
    rebound = watched(read(at=10.0), read(at=11.0, used=9000), read(at=11.5), read(at=13.0))
    assert not rebound.verified(13.0, stable_for_s=2.0)
    assert rebound.seen([read(at=13.5)], members_left=False).verified(13.5, stable_for_s=2.0)


def test_a_gpu_that_answers_no_more_restarts_the_stability_clock() -> None:
    watch = watched(read(at=10.0), lost(at=11.0), read(at=11.5), read(at=12.5))
    assert not watch.verified(12.5, stable_for_s=2.0)


def test_an_overdue_reading_of_the_same_moment_replaces_the_good_one() -> None:
    assert not watched(read(at=10.0), lost(at=10.0)).verified(10.0, stable_for_s=0.0)
    assert not watched(lost(at=10.0), read(at=10.0)).verified(10.0, stable_for_s=0.0)


def test_an_older_reading_never_replaces_a_newer_one() -> None:
    assert not watched(lost(at=10.0), read(at=9.0)).verified(10.0, stable_for_s=0.0)


def test_all_gpus_must_be_empty_at_the_same_time() -> None:
    watch = watched((read(A, at=10.0), read(B, at=10.0, used=500)), (read(A, at=12.0), read(B, at=12.0)), of=(A, B))
    assert not watch.verified(12.0, stable_for_s=2.0)
    assert watch.seen([read(A, at=14.0), read(B, at=14.0)], members_left=False).verified(14.0, stable_for_s=2.0)


def test_a_stale_reading_says_nothing_about_now() -> None:
    assert not watched(read(at=10.0), read(at=12.0)).verified(20.0, stable_for_s=2.0)


def test_the_same_reading_taken_twice_is_one_reading() -> None:
    assert not watched(read(at=10.0), read(at=10.0)).verified(13.0, stable_for_s=2.0)


def test_a_reading_from_before_does_not_count() -> None:
    assert not watched(read(at=9.9), from_boot_s=10.0).verified(10.0, stable_for_s=0.0)
    assert watched(read(at=10.0), from_boot_s=10.0).verified(10.0, stable_for_s=0.0)


def test_while_members_are_left_nothing_is_verified_and_the_clock_stands() -> None:
    watch = ZeroWatch(of=(A,)).seen([read(at=10.0)], members_left=True)
    assert not watch.verified(12.0, stable_for_s=0.0)
    assert watch.why_not() == "processes of the run are left"
    assert not watch.seen([read(at=11.0)], members_left=False).verified(11.0, stable_for_s=1.0)


def test_a_run_without_gpus_is_verified_when_no_member_is_left() -> None:
    assert ZeroWatch(of=()).verified(0.0, stable_for_s=2.0)
    assert not ZeroWatch(of=()).seen([], members_left=True).verified(0.0, stable_for_s=2.0)


def test_once_v2_answered_a_v1_reading_restarts_the_clock() -> None:
    assert not watched(read(at=10.0), read(at=11.0, v2=False)).verified(11.0, stable_for_s=0.0)
    assert watched(read(at=10.0, v2=False)).verified(10.0, stable_for_s=0.0)


def test_the_gpus_of_others_are_not_watched() -> None:
    assert watched(read(B, used=9000, at=10.0), of=(A,)).last == {}


@given(
    st.lists(
        st.one_of(
            st.builds(lambda at, used: read(at=at, used=used), st.floats(0, 20), st.sampled_from([0.0, 40.0, 9000.0])),
            st.builds(lambda at: lost(at=at), st.floats(0, 20)),
        ),
        max_size=12,
    )
)
def test_whatever_was_read_verified_means_the_newest_reading_was_empty(seen: list[GpuSeen]) -> None:
    watch = watched(*seen)
    if watch.verified(20.0, stable_for_s=0.0):
        newest = max((each for each in seen), key=lambda each: each.began_boot_s)
        assert any(
            isinstance(each, Reading) and each.used_mib <= 64
            for each in seen
            if each.began_boot_s == newest.began_boot_s
        )


# ── what is told ──


def test_memory_is_steady_since_it_last_moved() -> None:
    assert watched(read(at=10.0, used=900), read(at=12.0, used=910)).steady_for_s(15.0) == 5.0
    assert watched(read(at=10.0, used=900), read(at=12.0, used=500)).steady_for_s(15.0) == 3.0


def test_memory_that_cannot_be_read_is_not_steady() -> None:
    assert watched(read(at=10.0), lost(at=11.0)).steady_for_s(15.0) == 0.0
    assert ZeroWatch(of=()).steady_for_s(15.0) == 0.0


def test_used_memory_stands_in_the_runs_order_and_the_unread_is_none() -> None:
    assert watched(read(B, at=1.0, used=5), lost(A, at=1.0), of=(B, A, "GPU-c")).used_mib() == (5, None, None)


def test_what_stands_against_zero_is_told() -> None:
    assert watched(of=(A,)).why_not() == "GPU GPU-a has not been read yet"
    assert watched(lost(at=1.0)).why_not() == "GPU 0 cannot be read: GPU is lost"
    assert watched(lost(at=1.0, index=None)).why_not() == "GPU GPU-a cannot be read: GPU is lost"
    assert watched(read(at=1.0, used=900), floors={A: 87.0}).why_not() == "GPU 0: 900 MiB in use, its floor is 87 MiB"
    told = watched(read(at=1.0), read(at=2.0, v2=False)).why_not()
    assert told.startswith("GPU 0: only the older memory call answered")
    assert watched(read(at=1.0), read(B, at=1.0), of=(A, B)).why_not() == ""
