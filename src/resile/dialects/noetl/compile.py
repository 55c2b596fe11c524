"""The NoETL front end: a playbook becomes a native tree with Jinja templates, which the native front end compiles.

    file -> workload (inputs), keychain (secrets), workbook -> steps (step.py) -> native tree -> native/compile.py

A run begins at `start`, else at the step that `executor` names, else at the first one, and follows the arcs; a step
that no arc reaches is skipped. Every path ends in `end`, which is added if the playbook has none. No key is ignored: it
has an effect, is refused by name, or is a comment. Mappings of the native tree have the positions of their keys in the
playbook, so findings and rules point into the playbook.
"""

from __future__ import annotations

import re
from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe, mark_at
from resile.dialects.native.compile import compile_part
from resile.dialects.native.nodes import StepPart, WorkflowPart, node_of, text_in, value_of
from resile.dialects.noetl.arcs import END, target_of
from resile.dialects.noetl.follow import NOWHERE
from resile.dialects.noetl.keys import FILE, KEYCHAIN_ENTRY, METADATA, TABLES, WORKBOOK_ENTRY
from resile.dialects.noetl.step import read_step
from resile.dialects.noetl.tools.tool import keys_of_step
from resile.dialects.noetl.values import NoetlReading, arguments, find_in_workload, lacks, names_given_in
from resile.dialects.reading.context import Source
from resile.dialects.reading.diagnostics import Diagnostics, did_you_mean
from resile.dialects.reading.key_tables import INVALID, read_keys
from resile.dialects.reading.values import integer, name_problem, wrong
from resile.errors import shorten
from resile.model.limits import LOOPS_MAX, STEPS_MAX
from resile.model.workflow import Workflow

__all__ = ["TABLES", "compile_noetl"]

ARCS_BACK_MAX = 1_000
"""How often the arcs of a playbook lead back to steps that have run, where nothing else is written."""
VERSIONS = ("noetl.io/v1", "noetl.io/v2", "noetl.io/v10")
_KEYCHAIN = re.compile(rb"\bkeychain\.([A-Za-z_][A-Za-z0-9_]*)\.([A-Za-z_][A-Za-z0-9_]*)")
# Only in braces: elsewhere `token` is a function of the code or the shell.
_TOKEN = re.compile(rb"""\{\{[^{}]*?\btoken\(\s*(?:'([^'{}]+)'|"([^"{}]+)"|([A-Za-z_][\w.]*))[^{}]*\}\}""")


def compile_noetl(source: Source, root: Mapping, report: Diagnostics) -> Workflow | None:
    """Compile a playbook; return None if it has an error."""
    reading = NoetlReading(source, report)
    fields = read_keys(reading, root, FILE)
    _check_version(reading, root)
    name = _read_name(reading, fields, source.file)
    reading.workload = _read_workload(reading, fields)
    about = fields.get("executor", {}).get("spec", {})
    reading.final = _find_final_step(reading, about.get("final_step"), fields.get("workflow"))
    listed = _list_steps(reading, root, fields)
    reading.known = frozenset(reading.workload) | frozenset(reading.names) | names_given_in(root)
    _read_keychain(reading, fields.get("keychain"))
    _find_secrets(reading, source.data)
    _read_workbook(reading, fields.get("workbook"))
    steps = {step_name: read_step(reading, step_name, key, node) for step_name, key, node in listed}
    reading.owner = ""
    end = steps.pop(END, None) or StepPart(NOWHERE, noop=True)
    if reading.final:
        end["aliases"] = {reading.final: END}
    entry = _find_entry_step(reading, about, value_of(root, "executor"), list(steps))
    if report.errors or not entry:
        return None
    ordered = {entry: steps.pop(entry), **steps}
    workflow = WorkflowPart(
        root,
        name=name,
        templates="jinja",
        condition_errors="skip",
        routing={"max_loops": _read_loops_max(reading, about, fields.get("spec"))},
        inputs=_inputs_of(reading),
        secrets=reading.secrets | _secrets_of_children(reading, ordered),
        steps={**_connect(ordered), END: _give_inputs(end, END, ordered)},
    )
    return compile_part(reading.native, workflow.to_node())


def _read_loops_max(reading: NoetlReading, about: dict[str, Any], spec: Node | None) -> int:
    """Read the loop budget: `max_loops` of the executor's `spec`, or of the playbook's."""
    node = value_of(spec, "max_loops") if isinstance(spec, Mapping) else None
    given: Any = integer(0, LOOPS_MAX)(reading, node) if node is not None else INVALID
    found: int = about.get("max_loops", ARCS_BACK_MAX if given is INVALID else given)
    return found


def _check_version(reading: NoetlReading, root: Mapping) -> None:
    """Report an `apiVersion` that is not known."""
    node = value_of(root, "apiVersion")
    if node is not None and text_in(node) not in VERSIONS:
        hint = did_you_mean(node.text, VERSIONS, "versions") if isinstance(node, Scalar) else ""
        reading.report.error("version", f"there is no apiVersion {describe(node)}", node, hint=hint)


