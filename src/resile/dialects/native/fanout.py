"""`map` steps: where the items come from, what runs for each, and what becomes of those that fail.

    input: [1, 2]            values          input: {step: list}              another step's output
    input: work.jsonl        a file          input: ${steps.list.output}      the same
    input: git ls-files      a command that prints JSON, JSON Lines or lines
    input: ${item.files}     one reference: the list that it stands for, as {template: …} has it
    input: {path: a b.csv}   a file of whatever name; {command: …} in the same way

A text is a file where one of that name stands beside the workflow file, or where it is one word that ends as such
files do, so that a file that an earlier step makes counts. The steps inside are a scope of their own.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.context import FANOUT_DEPTH_MAX, Defaults, NativeReading, Policy, Scope
from resile.dialects.native.failures.error_policy import hand_over, read_policy
from resile.dialects.native.keys.fanout import INPUT_STEP, MAP
from resile.dialects.native.keys.programs import read_data
from resile.dialects.native.keys.steps import ROOTS
from resile.dialects.native.scope import named_steps, phase_steps, read_drafts
from resile.dialects.native.step_types.map import FILE_ENDINGS
from resile.dialects.reading.key_tables import INVALID, read_mapping
from resile.dialects.reading.suggestions import did_you_mean
from resile.dialects.reading.values import non_empty, text
from resile.errors import shorten
from resile.languages.references import is_one_reference, names, path_of
from resile.model.fanout import ErrorPolicy, FanOut, Source
from resile.model.workflow import Step

_SELECTION = ("json_path", "filter", "filter_bare", "sort_by", "distinct", "offset", "items_max")
_SETTINGS = ("max_parallel", "item_timeout_seconds", "isolation", "scope", "item_name")


def read_map(reading: NativeReading, name: str, node: Node, within: Defaults) -> FanOut | None:
    """The fan-out that a `map` describes."""
    fields = read_mapping(reading, node, MAP)
    if not isinstance(node, Mapping):
        return None
    if "filter_bare" in node.entries and "filter" not in node.entries:
        reading.report.error(
            "conflict", "`filter_bare` has no meaning without `filter`", node.entries["filter_bare"][0]
        )
    source = _source(reading, node, fields, within)
    if "error_policy" in fields:
        policy = read_policy(reading, fields["error_policy"])
    else:
        policy = reading.policy or Policy(ErrorPolicy())
        reading.policy_used = True
    steps = _item_steps(reading, name, node, fields, policy, replace(within, before=None))
    if source is None:
        return None
    settings = {field: fields[field] for field in _SETTINGS if field in fields}
    return FanOut(source=source, steps=steps, policy=policy.settings, **settings)


def input_of(step: Mapping) -> Scalar | Mapping:
    """Where a map step says which other step gives its items."""
    node: Node = step
    for word in ("map", "input", "step"):
        if isinstance(node, Mapping) and word in node.entries:
            node = node.entries[word][1]
    return step if isinstance(node, Sequence) else node


def _item_steps(
    reading: NativeReading, name: str, node: Mapping, fields: dict[str, Any], policy: Policy, within: Defaults
) -> tuple[Step, ...]:
    """What runs for each item."""
    steps: Node | None = fields.get("steps")
    if steps is None:
        reading.report.error("value", "`map` needs `steps`: what runs for each item", node)
        return ()
    outer = reading.scope
    scope = Scope(outer, reading.owner, reading.depth > 0)
    if depth_of(scope) > FANOUT_DEPTH_MAX:
        reading.report.error("limit", f"fan-outs in fan-outs go no deeper than {FANOUT_DEPTH_MAX} levels", node)
        return ()
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
    """How many fan-outs stand around the steps of a scope."""
    depth = 0
    while scope.around is not None:
        depth, scope = depth + 1, scope.around
    return depth


def refuse_end(reading: NativeReading, end: Any) -> None:
    """`end` is the way out of a run, and an item has none of its own."""
    if end is not None:
        hint = "what follows all items is a step that needs the map"
        reading.report.error("reserved", "no step of an item can be called `end`", end.key, hint=hint)


def _source(reading: NativeReading, node: Mapping, fields: dict[str, Any], within: Defaults) -> Source | None:
    """Where the items come from and which of them are taken."""
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
    return {"command": value, "program": within.program}


def _read_explicit_input(reading: NativeReading, node: Mapping, within: Defaults) -> dict[str, Any] | None:
    """An input that says what it is."""
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
    return {"command": value, "program": within.program}


def _is_file(reading: NativeReading, value: str) -> bool:
    """Is this text the name of a file?"""
    import os

    if value.endswith(FILE_ENDINGS) and len(value.split()) == 1:
        return True
    return os.path.isfile(os.path.join(reading.source.folder, value))


def _from_step(reading: NativeReading, step: str, node: Node, within: Defaults) -> dict[str, Any] | None:
    """Another step of the same scope; in a handler, a command before."""
    if within.before is not None and step not in within.before:
        hint = did_you_mean(step, within.before, "before it") or "there is no command before it"
        message = f"no command `{shorten(step)}` stands before this one in its handler"
        reading.report.error("unknown-step", message, node, hint=hint)
        return None
    return {"step": step}


def _values(reading: NativeReading, node: Sequence) -> Any:
    """Items as they stand in the file; nothing is put into them."""
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
