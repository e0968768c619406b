"""Mutants of a core module, by number; and the pytest plugin that puts one into place of its module. Judges nothing.

`-p benchmarks.mutating` with MUTANT=module:number in the environment: the module is compiled with that one change when
it is imported. With MUTANTS_DURATIONS=FILE: how long each test took, as JSON.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

CORE = Path(__file__).parents[1] / "supervisor" / "core"
PACKAGE = "supervisor.core"

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Add,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.Pow: ast.Mult,
}  # fmt: skip
Change = Callable[[], None]


@dataclass(frozen=True)
class Mutant:
    """The `number`-th change of a module: where, and what is changed into what."""

    module: str
    number: int
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.module}.py:{self.line}: {self.what}"


def mutants_of(module: str) -> list[Mutant]:
    """All changes of this module, in the order of its text."""
    tree = ast.parse((CORE / f"{module}.py").read_text())
    return [Mutant(module, n, line, what) for n, (line, what, _) in enumerate(_changes(tree))]


def mutated(path: str, number: int) -> CodeType:
    """The module with that change."""
    tree = ast.parse(Path(path).read_text())
    for n, (_, _, change) in enumerate(_changes(tree)):
        if n == number:
            change()
            break
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def unchanged(path: str) -> CodeType:
    """The module as it stands."""
    return compile(ast.parse(Path(path).read_text()), path, "exec", dont_inherit=True)


def _changes(tree: ast.Module) -> Iterator[tuple[int, str, Change]]:
    for node in _worth_it(tree):
        yield from _of(node)


def _worth_it(node: ast.AST) -> Iterator[ast.AST]:
    """The node and those below it that decide something."""
    if isinstance(node, (ast.Assert, ast.Import, ast.ImportFrom)) or _is_typing(node) or _is_strict(node):
        return
    if isinstance(node, ast.JoinedStr):  # what is put into a text may decide something; the text itself does not
        for piece in node.values:
            if isinstance(piece, ast.FormattedValue):
                yield from _worth_it(piece.value)
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment", "bases", "keywords") and not isinstance(
            node, ast.Call
        ):
            continue
        body = value if isinstance(value, list) else [value]
        if name == "body" and isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and _is_text(body):
            body = body[1:]
        for child in body:
            if isinstance(child, ast.AST) and not (isinstance(child, ast.Expr) and _is_text([child])):
                yield from _worth_it(child)


def _is_text(body: list[Any]) -> bool:
    """A docstring, or the text below a constant."""
    first = body[0] if body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


def _is_typing(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return isinstance(node.value.func, ast.Name) and node.value.func.id == "assert_never"
    if isinstance(node, ast.Assign):  # aliases of types
        return isinstance(node.value, ast.Subscript) and isinstance(node.targets[0], ast.Name)
    return False


def _is_strict(node: ast.AST) -> bool:
    """`strict=True` of a zip: like an assert it speaks of what cannot be."""
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _is_flipped(test: ast.expr) -> bool:
    """Its own change is its negation: the same mutant twice would count twice."""
    match test:
        case ast.Compare(ops=[ast.Is() | ast.IsNot() | ast.Eq() | ast.NotEq() | ast.In() | ast.NotIn()]):
            return True
        case ast.UnaryOp(op=ast.Not()):
            return True
    return False


def _of(node: ast.AST) -> Iterator[tuple[int, str, Change]]:
    line = getattr(node, "lineno", 0)
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARE:
            new = _COMPARE[type(op)]
            yield line, f"{type(op).__name__} -> {new.__name__}", _set(node, "ops", [new()])
        case ast.BoolOp(op=op):
            other = ast.Or if isinstance(op, ast.And) else ast.And
            yield line, f"{type(op).__name__} -> {other.__name__}", _set(node, "op", other())
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
            made = _ARITHMETIC[type(op)]
            yield line, f"{type(op).__name__} -> {made.__name__}", _set(node, "op", made())
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not _is_flipped(test):
            yield line, f"if {ast.unparse(test)[:60]} -> if not", _set(node, "test", _negated(test))
        case ast.match_case(guard=ast.expr() as guard) if not _is_flipped(guard):
            yield guard.lineno, f"case if {ast.unparse(guard)[:60]} -> if not", _set(node, "guard", _negated(guard))
        case ast.comprehension(ifs=[test, *_]) if not _is_flipped(test):
            yield (
                test.lineno,
                f"for if {ast.unparse(test)[:60]} -> if not",
                _set(node, "ifs", [_negated(test), *node.ifs[1:]]),
            )
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield line, "not dropped", _set(node, "operand", ast.UnaryOp(op=ast.Not(), operand=operand))
        case ast.Constant(value=bool() as value):
            yield line, f"{value} -> {not value}", _set(node, "value", not value)
        case ast.Constant(value=int() | float() as value):
            yield line, f"{value} -> {value + 1}", _set(node, "value", value + 1)
        case ast.Constant(value=str() as value):
            yield line, f"{value[:40]!r} -> {('XX' + value)[:40]!r}", _set(node, "value", f"XX{value}")
        case ast.Return(value=ast.expr() as value) if not _is_nothing(value):
            yield line, f"return {ast.unparse(value)[:60]} -> None", _set(node, "value", ast.Constant(value=None))
        case ast.Continue():
            yield line, "continue -> break", lambda: setattr(node, "__class__", ast.Break)
        case ast.Break():
            yield line, "break -> continue", lambda: setattr(node, "__class__", ast.Continue)
        case ast.Call(func=ast.Name(id="min" | "max" | "any" | "all" as name)):
            other_name = {"min": "max", "max": "min", "any": "all", "all": "any"}[name]
            yield line, f"{name} -> {other_name}", _set(node, "func", ast.Name(id=other_name, ctx=ast.Load()))
        case ast.AugAssign(op=op) if type(op) in _ARITHMETIC:
            yield line, f"{type(op).__name__}= changed", _set(node, "op", _ARITHMETIC[type(op)]())
        case _:
            return


def _is_nothing(value: ast.expr) -> bool:
    """A constant, which is changed itself, or an empty literal: None in its place is a mistake of types."""
    return isinstance(value, ast.Constant) or ast.unparse(value) in ("()", "[]", "{}")


def _set(node: ast.AST, name: str, value: Any) -> Change:
    return lambda: setattr(node, name, value)


def _negated(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(op=ast.Not(), operand=test)


# ── the plugin ───────────────────────────────────────────────────────────────────────────────────────────────────────


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, number: int) -> None:
        super().__init__(fullname, path)
        self._number = number

    def get_code(self, fullname: str) -> CodeType:
        return mutated(self.path, self._number)


class Finder(MetaPathFinder):
    def __init__(self, module: str, number: int) -> None:
        self._fullname, self._number = f"{PACKAGE}.{module}", number

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != self._fullname:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None and spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self._number)
        return spec


def pytest_configure(config: Any) -> None:
    """Before any test is imported."""
    if wanted := os.environ.get("MUTANT"):
        module, _, number = wanted.partition(":")
        assert f"{PACKAGE}.{module}" not in sys.modules
        sys.meta_path.insert(0, Finder(module, int(number)))


_TOOK: dict[str, float] = {}


def pytest_runtest_logreport(report: Any) -> None:
    """Setup, call and teardown together."""
    _TOOK[report.nodeid] = _TOOK.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish() -> None:
    """Durations, where they are asked for."""
    if path := os.environ.get("MUTANTS_DURATIONS"):
        Path(path).write_text(json.dumps(_TOOK))
