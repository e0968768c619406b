"""Any bytes at all are a spec or a list of mistakes, in bounded time, and nothing in them is ever run."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core.errors import SpecError
from supervisor.edges import specfile
from supervisor.edges.specfile.keys import KEYS

CONFIGS = Path(__file__).parents[2] / "configs"
WHOLE = [path.read_text(encoding="utf-8") for path in sorted(CONFIGS.glob("*.yaml"))]
SCRAPS = [
    "{",
    "}",
    "[",
    "]",
    ": ",
    "\n",
    "  ",
    "- ",
    "*a",
    "&a ",
    "${{",
    "}}",
    "!!x ",
    "|",
    "'",
    '"',
    "~",
    "0",
    "é",
    "\t",
]
WORDS = st.sampled_from(
    [*KEYS, "value", "ladder", "rungs", "from", "gpus", "set", "on", "do", "lower", "log", "a", "1"]
)
ANY = st.recursive(
    WORDS
    | st.integers(-5, 99999)
    | st.sampled_from(["5m", "2GiB", "${{ params.a }}", "gpu_oom", "relaunch", "(?P<step>x)"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=25,
)


def read(raw):
    """The spec, or None with at least one mistake that has a place."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.yaml")
        path.write_bytes(raw)
        try:
            return specfile.read(path, {})
        except SpecError as error:
            assert error.mistakes
            assert all(mistake.line >= 1 and mistake.col >= 1 and mistake.what for mistake in error.mistakes)
            return None


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes(raw):
    read(raw)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(WHOLE))
def test_any_damage_to_a_real_spec(data, text):
    at = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(at, min(len(text), at + 40)))
    scrap = "".join(data.draw(st.lists(st.sampled_from(SCRAPS), max_size=4)))
    file = read((text[:at] + scrap + text[end:]).encode())
    if file is not None:
        assert file.explain()


@settings(max_examples=250, deadline=None)
@given(st.dictionaries(st.sampled_from(list(KEYS)), ANY, max_size=8))
def test_any_values_under_the_keys_of_a_spec(tree):
    import json

    whole = {"version": 1, "name": "run", "command": ["a"], **tree}
    file = read(json.dumps(whole).encode())
    if file is not None:
        assert file.explain()
        assert file.unread or file.job_environment({}) is not None
