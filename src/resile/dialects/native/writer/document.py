"""Writes a workflow of any dialect as a native file that compiles to the same model.

    emit(workflow, findings)  ->  text     short keys first; if a step's rules then compile differently, rule by rule

`emit` compiles the text again and compares the models. If no native file can express a workflow, it raises an error
that names the first difference. Child workflows are written inline, so that one file is enough.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from resile.dialects.compile import compile_text
from resile.dialects.native.keys.executor import EXECUTOR
from resile.dialects.native.keys.steps import INPUT, SECRET, WORKFLOW
from resile.dialects.native.step_types.contract import Inherited
from resile.dialects.native.writer.compare import Difference, differences
from resile.dialects.native.writer.relocate import relocate
from resile.dialects.native.writer.rules import handler_rule, rules_in_full
from resile.dialects.native.writer.step import Writer, errexit_of, has_condition
from resile.dialects.native.writer.values import duration, under_ir, written_fields
from resile.dialects.native.writer.yaml import Block, write
from resile.errors import Diagnostic, ResileError
from resile.model.limits import LOOPS_DEFAULT
from resile.model.nested import handler_steps, steps_of
from resile.model.workflow import FanOut, Input, Secret, Shell, Step, Validate, Workflow

ROUNDS_MAX = 4


def emit(workflow: Workflow, findings: Sequence[Diagnostic] = (), folder: str = "") -> str:
    """Write the native file; `findings` become comments, `folder` is the target folder of the file."""
    folder = folder or workflow.folder
    original, workflow = workflow, relocate(workflow, folder)
    in_full: frozenset[int] | None = frozenset()
    for _ in range(ROUNDS_MAX):
        text = _text(original, workflow, in_full, findings)
        found = _read_back(text, workflow, folder)
        if not found:
            return text
        # Every step that names a handler repeats its rules, so correct the handlers first.
        shared = [each for each in found if ".failure_handlers." in each.path]
        odd = frozenset(step for each in shared or found for step in each.within)
        in_full = in_full | odd if in_full is not None and odd - in_full else None
    text = _text(original, workflow, None, findings)
    found = _read_back(text, workflow, folder, strictly=True)
    if found:
        raise ResileError(
            "migrate",
            f"no native file says what this one does: {found[0].path.lstrip('.')} would be something else",
            where=original.file,
            hint="this is a mistake in Resile; the file runs as it is",
        )
    return text


def _read_back(text: str, workflow: Workflow, folder: str, strictly: bool = False) -> list[Difference]:
    """Compile the text and list the differences; if it does not compile, one difference without a step."""
    compiled = compile_text(text, file=os.path.join(folder, "migrated.yaml"), folder=folder, dialect="native")
    if compiled.workflow is None:
        if strictly:
            error = next(finding for finding in compiled.diagnostics if finding.severity == "error")
            line = text.split("\n")[error.line - 1].strip() if error.line else ""
            message = f"no native file says what this one does: {error.message}"
            raise ResileError(
                "migrate", message, where=workflow.file, hint=f"it would have to be: {line}" if line else ""
            )
        return [Difference("", ())]
    return list(differences(workflow, compiled.workflow))


def _text(
    original: Workflow, workflow: Workflow, in_full: frozenset[int] | None, findings: Sequence[Diagnostic]
) -> str:
    """Write the text, with each comment at its step."""
    document = workflow_block(workflow, Writer(in_full, findings, workflow, workflow_block))
    name = os.path.basename(original.file)
    notes = (f"From {name}, a file of {original.dialect}; written by `resile migrate`.", *document.notes)
    return write(Block({"resile": 1, **document}), notes)


def workflow_block(workflow: Workflow, writer: Writer) -> Block:
    """Write a workflow as a mapping: a file, or an inline workflow."""
    inner = Writer(writer.in_full, writer.findings, workflow, workflow_block)
    program = _program(workflow)
    written = Block({"name": workflow.name})
    written |= written_fields(workflow, WORKFLOW, "max_parallel", "grace_seconds")
    if workflow.monitor_seconds:
        written["resource_monitor"] = {"interval": duration(workflow.monitor_seconds)}
    if program != "sh":
        written["shell_program"] = program
    if any(errexit_of(step.action) is False for step in steps_of(workflow)):
        written["errexit"] = inner.errexit = False
    if workflow.executor is not None:
        written["executor"] = {"kind": "parsl", **written_fields(workflow.executor, EXECUTOR)}
    written |= written_fields(workflow, WORKFLOW, "env", "env_files")
    if workflow.inputs:
        written["inputs"] = {name: _input(declared) for name, declared in workflow.inputs.items()}
    if workflow.secrets:
        written["secrets"] = _secrets(workflow.secrets)
    written |= written_fields(
        workflow, WORKFLOW, "templates", "failure_key", "memory_file", "memory_namespace", "cluster"
    )
    if workflow.condition_errors == "skip" and any(map(has_condition, (*workflow.steps, workflow.end))):
        written["condition_errors"] = "skip"
    if workflow.failure_handlers:
        written["failure_handlers"] = _handlers(workflow, inner)
    if workflow.loops_max != LOOPS_DEFAULT:
        written["routing"] = {"max_loops": workflow.loops_max}
    written["steps"] = inner.steps(workflow.steps, workflow.end, Inherited(program))
    written.notes = inner.left_over()
    return under_ir(written, WORKFLOW)


def _handlers(workflow: Workflow, writer: Writer) -> dict[str, Any]:
    """Write the failure handlers."""
    is_plain = writer.in_full is None or id(workflow) in writer.in_full
    written: dict[str, Any] = {}
    for name, rules in workflow.failure_handlers.items():
        listed = [None if is_plain else handler_rule(rule, workflow.folder) for rule in rules]
        full = rules_in_full(rules, lambda steps, word: writer.commands(steps, word, Inherited()))
        written[name] = {"rules": [short or long for short, long in zip(listed, full, strict=True)]}
    return written


def _input(declared: Input) -> Any:
    """Write a declared input: just its default if nothing else is set."""
    if declared == Input(default=declared.default) and isinstance(declared.default, str):
        return declared.default
    if declared == Input("json", declared.default) and isinstance(declared.default, list):
        return declared.default
    written: dict[str, Any] = {} if declared.required and declared.kind == "text" else {"type": declared.kind}
    if declared.default is not None:
        written["default"] = declared.default
    return written | written_fields(declared, INPUT, "required", "schema")


def _secrets(secrets: dict[str, Secret]) -> Any:
    """Write secrets: a list if each comes from the variable of the same name."""
    if all(secret == Secret(env=name) for name, secret in secrets.items()):
        return list(secrets)
    return {name: written_fields(secret, SECRET) for name, secret in secrets.items()}


def _program(workflow: Workflow) -> str:
    programs = {program for step in (*workflow.steps, workflow.end) for program in _programs(step)}
    return programs.pop() if len(programs) == 1 else "sh"


def _programs(step: Step) -> Iterator[str]:
    """The shells of a step and of the steps inside it."""
    match step.action:
        case Shell(program=program) | Validate(program=program):
            yield program
        case FanOut(source=source, steps=steps):
            if source.command:
                yield source.program
            for inner in steps:
                yield from _programs(inner)
    for inner in handler_steps(step):
        yield from _programs(inner)
