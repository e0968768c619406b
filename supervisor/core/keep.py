"""Arithmetic of `keep`: numbers, names, + - * / // % ** and brackets. Nothing else is evaluated."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Union

Number = Union[int, float]  # noqa: UP007  # a type alias is evaluated at run time on 3.10

LENGTH_MAX = 200  # characters of an expression: enough for any batch, too short to exhaust the parser
_POWER_MAX = 64  # exponent: `2 ** 64` is a batch nobody has; `9 ** 9 ** 9` would never end
_SIZE_MAX = 1e18  # magnitude: above it the number is not a batch

_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


class NotArithmetic(ValueError):
    """The expression is not one of `keep`, or has no value for these numbers. The message says why."""


def names(expression: str) -> tuple[str, ...]:
    """The names in an expression, each once, in order. Raises NotArithmetic."""
    found: dict[str, None] = {}
    _walk(_parse(expression), lambda name: found.setdefault(name) or 1, check_only=True)
    return tuple(found)


def evaluate(expression: str, values: Mapping[str, Number]) -> Number:
    """The expression's value. Raises NotArithmetic for an unknown name, a division by zero or a huge number."""

    def look_up(name: str) -> Number:
        if name not in values:
            raise NotArithmetic(f"{name} is not a number of this rung")
        return values[name]

    return _walk(_parse(expression), look_up, check_only=False)


def equal(left: Number, right: Number) -> bool:
    """Equal as a batch is: exactly for integers, to 1 part in 10^9 where a division made floats."""
    return left == right or math.isclose(left, right, rel_tol=1e-9)


def _parse(expression: str) -> ast.expr:
    if len(expression) > LENGTH_MAX:
        raise NotArithmetic(f"longer than {LENGTH_MAX} characters")
    try:
        return ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NotArithmetic(f"not arithmetic: {expression}") from None


def _walk(node: ast.expr, look_up: Callable[[str], Number], *, check_only: bool) -> Number:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as value):
            return _bounded(value)
        case ast.Name(id=name):
            return look_up(name)
        case ast.Attribute():
            return look_up(_dotted(node))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_walk(operand, look_up, check_only=check_only)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a = _walk(left, look_up, check_only=check_only)
            b = _walk(right, look_up, check_only=check_only)
            return 1 if check_only else _apply(op, a, b)
    raise NotArithmetic(f"{ast.unparse(node)}: only numbers, names, + - * / // % ** and brackets")


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{_dotted(value)}.{attr}"
    raise NotArithmetic(f"{ast.unparse(node)}: not a name")


def _apply(op: ast.operator, a: Number, b: Number) -> Number:
    if isinstance(op, ast.Pow) and (abs(b) > _POWER_MAX or (a < 0 and b != int(b))):
        raise NotArithmetic(f"{a} ** {b}: the exponent is too large or makes no real number")
    try:
        return _bounded(_BINARY[type(op)](a, b))
    except (ZeroDivisionError, OverflowError):
        raise NotArithmetic("a division by zero, or a number too large") from None


def _bounded(value: Number) -> Number:
    if not abs(value) <= _SIZE_MAX:
        raise NotArithmetic("a number too large")
    return value
