"""Are the tests of `core/` able to fail? Small changes of its code, one at a time: a test must notice each.

    python -m benchmarks.mutants [--sample 300] [--seed 1] [--jobs 1] [--module fold]    (0: all of them)

Nothing is written into the tree: each mutant lives in a fork of its own (see `mutants_warm.py`). Only tests that reach
the changed line are run, the shortest first, up to the first that fails; an endless loop counts as noticed.
Not changed: docstrings, annotations, asserts and what is like one (`strict=True` of a zip), `assert_never`, words
of f-strings, decorators. No change is made twice (`if a == b` negated is `if a != b`).
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path

from coverage import CoverageData

from benchmarks.mutants_warm import DOUBTFUL, ENDLESS, KILLED, SURVIVED, Warm, imported_changed, warmed
from benchmarks.mutating import CORE, Mutant, mutants_of

ROOT = Path(__file__).parents[1]
TESTS = (
    "tests/core", "tests/scenarios", "tests/hangs/test_health_nights.py", "tests/environment/test_drift.py",
    "tests/checkpoints/test_lineage.py", "tests/checkpoints/test_lineage_properties.py", "tests/gpus/test_zero.py",
    "tests/signatures/test_rootcause.py", "tests/spec/test_guard.py", "tests/spec/test_keep.py",
    "tests/spec/test_launch_properties.py", "tests/spec/test_placing.py", "tests/spec/test_render.py",
    "tests/spec/test_scalars.py", "tests/output/test_stale_output.py",
)  # fmt: skip
NOTICED = (KILLED, ENDLESS)
FIRST = 60
"""Where a mutant has to be imported: so many of the likeliest tests are collected and tried before the others."""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: `killed`, `endless`, `survived`, `unreached`; `doubtful`: the tests did not run."""

    mutant: Mutant
    how: str
    took_s: float = 0.0


class Reached:
    """Which tests reach which line, and how long each takes: from runs with coverage, kept in `folder`."""

    def __init__(self, folder: Path, within_s: float = math.inf) -> None:
        self._within_s = within_s
        self.took: dict[str, float] = {}
        self._files: dict[str, dict[int, set[str]]] = {}
        for number, tests in enumerate((TESTS[:1], TESTS[1:2], TESTS[2:])):
            data, durations = folder / f"coverage-{number}", folder / f"durations-{number}.json"
            if not durations.exists():
                _cover(tests, data, durations)
            self.took |= json.loads(durations.read_text())
            found = CoverageData(str(data))
            found.read()
            for file in found.measured_files():  # now: in a fork it would begin anew, with an empty file
                known = self._files.setdefault(Path(file).stem, {})
                for line, contexts in found.contexts_by_lineno(file).items():
                    known.setdefault(line, set()).update(contexts)
            found.close()

    def tests(self, mutant: Mutant) -> tuple[list[str], bool]:
        """The tests that may notice, shortest first; and whether all that they reach runs in tests only.

        Those that reach the line. Where it runs at import anybody may notice: first those of the lines that use its
        name, then the module's, then all others.
        """
        lines = self._lines(mutant.module)
        names, only_in_tests = _names(lines.get(mutant.line, ())), "" not in lines.get(mutant.line, ("",))
        if names:
            return self._sorted(names), only_in_tests
        for module, line in users(mutant):
            names |= _names(self._lines(module).get(line, ()))
        of_the_module = _names(one for found in lines.values() for one in found) - names
        others = set(self.took) - names - of_the_module
        return self._sorted(names) + self._sorted(of_the_module) + self._sorted(others), only_in_tests

    def _sorted(self, names: set[str]) -> list[str]:
        found = sorted((name for name in names if name in self.took), key=lambda name: self.took[name])
        spent = list(accumulate(self.took[name] for name in found))
        return [name for name, so_far in zip(found, spent, strict=True) if so_far <= self._within_s]

    def _lines(self, module: str) -> dict[int, set[str]]:
        return self._files.get(module, {})


def _cover(tests: Sequence[str], data: Path, durations: Path) -> None:
    environ = {**os.environ, "COVERAGE_FILE": str(data), "MUTANTS_DURATIONS": str(durations)}
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    argv += ["--cov=supervisor/core", "--cov-context=test", "--cov-report=", "-p", "benchmarks.mutating"]
    done = subprocess.run([*argv, *tests], cwd=ROOT, env=environ, capture_output=True, text=True)
    if done.returncode:
        durations.unlink(missing_ok=True)
        raise SystemExit(f"the tests fail without any change:\n{done.stdout[-3000:]}{done.stderr[-2000:]}")


def _names(contexts: Iterable[str]) -> set[str]:
    return {each.rpartition("|")[0] or each for each in contexts} - {""}


def users(mutant: Mutant) -> Iterator[tuple[str, int]]:
    """The lines of the core that use the name (of a constant, a field) which the changed line gives a value."""
    name = ""
    for node in ast.walk(ast.parse((CORE / f"{mutant.module}.py").read_text())):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.lineno <= mutant.line <= (node.end_lineno or 0):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            name = target.id if isinstance(target, ast.Name) else name
    for path in sorted(CORE.glob("*.py")) if name else ():
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Name(id=used) | ast.Attribute(attr=used) if used == name:
                    yield path.stem, node.lineno


