"""Compiles a file to a definition that can run, reads the inputs of a run, and checks many files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from resile.errors import Diagnostic, ResileError, WorkflowError, shorten
from resile.model import codec
from resile.model.hashing import sha256_hex
from resile.model.limits import FILE_BYTES_MAX, INPUT_BYTES_MAX
from resile.model.nested import steps_with_inner_workflows, steps_within, workflows_within
from resile.model.workflow import Child, FanOut, Input, Step, Workflow
from resile.version import __version__

if TYPE_CHECKING:
    from resile.commands.documents.answers import CheckReport
    from resile.dialects.compile import Compiled
    from resile.store.contract import Store


class CompileOptions(msgspec.Struct, frozen=True):
    """The dialect of a file (detected from its content where empty), and the profile to add."""

    dialect: str = ""
    profile: str = ""


def load(path: str, store: Store | None, options: CompileOptions = CompileOptions()) -> tuple[Workflow, bytes]:
    """The workflow in a file and its canonical JSON; the store caches the definition of an unchanged file."""
    key = _cache_key(path, options) if store is not None else ""
    known = store.cached_definition(key) if store is not None and key else None
    if known is not None:
        return codec.decode(known), known
    workflow = compile_workflow(path, options)
    definition = codec.encode(workflow)
    if store is not None and key and _stands_alone(workflow):
        store.cache_definition(key, definition)
    return workflow, definition


def remember(
    path: str, store: Store, workflow: Workflow, definition: bytes, options: CompileOptions = CompileOptions()
) -> None:
    """Cache the definition of a file that was compiled before the store existed."""
    key = _cache_key(path, options)
    if key and _stands_alone(workflow):
        store.cache_definition(key, definition)


def _stands_alone(workflow: Workflow) -> bool:
    """Does the definition depend on this file alone? Files of other dialects may include other files."""
    found = steps_within(steps_with_inner_workflows((*workflow.steps, workflow.end)))
    return workflow.dialect == "native" and not any(_reads_file(step) for step in found)


def _reads_file(step: Step) -> bool:
    """Was another file read to compile a step: a child workflow, or an items file?"""
    source = step.action.source if isinstance(step.action, FanOut) else None
    return isinstance(step.action, Child) or (source is not None and bool(source.path or source.command))


def compile_workflow(path: str, options: CompileOptions = CompileOptions()) -> Workflow:
    """Compile a file; raises a WorkflowError with all diagnostics if it is wrong."""
    return require_workflow(compile_any(path, options))


def compile_any(path: str, options: CompileOptions) -> Compiled:
    """Compile a file: a Python file by loading it, any other with its front end."""
    if path.endswith(".py") and options.dialect in ("", "python"):
        from resile.dialects.python.compile import compile_module

        return compile_module(path)
    from resile.dialects.compile import compile_file

    return compile_file(path, dialect=options.dialect, profile=options.profile)


def require_workflow(result: Compiled) -> Workflow:
    """The compiled workflow; raises a WorkflowError with all diagnostics where it can't run."""
    findings = _findings_of(result)
    errors = [finding for finding in findings if finding.severity == "error"]
    if result.workflow is None or errors:
        first = errors[0]
        count = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise WorkflowError(first.code, first.message + count, where=first.where, hint=first.hint, diagnostics=findings)
    return result.workflow


def _findings_of(result: Compiled) -> list[Diagnostic]:
    """The findings of the front end, of the expressions, and of secrets in command lines."""
    from resile.commands.check_expressions import check_code

    workflow = result.workflow
    return [*result.diagnostics, *((*check_code(workflow), *shown_secrets(workflow)) if workflow is not None else ())]


def shown_secrets(workflow: Workflow) -> list[Diagnostic]:
    """The warnings for secrets in command lines; most workflows have no secrets."""
    if not any(flow.secrets for flow in workflows_within(workflow)):
        return []
    from resile.commands.check_secrets import check_secrets

    return check_secrets(workflow)


