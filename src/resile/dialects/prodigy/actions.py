"""The actions of Prodigy steps: prompts with their arguments, and files."""

from __future__ import annotations

import re

from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.native.nodes import items_of, mapping, put, text_in, word
from resile.dialects.prodigy.keys import WRITE_FILE
from resile.dialects.prodigy.variables import Translation, Where
from resile.dialects.reading.diagnostics import Place
from resile.dialects.reading.key_tables import read_mapping
from resile.dialects.reading.suggestions import did_you_mean
from resile.dialects.reading.values import wrong

ACTIONS = ("shell", "claude", "analyze", "foreach", "write_file", "goal_seek", "test")
ANALYZE = "/prodigy-analyze"
_PLAIN = re.compile(r"[\w@%+=:,./-]+")
# Writes the content as indented JSON; a value that is data already is written as it is.
_WRITE_JSON = """\
import json, os

def main(path, content, mode):
    data = json.loads(content) if isinstance(content, str) else content
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    beside = path + ".part"
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, int(mode, 8)), "w") as file:
        json.dump(data, file, indent=2, ensure_ascii=False)
        file.write("\\n")
    os.replace(beside, path)
"""
# Writes the content unchanged after checking that it is YAML; a value that is data already is written as it is.
_WRITE_YAML = """\
import os, yaml

def main(path, content, mode):
    text = content if isinstance(content, str) else yaml.safe_dump(content, allow_unicode=True, sort_keys=False)
    for _ in yaml.compose_all(text, yaml.SafeLoader):
        pass
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    beside = path + ".part"
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, int(mode, 8)), "w") as file:
        file.write(text)
    os.replace(beside, path)
"""
# A field of an item, written bare in a text.
_FIELD = re.compile(r"\$\{(item(?:\.[A-Za-z_]\w*|\[\d+\])+)\}")
_WRITERS = {"json": _WRITE_JSON, "yaml": _WRITE_YAML}


def translate_prompt(t: Translation, node: Node, fields: dict[str, Node], where: Where) -> Node:
    """Make the prompt of an agent step; add the step's arguments and options that the prompt does not name."""
    if not isinstance(node, Scalar) or node.value is None:
        return node
    added = [text for item in items_of(fields["args"]) if (text := text_in(item))] if "args" in fields else []
    if "options" in fields:
        added += [_format_option(name, value) for name, value in _options_of(t, fields["options"])]
    written = node.text
    for text in added:
        if text.split(" ")[0] not in written.split():
            written += f" {text}"
    made = t.rewrite_text(word(written, node) if added else node, where)
    # The prompt may refer to the item: an agent is asked for each.
    return word(_FIELD.sub(r"${\1:-}", made.text), made) if where.item and isinstance(made, Scalar) else made


def translate_analysis(t: Translation, node: Node, where: Where) -> Node:
    """Make the prompt for an `analyze` step: each of its keys becomes an option of the prompt."""
    options = [_format_option(name, value) for name, value in _options_of(t, node)]
    return t.rewrite_text(word(" ".join((ANALYZE, *options)), node), where)


def _options_of(t: Translation, node: Node) -> list[tuple[str, Scalar]]:
    """The names and values of the options in a mapping."""
    if not isinstance(node, Mapping):
        wrong(t, node, "a mapping of options")
        return []
    found: list[tuple[str, Scalar]] = []
    for name, (key, value) in node.entries.items():
        if isinstance(value, Scalar) and name:
            found.append((name, value))
        else:
            wrong(t, value if name else key, "a value for an option")
    return found


def _format_option(name: str, value: Scalar) -> str:
    """Format one option for a prompt."""
    word_ = "--" + name.replace("_", "-")
    if value.value is True or value.value is None:
        return word_
    text = value.text if _PLAIN.fullmatch(value.text) else "'" + value.text.replace("'", "’") + "'"
    return f"{word_} {text}"


def translate_write_file(t: Translation, node: Node, where: Where, out: Mapping, at: Place) -> None:
    """Add the action that writes a file; a Python program checks JSON and YAML before."""
    fields = read_mapping(t, node, WRITE_FILE)
    form = text_in(fields.get("format")) or "text"
    if form != "text" and form not in _WRITERS:
        wrong(t, fields["format"], "one of text, json, yaml", did_you_mean(form, ("text", *_WRITERS)))
    given: dict[str, Node] = {key: t.rewrite_text(fields[key], where) for key in ("path", "content") if key in fields}
    if form in _WRITERS and len(given) == 2 and isinstance(node, Mapping):
        inputs = mapping(node, {**given, "mode": word(text_in(fields.get("mode")) or "0644", node)})
        put(out, "python", mapping(node, {"source": word(_WRITERS[form], node), "inputs": inputs}), at)
        return
    native = mapping(node, given)
    if "mode" in fields:
        put(native, "mode", fields["mode"])
    put(out, "write_file", native if isinstance(node, Mapping) else node, at)