class Worker:
    """Tries its share of the mutants: first those that can be swapped, in a process with everything collected."""

    def __init__(self, number: int, reached: Reached, folder: Path, say: Callable[[Outcome], None]) -> None:
        self._reached, self._say = reached, say
        self._base, self._left = folder / f"base-{number}", folder / f"left-{number}"

    def work(self, share: list[Mutant]) -> None:
        child = os.fork()
        if child == 0:
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                warmed(TESTS, self._base, lambda warm: self._swapped(warm, share))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        left = json.loads(self._left.read_text())
        for mutant in share:
            if mutant.number in left.get(mutant.module, ()):
                self._imported(mutant)

    def _swapped(self, warm: Warm, share: list[Mutant]) -> None:
        left: dict[str, list[int]] = {}
        for mutant in share:
            began_s = time.monotonic()
            tests, only_in_tests = self._reached.tests(mutant)
            how = None
            if not tests:
                how = "unreached"
            elif only_in_tests:
                how = warm.tried(mutant.module, mutant.number, tests, self._reached.took)
            if how is None:
                left.setdefault(mutant.module, []).append(mutant.number)
            else:
                self._say(Outcome(mutant, how, time.monotonic() - began_s))
        self._left.write_text(json.dumps(left))

    def _imported(self, mutant: Mutant) -> None:
        began_s, how = time.monotonic(), SURVIVED
        tests, _ = self._reached.tests(mutant)
        took_s = sum(self._reached.took[name] for name in tests)
        for some in (tests[:FIRST], tests[FIRST:]):
            if some and how == SURVIVED:
                how = imported_changed(mutant.module, mutant.number, some, took_s, self._base)
        if how == DOUBTFUL:  # a test has another name now (its parameters are values of the module), or its file fails
            files = list(dict.fromkeys(name.partition("::")[0] for name in tests))
            how = imported_changed(mutant.module, mutant.number, files, took_s, self._base)
        self._say(Outcome(mutant, how, time.monotonic() - began_s))


def tried(chosen: list[Mutant], jobs: int, folder: Path, out: Path, reached: Reached) -> list[Outcome]:
    """All of them, side by side; survivors are printed as they are found."""
    real = os.dup(1)

    def say(outcome: Outcome) -> None:
        with open(out, "a") as file:
            file.write(
                json.dumps({**asdict(outcome.mutant), "how": outcome.how, "took_s": round(outcome.took_s, 2)}) + "\n"
            )
        if outcome.how not in (KILLED, ENDLESS):
            os.write(real, f"{outcome.how}: {outcome.mutant}\n".encode())

    children = []
    for number in range(jobs):
        child = os.fork()
        if child == 0:
            try:
                Worker(number, reached, folder, say).work(chosen[number::jobs])
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    if len(found) != len(chosen):
        raise SystemExit(f"{len(chosen)} mutants were to be tried and {len(found)} were")
    return [
        Outcome(Mutant(*(one[name] for name in ("module", "number", "line", "what"))), one["how"], one["took_s"])
        for one in found
    ]


def main(argv: list[str]) -> int:
    """Prints each survivor, then a table by module and the score."""
    asked = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    asked.add_argument("--sample", type=int, default=300, help="0: all")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--jobs", type=int, default=1)
    asked.add_argument("--module", action="append", help="of this module only; may be given again")
    asked.add_argument("--out", type=Path, help="outcomes as JSON lines; a file that does not exist yet")
    asked.add_argument("--again", type=Path, help="those of an earlier --out that nobody noticed")
    asked.add_argument("--reuse", type=Path, help="folder: which test reaches what is kept there, and taken from there")
    asked.add_argument("--within", type=float, default=math.inf, help="only tests that take so many seconds together")
    asked.add_argument("--control", action="store_true", help="change nothing: do all tests pass in a fork?")
    asked.add_argument("--list", action="store_true", help="only count them")
    given = asked.parse_args(argv)
    modules = sorted(path.stem for path in CORE.glob("*.py") if not given.module or path.stem in given.module)
    all_of_them = [mutant for module in modules for mutant in mutants_of(module)]
    print(f"{len(all_of_them)} mutants in {len(modules)} modules", flush=True)
    if given.list:
        return 0
    chosen = all_of_them
    if given.again:
        unnoticed = [one for one in map(json.loads, given.again.read_text().splitlines()) if one["how"] not in NOTICED]
        wanted = {(one["module"], one["line"], one["what"]) for one in unnoticed}
        chosen = [one for one in all_of_them if (one.module, one.line, one.what) in wanted]
    elif given.sample and given.sample < len(all_of_them):
        chosen = random.Random(given.seed).sample(all_of_them, given.sample)
    with tempfile.TemporaryDirectory(prefix="supervise-mutants-") as name:
        folder = Path(name)
        if given.reuse:
            given.reuse.mkdir(parents=True, exist_ok=True)
        if given.control:
            warmed(TESTS, folder / "base", lambda warm: print(f"\nunchanged: {warm.unchanged({})}", flush=True))
            return 0
        reached = Reached(given.reuse or folder, given.within)
        _tell(tried(chosen, given.jobs, folder, given.out or folder / "out", reached))
    return 0


def _tell(outcomes: list[Outcome]) -> None:
    by_module = Counter(one.mutant.module for one in outcomes)
    noticed = Counter(one.mutant.module for one in outcomes if one.how in NOTICED)
    for module, count in sorted(by_module.items()):
        print(f"{module:16} {noticed[module]:4} of {count:4}")
    total = sum(noticed.values())
    how = Counter(one.how for one in outcomes)
    took_s = sum(one.took_s for one in outcomes)
    low, high = wilson(total, len(outcomes))
    share = f"{100 * total / len(outcomes):.1f} % ({100 * low:.1f} to {100 * high:.1f})"
    print(f"noticed {total} of {len(outcomes)}: {share}; {dict(how)}; {took_s:.0f} s")


def wilson(hits: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a share, for 95 %."""
    share, more = hits / of, z * z / of
    middle = share + more / 2
    wide = z * math.sqrt(share * (1 - share) / of + more / (4 * of))
    return (middle - wide) / (1 + more), (middle + wide) / (1 + more)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
