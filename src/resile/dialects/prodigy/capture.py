"""Names for the results of a Prodigy step: its output, its streams, and the files that it made."""

from __future__ import annotations

import re
from shlex import quote

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe, plain
from resile.dialects.native.nodes import items_of, mapping, put, sequence, text_in, value_of, word
from resile.dialects.prodigy.keys import OUTPUT
from resile.dialects.prodigy.variables import STREAMS, Translation, Where
from resile.dialects.reading.diagnostics import Place
from resile.dialects.reading.key_tables import read_mapping
from resile.dialects.reading.values import IDENTIFIER, wrong

FORMS = {"string": "text", "json": "json", "lines": "lines", "number": "number", "boolean": "bool"}
_CUT = """\
import re

def main(name, text, pattern):
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise SystemExit("%s: nothing matches %s" % (name, pattern))
    return found[1] if found.re.groups else found[0]
"""
_CUT_LIST = """\
import re

def main(name, text, pattern):
    return [found[1] if found.re.groups else found[0] for found in re.finditer(pattern, text, re.MULTILINE)]
"""
_ALL_STREAMS = ("stdout", *STREAMS)


def find_captured_names(node: Node) -> dict[str, str]:
    """Find every name that the steps below a node capture, with its form, before any text is rewritten."""
    found: dict[str, str] = {}
    work: list[Node] = [node]
    while work:
        part = work.pop()
        if isinstance(part, Sequence):
            work += part.items
        elif isinstance(part, Mapping):
            form = FORMS.get(text_in(value_of(part, "capture_format")), "text")
            for name in _capture_names_of(part):
                found.setdefault(name, form)
            work += [value for _, value in part.entries.values()]
    return found


def _capture_names_of(node: Mapping) -> list[str]:
    """The names that one mapping captures."""
    names = [text_in(value_of(node, "capture"))]
    said = value_of(node, "capture_output")
    if isinstance(said, Scalar) and isinstance(said.value, str):
        names.append(said.text)
    for key in ("capture", "capture_outputs"):
        several = value_of(node, key)
        names += several.entries if isinstance(several, Mapping) else []
    return [name for name in names if IDENTIFIER.fullmatch(name)]


def find_file_names(node: Node) -> dict[tuple[str, str], str]:
    """Find every output file that a step with an `id` declares, with the name that captures its path."""
    found: dict[tuple[str, str], str] = {}
    work: list[Node] = [node]
    while work:
        part = work.pop()
        if isinstance(part, Sequence):
            work += part.items
        elif isinstance(part, Mapping):
            outputs, label = value_of(part, "outputs"), text_in(value_of(part, "id"))
            if label and isinstance(outputs, Mapping):
                found |= {(label, name): _file_name_for(label, name) for name in outputs.entries}
            work += [value for _, value in part.entries.values()]
    return found


