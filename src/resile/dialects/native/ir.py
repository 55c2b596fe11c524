"""`ir`: the key, on the workflow and on a step, for settings that only files of other systems have.

`lift_ir` moves its keys one level up, each with its own position, so readers treat them like other keys.
"""

from __future__ import annotations

from resile.dialects.formats.nodes import Mapping, Node, Scalar, describe
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import Table
from resile.dialects.reading.suggestions import did_you_mean
from resile.errors import shorten

IR = "ir"


def lift_ir(reading: Reading, node: Mapping, known: Table) -> Mapping:
    """Move the keys of `ir` up beside the others; report keys at the wrong level."""
    if IR not in node.entries and known.under_ir.keys().isdisjoint(node.entries):
        return node
    entries: dict[str, tuple[Scalar, Node]] = {}
    for name, (key, value) in node.entries.items():
        if name == IR:
            continue
        if name in known.under_ir:
            message = f"`{name}` is a key for files of other systems and stands under `ir`"
            reading.report.error("unknown-key", message, key, hint=f"ir: {{{name}: …}}")
        entries[name] = key, value
    if IR in node.entries:
        entries |= _ir_entries(reading, node.entries[IR][1], known)
    return Mapping(entries, node.line, node.column, node.file)


def _ir_entries(reading: Reading, node: Node, known: Table) -> dict[str, tuple[Scalar, Node]]:
    """The known entries of `ir`; report the others."""
    if not isinstance(node, Mapping):
        reading.report.error("type", f"`ir` must be a mapping, not {describe(node)}", node)
        return {}
    for name, (key, _) in node.entries.items():
        if name not in known.under_ir:
            hint = did_you_mean(name, known.under_ir, "keys")
            if name in known.keys:
                hint = f"`{name}` is a key of {known.name} itself"
            reading.report.error("unknown-key", f"`ir` has no key `{shorten(name)}`", key, hint=hint)
    return {name: entry for name, entry in node.entries.items() if name in known.under_ir}