def _cache_key(path: str, options: CompileOptions) -> str:
    """The cache key of a definition: this version, the file's path and folder, its bytes and the options."""
    try:
        if os.path.getsize(path) > FILE_BYTES_MAX:
            return ""
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError:
        return ""
    name = f"{__version__}\0{path}\0{os.path.abspath(path)}\0{options.dialect}\0{options.profile}\0"
    return sha256_hex(name.encode("utf-8", "surrogateescape") + data)


def check(paths: Sequence[str], options: CompileOptions = CompileOptions()) -> CheckReport:
    """Compile and lint every file; nothing runs."""
    from resile.commands.documents.answers import CheckedFile, CheckReport

    files = []
    for path in paths:
        result = compile_any(path, options)
        findings = _findings_of(result)
        ok = result.workflow is not None and all(finding.severity != "error" for finding in findings)
        steps = len(result.workflow.steps) if result.workflow is not None else 0
        jobs = steps + 1 if ok else 0
        files.append(CheckedFile(path, result.dialect, result.why, ok, steps, jobs, findings))
    return CheckReport(files=files)


def read_inputs(
    workflow: Workflow, given: Sequence[str], files: Sequence[str], objects: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The values of a run's inputs, with defaults for those not given; all problems are reported at once.

    `objects` are values from a calling program, which are passed unchanged.
    """
    texts: dict[str, str] = {}
    values: dict[str, Any] = {}
    objects = objects or {}
    problems: list[ResileError] = []
    for option, pairs in (("--input", given), ("--input-file", files)):
        for pair in pairs:
            with _collect(problems):
                name, text = _pair(pair, option, workflow)
                texts[name] = text if option == "--input" else _file_text(name, text)
    for name, value in objects.items():
        with _collect(problems):
            values[name] = _object(name, workflow, value)
    for name, declared in workflow.inputs.items():
        if name not in objects:
            with _collect(problems):
                values[name] = _value(name, declared, texts.get(name))
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


def _value(name: str, declared: Input, text: str | None) -> Any:
    """The value of one input: the given text, converted, or its default."""
    if text is not None:
        return _check_schema(name, declared, _convert_input(name, declared, text))
    if declared.required:
        raise ResileError("input-missing", f"input {name!r} is required", hint=f"give it with --input {name}=…")
    return declared.default


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
    from resile.store.sqlite.rows import to_json as json_text

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


def _unknown_input(name: str, workflow: Workflow) -> ResileError:
    """The error for an input that the workflow does not declare."""
    known = ", ".join(workflow.inputs) or "none"
    return ResileError(
        "input-unknown", f"{workflow.name} has no input {name!r}", where=workflow.file, hint=f"its inputs: {known}"
    )


def _file_text(name: str, path: str) -> str:
    """The content of an input's file, unchanged."""
    try:
        with open(path, "rb") as file:
            data = file.read(INPUT_BYTES_MAX + 1)
    except OSError as error:
        raise ResileError("input-unreadable", f"input {name!r}: {path}: {error.strerror}") from error
    if len(data) > INPUT_BYTES_MAX:
        raise ResileError("input-too-large", f"input {name!r}: {path} has more than {INPUT_BYTES_MAX} bytes")
    return data.decode("utf-8", "surrogateescape")


def _convert_input(name: str, declared: Input, text: str) -> Any:
    """The text of an input as its declared type."""
    try:
        match declared.kind:
            case "text":
                return text
            case "number":
                return _number(text)
            case "bool":
                return {"true": True, "false": False}[text.strip().lower()]
            case "json":
                return _json(text)
    except (ValueError, KeyError, RecursionError) as error:
        raise ResileError("input-malformed", f"input {name!r}: {text[:60]!r} is not a {declared.kind}") from error


def _json(text: str) -> Any:
    """A JSON value; the fast decoder refuses escaped lone surrogates, so fall back to the slow one."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        import json

        from resile.languages.python.values import is_plain

        value = json.loads(text)
        if not is_plain(value):
            raise
        return value


def _number(text: str) -> int | float:
    """An integer or a finite float: JSON can't carry others."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
    if number - number != 0:
        raise ValueError("not finite")
    return number
