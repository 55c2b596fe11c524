"""The actions of Prodigy steps: prompts with their arguments, and files."""

from __future__ import annotations

import re

from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.native.nodes import Part, items_of, text_in, word
from resile.dialects.prodigy.keys import WRITE_FILE
from resile.dialects.prodigy.variables import StepDraft, Translation
from resile.dialects.reading.key_tables import read_mapping
from resile.dialects.reading.values import wrong

ACTIONS = ("shell", "claude", "analyze", "foreach", "write_file", "goal_seek", "test")
ANALYZE = "/prodigy-analyze"
_PLAIN = re.compile(r"[\w@%+=:,./-]+")
# A field of an item, written bare in a text.
_FIELD = re.compile(r"\$\{(item(?:\.[A-Za-z_]\w*|\[\d+\])+)\}")


def translate_prompt(step: StepDraft, node: Node) -> Node:
    """Make the prompt of an agent step; add the step's arguments and options that the prompt does not name."""
    if not isinstance(node, Scalar) or node.value is None:
        return node
    t, fields = step.t, step.fields
    added = [text for item in items_of(fields["args"]) if (text := text_in(item))] if "args" in fields else []
    added += _format_options(t, fields["options"]) if "options" in fields else []
    written = node.text
    for text in added:
        if text.split(" ")[0] not in written.split():
            written += f" {text}"
    made = t.rewrite_text(word(written, node) if added else node, step.where)
    # The prompt may refer to the item: an agent is asked for each.
    return word(_FIELD.sub(r"${\1:-}", text_in(made)), made) if step.where.item else made


def translate_analysis(step: StepDraft) -> Node:
    """Make the prompt for an `analyze` step: each of its keys becomes an option of the prompt."""
    node = step.fields["analyze"]
    return step.t.rewrite_text(word(" ".join((ANALYZE, *_format_options(step.t, node))), node), step.where)


def _format_options(t: Translation, node: Node) -> list[str]:
    """Format the options in a mapping for a prompt."""
    if not isinstance(node, Mapping):
        wrong(t, node, "a mapping of options")
        return []
    found: list[str] = []
    for name, (key, value) in node.entries.items():
        if isinstance(value, Scalar) and name:
            found.append(_format_option(name, value))
        else:
            wrong(t, value if name else key, "a value for an option")
    return found


def _format_option(name: str, value: Scalar) -> str:
    """Format one option for a prompt."""
    option = "--" + name.replace("_", "-")
    if value.value is True or value.value is None:
        return option
    text = value.text if _PLAIN.fullmatch(value.text) else "'" + value.text.replace("'", "’") + "'"
    return f"{option} {text}"


def add_write_file(step: StepDraft) -> None:
    """Add the action that writes a file."""
    t, node = step.t, step.fields["write_file"]
    fields = read_mapping(t, node, WRITE_FILE)
    native = Part(node, **{key: fields.get(key) for key in ("mode", "format")})
    native |= {key: t.rewrite_text(fields[key], step.where) for key in ("path", "content") if key in fields}
    step.put("write_file", native.to_node() if isinstance(node, Mapping) else node)
