"""A process that has imported and collected everything once and forks for each mutant. It chooses no tests.

Rule 1: a mutant inside a function that ran in tests only is that function with other code, in a fork of the collected
tests (`swapped`): tens of milliseconds. Any other (a constant, a default, what runs at import) is imported changed, in
a fork that has pytest and the libraries but nothing of ours.
Rule 2: a fork ends at the first test that fails. An endless loop is ended by the CPU time it takes, not by a clock.
"""

from __future__ import annotations

import gc
import inspect
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import hypothesis
import hypothesis.stateful
import msgspec
import pydantic
import pytest
import yaml

from benchmarks.mutating import CORE, Finder, mutated, unchanged

PRELOADED = (hypothesis.stateful, msgspec, pydantic, yaml)
LIMIT_S = 300.0
MEMORY_BYTES = 6 << 30
CPU_S, CPU_TIMES = 10.0, 20.0
"""CPU seconds that a test may take: so many, and so many times what it took unchanged."""

SURVIVED, KILLED, DOUBTFUL, ENDLESS = "survived", "killed", "doubtful", "endless"
_HOW = {0: SURVIVED, 1: KILLED, 2: KILLED}
"""pytest's exit codes: 2 is a module that cannot even be imported. Anything else says nothing about the mutant."""

_ARGV = ["-q", "-x", "-s", "-p", "no:cacheprovider", "-o", "timeout=0", "--hypothesis-seed=0", "-W", "ignore"]


def in_a_fork(work: Callable[[], int]) -> str:
    """What became of the work, which must end the process by its exit code."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            code = work()
        finally:
            os._exit(code)
    until_s = time.monotonic() + LIMIT_S
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > until_s:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return ENDLESS
        time.sleep(0.005)
    if os.WIFSIGNALED(status):
        return ENDLESS if os.WTERMSIG(status) == signal.SIGPROF else KILLED
    return _HOW.get(os.WEXITSTATUS(status), DOUBTFUL)


def _limited(seconds: float) -> None:
    """The process is ended once it has taken so much CPU time from now."""
    signal.setitimer(signal.ITIMER_PROF, CPU_S + CPU_TIMES * seconds)


def imported_changed(module: str, number: int, tests: Sequence[str], took_s: float, base: Path) -> str:
    """What the tests say of a module that is imported changed."""

    def work() -> int:
        assert f"supervisor.core.{module}" not in sys.modules
        sys.meta_path.insert(0, Finder(module, number))
        _limited(took_s)
        return int(pytest.main([*_ARGV, f"--basetemp={base}", "-p", "benchmarks.mutants_warm", *tests]))

    return in_a_fork(work)


def pytest_configure(config: Any) -> None:
    """Hypothesis neither shrinks nor remembers: that a test failed is enough."""
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile("mutants", database=None, phases=phases, print_blob=False)
    hypothesis.settings.load_profile("mutants")


class Warm:
    """A plugin: collects all tests, then, in place of running them, asks `work` with a runner of forks."""

    def __init__(self, work: Callable[[Warm], None]) -> None:
        self._work = work
        self._items: dict[str, pytest.Item] = {}
        self._functions: dict[str, list[FunctionType]] = {}
        self._in_child = False

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        self._functions = _functions()
        gc.collect()
        gc.freeze()
        self._work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._in_child and report.failed:
            os._exit(1)

    def tried(self, module: str, number: int, tests: Sequence[str], took: dict[str, float]) -> str | None:
        """What the tests say of this mutant; None where it has to be imported."""
        path = str(CORE / f"{module}.py")
        swaps = swapped(path, number, self._functions.get(path, []))
        if swaps is None:
            return None

        def work() -> int:
            for function, code in swaps:
                function.__code__ = code
            return self._run(tests, took)

        return in_a_fork(work)

    def unchanged(self, took: dict[str, float]) -> str:
        """What all tests say of a fork in which nothing was changed: they must pass there too."""
        return in_a_fork(lambda: self._run(list(self._items), took))

    def _run(self, tests: Sequence[str], took: dict[str, float]) -> int:
        self._in_child = True
        items = [self._items[name] for name in tests]
        for n, item in enumerate(items):
            _limited(took.get(item.nodeid, 0.0))
            following = items[n + 1] if n + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return 0


def warmed(tests: Sequence[str], base: Path, work: Callable[[Warm], None]) -> None:
    """Runs `work` in this process, with everything collected."""
    pytest.main([*_ARGV, f"--basetemp={base}", "-p", "benchmarks.mutants_warm", *tests], plugins=[Warm(work)])


def swapped(path: str, number: int, functions: list[FunctionType]) -> list[tuple[FunctionType, CodeType]] | None:
    """Functions of the imported module and the code each gets; None where the change is not (only) in functions."""
    found = []
    for old, new in _differing(unchanged(path), mutated(path, number)):
        if new is None:
            return None
        meant = [one for one in functions if one.__code__ == old]
        if not meant or len(old.co_freevars) != len(new.co_freevars):
            return None
        found += [(one, new) for one in meant]
    return found or None


def _functions() -> dict[str, list[FunctionType]]:
    """All that there are, by file."""
    found: dict[str, list[FunctionType]] = {}
    for one in gc.get_objects():
        if isinstance(one, FunctionType):
            found.setdefault(one.__code__.co_filename, []).append(one)
    return found


def _differing(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType | None]]:
    """The outermost functions whose code differs; None for the code of a module or a class itself."""
    if old == new:
        return
    if not _is_scope(old):
        yield old, new
        return
    olds = [one for one in old.co_consts if isinstance(one, CodeType)]
    news = [one for one in new.co_consts if isinstance(one, CodeType)]
    others = [[c for c in code.co_consts if not isinstance(c, CodeType)] for code in (old, new)]
    same = old.co_code == new.co_code and old.co_names == new.co_names and repr(others[0]) == repr(others[1])
    if not same or len(olds) != len(news):
        yield old, None
        return
    for one, other in zip(olds, news, strict=True):
        yield from _differing(one, other)


def _is_scope(code: CodeType) -> bool:
    """A module or the body of a class: it has run already."""
    return not code.co_flags & inspect.CO_NEWLOCALS
