"""The native front end: a mapping with `resile: 1` becomes a Workflow.

    keys (native_keys) -> steps (native_step) -> edges and cycles (native_graph) -> references (native_lint)

Nothing is parsed and ignored: a key either changes the model or is refused. All findings come at once; with an
error among them there is no workflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resile.dialects.base import Diagnostics, Reading, Source, read_mapping
from resile.dialects.native_graph import Ancestors, connect
from resile.dialects.native_keys import WORKFLOW
from resile.dialects.native_lint import check_references
from resile.dialects.native_routes import called_only, called_steps, check_routes
from resile.dialects.native_step import Drafted, NativeReading, Within, is_dangling, read_step
from resile.dialects.native_values import name_problem
from resile.dialects.tree import Mapping, Node, Scalar, Sequence, describe, shorten
from resile.model.limits import LOOPS_DEFAULT, STEPS_MAX
from resile.model.rules import Origin
from resile.model.workflow import Noop, Step, Workflow

if TYPE_CHECKING:
    from collections.abc import Iterator


def compile_native(source: Source, root: Mapping, report: Diagnostics) -> Workflow | None:
    """The workflow in a native file, or None where it has an error."""
    reading = NativeReading(source, report)
    fields = read_mapping(reading, root, WORKFLOW)
    _read_ladder(reading, fields)
    drafts = _read_steps(reading, root, fields)
    end = drafts.pop("end", None)
    is_list = isinstance(fields.get("steps"), Sequence)
    called = called_steps(reading, drafts)
    steps = connect(report, drafts, is_list, called_only(drafts, called))
    ancestors = Ancestors(steps, is_list)
    if reading.named or called:
        steps = check_routes(reading, drafts, steps, ancestors)
    check_references(reading, fields.get("inputs", {}), drafts, ancestors, called, end)
    if report.errors:
        return None
    given = {
        field: fields[field]
        for field in ("inputs", "secrets", "env", "max_parallel", "grace_seconds")
        if field in fields
    }
    return Workflow(
        name=fields.get("name") or _file_stem(source.file),
        dialect="native",
        file=source.file,
        folder=source.folder,
        steps=steps,
        end=end.step if end else Step(name="end", action=Noop(), origin=Origin(root.line, root.column)),
        failure_handlers=reading.handlers,
        loops_max=fields.get("routing", {}).get("max_loops", LOOPS_DEFAULT),
        **given,
    )


def _read_ladder(reading: NativeReading, fields: dict[str, Any]) -> None:
    """What the workflow says for all its steps: its agent, its failure handlers, its defaults."""
    reading.agent = fields.get("agent", {})
    if "failure_handlers" in fields:
        from resile.dialects.native_handlers import read_handlers

        reading.handlers = read_handlers(reading, fields["failure_handlers"])
    if "defaults" in fields.get("routing", {}):
        from resile.dialects.native_ladder import read_defaults

        reading.defaults = read_defaults(reading, fields["routing"]["defaults"])


def _file_stem(file: str) -> str:
    """A workflow without a name is called like its file."""
    return file.rpartition("/")[2].rpartition(".")[0] or file.rpartition("/")[2]


def _read_steps(reading: NativeReading, root: Mapping, fields: dict[str, Any]) -> dict[str, Drafted]:
    """Every step by its name, in the order of the file."""
    report = reading.report
    steps: Node | None = fields.get("steps")
    if steps is None:
        report.error("value", "the workflow has no `steps`", root, hint="a list runs in order, a mapping by `needs`")
        return {}
    if isinstance(steps, Scalar):
        report.error("type", f"`steps` must be a list or a mapping, not {describe(steps)}", steps)
        return {}
    count = len(steps.items if isinstance(steps, Sequence) else steps.entries)
    if count == 0:
        report.error("value", "`steps` is empty", steps, hint="a workflow has at least one step")
    if count > STEPS_MAX:
        report.error("limit", f"{count} steps are more than {STEPS_MAX}", steps)
        return {}
    within = Within(fields.get("shell_program", "sh"))
    drafts: dict[str, Drafted] = {}
    named = _listed(reading, steps) if isinstance(steps, Sequence) else _mapped(reading, steps)
    for name, key, node in named:
        problem = name_problem(name)
        if problem:
            report.error("name", f"the step name `{shorten(name)}` {problem}", key)
        if not isinstance(node, Mapping):
            hint = "write {shell: …}" if isinstance(node, Scalar) and node.value is not None else ""
            report.error("type", f"a step must be a mapping, not {describe(node)}", node, hint=hint)
            continue
        place = key if isinstance(key, Scalar) else node
        reading.owner = name
        draft = read_step(reading, name, node, place, within)
        first = drafts.get(name)
        if first is not None:
            where = f"{first.key.line}:{first.key.column}"
            report.error("duplicate", f"the step `{shorten(name)}` is here twice; the first is at {where}", place)
            continue
        drafts[name] = draft
    reading.owner = ""
    return drafts


def _mapped(reading: Reading, steps: Mapping) -> Iterator[tuple[str, Node, Node]]:
    """The steps of a mapping, called by their keys."""
    for name, (key, node) in steps.entries.items():
        if isinstance(node, Mapping):
            for word in ("id", "name"):
                if word in node.entries:
                    message = f"in a mapping of steps the key is the name: `{shorten(name)}`"
                    reading.report.error("conflict", message, node.entries[word][0], hint=f"take `{word}` out")
        yield name, key, node


def _listed(reading: Reading, steps: Sequence) -> Iterator[tuple[str, Node, Node]]:
    """The steps of a list, called by `id`, else by `name`, else by their place."""
    items = steps.items
    if any(is_dangling(item) for item in items):
        from resile.dialects.native_commands import attach_dangling

        items = attach_dangling(reading, items)
    for number, node in enumerate(items, 1):
        name, key = f"step-{number}", node
        if isinstance(node, Mapping):
            for word in ("id", "name"):
                entry = node.entries.get(word)
                if entry is not None and isinstance(entry[1], Scalar) and entry[1].value is not None:
                    name, key = entry[1].text, entry[1]
                    break
            if "id" in node.entries and "name" in node.entries:
                where = node.entries["name"][0]
                reading.report.warning("conflict", "`name` changes nothing where there is an `id`", where)
        yield name, key, node
