"""The mutants of a file: every small change that cosmic-ray's operators can make to it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

# Operators that make real mistakes. The others compare by identity instead of by value, or replace an operator by
# each of a dozen others, and tell no more.
KEPT = (
    "core/AddNot",
    "core/NumberReplacer",
    "core/ReplaceAndWithOr",
    "core/ReplaceOrWithAnd",
    "core/ReplaceTrueWithFalse",
    "core/ReplaceFalseWithTrue",
    "core/ReplaceBreakWithContinue",
    "core/ReplaceContinueWithBreak",
    "core/ReplaceUnaryOperator_Delete_Not",
    "core/ZeroIterationForLoop",
    "core/ExceptionReplacer",
    *(
        f"core/ReplaceComparisonOperator_{change}"
        for change in ("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt")
    ),
    "core/ReplaceComparisonOperator_In_NotIn",
    "core/ReplaceComparisonOperator_NotIn_In",
    *(f"core/ReplaceBinaryOperator_{change}" for change in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "Mod_Mul")),
)

# A constant of a module that says how long something waits, or how much it takes at once.
DEGREE = re.compile(r"_?[A-Z_]*(SECONDS|BYTES|TICKS)[A-Z_, ]* = ")


class Mutant(NamedTuple):
    """One change: the `occurrence`-th place in a file where an operator can be applied."""

    path: str
    operator: str
    occurrence: int


def operators() -> dict[str, Any]:
    """The operators that are used, by name."""
    from cosmic_ray.plugins import get_operator, operator_names

    return {name: get_operator(name) for name in sorted(set(operator_names()) & set(KEPT))}


def mutants_of(root: Path, path: str) -> Iterator[Mutant]:
    """Every mutant of a file."""
    from cosmic_ray.ast import Visitor, get_ast

    tree = get_ast((root / path).read_text())

    class Counter(Visitor):  # type: ignore[misc]
        """Counts the places where an operator can be applied."""

        def __init__(self, operator: Any) -> None:
            self.operator = operator
            self.count = 0

        def visit(self, node: Any) -> Any:
            """Look at a node and leave it as it is."""
            self.count += len(list(self.operator.mutation_positions(node)))
            return node

    for name, operator in operators().items():
        counter = Counter(operator())
        counter.walk(tree)
        yield from (Mutant(path, name, occurrence) for occurrence in range(counter.count))


def mutate(code: str, mutant: Mutant) -> str | None:
    """The text of a file with the change made; None where it changes nothing."""
    from cosmic_ray.mutating import mutate_code

    try:
        changed: str | None = mutate_code(code, operators()[mutant.operator](), mutant.occurrence)
    except AttributeError:
        # cosmic-ray replaces an exception only where it is a plain name.
        return None
    if changed is None or changed == code or _is_the_same(code, changed):
        return None
    # A record that the garbage collector follows, or does not, behaves in the same way.
    if code.count("gc=False") != changed.count("gc=False"):
        return None
    # `strict=True` of zip only asserts that both have the same length.
    if code.count("strict=True") > changed.count("strict=True"):
        return None
    # cosmic-ray takes the `*` of keyword-only parameters for a product.
    return None if _positional_only_count(changed) > _positional_only_count(code) else changed


def is_degree(code: str, changed: str) -> bool:
    """Whether a change only makes a wait or a size a little different, which is a mistake only where it is promised."""
    lines = [pair for pair in zip(code.splitlines(), changed.splitlines(), strict=False) if pair[0] != pair[1]]
    return len(lines) == 1 and DEGREE.match(lines[0][0]) is not None


def _is_the_same(code: str, changed: str) -> bool:
    """Whether two texts do the same when they run; a text that is no Python never does."""
    try:
        return _what_runs(code) == _what_runs(changed)
    except SyntaxError:
        return True


def _positional_only_count(code: str) -> int:
    return sum(len(node.posonlyargs) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.arguments))


def _what_runs(code: str) -> str:
    """The code without what is for type checkers: signatures of protocols, and imports that only they need."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(bases=[ast.Name("Protocol")]):
                for member in node.body:
                    if isinstance(member, ast.FunctionDef):
                        member.args.defaults, member.args.kw_defaults = [], []
            case ast.If(test=ast.Name("TYPE_CHECKING") | ast.UnaryOp(operand=ast.Name("TYPE_CHECKING"))):
                node.test = ast.Constant(value=False)
    return ast.dump(tree)