def _read_name(reading: NoetlReading, fields: dict[str, Any], file: str) -> str:
    """Read the name of the playbook, from its metadata or its file."""
    metadata: Node | None = fields.get("metadata")
    known: dict[str, Any] = {}
    if isinstance(metadata, Mapping):
        # It is an open mapping of labels: only these two affect a run.
        own = {word: entry for word, entry in metadata.entries.items() if word in METADATA.keys}
        known = read_keys(reading, Mapping(own, metadata.line, metadata.column), METADATA)
    elif metadata is not None:
        wrong(reading, metadata, "a mapping with `name`")
    stem = file.rpartition("/")[2].rpartition(".")[0] or file
    words = (known.get("name"), fields.get("name"), known.get("path"), fields.get("path"), stem)
    return next(str(word) for word in words if word)


def _read_workload(reading: NoetlReading, fields: dict[str, Any]) -> dict[str, Any]:
    """Read the workload: the values that a run can be given, with their defaults."""
    found: dict[str, Any] = {}
    for word in ("workload", "spec"):
        node: Node | None = fields.get(word)
        if node is None or (isinstance(node, Scalar) and node.value is None):
            continue
        reading.known = names_given_in(node) | frozenset(node.entries if isinstance(node, Mapping) else ())
        values = arguments(reading, node)
        if isinstance(values, dict):
            found |= values if word == "workload" else {"spec": values}
    return found


def _inputs_of(reading: NoetlReading) -> dict[str, Any]:
    """Build the inputs of the workflow from the workload; a schema fixes those that hold code."""
    kinds = {bool: "bool", int: "number", float: "number", str: "text"}
    return {
        name: {"type": kinds.get(type(value), "json"), "default": value}
        | ({"schema": {"const": value}} if name in reading.fixed else {})
        for name, value in reading.workload.items()
    }


def _read_keychain(reading: NoetlReading, node: Node | None) -> None:
    """Read the keychain; each field of an entry is an environment variable."""
    if node is not None and not isinstance(node, Sequence):
        wrong(reading, node, "a list of entries")
    for item in node.items if isinstance(node, Sequence) else []:
        given = read_keys(reading, item, KEYCHAIN_ENTRY)
        if lacks(reading, item, given, {"name"}, "an entry of the keychain needs `name`"):
            continue
        mapped = given.get("map")
        fields = dict.fromkeys(mapped.entries if isinstance(mapped, Mapping) else ())
        reading.keychain[given["name"]] = fields
        for field in fields:
            reading.add_secret(given["name"], field, item)


def _find_secrets(reading: NoetlReading, text: bytes) -> None:
    """Find the keychain fields and tokens that templates name."""
    for used in _KEYCHAIN.finditer(text):
        name, place = used[1].decode(), mark_at(text, used.start())
        if name in reading.keychain:
            reading.add_secret(name, used[2].decode(), place)
        else:
            hint = did_you_mean(name, reading.keychain, "entries") or "name it under `keychain`"
            reading.report.error("keychain", f"the keychain has no `{shorten(name)}`", place, hint=hint)
    for used in _TOKEN.finditer(text):
        place = mark_at(text, used.start())
        given = (used[1] or used[2] or b"").decode()
        known = given or find_in_workload(reading, f"{{{{ {(used[3] or b'').decode()} }}}}")
        if known:
            reading.add_secret(known, "token", place)
        else:
            hint = "write the name in quotes, or keep it in the workload as text"
            reading.report.error(
                "keychain", "which token this is must be known when the file is loaded", place, hint=hint
            )


def _read_workbook(reading: NoetlReading, node: Node | None) -> None:
    """Read the names of the workbook; a tool is read by each step that calls it."""
    if node is not None and not isinstance(node, Sequence):
        wrong(reading, node, "a list of tools")
    for item in node.items if isinstance(node, Sequence) else []:
        fields = read_keys(reading, item, keys_of_step(WORKBOOK_ENTRY, item))
        given: Node | None = fields.get("name")
        if not isinstance(given, Scalar) or given.value is None or not isinstance(item, Mapping):
            if isinstance(item, Mapping):
                reading.report.error("value", "an entry of the workbook needs `name`", item)
        elif given.text in reading.workbook:
            reading.report.error("duplicate", f"the workbook has `{shorten(given.text)}` twice", given)
        else:
            reading.workbook[given.text] = item


