"""The catalogue: every entry matches its example, not its counterexample, and in time linear in the worst line."""

from __future__ import annotations

import re

import hypothesis
import pytest
from hypothesis import strategies

from supervisor.core.evidence import Hit, Weight
from supervisor.core.kinds import Kind
from supervisor.signatures import CATALOGUE, Matcher, Scanner
from supervisor.signatures.literals import required, split
from supervisor.signatures.marks import MARKS
from supervisor.signatures.matcher import _for_blocks
from supervisor.signatures.model import SIZE, mib

NAMES = [text.name for text in CATALOGUE]
#: Kinds that no text shows: they are concluded from silence, time or the spec.
CONCLUDED = {
    Kind.NONE,
    Kind.SILENT_GPU,
    Kind.STARTUP_TIMEOUT,
    Kind.LOST_PROGRESS,
    Kind.SLOW,
    Kind.PROTECTED_VIOLATION,
}


@pytest.fixture(scope="module")
def matcher():
    return Matcher()


def signatures(matcher, text):
    scanner = Scanner(matcher, "f", whole_file=True)
    found = scanner.feed(text.encode() + b"\n") + scanner.end()
    return [hit.signature for hit in found if isinstance(hit, Hit)]


@pytest.mark.parametrize("text", CATALOGUE, ids=NAMES)
def test_an_entry_finds_its_example_and_not_its_counterexample(text, matcher):
    if text.note:
        assert re.search(text.pattern, text.example)
        assert not re.search(text.pattern, text.other)
        return
    assert text.name in signatures(matcher, text.example)
    assert text.name not in signatures(matcher, text.other)


def test_every_kind_that_a_text_can_show_has_an_entry():
    shown = {text.kind for text in CATALOGUE} | {refine.kind for text in CATALOGUE for refine in text.refine}
    assert set(Kind) - CONCLUDED <= shown


def test_names_are_distinct_and_sources_given():
    assert len(NAMES) == len(set(NAMES))
    assert all(text.source and text.example and text.other for text in CATALOGUE)


def test_summaries_and_wrappers_are_not_causes():
    weights = {text.name: text.weight for text in CATALOGUE}
    assert weights["elastic_root"] is Weight.SUMMARY
    assert weights["engine_wrapper"] is Weight.WRAPPER
    assert weights["watchdog_timeout"] is Weight.AFTERMATH


@pytest.mark.parametrize("text", CATALOGUE, ids=NAMES)
def test_the_worst_line_of_a_pattern_is_read_through(text, matcher):
    # A megabyte of everything but the last word: backtracking engines need hours for some of these.
    piece = text.example[: max(8, len(text.example) - 8)].split("\n")[-1].encode()
    line = piece * (1_000_000 // len(piece)) + b"\n"
    scanner = Scanner(matcher, "f")
    assert len(scanner.feed(line) + scanner.end()) <= 20


@pytest.mark.parametrize("text", CATALOGUE, ids=NAMES)
def test_the_first_pass_misses_nothing_that_a_pattern_matches(text):
    texts, patterns = split(text.pattern)
    blocks = [re.compile(block, re.MULTILINE) for block in _for_blocks((text.pattern,))]
    assert texts or patterns

    @hypothesis.settings(max_examples=15, deadline=None, derandomize=True, database=None)
    @hypothesis.given(strategies.from_regex(text.pattern.encode()))
    def check(example):  # bytes, as the matcher sees them
        assert any(block.search(example) for block in blocks)

    check()


@pytest.mark.parametrize("pattern", [*(text.pattern for text in CATALOGUE), *MARKS.values(), SIZE])
def test_patterns_are_linear_and_mean_the_same_to_both_automata(pattern):
    assert Matcher(watch={"p": pattern}).watches
    re.compile(pattern)


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("out of memory", {"out of memory"}),
        ("(?:CUDA|HIP) error: out", {" error: out"}),
        ("foobar|bazqux", {"foobar", "bazqux"}),
        ("(?P<n>alpha|gamma)s*x?", {"alpha", "gamma"}),
        (r"a\.b\.c\.d\d+", {"a.b.c.d"}),
        ("[a-z]+|known", None),
        ("abcde{2}fghij", {"abcde", "fghij"}),
        ("abcdef*", {"abcde"}),
        ("(?i)anything", None),
        ("(?i:anything)", None),
        ("[^]x]abcd[]]", {"abcd"}),
        ("^start$", {"start"}),
        (r"\bword\b.", {"word"}),
        ("(open", None),
        ("close)", None),
        ("*", None),
        ("abcd\\", None),
        ("[abc", None),
        ("abcd{", None),
        ("ab", None),
    ],
)
def test_required_texts(pattern, texts):
    found = required(pattern)
    if texts is None:
        assert found is None
    else:
        assert found is not None
        assert found <= texts


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4.74GiB", 4853.76),
        ("972.00 KiB", 0.95),
        ("2432 bytes", 0.0),
        ("1.500000GB", 1536.0),
        ("912.500000MB", 912.5),
        ("21.91G", 22435.84),
        ("3,221,225,472 bytes", 3072.0),
        ("26102664396B", 24893.44),
        ("1.5TiB", 1572864.0),
        ("17179869184.00 GiB", None),
        ("17179869180.50 GiB", None),
        ("12 apples", None),
        ("none", None),
    ],
)
def test_sizes_in_all_spellings(text, size):
    assert mib(text) == size


def test_a_bare_number_has_the_unit_of_its_field():
    assert mib("1610612736", "b") == 1536.0
    assert mib("16.0", "gib") == 16384.0
    assert mib("12", "mib") == 12.0