def _file_name_for(label: str, name: str) -> str:
    """The name that captures the path of an output file."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in f"file_{label}_{name}")


def add_captures(t: Translation, node: Mapping, fields: dict[str, Node], where: Where, out: Mapping, step: str) -> None:
    """Add the captures of a Prodigy step to the native step."""
    name, at = _capture_name_of(t, fields)
    if at is None:
        for key in ("capture_format", "capture_streams"):
            if key in fields:
                t.report.error("conflict", f"`{key}` has no meaning without `capture`", node.entries[key][0])
        return
    asked, form = _read_forms(t, fields, name)
    given: dict[str, Node] = {name: word(form, at)}
    for stream in STREAMS:
        if stream in asked:
            given[f"{name}_{stream}"] = word(stream, at)
    put(out, "capture", mapping(at, given), at)
    t.declare(name, form, step if where.is_top else "")


def _capture_name_of(t: Translation, fields: dict[str, Node]) -> tuple[str, Scalar | None]:
    """The name that captures the output, and its node."""
    found: list[Scalar] = []
    for key in ("capture", "capture_output"):
        value = fields.get(key)
        if isinstance(value, Scalar) and isinstance(value.value, str):
            found.append(value)
        elif value is not None and not (key == "capture_output" and isinstance(plain(value), bool)):
            wrong(t, value, "a name" if key == "capture" else "true, false or a name")
    if len(found) > 1 and found[0].text != found[1].text:
        t.report.error("conflict", "`capture` and `capture_output` give two names", found[1], hint="keep one of them")
    return (found[0].text, found[0]) if found else ("", None)


def _read_forms(t: Translation, fields: dict[str, Node], name: str) -> tuple[set[str], str]:
    """Read the other streams that are captured, and the form of the output."""
    form = "text"
    said = fields.get("capture_format")
    if said is not None:
        form = FORMS.get(text_in(said), "")
        if not form:
            wrong(t, said, f"one of {', '.join(FORMS)}")
    asked = {stream for other, stream in t.streams if other == name}
    streams = fields.get("capture_streams")
    if isinstance(streams, Mapping):
        for key, (place, value) in streams.entries.items():
            if key not in _ALL_STREAMS or not isinstance(plain(value), bool):
                wrong(t, place, f"{', '.join(_ALL_STREAMS)}, each true or false")
            elif key == "stdout" and not plain(value):
                t.report.error("refused", "`stdout: false` is not run: the name stands for it", place)
            elif plain(value):
                asked.add(key)
    elif streams is not None:
        word_ = text_in(streams)
        if word_ not in ("stdout", "stderr", "both"):
            wrong(t, streams, "one of stdout, stderr, both, or a mapping")
        if word_ == "both":
            asked.add("stderr")
        form = "stderr" if word_ == "stderr" else form
    return asked, form or "text"


def make_capture_steps(
    t: Translation, node: Mapping, fields: dict[str, Node], inner: Where, out: Mapping
) -> list[Node]:
    """Make the steps that run after a success and keep the paths of its files, and its output in a file."""
    after: list[Node] = []
    if "outputs" in fields:
        after += _make_file_steps(t, node, fields["outputs"])
    if "output_file" in fields:
        at = node.entries["output_file"][0]
        name = f"output_{at.line}_{at.column}"
        add_capture(out, name, "text", at)
        content = word(f"${{{name}}}\n", at)
        written = mapping(at, {"path": t.rewrite_text(fields["output_file"], inner), "content": content})
        after.append(mapping(at, {"id": word("output_file", at), "write_file": written}))
    return after


def add_capture(step: Mapping, name: str, form: str, at: Place) -> None:
    """Let a native step capture one more name."""
    own = value_of(step, "capture")
    kept = {key: value for key, (_, value) in own.entries.items()} if isinstance(own, Mapping) else {}
    put(step, "capture", mapping(at, {**kept, name: word(form, at)}), at)


def append_on_success(step: Mapping, after: Node) -> None:
    """Add a step to `on_success` of a native step, before those that are there."""
    others = value_of(step, "on_success")
    put(step, "on_success", sequence([after, *(items_of(others) if others is not None else [])], after), after)


def make_cutting_step(t: Translation, name: str, whole: str, pattern: Node, is_list: bool, at: Place) -> Node:
    """Make a step that captures the part of a value that a pattern matches: its first group, or the whole match."""
    try:
        re.compile(text_in(pattern))
    except re.error as problem:
        t.report.error("value", f"{describe(pattern)} is no regular expression: {problem}", pattern)
    inputs = {"name": word(name, at), "text": word(f"${{{whole}}}", at), "pattern": pattern}
    source: dict[str, Node] = {"source": word(_CUT_LIST if is_list else _CUT, at), "inputs": mapping(at, inputs)}
    made = mapping(at, {"id": word(f"capture {name}", at), "python": mapping(at, source)})
    put(made, "capture", mapping(at, {name: word("json" if is_list else "text", at)}))
    return made


def _make_file_steps(t: Translation, node: Mapping, outputs: Node) -> list[Node]:
    """Make a step for each declared file: it finds a match in the last commit or among uncommitted files, or fails."""
    if not isinstance(outputs, Mapping):
        wrong(t, outputs, "a mapping of names to {file_pattern}")
        return []
    after: list[Node] = []
    for name, (key, value) in outputs.entries.items():
        pattern = read_mapping(t, value, OUTPUT).get("file_pattern")
        if pattern is None or not text_in(pattern):
            t.report.error("value", f"the output `{name}` needs `file_pattern`", key)
            continue
        paths = quote(text_in(pattern))
        command = (
            f"{{ git diff --name-only HEAD~1 HEAD -- {paths}; git ls-files --others --exclude-standard -- {paths}; }}"
            f" | grep -m 1 . || {{ echo no file matches {paths} >&2; exit 1; }}"
        )
        captured = _file_name_for(text_in(value_of(node, "id")), name)
        found = mapping(key, {"id": word(f"output {name}", key), "shell": word(command, pattern)})
        put(found, "capture", word(captured, key))
        after.append(found)
    if not text_in(value_of(node, "id")):
        t.report.error(
            "conflict", "`outputs` are named by the step's `id`, and it has none", node.entries["outputs"][0]
        )
    return after
