"""Expressions of a workflow, checked when its file is loaded: what does not parse is an error before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from resile.dialects.interpolate import names
from resile.errors import Diagnostic
from resile.model.rules import Origin, Transition
from resile.model.workflow import Step, Workflow

if TYPE_CHECKING:
    from resile.sandbox.evaluate import Sandbox


class Piece(NamedTuple):
    """One expression: what it is called, its code, and where it stands."""

    key: str
    code: str
    origin: Origin


def check_code(workflow: Workflow) -> list[Diagnostic]:
    """What is wrong with the expressions of a workflow; the sandbox is only started where there are any."""
    pieces = [piece for step in (*workflow.steps, workflow.end) for piece in pieces_of(step)]
    if not pieces:
        return []
    from resile.sandbox.evaluate import Sandbox

    sandbox = Sandbox()
    try:
        return [finding for piece in pieces if (finding := _finding(workflow, piece, sandbox)) is not None]
    finally:
        sandbox.close()


def _finding(workflow: Workflow, piece: Piece, sandbox: Sandbox) -> Diagnostic | None:
    """What is wrong with one expression."""
    if piece.key == "when":
        problem = sandbox.check_condition(piece.code, names(piece.code))
    elif piece.key == "transitions":
        problem = sandbox.check_syntax(piece.code, "expression")
    else:
        problem = sandbox.check_syntax(piece.code, "body")
    if problem is None:
        return None
    return Diagnostic(
        severity="error",
        code="expression",
        message=f"`{piece.key}` is not an expression that can run: {problem}",
        file=workflow.file,
        line=piece.origin.line,
        column=piece.origin.column,
        hint="it is JavaScript: " + piece.code.strip().partition("\n")[0][:80],
    )


def pieces_of(step: Step) -> Iterator[Piece]:
    """Every expression of a step and of its repairs."""
    if step.when is not None and step.when.language == "js":
        yield Piece("when", step.when.source, step.when.origin)
    for arc in step.arcs:
        if arc.when is not None and arc.when.language == "js":
            yield Piece("when", arc.when.source, arc.when.origin)
    for rule in step.rules:
        yield from _routing("", rule.target_js, rule.transitions, rule.origin)
        if rule.repair is not None:
            yield from _routing(rule.repair.calls_js, "", (), rule.origin)
            for inner in rule.repair.steps:
                yield from pieces_of(inner)
    if step.on_success is not None:
        actions = step.on_success
        yield from _routing(actions.calls_js, actions.target_js, actions.transitions, actions.origin)
        for inner in actions.steps:
            yield from pieces_of(inner)


def _routing(run: str, goto: str, transitions: tuple[Transition, ...], origin: Origin) -> Iterator[Piece]:
    """The expressions of one set of routing keys."""
    if run:
        yield Piece("run_js", run, origin)
    if goto:
        yield Piece("goto_js", goto, origin)
    for transition in transitions:
        yield Piece("transitions", transition.when, origin)
