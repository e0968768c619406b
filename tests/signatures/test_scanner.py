"""The scanner: what it reports depends on the bytes alone, not on how they arrive; memory and time stay bounded."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path

import pytest

from supervisor.core.evidence import Hit, WatchHit
from supervisor.core.kinds import Kind
from supervisor.core.spec import Signature
from supervisor.signatures import Matcher, Scanner
from supervisor.signatures.scanner import LINE_CAP

LOGS = Path(__file__).with_name("failure_logs")
OOM = b"RuntimeError: CUDA error: out of memory\n"
TORCH = (
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.74 GiB. GPU 5 has a total capacity of 94.97 GiB "
    b"of which 4.57 GiB is free. Of the allocated memory 83.92 GiB is allocated by PyTorch, and 1.66 GiB is reserved "
    b"by PyTorch but unallocated.\n"
)


@pytest.fixture(scope="module")
def matcher():
    return Matcher(watch={"progress": r"^.*step (?P<step>\d+)\b", "done": "all done"})


@pytest.fixture(scope="module", params=[False, True], ids=["re2", "hyperscan"])
def any_matcher(request):
    return Matcher(bulk=request.param)


def read(matcher, data, cuts=(), idle=False):
    scanner = Scanner(matcher, "f")
    found = []
    for begin, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        found += scanner.feed(data[begin:end])
        if idle:
            found += scanner.idle()
    return found + scanner.end()


def hits(found):
    return [hit for hit in found if isinstance(hit, Hit)]


def all_logs():
    return b"\n".join(path.read_bytes() for path in sorted(LOGS.glob("*.log")))


@pytest.mark.parametrize("seed", range(6))
def test_hits_do_not_depend_on_how_the_bytes_arrive(any_matcher, seed):
    data = all_logs()
    rng = random.Random(seed)
    whole = read(any_matcher, data)
    cuts = sorted(rng.sample(range(1, len(data)), 1 + 3 ** (seed + 1)))
    assert [(hit.signature, hit.line, hit.offset, hit.text) for hit in read(any_matcher, data, cuts)] == [
        (hit.signature, hit.line, hit.offset, hit.text) for hit in whole
    ]
    assert len(whole) > 100


def test_both_automata_find_the_same():
    data = all_logs()
    assert read(Matcher(bulk=True), data) == read(Matcher(), data)


def test_looking_at_an_unfinished_line_reports_nothing_twice(matcher):
    data = b"step 1\n" + TORCH + b"step 2\n" + OOM + b"tail"
    rng = random.Random(5)
    for _ in range(50):
        cuts = sorted(rng.sample(range(1, len(data)), 8))
        found = read(matcher, data, cuts, idle=True)
        keys = [(hit.signature, hit.offset) for hit in hits(found)]
        assert len(keys) == len(set(keys))
        assert ("cuda_call_oom", data.index(OOM)) in keys


def test_line_and_offset_are_those_of_the_raw_bytes(matcher):
    data = b"a\r\nb\x1b[31mc\x1b[0m\r50%\rd\n\0\0\x1b[1mRuntimeError: CUDA \x1b[0merror: out of memory\nx\n" + OOM
    first, second = hits(read(matcher, data))
    assert (first.line, first.offset) == (3, data.index(b"\0\0"))
    assert (second.line, second.offset) == (5, data.index(OOM))
    assert first.text == "RuntimeError: CUDA error: out of memory"


def test_a_failure_behind_a_progress_bar_without_line_feed_is_found_when_idle(matcher):
    scanner = Scanner(matcher, "f")
    assert scanner.feed(b"\r 1%|   | 1/100\r 2%|   | 2/100\r" + OOM[:-1]) == []
    (hit,) = hits(scanner.idle())
    assert hit.kind is Kind.GPU_OOM
    assert hits(scanner.idle()) == []
    assert hits(scanner.feed(b"\n")) == []


def test_a_wrapped_message_waits_for_its_end_and_is_whole(matcher):
    scanner = Scanner(matcher, "f")
    half = TORCH.index(b"of which")
    assert scanner.feed(TORCH[:half] + b"\n") == []
    (hit,) = hits(scanner.feed(TORCH[half:]))
    assert (hit.free_mib, hit.gpu, hit.line) == (4679.68, 5, 1)


def test_a_message_whose_end_never_comes_is_reported_when_idle(matcher):
    scanner = Scanner(matcher, "f")
    scanner.feed(TORCH[: TORCH.index(b"of which")] + b"\n")
    (hit,) = hits(scanner.idle())
    assert (hit.tried_mib, hit.free_mib) == (4853.76, None)
    assert hits(scanner.end()) == []


def test_messages_of_two_ranks_that_interleave_keep_their_own_figures(matcher):
    lines = [b"[rank%d]: " + TORCH for _ in range(2)]
    one = b"[rank1]: torch.OutOfMemoryError: Allocation on device 1 would exceed allowed memory. (out of memory)\n"
    two = one.replace(b"rank1", b"rank2").replace(b"device 1", b"device 2")
    data = one + two + b"[rank1]: Requested               : 1.00 GiB\n[rank2]: Requested               : 2.00 GiB\n"
    data += b"[rank2]: Free (according to CUDA): 64.00 MiB\n[rank1]: Free (according to CUDA): 32.00 MiB\n"
    first, second = hits(read(matcher, data))
    assert (first.gpu, first.tried_mib, first.free_mib) == (1, 1024.0, 32.0)
    assert (second.gpu, second.tried_mib, second.free_mib) == (2, 2048.0, 64.0)
    assert lines


def test_a_ten_megabyte_line_is_read_in_bounded_memory_and_searched_throughout(matcher):
    line = b"x" * 5_000_000 + b" RuntimeError: CUDA error: out of memory " + b"y" * 5_000_000 + b"\n" + OOM
    tracemalloc.start()
    scanner = Scanner(matcher, "f")
    found = []
    for at in range(0, len(line), 100_000):
        found += scanner.feed(line[at : at + 100_000])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(hit.line, hit.offset) for hit in hits(found)] == [(1, 0), (2, 10_000_041 + 1)]
    assert all(len(hit.text) <= 2000 for hit in hits(found))
    assert peak < 4 * LINE_CAP + 1_000_000


def test_a_long_line_in_many_small_pieces_costs_linear_time(matcher):
    scanner = Scanner(matcher, "f")
    found = []
    for _ in range(30_000):
        found += scanner.feed(b"NCCL NCCL NCCL NCCL NCCL " * 4)
    assert found == []
    assert len(scanner.unfinished) <= LINE_CAP + 4096


def test_invalid_utf8_and_nuls_do_not_hide_a_failure(matcher):
    data = b"\xff\xfe\0\0\xc3(" + OOM.replace(b"CUDA", b"CU\0DA") + b"\x80\x81\n"
    (hit,) = hits(read(matcher, data))
    assert hit.kind is Kind.GPU_OOM
    assert "\0" not in hit.text


def test_a_nul_hole_of_a_truncated_file_costs_nothing(matcher):
    (hit,) = hits(read(matcher, b"\0" * 500_000 + b"\n" + OOM))
    assert hit.line == 2


def test_lines_end_at_breaks_only_not_at_unicode_separators(matcher):
    data = "a\x0bb\x0cc\x1cd\u2028e\x85f\n".encode() + OOM
    (hit,) = hits(read(matcher, data))
    assert hit.line == 2


def test_state_goes_through_json_and_the_next_scanner_goes_on(matcher):
    data = b"step 1\n[mem] free=0.02GiB\nRuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED\nstep 3\n"
    for cut in range(len(data)):
        first = Scanner(matcher, "f")
        found = first.feed(data[:cut])
        saved = json.loads(json.dumps(first.state()))
        second = Scanner.resume(matcher, "f", saved)
        found += second.feed(data[saved["offset"] :]) + second.end()
        (hit,) = hits(found)
        assert (hit.kind, hit.free_mib, hit.line) == (Kind.GPU_OOM, 20.48, 3)
        assert [hit.groups["step"] for hit in found if isinstance(hit, WatchHit)] == ["1", "3"]


def test_what_an_idle_look_reported_is_not_reported_by_the_next_scanner(matcher):
    first = Scanner(matcher, "f")
    first.feed(OOM[:-1])
    assert len(first.idle()) == 1
    second = Scanner.resume(matcher, "f", first.state())
    assert second.feed(OOM) == []


def test_watched_lines_carry_their_groups_and_come_in_order(matcher):
    found = read(matcher, b"step 7\r\n" + OOM + b"rank 0 step 8\rall done\n")
    assert [type(hit).__name__ for hit in found] == ["WatchHit", "Hit", "WatchHit", "WatchHit"]
    assert [hit.groups for hit in found if isinstance(hit, WatchHit)] == [{"step": "7"}, {"step": "8"}, {}]
    assert [hit.line for hit in found] == [1, 2, 3, 3]


def test_a_burst_of_watched_lines_is_thinned_but_its_first_and_last_stay(matcher):
    data = b"".join(b"step %d\n" % n for n in range(100_000))
    found = read(matcher, data)
    numbers = [int(hit.groups["step"]) for hit in found]
    assert numbers[0] == 0
    assert numbers[-1] == 99_999
    assert numbers == sorted(set(numbers))
    assert len(numbers) < 100


def test_lines_are_counted_on_demand_where_they_can_be_counted_again(matcher):
    data = b"a\nb\n" * 1000 + OOM + b"c\n" * 10 + OOM
    asked = []

    def recount(begin, end):
        asked.append((begin, end))
        return data[begin:end].count(b"\n")

    scanner = Scanner(matcher, "f", recount=recount)
    found = [hit for at in range(0, len(data), 97) for hit in scanner.feed(data[at : at + 97])] + scanner.end()
    assert [hit.line for hit in hits(found)] == [2001, 2012]
    assert len(asked) <= 4


def test_what_is_never_a_cause_is_told_to_judges_of_whole_files_only(matcher):
    data = b"RuntimeError: Engine core initialization failed. See root cause above.\n"
    assert read(matcher, data) == []
    judge = Scanner(matcher, "f", whole_file=True)
    assert [hit.signature for hit in judge.feed(data)] == ["engine_wrapper"]


def test_a_text_that_must_be_repeated_is_told_from_that_repetition_on(matcher):
    line = b"No available shared memory broadcast block found in 60 seconds.\n"
    scanner = Scanner(matcher, "f")
    told = []
    for _ in range(4):
        scanner.feed(line[:-1])
        told.append(len(scanner.idle() + scanner.feed(b"\n")))
    assert told == [0, 0, 1, 1]
    scanner.feed(b"other\n" * 1000)
    assert scanner.feed(line) == []


def test_users_signatures_are_part_of_the_catalogue():
    mine = Signature(name="ours", kind=Kind.DATA_ERROR, match=r"^shard (?P<rank>\d+) rotten$")
    for bulk in (False, True):
        (hit,) = read(Matcher([mine], bulk=bulk), b"\rshard 12 rotten\rgoes on\n")
        assert (hit.signature, hit.kind, hit.rank) == ("ours", Kind.DATA_ERROR, 12)


@pytest.mark.parametrize("pattern", [r"(a)\1", r"(?=x)y", "(", r"(?P<a"])
def test_a_pattern_that_is_not_linear_is_refused_by_name(pattern):
    with pytest.raises(ValueError, match="not a linear-time pattern"):
        Matcher([Signature(name="bad", kind=Kind.EXIT, match=pattern)])
    with pytest.raises(ValueError, match="not a linear-time pattern"):
        Matcher(watch={"progress": pattern})


def test_a_container_engines_records_read_like_the_lines_that_they_wrap(any_matcher):
    plain = [
        "Traceback (most recent call last):",
        '  File "t.py", line 3, in f',
        "KeyError: 'a\\b'",
        "\x1b[31mKilled\x1b[0m",
    ]
    spaced = [json.dumps({"log": f"{line}\r\n", "stream": "stderr", "time": "2026-03-01T10:00:00Z"}) for line in plain]
    tight = [record.replace('": ', '":').replace(', "', ',"') for record in spaced]
    for records in (spaced, tight):
        scanner = Scanner(any_matcher, "f")
        found = scanner.feed("".join(f"{record}\n" for record in records).encode()) + scanner.end()
        told = [(hit.kind, hit.line, hit.offset, hit.text) for hit in found if isinstance(hit, Hit)]
        begin = [sum(len(record) + 1 for record in records[:number]) for number in (2, 3)]
        assert told == [
            (Kind.CODE_ERROR, 3, begin[0], "KeyError: 'a\\b'"),
            (Kind.KILLED, 4, begin[1], "Killed"),
        ]


def test_a_record_without_an_end_is_read_once(any_matcher):
    line = b'{"log":"' + b'\\n","stream' * 100_000
    scanner = Scanner(any_matcher, "f")
    assert scanner.feed(line) + scanner.end() == []
