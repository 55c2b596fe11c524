"""The native front end: a mapping with `resile: 1`, or with `mode: mapreduce`, becomes a Workflow.

    keys (keys/) -> steps (step) -> scopes, edges and names (scope, graph/) -> references (reference_checks)

A file with `mode: mapreduce` becomes one list of steps: those of `setup`, a step called `map`, those of `reduce`.
Every key either changes the model or is refused. The compiler reports all findings at once; if one is an error, it
builds no workflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Sequence
from resile.dialects.native.context import Defaults, NativeReading, Readers
from resile.dialects.native.graph.edges import report_unknown_names
from resile.dialects.native.keys.ir import lift_ir
from resile.dialects.native.keys.steps import TABLES as TABLES
from resile.dialects.native.keys.steps import WORKFLOW
from resile.dialects.native.reference_checks import check_references
from resile.dialects.native.scope import Named, named_steps, phase_steps, read_drafts, settle
from resile.dialects.native.step import read_step
from resile.dialects.native.step_types.function import check_functions
from resile.dialects.reading.context import Source
from resile.dialects.reading.diagnostics import Diagnostics
from resile.dialects.reading.key_tables import read_mapping
from resile.languages.registry import language_named
from resile.languages.shell.quoting import plain_argv
from resile.model.limits import LOOPS_DEFAULT
from resile.model.workflow import EDITION, Noop, Step, Workflow

MAP_STEP = "map"
_PHASES = ("setup", "map", "reduce")
_KEYS_REPORTED_IF_UNUSED = frozenset({"error_policy", "handlers", "failure_handlers"})
_COPIED_FIELDS = (
    "inputs", "secrets", "env", "env_files", "max_parallel", "grace_seconds", "templates", "failure_key", "memory_file",
    "memory_namespace", "cluster", "condition_errors", "monitor_seconds", "executor"
)  # fmt: skip


def compile_native(source: Source, root: Mapping, report: Diagnostics) -> Workflow | None:
    """Compile a native file; return None if it has an error."""
    return compile_part(NativeReading(source, report), root)


def compile_part(reading: NativeReading, root: Mapping) -> Workflow | None:
    """Compile a workflow from a mapping: a whole file, or an inline workflow."""
    reading.readers = Readers(read_step, settle, compile_part)
    root = lift_ir(reading, root, WORKFLOW)
    fields = read_mapping(reading, root, WORKFLOW)
    source, report = reading.source, reading.report
    if "source" in fields:
        named = fields["source"]
        source = reading.source = Source(named.get("file", source.file), b"", named.get("folder", source.folder))
    if not {"max_parallel", "resource_monitor", "executor"}.isdisjoint(root.entries):
        from resile.dialects.native.child_workflow import refuse_settings_of_run

        refuse_settings_of_run(reading, root)
    reading.language = language_named(fields.get("templates", "dollar"))
    defaults = Defaults(fields.get("shell_program", "sh"), errexit=fields.get("errexit", reading.errexit))
    _read_ladder(reading, fields, defaults)
    is_mapreduce = "mode" in root.entries
    named = _mapreduce(reading, root, fields) if is_mapreduce else _steps(reading, root, fields)
    drafts = read_drafts(reading, named, defaults)
    end = drafts.pop("end", None)
    steps = settle(reading, drafts, is_mapreduce or isinstance(fields.get("steps"), Sequence))
    for step in steps:
        if step.in_order:
            where = reading.scope.drafts[step.name].node.entries["in_order"][0]
            report.error("conflict", "`in_order` has a meaning only for the steps of items", where)
    report_unknown_names(reading)
    check_functions(reading, root, fields.get("inputs", {}))
    if reading.language.has_references and not reading.is_checked:
        check_references(reading, fields.get("inputs", {}), end)
    elif not reading.language.has_references:
        from resile.dialects.native.output_checks import check_outputs

        check_outputs(reading)
    if not _KEYS_REPORTED_IF_UNUSED.isdisjoint(root.entries):
        from resile.dialects.native.failures.error_policy import report_unused

        report_unused(reading, root)
    if report.errors:
        return None
    copied = {"condition_errors": "fail"} | {field: fields[field] for field in _COPIED_FIELDS if field in fields}
    return Workflow(
        name=fields.get("name") or _file_stem(source.file),
        dialect=reading.dialect,
        file=source.file,
        folder=source.folder,
        steps=steps,
        end=end.step if end else Step(name="end", action=Noop(), origin=reading.origin(root)),
        failure_handlers=reading.handlers,
        loops_max=fields.get("routing", {}).get("max_loops", LOOPS_DEFAULT),
        edition=EDITION,
        **copied,
    )


def _read_ladder(reading: NativeReading, fields: dict[str, Any], defaults: Defaults) -> None:
    """Read the workflow's settings for all steps: agent, failure handlers, defaults and error policy."""
    reading.agent = _agent_of_caller() | fields.get("agent", {})
    if "failure_handlers" in fields:
        from resile.dialects.native.failures.handlers import read_handlers

        reading.handlers = read_handlers(reading, fields["failure_handlers"])
    if "defaults" in fields.get("routing", {}):
        from resile.dialects.native.failures.ladder import read_defaults

        reading.defaults = read_defaults(reading, fields["routing"]["defaults"])
    if "handlers" in fields:
        from resile.dialects.native.failures.error_policy import read_lists

        read_lists(reading, fields["handlers"], defaults)
    if "error_policy" in fields:
        from resile.dialects.native.failures.error_policy import read_policy

        reading.policy = read_policy(reading, fields["error_policy"])


def _agent_of_caller() -> dict[str, Any]:
    """The agent that the variable RESILE_AGENT names, for workflows that name none."""
    import os

    words = plain_argv(os.environ.get("RESILE_AGENT", ""))
    return {"command": tuple(words)} if words else {}


def _file_stem(file: str) -> str:
    return file.rpartition("/")[2].rpartition(".")[0] or file.rpartition("/")[2]


def _steps(reading: NativeReading, root: Mapping, fields: dict[str, Any]) -> Iterator[Named]:
    """The steps of an ordinary workflow."""
    phases = [word for word in _PHASES if word in root.entries]
    for word in phases:
        hint = "or make it a step: steps: {NAME: {map: …}}" if word == "map" else ""
        message = f"`{word}` has no meaning without `mode: mapreduce`"
        reading.report.error("conflict", message, root.entries[word][0], hint=hint)
    steps: Node | None = fields.get("steps")
    if steps is not None:
        yield from named_steps(reading, steps, "steps")
    elif not phases:
        hint = "a list runs in order, a mapping by `needs`"
        reading.report.error("value", "the workflow has no `steps`", root, hint=hint)


def _mapreduce(reading: NativeReading, root: Mapping, fields: dict[str, Any]) -> Iterator[Named]:
    """The steps of `mode: mapreduce`: `setup`, the map, `reduce`."""
    if "steps" in root.entries:
        where = root.entries["steps"][0]
        hint = "they belong to `setup` or `reduce`"
        reading.report.error("conflict", "`mode: mapreduce` has no `steps`", where, hint=hint)
    if "setup" in fields:
        yield from phase_steps(reading, fields["setup"], "setup", "setup")
    if "map" in root.entries:
        key, node = root.entries["map"]
        yield MAP_STEP, key, Mapping({"map": (key, node)}, node.line, node.column)
    else:
        where = root.entries["mode"][0]
        reading.report.error("value", "`mode: mapreduce` needs `map`: what runs for each item", where)
    if "reduce" in fields:
        yield from phase_steps(reading, fields["reduce"], "reduce", "reduce")
