"""Converts a Torc workflow in KDL to the mapping of the same workflow in YAML.

    job "a" { command "x"; depends_on "b" }      jobs: [{name: a, command: x, depends_on: [b]}]
    file "f" path="f.txt"                        files: [{name: f, path: f.txt}]
    action { job "a"; command "x" }              actions: [{jobs: [a], commands: [x]}]

No node is dropped: an unknown one becomes an unknown key, which the front end refuses by name.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from resile.dialects.formats.kdl import KdlNode, parse_document
from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe
from resile.dialects.native.nodes import node_of
from resile.dialects.reading.diagnostics import Diagnostics
from resile.dialects.torc.jobs import LISTS
from resile.errors import shorten


class Shape(Struct, frozen=True):
    """How the nodes inside one block become keys.

    `lists` collect the arguments of all nodes of a name under a key; `maps` are blocks of pairs; `sections` are nodes
    that become one mapping each in a list, with the first argument as the name if `named`. The text of the key
    `json` is JSON; `instead` ends the message about unexpected arguments.
    """

    lists: dict[str, str] = {}
    maps: tuple[str, ...] = ()
    sections: dict[str, tuple[str, Shape]] = {}
    named: bool = True
    json: str = ""
    instead: str = ""


def _lists(*keys: str) -> dict[str, str]:
    """Keys of lists, by their own name and by the singular for one item."""
    singular = {key.removesuffix("es") if key.endswith("regexes") else key.removesuffix("s"): key for key in keys}
    return singular | {key: key for key in keys}


_OLD_NAME = "depends_on_job"
_JOB = Shape(lists=_lists(*LISTS, "use_parameters") | {_OLD_NAME: "depends_on"}, maps=("parameters",))
_FILE = Shape(lists=_lists("use_parameters"), maps=("parameters",))
_PAIRS = Shape(named=False, instead=", but a block of names and values")
_RULE = Shape(lists=_lists("exit_codes"), named=False)
_ACTION = Shape(lists=_lists("jobs", "commands", "job_name_regexes"), named=False)
_WORKFLOW = Shape(
    maps=("parameters", "slurm_defaults", "resource_monitor", "metadata"),
    sections={
        "job": ("jobs", _JOB),
        "file": ("files", _FILE),
        "user_data": ("user_data", Shape(json="data")),
        "resource_requirements": ("resource_requirements", Shape()),
        "failure_handler": ("failure_handlers", Shape(sections={"rule": ("rules", _RULE)})),
        "slurm_scheduler": ("slurm_schedulers", Shape()),
        "action": ("actions", _ACTION),
    },
)


def parse_kdl(data: bytes, report: Diagnostics) -> Mapping | None:
    """Parse a file to one mapping, with an empty list if it has no jobs; return None if it is no valid KDL."""
    nodes = parse_document(data, report)
    if nodes is None:
        return None
    root = Mapping({}, 1, 1)
    _fill(root, nodes, _WORKFLOW, report)
    if "jobs" not in root.entries:
        root.entries["jobs"] = (Scalar("jobs", "jobs", 1, 1), Sequence([], 1, 1))
    return root


def _fill(into: Mapping, nodes: list[KdlNode], shape: Shape, report: Diagnostics) -> None:
    """Put nodes into a mapping by its shape."""
    for node in nodes:
        word = node.name.text
        if word in shape.sections:
            key, inner = shape.sections[word]
            _gather(into, node, key, [_make_section(node, inner, report)], report)
        elif word in shape.lists:
            if word == _OLD_NAME:
                message = f"`{_OLD_NAME}` is an old name of `depends_on` that Torc itself drops: it is taken as meant"
                report.notice("alias", message, node, hint="write `depends_on`")
            _refuse_block(node, report)
            if not node.arguments:
                report.error("value", f"`{word}` has no value", node)
            _gather(into, node, shape.lists[word], list(node.arguments), report)
        elif word in shape.maps:
            _put(into, node.name, _make_section(node, _PAIRS, report), report)
        else:
            _put(into, node.name, _read_value(node, shape, report), report)


def _gather(into: Mapping, node: KdlNode, key: str, items: list[Node], report: Diagnostics) -> None:
    """Add to the list under a key."""
    entry = into.entries.get(key)
    if entry is None:
        entry = into.entries[key] = (node.name, Sequence([], node.line, node.column))
    if isinstance(entry[1], Sequence):
        entry[1].items.extend(items)
        return
    place = f"{entry[0].line}:{entry[0].column}"
    message = f"`{shorten(node.name.text)}` and the `{key}` at {place} say the same thing"
    report.error("conflict", message, node, hint="keep one of them")


def _put(into: Mapping, key: Scalar, value: Node, report: Diagnostics) -> None:
    """Add an entry; report a duplicate."""
    first = into.entries.get(key.text)
    if first is None:
        into.entries[key.text] = (key, value)
        return
    place = f"{first[0].line}:{first[0].column}"
    message = f"`{shorten(key.text)}` is here twice; the first is at {place}"
    report.error("duplicate-key", message, key, hint="keep one of them")


def _make_section(node: KdlNode, shape: Shape, report: Diagnostics) -> Mapping:
    """Make a mapping of a node with a block: its name, its properties, and the nodes of the block."""
    result = Mapping({}, node.line, node.column)
    if len(node.arguments) != bool(shape.named):
        what = f'one name: `{node.name.text} "name"`' if shape.named else f"no arguments{shape.instead}"
        report.error("value", f"`{node.name.text}` takes {what}", node)
    if shape.named and node.arguments:
        name = node.arguments[0]
        result.entries["name"] = (name, name)
    for key, value in node.properties.values():
        _put(result, key, value, report)
    _fill(result, node.children or [], shape, report)
    return result


def _refuse_block(node: KdlNode, report: Diagnostics) -> None:
    """Refuse properties and a block at a node that only holds values."""
    for key, _ in node.properties.values():
        report.error("unknown-key", f"`{shorten(node.name.text)}` has no property `{shorten(key.text)}`", key)
    if node.children is not None:
        report.error("value", f"`{shorten(node.name.text)}` takes no block", node)


def _read_value(node: KdlNode, shape: Shape, report: Diagnostics) -> Node:
    """Read the one value of a node; the data of `user_data` is JSON in a text."""
    _refuse_block(node, report)
    if len(node.arguments) != 1:
        report.error("value", f"`{shorten(node.name.text)}` takes one value, not {len(node.arguments)}", node)
        return Scalar(None, "", node.line, node.column)
    value = node.arguments[0]
    if node.name.text != shape.json or not isinstance(value.value, str):
        return value
    try:
        return node_of(msgspec.json.decode(value.text.encode()), value)
    except (msgspec.DecodeError, RecursionError) as problem:
        report.error("value", f"{describe(value)} is not JSON: {problem}", value, hint="`data` is JSON in a text")
        return value
