"""`map` steps: the source of the items, the steps that run for each, and the policy for items that fail.

    input: [1, 2]            values          input: {step: list}              another step's output
    input: work.jsonl        a file          input: ${steps.list.output}      the same
    input: git ls-files      a command that prints JSON, JSON Lines or lines
    input: ${item.files}     one reference to a list; the same as {template: …}
    input: {path: a b.csv}   a file of any name; {command: …} likewise

A text is a file if a file of that name exists beside the workflow file, or if it is one word with a known ending (an
earlier step may write that file). The steps of a map have a scope of their own.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.context import FANOUT_DEPTH_MAX, Defaults, NativeReading, Policy, Scope
from resile.dialects.native.failures.error_policy import hand_over, notice_failing_map, read_policy
from resile.dialects.native.keys.fanout import FILE_ENDINGS, INPUT_STEP, MAP
from resile.dialects.native.keys.names import ROOTS, item_name
from resile.dialects.native.scope import named_steps, phase_steps, read_drafts
from resile.dialects.native.step_types.commands import stops_at_first_failure
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import INVALID, read_mapping
from resile.dialects.reading.values import non_empty, read_data, text
from resile.errors import shorten
from resile.languages.references import is_one_reference, names, path_of
from resile.model.fanout import ErrorPolicy, Source
from resile.model.workflow import FanOut, Step

_SELECTION = ("json_path", "filter", "filter_bare", "sort_by", "distinct", "offset", "items_max")
_SETTINGS = ("max_parallel", "redrive_parallel", "item_timeout_seconds", "isolation", "branch", "merge", "scope",
             "item_name")  # fmt: skip


def read_map(reading: NativeReading, name: str, node: Node, within: Defaults) -> FanOut | None:
    """Read the fan-out of a `map` step."""
    fields = read_mapping(reading, node, MAP)
    if not isinstance(node, Mapping):
        return None
    if "filter_bare" in node.entries and "filter" not in node.entries:
        reading.report.error(
            "conflict", "`filter_bare` has no meaning without `filter`", node.entries["filter_bare"][0]
        )
    for word in ("branch", "merge"):
        if word in node.entries and fields.get("isolation", "none") == "none":
            message = f"`{word}` has no meaning without `isolation: worktree`"
            reading.report.error("conflict", message, node.entries[word][0])
    source = _source(reading, node, fields, within)
    if "error_policy" in fields:
        policy = read_policy(reading, fields["error_policy"])
    else:
        policy = reading.policy or Policy(ErrorPolicy(on_item_failure="fail"))
        if reading.policy is None:
            notice_failing_map(reading, node)
        reading.policy_used = True
    steps = _item_steps(reading, name, node, fields, policy, replace(within, before=None))
    if source is None:
        return None
    settings = {field: fields[field] for field in _SETTINGS if field in fields}
    return FanOut(source=source, steps=steps, policy=policy.settings, **settings)


def input_of(step: Mapping) -> Scalar | Mapping:
    """Node in which a map step names the step that produces its items."""
    node: Node = step
    for word in ("map", "input", "step"):
        if isinstance(node, Mapping) and word in node.entries:
            node = node.entries[word][1]
    return step if isinstance(node, Sequence) else node


def _item_steps(
    reading: NativeReading, name: str, node: Mapping, fields: dict[str, Any], policy: Policy, within: Defaults
) -> tuple[Step, ...]:
    """Read the steps that run for each item."""
    steps: Node | None = fields.get("steps")
    if steps is None:
        reading.report.error("value", "`map` needs `steps`: what runs for each item", node)
        return ()
    outer = reading.scope
    scope = Scope(outer, reading.owner, reading.depth > 0)
    if depth_of(scope) > FANOUT_DEPTH_MAX:
        reading.report.error("limit", f"fan-outs in fan-outs go no deeper than {FANOUT_DEPTH_MAX} levels", node)
        return ()
    if "item_name" in fields:
        # Templates of other systems can use any name.
        if reading.dialect == "native":
            item_name(reading, fields["item_name"], node.entries["item_name"][1])
        scope.captured[fields["item_name"]] = name
    with reading.enter_scope(scope):
        if "steps" in node.entries:
            named = named_steps(reading, steps, "steps")
        else:
            named = phase_steps(reading, steps, "agent_template", "step")
        drafts = read_drafts(reading, named, within)
        refuse_end(reading, drafts.pop("end", None))
        hand_over(reading, policy, drafts, within.program)
        is_list = "steps" not in node.entries or isinstance(steps, Sequence)
        result = reading.readers.scope(reading, drafts, is_list)
    outer.inner.update((inner, name) for inner in drafts)
    return result


def depth_of(scope: Scope) -> int:
    """Number of fan-outs around a scope."""
    depth = 0
    while scope.around is not None:
        depth, scope = depth + 1, scope.around
    return depth


def refuse_end(reading: NativeReading, end: Any) -> None:
    """Refuse a step called `end` in an item: `end` is the last step of a run."""
    if end is not None:
        hint = "what follows all items is a step that needs the map"
        reading.report.error("reserved", "no step of an item can be called `end`", end.key, hint=hint)


def _source(reading: NativeReading, node: Mapping, fields: dict[str, Any], within: Defaults) -> Source | None:
    """Read the source of the items and their selection."""
    given: Node | None = fields.get("input")
    if given is None:
        reading.report.error("value", "`map` needs `input`: where the items come from", node)
        return None
    origin = _input(reading, given, within)
    if origin is None:
        return None
    return Source(**origin, **{field: fields[field] for field in _SELECTION if field in fields})


def _input(reading: NativeReading, node: Node, within: Defaults) -> dict[str, Any] | None:
    """The input of a map, as fields of a Source."""
    if isinstance(node, Sequence):
        values = _values(reading, node)
        return None if values is INVALID else {"values": tuple(values)}
    if isinstance(node, Mapping):
        return _read_explicit_input(reading, node, within)
    value = non_empty(text, "`input`")(reading, node)
    if value is INVALID:
        return None
    if is_one_reference(value):
        path = path_of(value[2:-1])
        if len(path) == 3 and path[0] == "steps" and path[2] == "output":
            return _from_step(reading, str(path[1]), node, within)
        reading.refers(node)
        return {"template": value}
    if _is_file(reading, value):
        if "${" in value:
            reading.refers(node)
        return {"path": value}
    if "${" in value:
        reading.refers(node, within.program)
    return _from_command(reading, value, node, within)


def _read_explicit_input(reading: NativeReading, node: Mapping, within: Defaults) -> dict[str, Any] | None:
    """Read an `input` with an explicit kind: `step`, `path`, `command` or `template`."""
    fields = read_mapping(reading, node, INPUT_STEP)
    if len(node.entries) != 1:
        reading.report.error("value", "`input` needs `step`, `path`, `command` or `template`, one of them", node)
    if len(fields) != 1 or len(node.entries) != 1:
        return None
    ((word, value),) = fields.items()
    written = node.entries[word][1]
    if word == "step":
        return _from_step(reading, value, written, within)
    if word in ("path", "template"):
        return {word: value}
    if "${" in value and isinstance(written, Scalar):
        reading.refers(written, within.program)
    return _from_command(reading, value, written, within)


def _from_command(reading: NativeReading, command: str, node: Node, within: Defaults) -> dict[str, Any]:
    """Take the items from what a command prints."""
    errexit = stops_at_first_failure(reading, node, command, within)
    return {"command": command, "program": within.program, "errexit": errexit}


def _is_file(reading: NativeReading, value: str) -> bool:
    """Does this text name a file?"""
    import os

    if value.endswith(FILE_ENDINGS) and len(value.split()) == 1:
        return True
    return os.path.isfile(os.path.join(reading.source.folder, value))


def _from_step(reading: NativeReading, step: str, node: Node, within: Defaults) -> dict[str, Any] | None:
    """Take the items from another step of the same scope, or in a handler from an earlier command."""
    if within.before is not None and step not in within.before:
        hint = did_you_mean(step, within.before, "before it") or "there is no command before it"
        message = f"no command `{shorten(step)}` stands before this one in its handler"
        reading.report.error("unknown-step", message, node, hint=hint)
        return None
    return {"step": step}


def _values(reading: NativeReading, node: Sequence) -> Any:
    """Read items from a literal list; references in them are refused."""
    count = len(reading.texts)
    values = read_data(reading, node)
    texts = reading.texts[count:] if reading.language.has_references else []
    del reading.texts[count:]
    for found in texts:
        for name, _ in names(found.node.text):
            if len(path_of(name)) > 1 and path_of(name)[0] in ROOTS:
                hint = "a command can print items that are made of values"
                message = f"`${{{shorten(name)}}}` has no value here: items are taken as they are written"
                reading.report.error("value", message, found.node, hint=hint)
                return INVALID
    return values
