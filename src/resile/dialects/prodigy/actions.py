"""What a Prodigy step does: prompts with their arguments, and files."""

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
# The content as JSON, laid out; a value that came as data is that data.
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
# The content as it stands, which must be YAML; a value that came as data is that data.
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
# A field of an item that stands in a text as it is.
_FIELD = re.compile(r"\$\{(item(?:\.[A-Za-z_]\w*|\[\d+\])+)\}")
_WRITERS = {"json": _WRITE_JSON, "yaml": _WRITE_YAML}


def prompt(t: Translation, node: Node, fields: dict[str, Node], where: Where) -> Node:
    """A prompt with the arguments and options that stand beside it and that it does not say already."""
    if not isinstance(node, Scalar) or node.value is None:
        return node
    added = [text for item in items_of(fields["args"]) if (text := text_in(item))] if "args" in fields else []
    if "options" in fields:
        added += [_option(name, value) for name, value in _options(t, fields["options"])]
    written = node.text
    for text in added:
        if text.split(" ")[0] not in written.split():
            written += f" {text}"
    made = t.text(word(written, node) if added else node, where)
    # Items differ, and an agent is asked all the same.
    return word(_FIELD.sub(r"${\1:-}", made.text), made) if where.item and isinstance(made, Scalar) else made


def analyze(t: Translation, node: Node, where: Where) -> Node:
    """An analysis, which is the agent's to make: each key is an option of the prompt."""
    options = [_option(name, value) for name, value in _options(t, node)]
    return t.text(word(" ".join((ANALYZE, *options)), node), where)


def _options(t: Translation, node: Node) -> list[tuple[str, Scalar]]:
    """Names and values of options."""
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


def _option(name: str, value: Scalar) -> str:
    """One option as a prompt writes it."""
    word_ = "--" + name.replace("_", "-")
    if value.value is True or value.value is None:
        return word_
    text = value.text if _PLAIN.fullmatch(value.text) else "'" + value.text.replace("'", "’") + "'"
    return f"{word_} {text}"


def write_file(t: Translation, node: Node, where: Where, out: Mapping, at: Place) -> None:
    """A file; JSON and YAML are checked by a program of their own."""
    fields = read_mapping(t, node, WRITE_FILE)
    form = text_in(fields.get("format")) or "text"
    if form != "text" and form not in _WRITERS:
        wrong(t, fields["format"], "one of text, json, yaml", did_you_mean(form, ("text", *_WRITERS)))
    given: dict[str, Node] = {key: t.text(fields[key], where) for key in ("path", "content") if key in fields}
    if form in _WRITERS and len(given) == 2 and isinstance(node, Mapping):
        inputs = mapping(node, {**given, "mode": word(text_in(fields.get("mode")) or "0644", node)})
        put(out, "python", mapping(node, {"source": word(_WRITERS[form], node), "inputs": inputs}), at)
        return
    native = mapping(node, given)
    if "mode" in fields:
        put(native, "mode", fields["mode"])
    put(out, "write_file", native if isinstance(node, Mapping) else node, at)
