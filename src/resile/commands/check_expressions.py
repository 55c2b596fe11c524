"""Checks the expressions of a workflow when its file is loaded: a syntax error is reported before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from resile.errors import Diagnostic
from resile.languages.references import names
from resile.model.builtin_actions import Collect
from resile.model.limits import SCRIPT_BYTES_MAX
from resile.model.nested import workflows_within
from resile.model.rules import Origin, Transition
from resile.model.workflow import FanOut, Shell, Step, Workflow

if TYPE_CHECKING:
    from resile.languages.javascript.evaluate import Sandbox


_NATIVE_KEYS = ("when", "filter", "transitions", "run_js", "goto_js")
"""Keys of a native file whose code sees the same names; the code of other keys sees more."""


class Piece(NamedTuple):
    """One expression: its key, its code, and its position; if it is open, its data may provide unknown names."""

    key: str
    code: str
    origin: Origin
    is_open: bool = False


def check_code(workflow: Workflow) -> list[Diagnostic]:
    """The errors in the expressions of a workflow and its child workflows; starts the sandbox only if there are any."""
    steps = [(flow, step) for flow in workflows_within(workflow) for step in (*flow.steps, flow.end)]
    pieces = [(flow, piece) for flow, step in steps if _may_have_code(step) for piece in pieces_of(step)]
    if not pieces:
        return []
    from resile.languages.javascript.evaluate import Sandbox

    sandbox = Sandbox()
    try:
        found: list[Diagnostic] = []
        for flow, piece in pieces:
            finding = _finding(flow, piece, sandbox)
            if finding is not None:
                found.append(finding)
            elif not piece.is_open and (flow.templates == "liquid" or flow.condition_errors == "fail"):
                found += _names(flow, piece)
        return found
    finally:
        sandbox.close()


def _names(workflow: Workflow, piece: Piece) -> Iterator[Diagnostic]:
    """A warning for each name in code that nothing can provide."""
    from resile.dialects.reading.code_names import FILTER_NAMES, NATIVE_NAMES, VISOR_NAMES, unknown_names
    from resile.languages.javascript.evaluate import expand_values

    is_native = workflow.templates != "liquid"
    if is_native and piece.key not in _NATIVE_KEYS:
        return
    code = expand_values(piece.code, names(piece.code)) if is_native else piece.code
    variables = NATIVE_NAMES if is_native else VISOR_NAMES
    for name, hint in unknown_names(code, _steps_in(workflow), FILTER_NAMES if piece.key == "filter" else variables):
        yield Diagnostic(
            severity="warning",
            code="unknown-name",
            message=f"{_subject_of(piece)} names `{name}`, which nothing provides",
            file=piece.origin.file or workflow.file,
            line=piece.origin.line,
            column=piece.origin.column,
            hint=hint,
        )


def _steps_in(workflow: Workflow) -> frozenset[str]:
    """The names of all steps of a workflow, of the outputs that it collects, and the other names for them."""
    found: set[str] = set()
    work = [*workflow.steps, workflow.end]
    while work:
        step = work.pop()
        found |= {step.name, *step.aliases}
        work += [inner for rule in step.rules if rule.repair is not None for inner in rule.repair.steps]
        work += step.on_success.steps if step.on_success is not None else ()
        if isinstance(step.action, FanOut):
            work += step.action.steps
        elif isinstance(step.action, Collect):
            found |= {computed.name for computed in step.action.values}
    return frozenset(found)


def _may_have_code(step: Step) -> bool:
    """May a step contain code? Most steps are plain commands, and there may be very many."""
    if type(step.action) is not Shell or step.rules or step.arcs or step.checks:
        return True
    return not (step.when is None and step.on_success is None and step.transform is None)


def _finding(workflow: Workflow, piece: Piece, sandbox: Sandbox) -> Diagnostic | None:
    """The error in one expression, if it has one."""
    if piece.key == "when":
        problem = sandbox.check_condition(piece.code, names(piece.code))
    elif piece.key in ("transitions", "filter"):
        problem = sandbox.check_syntax(piece.code, "expression")
    else:
        problem = sandbox.check_syntax(piece.code, "body", SCRIPT_BYTES_MAX)
    if problem is None:
        return None
    # In a Visor file code without meaning leaves a route to the static keys.
    is_route = piece.key in ("run_js", "goto_js") and workflow.templates == "liquid"
    message = f"{_subject_of(piece)} is not an expression that can run: {problem}"
    return Diagnostic(
        severity="warning" if is_route else "error",
        code="expression",
        message=f"{message}; the static keys apply" if is_route else message,
        file=piece.origin.file or workflow.file,
        line=piece.origin.line,
        column=piece.origin.column,
        hint="it is JavaScript: " + piece.code.strip().partition("\n")[0][:80],
    )


def _subject_of(piece: Piece) -> str:
    """The key of an expression, for a message; a condition has none, because several keys can give it."""
    return "the condition" if piece.key == "condition" else f"`{piece.key}`"


def pieces_of(step: Step) -> Iterator[Piece]:
    """Every expression of a step and of the steps inside it, except those of a child workflow."""
    for condition in (step.when, *step.when.besides) if step.when is not None else ():
        if condition.language in ("js", "code"):
            yield Piece("when" if condition.language == "js" else "condition", condition.source, condition.origin)
    yield from _own_code_of(step)
    for arc in step.arcs:
        if arc.when is not None and arc.when.language == "js":
            yield Piece("when", arc.when.source, arc.when.origin)
    for rule in step.rules:
        yield from _routing("", rule.target_js, rule.transitions, rule.origin)
        if rule.repair is not None:
            yield from _routing(rule.repair.calls_js, "", (), rule.origin)
            yield from _pieces_of_all(rule.repair.steps)
    if isinstance(step.action, FanOut):
        if step.action.source.filter:
            source = step.action.source
            yield Piece("filter", source.filter, step.origin, is_open=source.filter_bare)
        yield from _pieces_of_all(step.action.steps)
    if step.on_success is not None:
        actions = step.on_success
        yield from _routing(actions.calls_js, actions.target_js, actions.transitions, actions.origin)
        yield from _pieces_of_all(actions.steps)


def _pieces_of_all(steps: tuple[Step, ...]) -> Iterator[Piece]:
    return (piece for step in steps for piece in pieces_of(step))


def _own_code_of(step: Step) -> Iterator[Piece]:
    """The code of a step's own action, of its transform, and of its checks."""
    own: dict[str, str] = getattr(step.action, "code_by_key", dict)()
    yield from (Piece(key, code, step.origin) for key, code in own.items())
    transform = step.transform
    while transform is not None:
        if transform.code:
            yield Piece("transform_js", transform.code, step.origin)
        transform = transform.first
    yield from (Piece(check.name, check.code, step.origin) for check in step.checks)


def _routing(run: str, goto: str, transitions: tuple[Transition, ...], origin: Origin) -> Iterator[Piece]:
    """The expressions of one set of routing keys."""
    if run:
        yield Piece("run_js", run, origin)
    if goto:
        yield Piece("goto_js", goto, origin)
    for transition in transitions:
        yield Piece("transitions", transition.when, origin)
