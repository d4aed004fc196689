"""Conditions and values as Polars expressions.

Polars alone evaluates conditions on columns and constants. Everything else is evaluated in steps,
each only for the rows that need it (steps.py).
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain
from typing import Any

import polars as pl

from protocols.algebra import expressions as ex
from protocols.algebra.expressions_reference import compared, is_among, negated
from protocols.algebra.functions import FUNCTIONS
from protocols.algebra.steps import (
    Applied,
    Case,
    Constant,
    Decided,
    Input,
    Step,
    is_null,
    to_expression,
)
from protocols.algebra.types import BOOLEAN, ColumnType
from protocols.errors import NoValue


def to_polars(condition: ex.Condition) -> pl.Expr:
    """The same truth value as a Polars expression."""
    if _is_plain(condition):
        return _plainly(condition)
    return _stepwise(condition, BOOLEAN)


def value_to_polars(expression: ex.Expression) -> pl.Expr:
    """This value as a Polars expression; one that uses no column gives a single value."""
    match expression:
        case ex.Column(name):
            return pl.col(name)
        case ex.Truth(condition):
            return to_polars(condition)
        case ex.Literal(_, type_) | ex.Call(_, _, type_) | ex.Case(_, _, type_):
            return _stepwise(expression, type_)


def _is_plain(condition: ex.Condition) -> bool:
    """Whether it has only columns and constants, so that Polars alone can evaluate it."""
    match condition:
        case ex.Comparison(left, _, right):
            sides = left, right
            return any(isinstance(side, ex.Column) for side in sides) and all(
                isinstance(side, ex.Column | ex.Literal) for side in sides
            )
        case ex.In(operand) | ex.IsNull(operand) | ex.IsTrue(operand):
            return isinstance(operand, ex.Column)
        case ex.Not(inner):
            return _is_plain(inner)
        case ex.And(parts) | ex.Or(parts):
            return all(map(_is_plain, parts))


def _plainly(condition: ex.Condition) -> pl.Expr:
    match condition:
        case ex.Comparison(left, op, right):
            comparison: pl.Expr = ex.COMPARISONS[op](_side(left), _side(right))
            return comparison
        case ex.In(operand, values, type_):
            return _side(operand).is_in(_collected(values, type_)) | pl.lit(_unknown_among(values))
        case ex.IsNull(operand):
            return _side(operand).is_null()
        case ex.IsTrue(operand):
            return _side(operand)
        case ex.Not(inner):
            return ~_plainly(inner)
        case ex.And(parts):
            return pl.all_horizontal(map(_plainly, parts))
        case ex.Or(parts):
            return pl.any_horizontal(map(_plainly, parts))


def _side(operand: ex.Expression) -> pl.Expr:
    if isinstance(operand, ex.Column):
        return pl.col(operand.name)
    assert isinstance(operand, ex.Literal)
    return pl.lit(operand.value, dtype=operand.type.dtype)


def _stepwise(what: ex.Condition | ex.Expression, type_: ColumnType) -> pl.Expr:
    made = _Steps()
    step = made.of(what)
    if isinstance(step, Constant):
        return pl.lit(step.value, dtype=type_.dtype)
    return to_expression(step, made.columns, type_.dtype)


class _Steps:
    """Makes the steps of conditions and values: one for equal parts, a constant for constant parts.

    A constant part that has no value stays a step, so that it fails only if it is needed.
    """

    def __init__(self) -> None:
        self.columns: list[str] = []
        self._made: dict[tuple[Hashable, ...], Step] = {}

    def of(self, what: ex.Condition | ex.Expression) -> Step:
        """The step that computes the value of an expression, or the truth value of a condition."""
        match what:
            case ex.Column(name):
                return self._input(name)
            case ex.Literal(constant, type_):
                return self._constant(constant, type_)
            case ex.Truth(inner) | ex.IsTrue(inner):
                return self.of(inner)
            case ex.And(parts):
                return self._decided(False, parts)
            case ex.Or(parts):
                return self._decided(True, parts)
            case ex.Case():
                return self._chosen(what)
            case ex.Call():
                return self._called(what)
            case ex.Comparison(left, op, right):
                return self._applied(
                    (op,),
                    (self.of(left), self.of(right)),
                    lambda *sides: compared(op, *sides),
                    lambda sides: ex.COMPARISONS[op](*sides),
                )
            case ex.In():
                return self._listed(what)
            case ex.IsNull(operand):
                return self._applied(
                    ("is null",),
                    (self.of(operand),),
                    lambda found: found is None,
                    lambda columns: is_null(columns[0]),
                )
            case ex.Not(inner):
                return self._applied(
                    ("not",), (self.of(inner),), negated, lambda truths: ~truths[0]
                )

    def _input(self, name: str) -> Step:
        if name not in self.columns:
            self.columns.append(name)
        return self._once(("column", name), lambda: Input(False, self.columns.index(name)))

    def _constant(self, constant: Any, type_: ColumnType) -> Step:
        # -0.0 equals 0.0, but is a different constant.
        key = ("constant", type_, repr(constant))
        return self._once(key, lambda: Constant(False, constant, type_))

    def _listed(self, among: ex.In) -> Step:
        values, type_ = among.values, among.type
        collected, unknown = _collected(values, type_), _unknown_among(values)
        return self._applied(
            ("in", type_, *map(repr, values)),
            (self.of(among.operand),),
            lambda wanted: is_among(wanted, values),
            lambda columns: columns[0].is_in(collected) | unknown,
        )

    def _called(self, call: ex.Call) -> Step:
        function, type_ = FUNCTIONS[call.function], call.type
        operands = tuple(map(self.of, call.arguments))
        known = [each.value if isinstance(each, Constant) else ... for each in operands]
        return self._applied(
            (call.function, type_),
            operands,
            lambda *values: function.of(type_, values),
            lambda columns: function.of_columns(type_, columns),
            type_,
            fails=not function.never_fails(type_, known),
        )

    def _applied(
        self,
        name: tuple[Hashable, ...],
        operands: tuple[Step, ...],
        of_values: Callable[..., Any],
        of_columns: Callable[[Sequence[pl.Series]], pl.Series],
        type_: ColumnType = BOOLEAN,
        fails: bool = False,
    ) -> Step:
        """A function of other steps, given for values and for columns."""
        constants = [each.value for each in operands if isinstance(each, Constant)]
        if len(constants) == len(operands):
            try:
                return self._constant(of_values(*constants), type_)
            except NoValue:
                pass
        may_fail = fails or any(each.may_fail for each in operands)
        return self._once(
            (*name, *operands), lambda: Applied(may_fail, operands, of_columns, fails)
        )

    def _decided(self, deciding: bool, parts: Iterable[ex.Condition]) -> Step:
        steps: list[Step] = []
        for step in map(self.of, parts):
            if not isinstance(step, Constant) or step.value is None:
                steps.append(step)
            elif step.value is deciding:
                # No part after it is needed; the parts before it only if one of them may fail.
                steps = [*steps, step] if any(each.may_fail for each in steps) else [step]
                break
        needed = tuple(dict.fromkeys(steps))
        if len(needed) < 2:
            return needed[0] if needed else self._constant(not deciding, BOOLEAN)
        may_fail = any(each.may_fail for each in needed)
        return self._once(
            ("decided", deciding, *needed), lambda: Decided(may_fail, deciding, needed)
        )

    def _chosen(self, case: ex.Case) -> Step:
        branches: list[tuple[Step, Step]] = []
        default = case.default
        for condition, then in case.branches:
            test = self.of(condition)
            if not isinstance(test, Constant):
                branches.append((test, self.of(then)))
            elif test.value:
                default = then
                break
        last = self.of(default)
        if not branches:
            return last
        may_fail = any(each.may_fail for each in (last, *chain.from_iterable(branches)))
        return self._once(
            ("case", case.type, *branches, last),
            lambda: Case(may_fail, tuple(branches), last, case.type),
        )

    def _once(self, key: tuple[Hashable, ...], make: Callable[[], Step]) -> Step:
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = make()
        return found


def _collected(values: Iterable[Any], type_: ColumnType) -> pl.Series:
    """The values other than NULL, as one list."""
    there = [each for each in values if each is not None]
    return pl.Series(there, dtype=type_.dtype).implode()


def _unknown_among(values: Iterable[Any]) -> pl.Series:
    """NULL if NULL is among the values, else false: ORed to the test it makes false unknown."""
    return pl.Series([None if None in values else False], dtype=pl.Boolean)
