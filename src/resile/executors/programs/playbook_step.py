"""Runs the Python code of a playbook: it passes `main` its parameters by name, from all values visible to the step.

    RESILE_STEP (JSON): name, source or file, inputs, context, places, status_fails; or `settings_file`, which has them
    stdout: the output of the code; last, on a line of its own, the result of its `main`, as JSON
    exit: 0 done, 1 an exception, `{"status": "error"}`, an unknown parameter; or the argument of sys.exit

A parameter is looked up in the inputs, then in the context; `context` is the whole context, `**kwargs` gets the inputs,
and a lone `input_data` is the inputs. Code without a `main` sees all of them as names, and sets its value as `result`.
Template values inside the code (`places`) never become code: the code is parsed first, then they become names in it, or
parts of its string literals.
"""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType

from resile.executors.programs.python_step import MODULE, Failed, await_result, remember, report

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from typing import Any

_MODULES = ("datetime", "uuid")


def main() -> int:
    """Run the code; return the exit code."""
    step: dict[str, Any] = json.loads(os.environ.pop("RESILE_STEP"))
    if "settings_file" in step:
        with open(step["settings_file"], "rb") as opened:
            step = json.loads(opened.read())
    reasons = ("error", "message") if step["status_fails"] else ()
    return report(step, _run, _text_of, reasons, _parts_of)


def _parts_of(result: Any) -> list[Any]:
    """The result, and the results of statements and calls in its `data`, each with a status of its own."""
    data = result.get("data") if isinstance(result, dict) else None
    return [result, *data.values()] if isinstance(data, dict) else [result]


def _text_of(result: Any) -> str:
    # A date, or a number type of a library, is returned as text.
    return json.dumps(result, ensure_ascii=False, allow_nan=False, default=str)


def _run(step: dict[str, Any]) -> Any:
    """Run the code; return the result of its `main`, or its `result`."""
    import ast

    name = step["file"] or f"<step {step['name']}>"
    source = _source(step, name)
    sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.argv = [name]
    module = sys.modules[MODULE] = ModuleType(MODULE)
    context = {**step["context"], **step["inputs"]}
    names: dict[str, Any] = module.__dict__
    tree = ast.parse(source, name)
    functions = [part.name for part in tree.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
    if "main" not in functions:
        names.update(context)
    names.update(context=context, args=step["inputs"], os=os, json=json, __file__=name, **step["places"])
    names.update({found: __import__(found) for found in _MODULES if found in source})
    if step["places"]:
        _fill_values(tree, step["places"], names)
    exec(compile(tree, name, "exec", dont_inherit=True), names)
    function = names.get("main")
    if not callable(function):
        return names.get("result")
    return await_result(function(**_arguments(function, step["inputs"], context, step["name"])))


def _source(step: dict[str, Any], name: str) -> str:
    """The code of the step or of its file."""
    if not step["file"]:
        remember(name, step["source"])
        return str(step["source"])
    try:
        with open(step["file"], encoding="utf-8") as opened:
            return opened.read()
    except OSError as error:
        raise Failed(f"can't read {step['file']}: {error.strerror}") from error


def _arguments(function: Any, inputs: dict[str, Any], context: dict[str, Any], name: str) -> dict[str, Any]:
    """The arguments of a function, each found by the name of its parameter."""
    import inspect

    found: dict[str, Any] = {}
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY) for p in parameters):
        raise Failed(f"main of Python task {name!r} must take its parameters by name")
    named = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
    for parameter in named:
        if parameter.name in inputs:
            found[parameter.name] = inputs[parameter.name]
        elif parameter.name == "context":
            found["context"] = context
        elif parameter.name in context:
            found[parameter.name] = context[parameter.name]
        elif parameter.name == "input_data" and len(named) == 1:
            found["input_data"] = inputs
        elif parameter.default is parameter.empty:
            raise Failed(f"Missing required argument {parameter.name!r} for Python task {name!r}")
    takes_all = len(named) < len(parameters)
    return {**inputs, **found} if takes_all else found


def _fill_values(tree: ast.Module, places: dict[str, Any], names: dict[str, Any]) -> None:
    """Insert values into the string literals that contain them; elsewhere they stay names."""
    import ast

    names.update({f"{name}_text": v if isinstance(v, str) else json.dumps(v) for name, v in places.items()})

    def spread(text: str) -> list[ast.expr]:
        """A text as its parts: literals, and the names of values."""
        name = min((found for found in places if found in text), key=text.index, default="")
        if not name:
            return [ast.Constant(text)] if text else []
        before, _, after = text.partition(name)
        value = ast.FormattedValue(ast.Name(f"{name}_text", ast.Load()), -1, None)
        return [*spread(before), value, *spread(after)]

    class Fill(ast.NodeTransformer):
        """Inserts values into string literals."""

        def visit_Constant(self, node: ast.Constant) -> ast.expr:
            """A string literal."""
            if not isinstance(node.value, str) or not any(name in node.value for name in places):
                return node
            return ast.copy_location(ast.JoinedStr(spread(node.value)), node)

        def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
            """An f-string."""
            values: list[ast.expr] = []
            for part in node.values:
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    values += spread(part.value)
                else:
                    values.append(self.visit(part))
            return ast.copy_location(ast.JoinedStr(values), node)

    Fill().visit(tree)
    ast.fix_missing_locations(tree)


if __name__ == "__main__":
    sys.exit(main())
