"""Reads the inputs of a run: `--input`, `--input-file`, `--inputs`, and values of a calling program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from resile.commands.start.call import Given
from resile.errors import Diagnostic, ResileError, shorten
from resile.model.limits import INPUT_BYTES_MAX

if TYPE_CHECKING:
    from resile.dialects.formats.nodes import Node
    from resile.model.workflow import Input, Workflow


def read_pairs(workflow: Workflow, pairs: Sequence[str]) -> dict[str, Any]:
    """The values of a run's inputs if a caller gives these pairs `name=value`."""
    return read_inputs(workflow, Given(pairs))


def read_inputs(workflow: Workflow, given: Given, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The values of a run's inputs; inputs that are not given have their default, or their value of an earlier run.

    All problems are reported at once.
    """
    texts: dict[str, str] = {}
    nodes: dict[str, tuple[str, Node]] = {}
    values: dict[str, Any] = {}
    problems: list[ResileError] = []
    for path in given.files:
        with _collect(problems):
            nodes |= _nodes_in(path, workflow)
    for option, pairs in (("--input", given.pairs), ("--input-file", given.paths)):
        for pair in pairs:
            with _collect(problems):
                name, text = _pair(pair, option, workflow)
                texts[name] = text if option == "--input" else _file_text(name, text)
    for name, value in given.objects.items():
        with _collect(problems):
            values[name] = _object(name, workflow, value)
    for name, declared in workflow.inputs.items():
        if name in given.objects:
            continue
        with _collect(problems):
            if name in texts:
                values[name] = _check_schema(name, declared, _convert_input(name, declared, texts[name]))
            elif name in nodes:
                values[name] = _check_schema(name, declared, _value_of(name, declared, *nodes[name]))
            elif before is not None and name in before:
                values[name] = before[name]
            else:
                values[name] = _default(name, declared)
    if problems:
        raise _combine(workflow, problems)
    return values


@contextmanager
def _collect(problems: list[ResileError]) -> Iterator[None]:
    """Add an error of this block to the problems."""
    try:
        yield
    except ResileError as problem:
        problems.append(problem)


def _default(name: str, declared: Input) -> Any:
    """The value of an input that is not given."""
    if declared.required:
        raise ResileError("input-missing", f"input {name!r} is required", hint=f"give it with --input {name}=…")
    return declared.default


def _nodes_in(path: str, workflow: Workflow) -> dict[str, tuple[str, Node]]:
    """The inputs in a file of YAML or JSON, each with the file's path; null gives no value."""
    from resile.dialects.formats.json5 import parse_json5
    from resile.dialects.formats.nodes import Mapping as MappingNode
    from resile.dialects.formats.nodes import Scalar
    from resile.dialects.formats.yaml import parse
    from resile.dialects.reading.diagnostics import Diagnostics

    report = Diagnostics(path)
    data = _bytes_of(path, "--inputs")
    root = parse_json5(data, report) if path.endswith(".json") else parse(data, report)
    if report.errors:
        first = report.findings()[0]
        if first.code == "empty":
            return {}
        raise ResileError("input-malformed", first.message, where=first.where, hint=first.hint)
    if root is None or (isinstance(root, Scalar) and root.value is None):
        return {}
    if not isinstance(root, MappingNode):
        hint = "one line for each input: NAME: VALUE"
        raise ResileError("input-malformed", f"--inputs {path} is not a mapping", where=path, hint=hint)
    for name, (key, _) in root.entries.items():
        if name not in workflow.inputs:
            raise _unknown_input(name, workflow, f"{path}:{key.line}:{key.column}")
    found = {name: (path, node) for name, (_, node) in root.entries.items()}
    return {
        name: place for name, place in found.items() if not (isinstance(place[1], Scalar) and place[1].value is None)
    }


def _value_of(name: str, declared: Input, path: str, node: Node) -> Any:
    """The value of an input in a file: any data for `json`, for other types what --input would take."""
    from resile.dialects.formats.nodes import Scalar, describe, plain

    if declared.kind == "json":
        return plain(node)
    if isinstance(node, Scalar):
        return _convert_input(name, declared, node.text)
    where = f"{path}:{node.line}:{node.column}"
    message = f"input {name!r}: {describe(node)} is not a {declared.kind}"
    raise ResileError("input-malformed", message, where=where, hint="`type: json` takes lists and mappings")


def _check_schema(name: str, declared: Input, value: Any) -> Any:
    """Return the value of an input; refuse a value that does not meet its schema."""
    if declared.schema is not None:
        from resile.engine.evaluation.schemas import unmet

        if problem := unmet(declared.schema, value, f"input {name!r}"):
            raise ResileError("input-malformed", problem)
    return value


def _object(name: str, workflow: Workflow, value: Any) -> Any:
    """Encode a value of a calling program: as JSON if that preserves the value, else as a pickle.

    Only functions of a workflow in Python can read a pickle.
    """
    from resile.languages.python.values import ValueUnfit, is_plain, portable
    from resile.store.encoding import to_json as json_text

    if name not in workflow.inputs:
        raise _unknown_input(name, workflow)
    declared = workflow.inputs[name]
    fits = {"number": isinstance(value, int | float) and not isinstance(value, bool), "bool": isinstance(value, bool)}
    if not fits.get(declared.kind, True):
        raise ResileError("input-malformed", f"input {name!r}: {shorten(repr(value))} is not a {declared.kind}")
    if not is_plain(value):
        if workflow.dialect != "python":
            raise ResileError("input-malformed", f"input {name!r} is nothing that JSON holds: {shorten(repr(value))}")
        try:
            return portable(value, f"input {name!r}")
        except ValueUnfit as error:
            raise ResileError("input-malformed", str(error)) from error
    if len(json_text(value)) > INPUT_BYTES_MAX:
        raise ResileError("input-too-large", f"input {name!r} has more than {INPUT_BYTES_MAX} bytes")
    return _check_schema(name, declared, value)


def _combine(workflow: Workflow, problems: list[ResileError]) -> ResileError:
    """One problem unchanged, several combined as diagnostics of one error."""
    first = problems[0]
    if len(problems) == 1:
        return first
    findings = [
        Diagnostic(severity="error", code=found.code, message=found.message, file=workflow.file, hint=found.hint)
        for found in problems
    ]
    message = f"{first.message} (and {len(problems) - 1} more)"
    return ResileError(first.code, message, where=first.where, hint=first.hint, diagnostics=findings)


def _pair(pair: str, option: str, workflow: Workflow) -> tuple[str, str]:
    """Split `name=value`; the name must be an input that the workflow declares."""
    name, equals, text = pair.partition("=")
    if not equals:
        raise ResileError("input-malformed", f"{option} {pair!r} is not name=value")
    if name not in workflow.inputs:
        raise _unknown_input(name, workflow)
    if len(text) > INPUT_BYTES_MAX:
        raise ResileError("input-too-large", f"input {name!r} has more than {INPUT_BYTES_MAX} bytes")
    return name, text


def _unknown_input(name: str, workflow: Workflow, where: str = "") -> ResileError:
    """The error for an input that the workflow does not declare."""
    known = ", ".join(workflow.inputs) or "none"
    message = f"{workflow.name} has no input {name!r}"
    return ResileError("input-unknown", message, where=where or workflow.file, hint=f"its inputs: {known}")


def _file_text(name: str, path: str) -> str:
    """The content of an input's file, unchanged."""
    return _bytes_of(path, f"input {name!r}").decode("utf-8", "surrogateescape")


def _bytes_of(path: str, what: str) -> bytes:
    """The content of a file with inputs."""
    try:
        with open(path, "rb") as file:
            data = file.read(INPUT_BYTES_MAX + 1)
    except OSError as error:
        raise ResileError("input-unreadable", f"{what}: {path}: {error.strerror}") from error
    if len(data) > INPUT_BYTES_MAX:
        raise ResileError("input-too-large", f"{what}: {path} has more than {INPUT_BYTES_MAX} bytes")
    return data


def _convert_input(name: str, declared: Input, text: str) -> Any:
    """The text of an input as its declared type."""
    from resile.engine.evaluation.input_types import from_text

    try:
        return from_text(declared.kind, text)
    except ValueError as error:
        raise ResileError("input-malformed", f"input {name!r}: {text[:60]!r} is not a {declared.kind}") from error
