"""`function`: a step of a native file that calls a Python function, as steps of a workflow written in Python do.

    function: {file: flow.py, name: add, args: [[value, 3], [step, one]], kwargs: {by: [input, n]}}

An argument is a pair of a kind and a value: `value` is data, `step` the result of a step, `input` an input of the run,
`item` the current item, `execution` the state of the run, `list` and `mapping` hold such pairs. `resile migrate
flow.py` writes them; a workflow written by hand is shorter in Python.

The file must exist when the workflow is compiled, unless an earlier step could write it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from resile.dialects.formats.nodes import Mapping, Node, Scalar, plain
from resile.dialects.native.context import NativeReading, Scope, StepDraft
from resile.dialects.native.keys.model_fields import as_model, fields_of
from resile.dialects.native.step_types.contract import StepType
from resile.dialects.reading.context import Reading
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import INVALID, Key
from resile.errors import shorten
from resile.model.workflow import Capture, Function, Given, Rule

_KINDS: tuple[str, ...] = get_args(Given.__annotations__["kind"])
_NOT_BESIDE = ("capture", "outputs", "commit_required", "working_dir", "runs_on", "transform", "checks")
"""Keys about the output and files of a command; a function returns a value instead."""


def _function(reading: Reading, node: Node) -> Any:
    """Read a call and check its arguments."""
    value = as_model(Function, "`function`")(reading, node)
    if value is INVALID or not isinstance(node, Mapping):
        return INVALID
    if bool(value.file) == bool(value.module):
        reading.report.error("value", "`function` needs `file` or `module`, one of them", node)
        return INVALID
    for given in (*value.args, *value.kwargs.values()):
        problem = next(_problems(given.kind, given.value), "")
        if problem:
            reading.report.error("value", f"an argument of `{shorten(value.name)}`: {problem}", node)
            return INVALID
    return value


def _problems(kind: Any, value: Any) -> Iterator[str]:
    """Problems of an argument and of the arguments nested in it."""
    if kind not in _KINDS:
        yield f"`{shorten(str(kind))}` is no kind of argument: {did_you_mean(str(kind), _KINDS, 'kinds')}"
    elif kind in ("step", "input") and not isinstance(value, str):
        yield f"`{kind}` takes a name"
    elif kind in ("list", "mapping"):
        if not isinstance(value, list if kind == "list" else dict):
            yield f"`{kind}` takes a {kind} of arguments"
            return
        for inner in value if isinstance(value, list) else value.values():
            if not isinstance(inner, list) or not 1 <= len(inner) <= 2:
                yield "each is a pair of a kind and a value"
            else:
                yield from _problems(inner[0], inner[1] if len(inner) == 2 else None)


def _names_of_kind(kind: str, value: Any, wanted: str) -> Iterator[str]:
    """Names of one kind in an argument, nested ones included."""
    if kind == wanted:
        yield value
    elif kind in ("list", "mapping"):
        for inner in value if isinstance(value, list) else value.values():
            yield from _names_of_kind(inner[0], inner[1] if len(inner) == 2 else None, wanted)


def names_in(action: Function, wanted: str) -> list[str]:
    """Names of steps or inputs in the arguments of a call; an item yields one entry without a name."""
    pairs = [(given.kind, given.value) for given in (*action.args, *action.kwargs.values())]
    return [name for kind, value in pairs for name in _names_of_kind(kind, value, wanted)]


def check_beside(reading: NativeReading, node: Mapping, action: Function) -> None:
    """Refuse keys that have no meaning for a function."""
    for key in _NOT_BESIDE:
        if key in node.entries:
            message = f"`{key}` has no meaning for `function`, whose result is its value"
            reading.report.error("action", message, node.entries[key][0])
    resources = node.entries["resources"][1] if "resources" in node.entries else None
    for part, key in ((node, "env"), (resources, "gpus")):
        if action.workers == "threads" and isinstance(part, Mapping) and key in part.entries:
            _refuse_in_threads(reading, part.entries[key][0], key)
    wanted = resources.entries if action.workers == "threads" and isinstance(resources, Mapping) else {}
    if "memory" in wanted and ("enforce" not in wanted or plain(wanted["enforce"][1]) is not False):
        message = "`memory` can't be enforced in threads, which share one process"
        hint = "`processes` as workers; or `enforce: false`, which only reserves it"
        reading.report.error("action", message, wanted["memory"][0], hint=hint)


def _refuse_in_threads(reading: NativeReading, where: Scalar, key: str) -> None:
    message = f"`{key}` has a meaning only in worker processes: threads share one environment"
    reading.report.error("action", message, where, hint="`processes` as workers, or an argument")


def check_types(
    reading: NativeReading, name: str, node: Mapping, key: Scalar | Mapping, rules: tuple[Rule, ...]
) -> None:
    """Refuse rules that match exception types on steps other than functions: only functions raise exceptions."""
    if any(rule.match.types for rule in rules):
        where = next((node.entries[word][0] for word in ("failure_handler", "rules") if word in node.entries), key)
        hint = "`pattern` finds the name of an exception in what a step printed"
        message = f"`types` has a meaning only for functions, and `{shorten(name)}` is none"
        reading.report.error("conflict", message, where, hint=hint)


def check_functions(reading: NativeReading, root: Mapping, inputs: dict[str, Any]) -> None:
    """Check all calls, once all names are known."""
    kinds: set[str] = set()
    for scope in reading.scopes:
        for draft in scope.drafts.values():
            if "function" in draft.node.entries and isinstance(draft.step.action, Function):
                kinds.add(draft.step.action.workers)
                _check_arguments(reading, draft, draft.step.action, inputs, is_item=scope.around is not None)
                if _is_first(reading, scope, draft.step.name):
                    _check_file(reading, draft, draft.step.action)
    if "threads" in kinds and "env" in root.entries:
        _refuse_in_threads(reading, root.entries["env"][0], "env")
    if kinds and "secrets" in root.entries:
        message = "a workflow that calls functions takes no `secrets`: what they print and return is kept as it is"
        hint = "functions read the environment themselves"
        reading.report.error("conflict", message, root.entries["secrets"][0], hint=hint)


def _is_first(reading: NativeReading, scope: Scope, name: str) -> bool:
    """Is it certain that no step runs before this one, in this file or in a caller?"""
    order = scope.ancestors
    if reading.level or scope.around is not None or name in scope.called or order is None:
        return False
    return not order.before.get(name) and not (order.in_order and order.place[name])


def _check_file(reading: NativeReading, draft: StepDraft, action: Function) -> None:
    """Check that the file of a function exists: no earlier step could write it."""
    import os

    call = draft.node.entries["function"][1]
    # A workflow built in Python holds its functions; those from a REPL have no file.
    if action.file and isinstance(call, Mapping) and reading.source.data:
        file = os.path.join(reading.source.folder, action.file)
        if not os.path.isfile(file):
            message = f"there is no file `{shorten(file, 200)}`"
            hint = "a path is relative to the workflow file; a step that the call needs may write it"
            reading.report.error("file", message, call.entries["file"][1], hint=hint)


def _check_arguments(
    reading: NativeReading, draft: StepDraft, action: Function, inputs: dict[str, Any], is_item: bool
) -> None:
    """Check that the step needs the steps that its arguments name, and that inputs and item exist."""
    where = draft.node.entries["function"][0]
    needed = {name for need, _ in draft.needs for name in need.any_of if len(need.any_of) == 1}
    for name in names_in(action, "step"):
        if name not in needed:
            message = f"an argument is what `{shorten(name)}` gave, which the step does not need"
            reading.report.error("unknown-step", message, where, hint=f"needs: [{shorten(name)}]")
    for name in names_in(action, "input"):
        if name not in inputs:
            hint = did_you_mean(name, inputs, "inputs")
            reading.report.error("unknown-name", f"there is no input `{shorten(name)}`", where, hint=hint)
    if names_in(action, "execution"):
        reading.report.error("unknown-name", "an argument is how the run went, which only `end` knows", where)
    if names_in(action, "item") and not is_item:
        reading.report.error("unknown-name", "an argument is the item, and there is none here", where)


def capture_of_result(name: str) -> tuple[Capture, ...]:
    """Capture the result of a function under the name of its step."""
    return (Capture(name, "value"),)


FUNCTION = StepType(
    Key("function", "mapping", f"Action: a call of a Python function: {fields_of(Function)}.", _function), Function
)