def _list_steps(reading: NoetlReading, root: Mapping, fields: dict[str, Any]) -> list[tuple[str, Scalar, Mapping]]:
    """List the steps with their names, and add them to the names that arcs can use."""
    report = reading.report
    node: Node | None = fields.get("workflow")
    items = node.items if isinstance(node, Sequence) else []
    if not items:
        report.error("value", "a playbook needs `workflow`, a list of steps", node or root)
    if len(items) > STEPS_MAX:
        report.error("limit", f"{len(items)} steps are more than {STEPS_MAX}", node)
        return []
    found: list[tuple[str, Scalar, Mapping]] = []
    for item in items:
        key = value_of(item, "step") if isinstance(item, Mapping) else None
        if key is None or not isinstance(item, Mapping):
            message = "a step needs `step`, its name" if isinstance(item, Mapping) else f"{describe(item)} is no step"
            report.error("value", message, item)
            continue
        if not isinstance(key, Scalar) or key.value is None:
            wrong(reading, key, "the name of a step")
            continue
        name = END if key.text.strip().lower() == END or key.text.strip() == reading.final else key.text
        problem = name_problem(name)
        if problem:
            report.error("name", f"the step name `{shorten(name)}` {problem}", key)
        elif name in reading.names:
            first = reading.names[name]
            where = f"{first.line}:{first.column}"
            message = f"the step `{shorten(name)}` is here twice: the one at {where} runs, this one never does"
            report.warning("duplicate", message, key, hint="give it another name, or take it out")
        else:
            reading.names[name] = key
            found.append((name, key, item))
    return found


def _find_final_step(reading: NoetlReading, node: Node | None, steps: Node | None) -> str:
    """Find the step that `final_step` names; an empty text if that is `end`."""
    if node is None:
        return ""
    if not isinstance(node, Scalar) or node.value is None:
        wrong(reading, node, "the name of a step")
        return ""
    wanted, names = node.text.strip(), _step_names_in(steps)
    if wanted.lower() == END:
        return ""
    if wanted not in names:
        hint = did_you_mean(wanted, names, "steps")
        reading.report.error("unknown-step", f"there is no step `{shorten(wanted)}`", node, hint=hint)
    elif any(name.lower() == END for name in names):
        message = f"`{shorten(wanted)}` is to run last, and so is `end`, which is here as well"
        reading.report.error("conflict", message, node, hint="keep one of them")
    elif wanted.lower() == "start" or wanted == names[0]:
        reading.report.error("conflict", "a run can't end with the step that it begins with", node)
    else:
        reading.report.notice("final-step", f"`{shorten(wanted)}` runs last, after every path: here it is `end`", node)
        return wanted
    return ""


def _step_names_in(steps: Node | None) -> list[str]:
    items = steps.items if isinstance(steps, Sequence) else []
    names = [value_of(item, "step") for item in items if isinstance(item, Mapping)]
    return [name.text.strip() for name in names if isinstance(name, Scalar)]


def _find_entry_step(reading: NoetlReading, about: dict[str, Any], node: Node | None, names: list[str]) -> str:
    """Find the step at which a run begins; an empty text if there is none."""
    named = target_of(reading, about["entry_step"]) if "entry_step" in about else ""
    start = next((name for name in names if name.lower() == "start"), "")
    entry = start or named or (names[0] if names else "")
    if named and named != entry:
        reading.report.error("conflict", "a run begins at `start`, and `entry_step` names another", about["entry_step"])
    if not entry and not reading.report.errors:
        reading.report.error("value", "there is no step to begin with", node)
    return entry if entry != END else ""


def _working_step_of(step: StepPart) -> StepPart:
    return next(iter(step["map"]["steps"].values())) if "map" in step else step


def _secrets_of_children(reading: NoetlReading, steps: dict[str, StepPart]) -> dict[str, dict[str, Any]]:
    """Collect the secrets of the playbooks that steps run; they must be there before the run starts."""
    found: dict[str, dict[str, Any]] = {}
    for step in steps.values():
        child = _working_step_of(step).get("workflow")
        if isinstance(child, Scalar):
            secrets = reading.children[child.text].secrets.items()
            for name, one in secrets:
                source = {"env": one.env} if one.env else {"file": one.file}
                found[name] = {**source, **({"optional": True} if one.is_optional else {})}
    return found


def _connect(steps: dict[str, StepPart]) -> dict[str, StepPart]:
    """Connect the steps: one without arcs to it never runs, one with several predecessors waits for all of them."""
    sources: dict[str, set[str]] = {}
    for name, step in steps.items():
        for arc in step.get("next", ()):
            sources.setdefault(arc["step"], set()).add(name)
    found: dict[str, StepPart] = {}
    for number, (name, step) in enumerate(steps.items()):
        if number and name not in sources:
            step = step.replace(when=node_of(False, NOWHERE))
        elif number and len(sources[name]) > 1:
            step = step.replace(join="all")
        found[name] = _give_inputs(step, name, steps)
    return found


def _give_inputs(step: StepPart, name: str, steps: dict[str, StepPart]) -> StepPart:
    """Declare the arguments of a step and of the arcs to it as inputs of the playbook that it calls."""
    runner = _working_step_of(step)
    child = runner.get("workflow")
    if child is None:
        return step
    brought = {key for other in steps.values() for arc in other.get("next", ()) if arc["step"] == name
               for key in arc.get("args", ())}  # fmt: skip
    names = sorted(brought | runner.get("args", {}).keys())
    if isinstance(child, WorkflowPart):
        child["inputs"] = {key: {"type": "json"} for key in names}
    else:
        runner["called"]["takes"] = names
    return step
